"""A whole daemon whose disk fills up, whose database is held, copied, or which is told to end in full work.

Decides: what is asked meanwhile, and what must be there afterwards: reads go on, what was answered is kept,
what was refused is not there, and no restart is needed. Never: reaches into the daemon; its file is read
beside it.
Follows: money is asked for, since each payment has a key and an effect that can be counted in dollars.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.databases import IN_A_FILE, copy_files
from tests.disks import small_disk
from tests.proof import DEEP, record
from tests.requests.test_requests import Api
from tests.store.test_db import fill, lock

pytestmark = [pytest.mark.real, IN_A_FILE]

DISK = "48m"
DEADLINE_S = 30.0
PAYERS = 4
HELD_S = 11.0 if DEEP else 1.0
"""Longer than the daemon waits for its database, where there is time for that."""
REFUSED = 20
ENOUGH = 60
"""Payments that are under way or answered before something happens."""


@pytest.fixture(scope="module")
def on_small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon whose state folder is a file system of its own."""
    home = tmp_path_factory.mktemp("faults") / "home"
    with small_disk(home, DISK):
        running = RunningDaemon(home, free_port())
        running.start()
        yield running
        running.stop()


class Bank:
    """The operator of a daemon, who books payments of a dollar for one account, each under its own key."""

    def __init__(self, daemon: RunningDaemon, account: str) -> None:
        self.http = httpx2.Client(base_url=daemon.url, timeout=DEADLINE_S, trust_env=False)
        self.account = account
        self.asked = 0
        self.answered: set[int] = set()
        self.lost: set[int] = set()
        self._turn = threading.Lock()
        made = self.http.post("/admin/v1/accounts", json={"name": account})
        assert made.status_code == 201, made.text

    def pay(self, number: int) -> httpx2.Response:
        """One payment; a repeat of the same number has no effect."""
        body = {"amount_usd": "1", "payment": f"{self.account}-{number}"}
        return self.http.post(f"/admin/v1/accounts/{self.account}/payments", json=body)

    def keep_paying(self, stop: threading.Event) -> None:
        """Ask without pause; note what was answered, and what has to be asked again."""
        while not stop.is_set():
            with self._turn:
                number = self.asked
                self.asked += 1
            try:
                status = self.pay(number).status_code
            except httpx2.TransportError:
                status = 0
            (self.answered if status in (200, 201) else self.lost).add(number)

    def dollars(self) -> int:
        """What the account has."""
        told = self.http.get(f"/admin/v1/accounts/{self.account}").json()["available_usd"]
        whole, _, rest = told.partition(".")
        assert int(rest or "0") == 0
        return int(whole)

    def audit(self) -> None:
        """Everything adds up."""
        found = self.http.get("/admin/v1/ledger/audit").json()
        assert found["ok"], found


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(0.02)


def looks_sound(file: Path) -> int:
    """Check a database file that no daemon uses, or read it beside one; returns how many events it has."""
    with closing(sqlite3.connect(file, timeout=DEADLINE_S)) as link:
        assert link.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        seqs = [row[0] for row in link.execute("SELECT seq FROM events ORDER BY seq")]
        sums = link.execute("SELECT coalesce(sum(amount_micro), 0) FROM ledger").fetchone()
    assert seqs == list(range(1, len(seqs) + 1))
    assert sums == (0,)
    return len(seqs)


def until_refused(bank: Bank) -> tuple[int, int]:
    """Pay until there is no room, and some times more; how many were taken, and how many refused."""
    paid, refused = 0, 0
    while refused < REFUSED:
        answer = bank.pay(paid + refused)
        if answer.status_code == 201:
            paid += 1
        else:
            assert (answer.status_code, answer.json()["code"]) == (507, "storage_full"), answer.text
            refused += 1
        assert paid < 5_000, "it never filled up"
    return paid, refused


def test_a_full_disk_stops_no_read_and_needs_no_restart(on_small_disk: RunningDaemon, tmp_path: Path) -> None:
    bank = Bank(on_small_disk, "full")
    http = bank.http
    spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 1}}
    compute = http.post("/v1/computes", json={"name": "full", "spec": spec}).json()["id"]

    def state() -> str:
        return http.get(f"/v1/computes/{compute}").json()["status"]["state"]

    api = Api(on_small_disk.url)
    begun = tmp_path / "begun"
    api.do("launch", task={"run": f"touch {begun}; exec sleep 600"}, cluster_name="full")
    until(lambda: state() == "ready", "the compute is ready")
    until(begun.exists, "its job has written what it needs")
    process = on_small_disk.process.pid
    ballast = fill(on_small_disk.home)
    try:
        paid, refused = until_refused(bank)
        paths = ("/v1/computes", f"/v1/computes/{compute}/nodes", "/v1/health/live", "/admin/v1/accounts")
        reads = [http.get(path) for path in paths]
        assert [answer.status_code for answer in reads] == [200] * len(paths)
        assert bank.dollars() == paid, "what was refused is not there"
        assert [one["name"] for one in api.do("status")] == ["full"]
        [job] = api.do("queue", cluster_name="full")
        assert job["status"] == "RUNNING"
        unknown = api.get(api.ask("queue", cluster_name="nosuch")["request_id"])
        assert unknown["error"]["type"] == "ClusterDoesNotExist"
        named = http.get("/api/status", params={"request_ids": unknown["request_id"]}).json()
        assert named["items"] == [unknown], "who was told an id may ask for it"
        assert state() == "ready", "what runs is left alone"
        assert on_small_disk.agents()
        ended = http.delete(f"/v1/computes/{compute}", headers={"If-Match": "*"})
        assert ended.status_code == 202, ended.text
        until(lambda: state() == "deleted", "the compute is deleted")
        api.do("cancel", cluster_name="full", all=True)
        api.do("down", cluster_name="full")
        until(lambda: not on_small_disk.agents(), "every machine is given back")
    finally:
        ballast.unlink()
    assert bank.pay(10_000).status_code == 201
    assert bank.dollars() == paid + 1
    assert on_small_disk.process.pid == process
    assert on_small_disk.process.poll() is None
    bank.audit()
    events = looks_sound(on_small_disk.home / "sky.db")
    record(payments_before_it_was_full=paid, refused_507=refused, reads_refused=0, restarts=0, events=events)


def test_a_database_that_another_process_holds_is_waited_for(on_small_disk: RunningDaemon) -> None:
    bank = Bank(on_small_disk, "held")
    locker = lock(f"sqlite:///{on_small_disk.home}/sky.db")
    began = time.monotonic()
    with ThreadPoolExecutor(PAYERS) as pool:
        first = [pool.submit(bank.pay, number) for number in range(PAYERS)]
        slowest_s = 0.0
        while time.monotonic() - began < HELD_S:
            asked = time.monotonic()
            assert bank.http.get("/v1/computes").status_code == 200
            slowest_s = max(slowest_s, time.monotonic() - asked)
        locker.communicate("go\n", timeout=10)
        answers = [one.result() for one in first]
    refused = [answer for answer in answers if answer.status_code != 201]
    for answer in refused:
        assert (answer.status_code, answer.json()["code"]) == (503, "busy"), answer.text
        assert answer.headers["retry-after"]
    assert bank.dollars() == len(answers) - len(refused), "what was refused as busy was not written"
    assert [bank.pay(number).status_code in (200, 201) for number in range(PAYERS)] == [True] * PAYERS
    assert bank.dollars() == PAYERS, "and asked again it is there once"
    bank.audit()
    record(held_s=HELD_S, writes_refused_503=len(refused), slowest_read_ms=round(slowest_s * 1000))


def test_files_copied_in_full_work_are_a_deployment(on_small_disk: RunningDaemon, tmp_path: Path) -> None:
    bank = Bank(on_small_disk, "copied")
    stop = threading.Event()
    copy = RunningDaemon(tmp_path / "copy", free_port())
    copy.home.mkdir()
    with ThreadPoolExecutor(PAYERS) as pool:
        paying = [pool.submit(bank.keep_paying, stop) for _ in range(PAYERS)]
        try:
            until(lambda: len(bank.answered) >= ENOUGH, "payments are answered")
            before = len(bank.answered)
            for name in ("token", "secret"):
                shutil.copy(on_small_disk.home / name, copy.home / name)
            copy_files(on_small_disk.home, copy.home)
            after = bank.asked
        finally:
            stop.set()
        for one in paying:
            one.result()
    assert bank.lost == set()
    assert bank.dollars() == len(bank.answered)
    events = looks_sound(copy.home / "sky.db")
    copy.start()
    there = httpx2.Client(base_url=copy.url, timeout=DEADLINE_S, trust_env=False)
    kept = int(there.get("/admin/v1/accounts/copied").json()["available_usd"].partition(".")[0])
    audit = there.get("/admin/v1/ledger/audit").json()
    copy.stop()
    assert audit["ok"], audit
    assert before <= kept <= after, (
        "all that was answered before it was copied, and nothing that was not asked"
    )
    record(answered_before=before, in_the_copy=kept, asked_when_done=after, events_in_the_copy=events)


def test_told_to_end_in_full_work_it_loses_and_doubles_nothing(on_small_disk: RunningDaemon) -> None:
    bank = Bank(on_small_disk, "ended")
    log = on_small_disk.home / "server.log"
    logged = log.stat().st_size
    stop = threading.Event()
    with ThreadPoolExecutor(PAYERS) as pool:
        paying = [pool.submit(bank.keep_paying, stop) for _ in range(PAYERS)]
        try:
            until(lambda: len(bank.answered) >= ENOUGH, "payments are answered")
            began = time.monotonic()
            on_small_disk.process.terminate()
            code = on_small_disk.process.wait(DEADLINE_S)
            took_s = time.monotonic() - began
        finally:
            stop.set()
        for one in paying:
            one.result()
    assert code == 0
    looks_sound(on_small_disk.home / "sky.db")
    on_small_disk.start()
    held = bank.dollars()
    assert held >= len(bank.answered), "what was answered is there"
    unanswered = sorted(bank.lost)[:200]
    assert all(bank.pay(number).status_code in (200, 201) for number in unanswered)
    assert bank.dollars() == len(bank.answered) + len(unanswered), "each once, asked again or not"
    bank.audit()
    assert b"Traceback" not in log.read_bytes()[logged:]
    record(answered=len(bank.answered), asked_again=len(unanswered), drained_in_ms=round(took_s * 1000))
