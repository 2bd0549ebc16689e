"""A daemon with something of everything, others' door included, and a browser that looks at it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.conftest import free_port
from tests.dashboard.browser import DESK, Browser, Tab
from tests.jobs import test_webhooks
from tests.jobs.shop import CATALOGUE, Customer, Shop, body
from tests.requests.remote import Reachable
from tests.requests.test_requests import Api

CANARY = '<img src=x onerror="hacked=1"><script>hacked=1</script>'
"""What would run if text became markup anywhere."""
SETTINGS = {
    "SKY_ALLOW_HOST_JOBS": "true",
    "SKY_BEHIND_PROXY": "true",
    "SKY_JOB_READS_PER_MINUTE": "100000",
    "SKY_WEBHOOK_LOOPBACK": "true",
}
receiver = test_webhooks.receiver


@dataclass
class Fleet:
    """A daemon, and the ids of what is in it."""

    daemon: Reachable
    customer: Customer
    account: str
    compute: str
    task: str
    job: str
    failed: str
    launched: str
    webhook: str

    @property
    def api(self) -> Api:
        """Its own user, wherever that door is since the daemon was started last."""
        return Api(self.daemon.local)


def _task(api: Api, compute: str) -> str:
    """A call that fails, of a function with a name that would run."""
    content = b"\x04\x22\x4d\x18 and nothing that can be unpacked"
    sha256 = hashlib.sha256(content).hexdigest()
    headers = {"content-type": "application/octet-stream", "x-skyward-function-name": CANARY}
    answer = api.http.put(f"/v1/functions/{sha256}", content=content, headers=headers)
    assert answer.status_code == 201, answer.text
    answer = api.http.post("/v1/tasks", json={"compute": compute, "function": sha256, "args_sha256": sha256})
    assert answer.status_code == 201, answer.text
    task = answer.json()["id"]
    assert api.http.get(f"/v1/tasks/{task}/result", params={"wait": 20}).status_code >= 400
    return task


def _paid_for(api: Api) -> None:
    """A cluster that cost something and is gone."""
    made = {"kind": "local", "name": "paid-for", "config": {"price_per_hour_usd": 36}}
    assert api.http.post("/v1/providers", json=made).status_code == 201
    api.do("launch", task={"run": "true", "machines": [{"infra": "paid-for"}]}, cluster_name="gone")
    assert api.logs("gone")[1]["end"] == "SUCCEEDED"
    api.do("down", cluster_name="gone")
    assert api.http.delete("/v1/providers/paid-for").status_code == 204


def _filled(daemon: Reachable) -> Fleet:
    api, shop = Api(daemon.local), Shop(daemon.local)
    task = {"name": CANARY, "envs": {"WHAT": CANARY}, "run": 'echo "printed $WHAT"; exit 3'}
    launched = api.ask("launch", task=task, cluster_name="first")["request_id"]
    made = {"name": "machines", "spec": {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 1}}}
    compute = api.http.post("/v1/computes", json=made).json()["id"]
    customer = shop.customer(paid=None)
    shop.operate("PATCH", f"/accounts/{customer.account}", json={"budget": {"day_usd": "50"}})
    payment = {"amount_usd": "100", "payment": "<b>paid</b>", "note": CANARY}
    shop.operate("POST", f"/accounts/{customer.account}/payments", json=payment)
    shop.operate("POST", f"/accounts/{customer.account}/keys", json={"name": CANARY})
    hook = {"url": f"http://127.0.0.1:{free_port()}/{CANARY}".replace(" ", "%20")}
    webhook = customer("POST", "/webhook_endpoints", json=hook).json()["id"]
    job = customer.submit(
        {**body(spec__command=["sh", "-c", f"echo '{CANARY}'"]), "metadata": {"what": CANARY}}
    )
    assert job.status_code == 201, job.text
    _paid_for(api)
    failed = api.ask("stop", cluster_name=CANARY)["request_id"]
    api.http.put(f"/v1/computes/{compute}/lease", json={"owner": CANARY, "ttl_seconds": 3600})
    assert api.get(failed)["status"] == "FAILED"
    assert api.get(launched)["status"] == "SUCCEEDED"
    assert api.logs("first")[1]["end"] == "FAILED"
    called = _task(api, compute)
    job_id: str = customer.ended(job.json()["id"])["id"]
    return Fleet(daemon, customer, customer.account, compute, called, job_id, failed, launched, webhook)


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A daemon for the whole session, where every name that can be anything would run as a script."""
    home = tmp_path_factory.mktemp("fleet")
    catalogue = CATALOGUE.replace("note: for tests", f"note: {json.dumps(CANARY)}")
    (home / "catalogue.yaml").write_text(catalogue)
    running = Reachable(home, free_port(), {**SETTINGS, "SKY_CATALOGUE": str(home / "catalogue.yaml")})
    running.start()
    try:
        yield _filled(running)
    finally:
        running.stop()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for the whole session."""
    running = Browser(tmp_path_factory.mktemp("browser"))
    yield running
    running.close()


@pytest.fixture
def tab(browser: Browser, fleet: Fleet) -> Iterator[Tab]:
    """A tab of the daemon's own user."""
    made = browser.tab(fleet.daemon.local)
    made.screen(DESK)
    yield made
    made.close()


@pytest.fixture
def stranger(browser: Browser, fleet: Fleet) -> Iterator[Tab]:
    """A tab at the door for others."""
    made = browser.tab(fleet.daemon.url)
    made.screen(DESK)
    yield made
    made.close()
