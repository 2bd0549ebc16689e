"""A customer's money over HTTP: balance, usage, estimates, and the budgets that an operator sets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.jobs.shop import Customer, Shop, body, refusal

SLEEPS = body(spec__command=["sleep", "600"])  # 60 s at 3.60 USD an hour: 0.06 USD at most


def money(customer: Customer) -> tuple[str, str]:
    found = customer("GET", "/balance").json()
    assert found["object"] == "compute.balance"
    return found["available_usd"], found["held_usd"]


def usage(customer: Customer, **query: str) -> dict[str, Any]:
    answer = customer("GET", "/usage", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_balance_is_what_may_be_spent_and_what_is_held(shop: Shop, customer: Customer) -> None:
    assert money(customer) == ("100.000000", "0.000000")
    job_id = customer.submit(SLEEPS).json()["id"]
    assert money(customer) == ("99.940000", "0.060000")
    customer("POST", f"/jobs/{job_id}/cancel")
    available, held = money(customer)
    assert (float(available) <= 100, held) == (True, "0.000000")
    reader = shop.customer(scopes=["read"])
    assert money(reader) == ("100.000000", "0.000000")


def test_usage_adds_up_by_day_sku_and_metadata(customer: Customer) -> None:
    for team, sku in (("red", "cpu"), ("red", "dear"), ("blue", "cpu"), (None, "cpu")):
        metadata = {} if team is None else {"team": team}
        job = customer.ended(customer.submit(body(sku=sku, metadata=metadata)).json()["id"])
        assert job["status"] == "succeeded", job
    jobs = customer("GET", "/jobs").json()["data"]
    charged = {job["id"]: round(float(job["usage"]["settled_cost_usd"]) * 1e6) for job in jobs}

    def sums(by: str) -> dict[str | None, tuple[int, int]]:
        found = usage(customer, by=by)
        assert (found["total"]["jobs"], found["truncated"]) == (4, False)
        assert round(float(found["total"]["charged_usd"]) * 1e6) == sum(charged.values())
        return {
            line["key"]: (line["jobs"], round(float(line["charged_usd"]) * 1e6)) for line in found["data"]
        }

    def of(**wanted: Any) -> tuple[int, int]:
        there = [
            job["id"]
            for job in jobs
            if wanted.get("sku") in (None, job["sku"])
            and ("team" not in wanted or job["metadata"].get("team") == wanted["team"])
        ]
        return len(there), sum(charged[job_id] for job_id in there)

    assert sums("sku") == {"cpu": of(sku="cpu"), "dear": of(sku="dear")}
    assert sums("metadata.team") == {"red": of(team="red"), "blue": of(team="blue"), None: of(team=None)}
    assert sum(count for count, _ in sums("day").values()) == 4
    days = set(sums("day"))
    today = datetime.now(UTC).date()
    assert days <= {str(today), str(today - timedelta(days=1))}
    seconds = usage(customer, by="sku")["total"]
    assert (seconds["gpu_seconds"], seconds["seconds"] >= 4) == (0, True)
    old = usage(customer, since="2020-01-01", until="2020-02-01")
    assert (old["data"], old["total"]["jobs"]) == ([], 0)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"by": "week"}, "by"),
        ({"by": "metadata."}, "by"),
        ({"by": 'metadata.a"b'}, "by"),
        ({"since": "yesterday"}, "since"),
        ({"until": "2026-02-30"}, "until"),
        ({"since": "2024-01-01", "until": "2026-01-01"}, "since"),
        ({"since": "2026-01-02", "until": "2026-01-01"}, "since"),
    ],
)
def test_a_window_that_cannot_be_meant_is_refused(customer: Customer, query: Any, field: str) -> None:
    assert refusal(customer("GET", "/usage", params=query), "invalid_parameter", 400)["param"] == field


# ── estimates ───────────────────────────────────────────────────────────────────────────────────


def estimate(customer: Customer, request: dict[str, Any]) -> Any:
    return customer("POST", "/jobs:estimate", json=request)


def test_an_estimate_says_hold_and_ceiling_and_leaves_nothing(customer: Customer) -> None:
    answer = estimate(customer, body(spec__max_runtime_seconds=14_400))
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "object": "compute.estimate",
        "sku": "cpu",
        "providers": ["local"],
        "max_runtime_seconds": 14_400,
        "price_usd_per_hour": "3.600000",
        "hold_usd": "7.200000",
        "ceiling_usd": "14.400000",
    }
    assert estimate(customer, {"template": "greet"}).json()["ceiling_usd"] == "0.060000"
    assert customer("GET", "/jobs").json()["data"] == []
    assert money(customer) == ("100.000000", "0.000000")


def test_an_estimate_is_refused_as_the_submit_would_be(shop: Shop, customer: Customer) -> None:
    for request in (
        body(sku="cpuu"),
        body(sku="later"),
        body(spec__image=None),
        body(providers=["gcp"]),
        body(spec__env={"UNIFY_COMPUTE_X": "1"}),
        {"template": "count"},
        {"sku": 3},
    ):
        told = estimate(customer, request).json()["error"]
        assert told == customer.submit(request).json()["error"]
    for other in (
        shop.customer(paid="0.01"),
        shop.customer(limits={"max_active_jobs": 0}),
        shop.customer(change="suspend"),
        shop.customer(change="disable"),
        shop.customer(budget={"day_usd": "0.05"}),
    ):
        told = estimate(other, SLEEPS).json()["error"]
        assert told == other.submit(SLEEPS).json()["error"]


# ── budgets ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("window", ["day", "month"])
def test_a_key_spends_no_more_than_its_budget(shop: Shop, window: str) -> None:
    customer = shop.customer(budget={f"{window}_usd": "0.12"})
    first = [customer.submit(SLEEPS).json()["id"] for _ in range(2)]
    error = refusal(customer.submit(SLEEPS), "budget_exceeded", 403)
    assert error["type"] == "quota_exceeded"
    assert f"0.120000 USD a {window}" in error["message"]
    [told] = customer("GET", "/balance").json()["budgets"]
    assert told == {
        "of": "key",
        "window": window,
        "limit_usd": "0.120000",
        "charged_usd": "0.000000",
        "under_way_usd": "0.120000",
        "left_usd": "0.000000",
    }
    customer("POST", f"/jobs/{first[0]}/cancel")
    assert customer.job(first[0])["usage"]["settled_cost_usd"] < "0.060000"
    made = customer.submit(body(spec__max_runtime_seconds=30)).json()
    assert made["status"] == "queued", "what was not used of a job that is over may be spent"
    [key] = shop.operate("GET", f"/accounts/{customer.account}/keys")["items"]
    assert key["budget"] == {"day_usd": None, "month_usd": None, f"{window}_usd": "0.120000"}
    shop.operate("PATCH", f"/keys/{key['id']}", json={"budget": {}})
    assert customer.submit(SLEEPS).status_code == 201
    for job in customer("GET", "/jobs").json()["data"]:
        customer("POST", f"/jobs/{job['id']}/cancel")
    shop.audit()


def test_an_account_has_a_budget_over_all_its_keys(shop: Shop, customer: Customer) -> None:
    shop.operate("PATCH", f"/accounts/{customer.account}", json={"budget": {"day_usd": "0.12"}})
    made = shop.operate("POST", f"/accounts/{customer.account}/keys", json={"budget": {"day_usd": "9"}})
    other = Customer(shop.http, made["key"], customer.account)
    assert customer.submit(SLEEPS).status_code == 201
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: other.submit(SLEEPS), range(6)))
    assert sorted(answer.status_code for answer in answers) == [201] + [403] * 5
    assert "this account may spend" in refusal(customer.submit(SLEEPS), "budget_exceeded", 403)["message"]
    shown = shop.operate("GET", f"/accounts/{customer.account}")
    assert shown["budget"] == {"day_usd": "0.120000", "month_usd": None}
    for job in customer("GET", "/jobs").json()["data"]:
        customer("POST", f"/jobs/{job['id']}/cancel")
    shop.audit()


def test_what_is_taken_off_a_balance_has_a_reason(shop: Shop, customer: Customer) -> None:
    who = shop.operate("GET", f"/accounts/{customer.account}")["name"]
    taken = {"payment": f"pay-{who}", "reason": ""}
    refused = shop.http.post(f"/admin/v1/accounts/{who}/refunds", json=taken)
    assert (refused.status_code, refused.json()["details"]["field"]) == (400, "reason")
    assert money(customer) == ("100.000000", "0.000000")
