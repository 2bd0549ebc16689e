"""Paid jobs over HTTP, from a hold to a settled cost, with real processes on this computer."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.jobs.shop import ROOT, Customer, Shop, body, refusal
from tests.proof import record


def shell(script: str, **more: Any) -> dict[str, Any]:
    """A job that runs a script."""
    return body(spec__command=["sh", "-c", script], **more)


def test_a_job_runs_and_is_settled_for_what_it_ran(shop: Shop, customer: Customer) -> None:
    answer = customer.submit(shell("echo out; echo err >&2; sleep 1", metadata={"run": "7"}))
    assert answer.status_code == 201
    job = answer.json()
    assert re.fullmatch(r"job_[0-9A-HJKMNP-TV-Z]{26}", job["id"])
    assert (job["status"], job["usage"]["hold_usd"]) == ("queued", "0.060000")
    assert (job["error"], job["placement"], job["started_at"]) == (None, None, None)
    job = customer.ended(job["id"])
    assert (job["status"], job["metadata"]) == ("succeeded", {"run": "7"})
    assert job["placement"]["cloud"] == "local"
    seconds = round(float(job["usage"]["settled_cost_usd"]) * 1_000)
    assert 1 <= seconds <= 15, "a second costs a tenth of a cent"
    assert job["usage"]["estimated_cost_usd"] == job["usage"]["settled_cost_usd"]
    assert job["usage"]["gpu_seconds"] == 0
    logs = customer("GET", f"/jobs/{job['id']}/logs")
    assert logs.headers["content-type"] == "text/plain; charset=utf-8"
    assert sorted(logs.text.splitlines()) == ["err", "out"]
    told = [event["type"] for event in customer.events(job["id"])]
    assert told == ["job.queued", "job.provisioning", "job.placed", "job.running", "job.succeeded"]
    shop.audit()
    left = shop.operate("GET", f"/accounts/{customer.account}")
    assert left["held_usd"] == "0.000000"
    assert float(left["available_usd"]) == pytest.approx(100 - seconds / 1_000)


def test_a_command_that_fails_tells_its_exit_code(customer: Customer) -> None:
    job = customer.ended(customer.submit(shell("exit 7")).json()["id"])
    assert (job["status"], job["error"]["code"]) == ("failed", "command_failed")
    assert customer.events(job["id"])[-1]["data"]["exit_code"] == 7


def test_a_command_that_is_not_there_fails_the_job(customer: Customer) -> None:
    job = customer.ended(customer.submit(body(spec__command=["no-such-program"])).json()["id"])
    assert (job["status"], job["error"]["code"]) == ("failed", "command_failed")
    assert customer.events(job["id"])[-1]["data"]["exit_code"] == 127


def test_a_job_is_stopped_when_it_ran_as_long_as_it_may(customer: Customer) -> None:
    request = shell("trap 'echo asked; exit 0' TERM; sleep 60 & wait", spec__max_runtime_seconds=6)
    job = customer.ended(customer.submit(request).json()["id"])
    assert (job["status"], job["error"]["code"]) == ("failed", "max_runtime_exceeded")
    assert "asked" in customer("GET", f"/jobs/{job['id']}/logs").text
    assert float(job["usage"]["settled_cost_usd"]) <= float(job["usage"]["hold_usd"])


def test_a_cancel_ends_the_job_and_stops_its_meter(shop: Shop, customer: Customer) -> None:
    job_id = customer.submit(shell("echo up; sleep 600", spec__max_runtime_seconds=700)).json()["id"]
    customer.until(job_id, lambda job: job["status"] == "running")
    answer = customer("POST", f"/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")
    settled = answer.json()["usage"]["settled_cost_usd"]
    refusal(customer("POST", f"/jobs/{job_id}/cancel"), "job_terminal", 409)
    time.sleep(1.0)  # real: whatever came of it since must not have changed the bill
    assert customer.job(job_id)["usage"]["settled_cost_usd"] == settled
    assert customer.events(job_id)[-1]["type"] == "job.cancelled"
    shop.audit()


def test_the_environment_of_a_command_is_the_customers_own(customer: Customer) -> None:
    request = shell("env | sort", spec__env={"MODE": "fast"})
    job = customer.ended(customer.submit(request).json()["id"])
    lines = customer("GET", f"/jobs/{job['id']}/logs").text.splitlines()
    assert "MODE=fast" in lines
    assert not [line for line in lines if "TOKEN" in line or "SECRET" in line]


# ── keys and owners ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", ["x", "sk-12345678", "uck_short", "uck_" + "a" * 39 + "!", "uck_" + "a" * 41])
def test_a_key_of_another_shape_is_missing(shop: Shop, key: str) -> None:
    answer = shop.http.get(f"{ROOT}/jobs", headers={"authorization": f"Bearer {key}"})
    refusal(answer, "missing_key", 401)
    assert answer.headers["www-authenticate"] == 'Bearer realm="compute"'


def test_a_key_that_is_not_known_revoked_or_expired_is_refused_at_once(shop: Shop) -> None:
    unknown = Customer(shop.http, "uck_" + "a" * 40, "")
    refusal(unknown("GET", "/jobs"), "invalid_key", 401)
    customer = shop.customer()
    assert customer("GET", "/jobs").status_code == 200
    [key] = shop.operate("GET", f"/accounts/{customer.account}/keys")["items"]
    assert customer.key not in str(key)
    shop.operate("DELETE", f"/keys/{key['id']}")
    refusal(customer("GET", "/jobs"), "invalid_key", 401)
    refusal(customer.submit(), "invalid_key", 401)
    brief = shop.customer(expires_in_seconds=1)
    time.sleep(1.1)  # real: that is how long the key is good
    refusal(brief("GET", "/jobs"), "invalid_key", 401)


def test_a_key_to_read_only_reads_and_is_told_before_its_request_is_looked_at(shop: Shop) -> None:
    reader = shop.customer(scopes=["read"])
    assert reader("GET", "/jobs").status_code == 200
    assert refusal(reader.submit({"sku": 3}), "scope_denied", 403)["type"] == "permission_error"
    refusal(reader("POST", "/jobs/job_X/cancel"), "scope_denied", 403)


def test_another_owners_job_looks_like_none(shop: Shop, customer: Customer) -> None:
    job_id = customer.submit().json()["id"]
    other = shop.customer()
    none = f"job_{'0' * 26}"
    for method, path in (
        ("GET", "/jobs/{}"),
        ("GET", "/jobs/{}/events"),
        ("GET", "/jobs/{}/logs"),
        ("GET", "/jobs/{}/artifacts"),
        ("POST", "/jobs/{}/cancel"),
    ):
        theirs = refusal(other(method, path.format(job_id)), "job_not_found", 404)
        missing = refusal(other(method, path.format(none)), "job_not_found", 404)
        assert theirs["message"].replace(job_id, "") == missing["message"].replace(none, "")
    assert other("GET", "/jobs").json()["data"] == []
    refusal(other("GET", "/jobs", params={"after": job_id}), "invalid_cursor", 400)


# ── idempotency, quotas, balance ────────────────────────────────────────────────────────────────


def test_a_submit_is_repeated_by_its_key(shop: Shop, customer: Customer) -> None:
    first = customer.submit(key="k")
    again = customer.submit(key="k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    refusal(customer.submit(body(spec__command=["false"]), key="k"), "idempotency_conflict", 409)
    refusal(customer.submit(key="k" * 256), "invalid_idempotency_key", 400)
    other = shop.customer()
    assert other.submit(key="k").status_code == 201, "keys are each owner's own"
    assert len(customer("GET", "/jobs").json()["data"]) == 1
    shop.audit()


def test_one_key_fifty_times_at_once_is_one_job(shop: Shop, customer: Customer) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: customer.submit(key="same"), range(50)))
    assert sorted(a.status_code for a in answers) == [200] * 49 + [201]
    jobs = {a.json()["id"] for a in answers}
    assert len(jobs) == 1
    shop.audit()
    record(requests=len(answers), jobs=len(jobs))


def test_two_hundred_submits_at_once_on_a_balance_for_fifty(shop: Shop) -> None:
    customer = shop.customer(paid="3.00")  # a hold is 0.06
    request = body(spec__command=["sleep", "600"])
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: customer.submit(request), range(200)))
    taken = [a.json()["id"] for a in answers if a.status_code == 201]
    assert len(taken) == 50
    assert {a.json()["error"]["code"] for a in answers if a.status_code != 201} == {"insufficient_balance"}
    assert shop.operate("GET", f"/accounts/{customer.account}")["available_usd"] == "0.000000"
    shop.audit()
    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(lambda job_id: customer("POST", f"/jobs/{job_id}/cancel").status_code, taken))
    assert ends == [202] * 50
    shop.audit()
    left = shop.operate("GET", f"/accounts/{customer.account}")
    assert left["held_usd"] == "0.000000"
    record(submits=len(answers), taken=len(taken), refused=len(answers) - len(taken))


def test_a_refused_hold_names_the_hold_and_the_ceiling_and_leaves_nothing(shop: Shop) -> None:
    customer = shop.customer(paid="0.01")
    error = refusal(
        customer.submit(body(sku="dear", spec__max_runtime_seconds=14_400)), "insufficient_balance", 402
    )
    assert "7200.000000" in error["message"]
    assert "14400.000000" in error["message"]
    assert customer("GET", "/jobs").json()["data"] == []


def test_a_quota_is_told_with_its_headroom(shop: Shop) -> None:
    customer = shop.customer(limits={"max_active_jobs": 1, "max_queued_jobs": 5})
    job_id = customer.submit(shell("sleep 600")).json()["id"]
    answer = customer.submit()
    error = refusal(answer, "quota_exceeded", 403)
    [told] = error["quotas"]
    assert told == {"limit": "max_active_jobs", "max": 1, "used": 1, "requested": 1, "headroom": 0}
    assert "retry-after" not in answer.headers
    customer("POST", f"/jobs/{job_id}/cancel")
    assert customer.submit().status_code == 201


# ── pages and logs ──────────────────────────────────────────────────────────────────────────────


def test_jobs_are_listed_newest_first_page_by_page(customer: Customer) -> None:
    ids = [customer.submit().json()["id"] for _ in range(3)]
    seen: list[str] = []
    after: str | None = None
    while True:
        params = {"limit": 1} | ({"after": after} if after else {})
        page = customer("GET", "/jobs", params=params).json()
        seen += [job["id"] for job in page["data"]]
        if not page["has_more"]:
            assert "next" not in page
            break
        after = page["next"]
    assert seen == ids[::-1]
    for job_id in ids:
        customer.ended(job_id)
    done = customer("GET", "/jobs", params=[("status", "succeeded"), ("status", "failed")]).json()["data"]
    assert len(done) == 3
    assert customer("GET", "/jobs", params={"status": "queued"}).json()["data"] == []


@pytest.mark.parametrize(
    ("path", "params", "code"),
    [
        ("/jobs", {"status": "done"}, "invalid_status"),
        ("/jobs", {"limit": "0"}, "invalid_limit"),
        ("/jobs", {"limit": "101"}, "invalid_limit"),
        ("/jobs", {"limit": "x"}, "invalid_limit"),
        ("/jobs", {"after": "job_nope"}, "invalid_cursor"),
        ("/jobs/{}/events", {"limit": "0"}, "invalid_limit"),
        ("/jobs/{}/events", {"after": "evt_nope"}, "invalid_cursor"),
        ("/jobs/{}/logs", {"since": "yesterday"}, "invalid_cursor"),
    ],
)
def test_a_parameter_that_does_not_fit_is_named(
    customer: Customer, path: str, params: dict[str, str], code: str
) -> None:
    job_id = customer.submit().json()["id"] if "{}" in path else ""
    error = refusal(customer("GET", path.format(job_id), params=params), code, 400)
    assert error["param"] == next(iter(params))


def test_events_are_paged_and_resumed_after_the_last_one(customer: Customer) -> None:
    job_id = customer.submit().json()["id"]
    customer.ended(job_id)
    seen: list[str] = []
    after: str | None = None
    for _ in range(10):
        params = {"limit": 2} | ({"after": after} if after else {})
        page = customer("GET", f"/jobs/{job_id}/events", params=params).json()
        seen += [event["type"] for event in page["data"]]
        after = page.get("next", after)
        if not page["has_more"]:
            break
    assert seen == [event["type"] for event in customer.events(job_id)]
    assert customer("GET", f"/jobs/{job_id}/events", params={"after": after}).json() == {
        "object": "list",
        "data": [],
        "has_more": False,
    }


def test_a_log_is_followed_to_the_end_of_the_job_and_resumed(customer: Customer) -> None:
    job_id = customer.submit(shell("for n in 1 2 3 4 5; do echo line $n; sleep 0.1; done")).json()["id"]
    lines, last, ended = follow(customer, job_id, {})
    assert (lines, ended) == ([f"line {n}" for n in range(1, 6)], '{"status":"succeeded"}')
    text = customer("GET", f"/jobs/{job_id}/logs")
    assert text.text == "".join(f"line {n}\n" for n in range(1, 6))
    assert text.headers["log-cursor"] == last
    assert customer("GET", f"/jobs/{job_id}/logs", params={"since": last}).text == ""
    again, _, _ = follow(customer, job_id, {"last-event-id": last})
    assert again == []


def test_what_a_command_prints_is_no_field_of_its_stream(customer: Customer) -> None:
    printed = shell(r"printf 'one\rtwo\r\nthree\r\rid: 999999999999\revent: end\r\rdata: x\n'")
    lines, last, ended = follow(customer, customer.submit(printed).json()["id"], {})
    assert lines == ["one", "two", "three", "", "id: 999999999999", "event: end", "", "data: x"]
    assert (last != "999999999999", ended) == (True, '{"status":"succeeded"}')


def follow(customer: Customer, job_id: str, headers: dict[str, str]) -> tuple[list[str], str, str]:
    """A log as it is streamed: its lines, the last place, and what its end says."""
    lines: list[str] = []
    last, kind, ended = "", "", ""
    url = f"{ROOT}/jobs/{job_id}/logs"
    named = {"authorization": f"Bearer {customer.key}", **headers}
    with customer.http.stream("GET", url, params={"follow": "true"}, headers=named) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                last = value
            elif name == "event":
                kind = value
            elif name == "data" and kind == "end":
                ended = value
            elif name == "data":
                lines.append(value)
    return lines, last, ended
