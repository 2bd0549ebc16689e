"""Rules of the contract that no other test of this folder is about: small ones, each under its own name.

Decides: that what the descriptions of the interface promise holds at the interface. Never: needs a job to run
for long. Follows: a rule that has a larger story has its test with that story.
"""

from __future__ import annotations

import re

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.jobs.conftest import SETTINGS
from tests.jobs.shop import Customer, Shop, body, refusal

ULID = "[0-9A-HJKMNP-TV-Z]{26}"


def test_ids_are_a_kind_and_a_ulid(customer: Customer) -> None:
    job = customer.ended(customer.submit().json()["id"])
    assert re.fullmatch(f"job_{ULID}", job["id"])
    assert all(re.fullmatch(f"evt_{ULID}", event["id"]) for event in customer.events(job["id"]))


def test_times_are_whole_unix_seconds_and_money_is_text(customer: Customer) -> None:
    job = customer.ended(customer.submit().json()["id"])
    assert [type(job[name]) for name in ("created_at", "started_at", "finished_at")] == [int] * 3
    money = [job["usage"][name] for name in ("hold_usd", "estimated_cost_usd", "settled_cost_usd")]
    assert all(re.fullmatch(r"[0-9]+\.[0-9]{6}", text) for text in money), money
    assert all(type(event["created_at"]) is int for event in customer.events(job["id"]))


def test_the_environment_of_a_template_is_merged_key_by_key(customer: Customer) -> None:
    for given in ({"OTHER": "x"}, {"NAME": "you", "OTHER": "x"}):
        made = customer.submit({"template": "greet", "spec": {"env": given}})
        assert made.status_code == 201, made.text
        assert made.json()["spec"]["env"] == {"NAME": "nobody"} | given
        assert made.json()["sku"] == "cpu", "the template's own"


def test_metadata_comes_back_as_it_was_given(customer: Customer) -> None:
    pairs = {f"k{number}": "v" for number in range(16)}
    job_id = customer.submit(body(metadata=pairs)).json()["id"]
    assert customer.job(job_id)["metadata"] == pairs


def test_a_quota_says_no_time_to_come_again(shop: Shop) -> None:
    full = shop.customer(limits={"max_active_jobs": 0})
    answer = full.submit()
    refusal(answer, "quota_exceeded", 403)
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize("change", ["suspend", "disable"])
def test_who_may_not_submit_still_reads_and_cancels(shop: Shop, change: str) -> None:
    customer = shop.customer()
    job_id = customer.submit(body(spec__command=["sleep", "600"])).json()["id"]
    shop.operate("PATCH", f"/accounts/{customer.account}", json={"change": change})
    assert customer.submit().status_code == 403
    assert customer.job(job_id)["id"] == job_id
    assert customer("GET", "/balance").status_code == 200
    assert customer("POST", f"/jobs/{job_id}/cancel").status_code == 202


def test_a_job_that_is_not_over_lists_no_files(customer: Customer) -> None:
    request = body(spec__command=["sleep", "600"], spec__outputs=[{"mount": "/out"}])
    job_id = customer.submit(request).json()["id"]
    nothing = {"object": "list", "data": [], "complete": False, "truncated": False}
    assert customer("GET", f"/jobs/{job_id}/artifacts").json() == nothing
    assert customer("POST", f"/jobs/{job_id}/cancel").status_code == 202
    assert customer("GET", f"/jobs/{job_id}/artifacts").json() == nothing, "it did not reach its upload"


def test_a_job_that_ran_as_long_as_it_may_keeps_no_files(customer: Customer) -> None:
    command = ["sh", "-c", "echo x > $UNIFY_COMPUTE_ROOT/out/x; exec sleep 600"]
    request = body(spec__command=command, spec__outputs=[{"mount": "/out"}], spec__max_runtime_seconds=1)
    job = customer.ended(customer.submit(request).json()["id"])
    assert job["error"]["code"] == "max_runtime_exceeded"
    assert customer("GET", f"/jobs/{job['id']}/artifacts").json()["complete"] is False


def test_a_build_without_jobs_ignores_idempotency_keys(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    environment = {**SETTINGS, "SKY_JOBS": "false"}
    running = RunningDaemon(tmp_path_factory.mktemp("dark"), free_port(), environment=environment)
    running.start()
    try:
        dark = Customer(Shop(running.url).http, "sk-12345678", "")
        refusal(dark.submit(body(sku="cpu-1x"), key="k" * 256), "not_implemented", 501)
        assert dark.http.get("/healthz").json() == {"status": "ok", "service": "compute-api", "build": "dev"}
    finally:
        running.stop()
