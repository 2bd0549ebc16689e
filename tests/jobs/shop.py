"""A seller for tests: a real daemon that sells, its operator, and customers with keys.

Decides: how a test speaks HTTP: with a plain client, from outside. Never: looks into the daemon.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2

DEADLINE_S = 60.0
ROOT = "/compute/v1"
CATALOGUE = """
note: for tests
skus:
  - {id: cpu, price_usd_per_hour: "3.60", tier: neocloud, vcpus: 1, memory_gb: 1, providers: [{cloud: local}]}
  - {id: dear, price_usd_per_hour: "3600.00", tier: neocloud, vcpus: 1, memory_gb: 1,
     providers: [{cloud: local}]}
  - {id: gpu, gpu: NVIDIA A10G, accelerator: A10G, gpu_count: 1, gpu_memory_gb: 24,
     price_usd_per_hour: "1.30", tier: hyperscaler, vcpus: 4, memory_gb: 16,
     providers: [{cloud: aws, instance_type: g5.xlarge, regions: [us-east-1, us-west-2]}]}
  - {id: both, price_usd_per_hour: "0.36", tier: neocloud, vcpus: 1, memory_gb: 1,
     providers: [{cloud: local}, {cloud: aws, regions: [us-east-1]}]}
  - {id: later, price_usd_per_hour: "9.00", tier: "", vcpus: 1, memory_gb: 1, available: false}
templates:
  - id: greet
    title: A greeting
    description: Prints a name.
    image: local
    command: [sh, -c, "echo hello $NAME"]
    env: {NAME: nobody}
    sku: cpu
    max_runtime_seconds: 60
    overridable: [spec.env]
  - id: count
    title: Count words
    description: Counts the words of a file.
    image: local
    command: [wc, -w, /in/text]
    sku: cpu
    max_runtime_seconds: 60
    inputs: [{mount: /in, description: The text.}]
    outputs: [{mount: /out, description: The count.}]
    overridable: [sku, providers, spec.command, spec.env, spec.max_runtime_seconds]
  - id: someday
    title: Not yet
    description: A placeholder.
    sku: gpu
    max_runtime_seconds: 60
    unavailable_reason: its image is not built yet
"""


def body(**more: Any) -> dict[str, Any]:
    """A submit that is right, with some of its fields set otherwise (``spec__env`` is ``spec.env``; None:
    out)."""
    request: dict[str, Any] = {
        "sku": "cpu",
        "spec": {"image": "local", "command": ["true"], "max_runtime_seconds": 60},
    }
    for name, value in more.items():
        part = request["spec"] if name.startswith("spec__") else request
        if value is None:
            part.pop(name.removeprefix("spec__"), None)
        else:
            part[name.removeprefix("spec__")] = value
    return request


@dataclass
class Customer:
    """Somebody with a key."""

    http: httpx2.Client
    key: str
    account: str

    def __call__(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """Ask, with the key."""
        headers = {"authorization": f"Bearer {self.key}", **more.pop("headers", {})}
        return self.http.request(method, f"{ROOT}{path}", headers=headers, **more)

    def submit(self, request: dict[str, Any] | None = None, *, key: str | None = None) -> httpx2.Response:
        """Submit a job."""
        headers = {} if key is None else {"idempotency-key": key}
        return self("POST", "/jobs", json=body() if request is None else request, headers=headers)

    def job(self, job_id: str) -> dict[str, Any]:
        """The job, as it is now."""
        answer = self("GET", f"/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def until(self, job_id: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The job, once ``done`` says so of it."""
        deadline = time.monotonic() + DEADLINE_S
        while not done(job := self.job(job_id)):
            assert time.monotonic() < deadline, (job, self("GET", f"/jobs/{job_id}/logs").text)
            time.sleep(0.1)
        return job

    def ended(self, job_id: str) -> dict[str, Any]:
        """The job, once it is over."""
        over = {"succeeded", "failed", "interrupted", "cancelled"}
        return self.until(job_id, lambda job: job["status"] in over)

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """What happened to a job."""
        return self("GET", f"/jobs/{job_id}/events", params={"limit": 100}).json()["data"]


@dataclass
class Shop:
    """The seller at ``url``."""

    url: str
    http: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx2.Client(base_url=self.url, timeout=DEADLINE_S, trust_env=False)

    def operate(self, method: str, path: str, **more: Any) -> Any:
        """What the operator does."""
        answer = self.http.request(method, f"/admin/v1{path}", **more)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def customer(
        self,
        *,
        paid: str | None = "100",
        change: str | None = None,
        limits: dict[str, Any] | None = None,
        **key: Any,
    ) -> Customer:
        """A new customer with a balance and a key."""
        name = f"c-{secrets.token_hex(6)}"
        account = self.operate("POST", "/accounts", json={"name": name})["id"]
        if paid is not None:
            payment = {"amount_usd": paid, "payment": f"pay-{name}"}
            self.operate("POST", f"/accounts/{name}/payments", json=payment)
        if change is not None or limits is not None:
            self.operate("PATCH", f"/accounts/{name}", json={"change": change, "limits": limits})
        made = self.operate("POST", f"/accounts/{name}/keys", json=key)
        return Customer(self.http, made["key"], account)

    def audit(self) -> None:
        """Everything adds up."""
        found = self.operate("GET", "/ledger/audit")
        assert found["ok"], found


def refusal(answer: httpx2.Response, code: str, status: int | None = None) -> dict[str, Any]:
    """The error of an answer, after checking its code and that it has the one shape."""
    error = answer.json()["error"]
    assert error["code"] == code, error
    assert status is None or answer.status_code == status, (answer.status_code, error)
    assert set(error) <= {"type", "code", "message", "param", "quotas"}
    assert error["message"]
    return error
