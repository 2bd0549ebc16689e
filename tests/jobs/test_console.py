"""Paid jobs whose keys and balances a console keeps: over HTTP, with a console that fails in every way."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import DIES_WITH_US, RunningDaemon, free_port
from tests.jobs.conftest import SETTINGS
from tests.jobs.shop import CATALOGUE, ROOT, Customer, Shop, body, refusal
from tests.jobs.till import Till

DEADLINE_S = 60.0
PATIENCE_S = 6
"""For how long a daemon waits for the console: no console that has other work is so slow."""
RUNS = body(spec__command=["sleep", "600"], spec__max_runtime_seconds=700)


@pytest.fixture(scope="module")
def till(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Till]:
    """A console for this module."""
    running = Till(tmp_path_factory.mktemp("till"), free_port())
    running.start()
    yield running
    running.kill()


@pytest.fixture(scope="module")
def seller(till: Till, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that asks that console; what it says of a key is believed for a second."""
    home = tmp_path_factory.mktemp("console-shop")
    (home / "catalogue.yaml").write_text(CATALOGUE)
    settings = {
        **SETTINGS,
        **till.settings,
        "SKY_CATALOGUE": str(home / "catalogue.yaml"),
        "SKY_CONSOLE_CACHE_SECONDS": "1",
        "SKY_CONSOLE_TIMEOUT_SECONDS": str(PATIENCE_S),
        "SKY_ACCOUNT_JOBS_MAX": "3",
    }
    running = RunningDaemon(home, free_port(), environment=settings)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def there(seller: RunningDaemon, till: Till) -> Iterator[Shop]:
    """The seller; no fault is left behind."""
    yield Shop(seller.url)
    till.strike()


@pytest.fixture
def customer(there: Shop, till: Till) -> Customer:
    """A customer with a hundred dollars at the console."""
    return till.customer(there)


def until(done: Callable[[], Any]) -> Any:
    """Wait until ``done`` says something true."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def settled(customer: Customer, job_id: str) -> dict[str, Any]:
    """The job, once the console has charged what it cost."""
    return customer.until(job_id, lambda job: job["usage"]["settled_cost_usd"] != "0.000000")


# ── keys ────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_of_another_kind_is_told_apart_without_asking_the_console(there: Shop, till: Till) -> None:
    till.strike({"kind": "down"})
    for key, code in (
        ("x", "missing_key"),
        ("sk-1234", "missing_key"),
        ("uck_" + "a" * 40, "invalid_key"),
        ("sk-" + "a" * 600, "missing_key"),
    ):
        answer = there.http.get(f"{ROOT}/jobs", headers={"authorization": f"Bearer {key}"})
        refusal(answer, code, 401)
        assert answer.headers["www-authenticate"] == 'Bearer realm="compute"'
    unknown = there.http.get(f"{ROOT}/jobs", headers={"authorization": "Bearer sk-12345678"})
    error = refusal(unknown, "console_unavailable", 503)
    assert (error["type"], "sk-1234" in str(error)) == ("console_unavailable", False)


def test_a_key_that_the_console_does_not_know_is_refused(there: Shop) -> None:
    refusal(Customer(there.http, "sk-12345678", "")("GET", "/jobs"), "invalid_key", 401)


def test_a_revoked_key_stops_within_the_time_that_it_is_believed(customer: Customer, till: Till) -> None:
    assert customer("GET", "/jobs").status_code == 200
    till.strike({"kind": "down", "on": "verify"})
    assert customer("GET", "/jobs").status_code in (200, 503), "it is believed for a second, and no longer"
    till.strike()
    till.ask("POST", "/keys/revoke", {"key": customer.key})
    until(lambda: customer("GET", "/jobs").status_code == 401)
    refusal(customer.submit(), "invalid_key", 401)


@pytest.mark.parametrize("state", ["disabled", "suspended"])
def test_an_account_that_may_not_spend_is_refused_everywhere(
    customer: Customer, till: Till, state: str
) -> None:
    till.ask("PUT", f"/accounts/{customer.account}", {"state": state})
    for answer in (customer("GET", "/jobs"), customer.submit(), customer("POST", "/jobs/job_x/cancel")):
        assert refusal(answer, f"account_{state}", 403)["type"] == "authentication_error"
    assert till.holds(customer) == {}


def test_an_account_that_is_suspended_behind_a_believed_key_places_no_hold(
    customer: Customer, till: Till
) -> None:
    assert customer("GET", "/jobs").status_code == 200
    till.ask("PUT", f"/accounts/{customer.account}", {"state": "suspended"})
    refusal(customer.submit(), "account_suspended", 403)
    assert till.holds(customer) == {}


# ── a job ───────────────────────────────────────────────────────────────────────────────────────


def test_a_job_is_paid_at_the_console_once(there: Shop, customer: Customer, till: Till) -> None:
    key = secrets.token_hex(4)
    request = body(spec__command=["sh", "-c", "echo paid; sleep 1"])
    answer = customer.submit(request, key=key)
    assert answer.status_code == 201, answer.text
    job_id = answer.json()["id"]
    assert answer.json()["usage"]["hold_usd"] == "0.060000"
    assert customer.submit(request, key=key).json()["id"] == job_id
    job = settled(customer, job_id)
    assert job["status"] == "succeeded"
    [(reference, hold)] = till.holds(customer).items()
    assert (reference, hold["ended"], hold["parts"]) == (job_id, "settled", {job_id: "0.060000"})
    assert hold["charge_usd"] == job["usage"]["settled_cost_usd"]
    available, held = till.balance(customer)
    assert held == "0.000000"
    assert float(available) == pytest.approx(100 - float(hold["charge_usd"]))
    there.audit()


def test_a_job_that_never_ran_is_released_whole(there: Shop, till: Till) -> None:
    customer = till.customer(there, paid="1")
    job_id = customer.submit(RUNS).json()["id"]
    customer("POST", f"/jobs/{job_id}/cancel")
    until(lambda: till.balance(customer)[1] == "0.000000")
    [hold] = till.holds(customer).values()
    assert hold["ended"] == "released"
    there.audit()


def test_a_balance_that_is_too_small_is_told_and_nothing_is_left(there: Shop, till: Till) -> None:
    customer = till.customer(there, paid="0.05")
    error = refusal(customer.submit(), "insufficient_balance", 402)
    assert "0.060000" in error["message"]
    assert "0.050000" in error["message"]
    assert (customer("GET", "/jobs").json()["data"], till.holds(customer)) == ([], {})


def test_quotas_go_before_the_hold_and_parallel_submits_keep_them(
    there: Shop, customer: Customer, till: Till
) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: customer.submit(RUNS), range(8)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [201] * 3 + [403] * 5, [answer.text for answer in answers]
    refusal(customer.submit(RUNS), "quota_exceeded", 403)
    jobs = {answer.json()["id"] for answer in answers if answer.status_code == 201}

    def open_holds() -> set[str]:
        return {name for name, hold in till.holds(customer).items() if hold["ended"] is None}

    until(lambda: open_holds() == jobs)
    for job_id in jobs:
        assert customer("POST", f"/jobs/{job_id}/cancel").status_code == 202
    until(lambda: open_holds() == set())
    there.audit()


def test_one_key_at_once_is_one_job_and_one_hold(customer: Customer, till: Till) -> None:
    key = secrets.token_hex(4)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: customer.submit(RUNS, key=key), range(6)))
    assert len({answer.json()["id"] for answer in answers}) == 1, [answer.text for answer in answers]
    job_id = answers[0].json()["id"]
    until(lambda: {n for n, h in till.holds(customer).items() if h["ended"] is None} == {job_id})
    customer("POST", f"/jobs/{job_id}/cancel")


# ── a console that fails ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", ["down", "error", "lost", "slow"])
def test_a_console_that_does_not_answer_lets_no_job_through(
    there: Shop, customer: Customer, till: Till, fault: str
) -> None:
    assert customer("GET", "/jobs").status_code == 200
    till.strike({"kind": fault, "on": "holds", "seconds": PATIENCE_S + 2})
    answer = customer.submit()
    assert refusal(answer, "console_unavailable", 503)["type"] == "console_unavailable"
    till.strike()
    assert customer("GET", "/jobs").json()["data"] == []
    # What may have been placed is given back; what was not can never be placed any more.
    until(lambda: till.balance(customer) == ("100.000000", "0.000000"))
    assert {hold["ended"] for hold in till.holds(customer).values()} <= {"released"}
    there.audit()


def test_a_settlement_waits_for_the_console_and_is_taken_once(
    there: Shop, customer: Customer, till: Till
) -> None:
    job_id = customer.submit().json()["id"]
    till.strike({"kind": "lost", "on": "settle", "times": 1}, {"kind": "error", "on": "settle", "times": 2})
    job = customer.ended(job_id)
    assert job["status"] == "succeeded"
    job = settled(customer, job_id)
    [hold] = till.holds(customer).values()
    assert (hold["ended"], hold["charge_usd"]) == ("settled", job["usage"]["settled_cost_usd"])
    there.audit()


def test_a_console_and_a_daemon_that_die_lose_no_settlement(
    there: Shop, seller: RunningDaemon, customer: Customer, till: Till
) -> None:
    job_id = customer.submit(body(spec__command=["sleep", "1"])).json()["id"]
    customer.until(job_id, lambda job: job["status"] != "queued")
    till.kill()
    try:
        until(lambda: customer("GET", f"/jobs/{job_id}").status_code == 503)
        seller.kill()
        seller.start()
    finally:
        till.start()
    assert settled(customer, job_id)["status"] == "succeeded"
    [hold] = till.holds(customer).values()
    assert hold["ended"] == "settled"
    there.audit()


def test_a_hold_whose_job_was_never_written_is_given_back(
    there: Shop, seller: RunningDaemon, customer: Customer, till: Till
) -> None:
    assert customer("GET", "/jobs").status_code == 200
    till.strike({"kind": "slow", "on": "holds", "seconds": PATIENCE_S - 1})
    with ThreadPoolExecutor(1) as pool:
        submitting = pool.submit(customer.submit)
        until(lambda: till.holds(customer))
        seller.kill()
        with pytest.raises(Exception, match=r"."):
            submitting.result()
    assert till.balance(customer)[1] == "0.060000"
    seller.start()
    assert customer("GET", "/jobs").json()["data"] == []
    until(lambda: till.balance(customer)[1] == "0.000000")
    there.audit()


@pytest.mark.parametrize("said", [{"status": "active"}, {"status": "active", "owner": "acme"}])
def test_a_key_that_the_console_gives_no_owner_opens_nothing(
    there: Shop, till: Till, customer: Customer, said: dict[str, str]
) -> None:
    till.strike({"kind": "answer", "on": "verify", "body": said})
    fresh = till.customer(there)
    refusal(fresh("GET", "/jobs"), "owner_unresolved", 500)
    refusal(fresh.submit(), "owner_unresolved", 500)
    till.strike()
    assert fresh("GET", "/jobs").json()["data"] == []


def test_a_hold_that_the_console_takes_for_an_old_one_places_no_job(till: Till, customer: Customer) -> None:
    till.strike({"kind": "answer", "on": "holds", "body": {"status": "over"}})
    refusal(customer.submit(), "placement_failed", 500)
    till.strike()
    assert customer("GET", "/jobs").json()["data"] == []
    until(lambda: till.balance(customer)[1] == "0.000000")
    assert customer.submit().status_code == 201


def test_a_daemon_without_a_console_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sky.server.main", "--home", str(tmp_path), "--port", "0"]
    done = subprocess.run(
        command,
        env={**os.environ, "SKY_ACCOUNTS_BACKEND": "console"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "SKY_CONSOLE_URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_prints_all_that_a_daemon_needs(tmp_path_factory: pytest.TempPathFactory) -> None:
    command = [sys.executable, "-m", "sky.cli.main", "console", "--port", "0", "--account", "acme=5"]
    with subprocess.Popen([*DIES_WITH_US, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        about, settings, account = (process.stdout.readline().strip() for _ in range(3))
        assert "play money" in about
        home = tmp_path_factory.mktemp("by-command")
        given = dict(pair.split("=", 1) for pair in settings.split())
        running = RunningDaemon(home, free_port(), environment={**SETTINGS, **given})
        running.start()
        try:
            customer = Customer(Shop(running.url).http, account.removeprefix("account acme: "), "acme")
            assert customer("GET", "/balance").json()["available_usd"] == "5.000000"
        finally:
            running.stop()
            process.terminate()
        assert process.wait(DEADLINE_S) == 0


def test_the_command_opens_an_account_that_a_daemon_with_what_it_prints_sells_to(tmp_path: Path) -> None:
    command = [*DIES_WITH_US, sys.executable, "-m", "sky.cli.main", "console", "--account", "acme=100"]
    console = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert console.stdout is not None
    try:
        told = [console.stdout.readline() for _ in range(3)]
        settings = dict(word.split("=", 1) for word in told[1].split())
        [(name, key)] = re.findall(r"^account (\w+): (\S+)$", told[2], re.MULTILINE)
        running = RunningDaemon(tmp_path, free_port(), environment={**SETTINGS, **settings})
        running.start()
        try:
            balance = Customer(Shop(running.url).http, key, name)("GET", "/balance")
        finally:
            running.stop()
        assert (name, balance.status_code, balance.json()["available_usd"]) == ("acme", 200, "100.000000")
        console.send_signal(signal.SIGINT)
        assert console.wait(DEADLINE_S) == 0
    finally:
        console.kill()
        console.wait()
