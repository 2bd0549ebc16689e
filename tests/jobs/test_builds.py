"""What a deployment's settings make of the face: nothing sold, slow rates, small limits; what is public."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.jobs.conftest import SETTINGS
from tests.jobs.shop import CATALOGUE, DEADLINE_S, ROOT, Customer, Shop, body, refusal

Start = Callable[..., Shop]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts sellers with settings of their own."""
    started: list[RunningDaemon] = []

    def one(**settings: str) -> Shop:
        home = tmp_path_factory.mktemp("build")
        (home / "catalogue.yaml").write_text(settings.pop("SKY_CATALOGUE_TEXT", CATALOGUE))
        given = {**SETTINGS, "SKY_CATALOGUE": str(home / "catalogue.yaml"), **settings}
        running = RunningDaemon(home, free_port(), environment=given)
        running.start()
        started.append(running)
        return Shop(running.url)

    yield one
    for running in started:
        running.stop()


def test_the_dark_build_checks_shapes_and_does_nothing(start: Start) -> None:
    shop = start(SKY_JOBS="false")
    for path in ("/skus", "/upstreams", "/templates", "/openapi.json"):
        assert shop.http.get(ROOT + path).status_code == 200
    assert shop.http.get("/healthz").json()["status"] == "ok"
    nobody = Customer(shop.http, "sk-1234", "")
    refusal(nobody("GET", "/jobs"), "missing_key", 401)
    customer = Customer(shop.http, "sk-12345678", "")
    for method, path in (
        ("GET", "/jobs"),
        ("GET", "/jobs/job_x"),
        ("GET", "/jobs/job_x/logs"),
        ("GET", "/jobs/job_x/events"),
        ("GET", "/jobs/job_x/artifacts"),
        ("POST", "/jobs/job_x/cancel"),
        ("POST", "/internal/jobs/job_x/artifacts/uploads"),
        ("POST", "/internal/jobs/job_x/artifacts/complete"),
    ):
        assert refusal(customer(method, path), "not_implemented", 501)["type"] == "not_implemented"
    refusal(customer.submit(body(sku="nope")), "unknown_sku", 400)
    refusal(customer.submit(body(spec__max_runtime_seconds=99_999)), "runtime_over_ceiling", 400)
    refusal(customer.submit(body(spec__image=None)), "not_implemented", 501)
    refusal(customer.submit(), "not_implemented", 501)


def test_a_key_that_asks_too_often_is_told_when_to_come_again(start: Start) -> None:
    shop = start(SKY_JOB_SUBMITS_PER_HOUR="2", SKY_JOB_READS_PER_MINUTE="3")
    customer, other = shop.customer(), shop.customer()
    assert [customer.submit(body(sku="x")).status_code for _ in range(2)] == [400, 400]
    answer = customer.submit()
    assert refusal(answer, "rate_limited", 429)["type"] == "rate_limited"
    assert 1 <= int(answer.headers["retry-after"]) <= 1_800
    assert other.submit().status_code == 201, "rates are each key's own"
    assert [customer("GET", "/jobs").status_code for _ in range(4)] == [200, 200, 200, 429]
    for _ in range(5):
        refusal(customer("POST", "/jobs/job_x/cancel"), "job_not_found", 404)


def test_the_whole_deployments_limits_count_everybodys_jobs(start: Start) -> None:
    shop = start(SKY_PLATFORM_JOBS_MAX="1", SKY_ACCOUNT_JOBS_MAX="5")
    first, second = shop.customer(), shop.customer()
    job_id = first.submit(body(spec__command=["sleep", "600"])).json()["id"]
    [told] = refusal(second.submit(), "quota_exceeded", 403)["quotas"]
    assert told == {"limit": "platform_max_active_jobs", "max": 1, "used": 1, "requested": 1, "headroom": 0}
    first("POST", f"/jobs/{job_id}/cancel")
    assert second.submit().status_code == 201


def test_the_image_local_is_refused_where_the_operator_does_not_allow_it(start: Start) -> None:
    shop = start(SKY_ALLOW_HOST_JOBS="false")
    customer = shop.customer()
    assert refusal(customer.submit(), "missing_image", 400)["param"] == "spec.image"
    assert customer("GET", "/jobs").json()["data"] == []


def test_what_is_sold_is_public(shop: Shop) -> None:
    skus: dict[str, Any] = {sku["id"]: sku for sku in shop.http.get(f"{ROOT}/skus").json()["data"]}
    assert list(skus) == ["cpu", "dear", "gpu", "both", "later"]
    assert skus["gpu"]["regions"] == ["us-east-1", "us-west-2"]
    assert skus["gpu"]["providers"] == [
        {"cloud": "aws", "instance_type": "g5.xlarge", "regions": ["us-east-1", "us-west-2"]}
    ]
    assert (skus["later"]["available"], skus["later"]["tier"]) == (False, "")
    assert "interconnect" not in skus["cpu"]
    upstreams = shop.http.get(f"{ROOT}/upstreams").json()["data"]
    assert [(u["cloud"], u["enabled"]) for u in upstreams] == [("aws", False), ("local", True)]
    assert upstreams[0]["skus"] == ["gpu", "both"]
    templates = shop.http.get(f"{ROOT}/templates").json()["data"]
    assert [t["id"] for t in templates] == ["count", "greet", "someday"]
    assert [t["available"] for t in templates] == [True, True, False]
    assert templates[2]["unavailable_reason"] == "its image is not built yet"


def test_a_template_in_a_container_is_not_available_without_an_engine(start: Start, tmp_path: Path) -> None:
    for name in ("podman", "docker"):
        (tmp_path / name).write_text("#!/bin/sh\necho out of order >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    broken = f"{tmp_path}:{os.environ['PATH']}"
    pinned = f"docker.io/library/debian@sha256:{'0' * 64}"
    shop = start(PATH=broken, SKY_CATALOGUE_TEXT=CATALOGUE.replace("image: local", f"image: {pinned}", 1))
    customer = shop.customer()

    def greet() -> dict[str, Any]:
        listed = shop.http.get(f"{ROOT}/templates").json()["data"]
        return next(one for one in listed if one["id"] == "greet")

    deadline = time.monotonic() + DEADLINE_S
    while (seen := greet())["available"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "podman does not work: out of order" in seen["unavailable_reason"]
    told = refusal(customer.submit({"template": "greet"}), "template_unavailable", 400)
    assert seen["unavailable_reason"] in told["message"]


def test_every_failure_has_the_one_shape(shop: Shop) -> None:
    refusal(shop.http.get(f"{ROOT}/nothing"), "not_found", 404)
    refusal(shop.http.delete(f"{ROOT}/skus"), "method_not_allowed", 405)
    refusal(shop.http.get(f"{ROOT}/jobs", params={"who": "me"}), "invalid_parameter", 400)
    refusal(shop.http.get(f"{ROOT}/jobs"), "missing_key", 401)
