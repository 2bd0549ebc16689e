"""What a large fleet costs that nothing happens to, and how long a killed daemon takes to have it again.

Decides: the fleet: many computes over the simulated kind, whose machines are there and never call, so that
what is measured is the daemon alone. Never: counts what making the fleet costs as part of its being there.
Follows: ``fleet_steady_percent`` is processor time of the daemon over wall time, in percent of one core;
recovery ends when the daemon answers, is ready, and has looked at everything that was due when it came back.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench.target import Target, memory_mb, restart_ours

COMPUTES = 500
NODES_EACH = 20
ASKERS = 4
BUILT_S_MAX = 600.0
SETTLED_S = 130.0
"""A machine that was just bought is asked after by itself for two minutes."""
STEADY_S = 60.0
RECOVERED_S_MAX = 120.0
POLL_S = 0.1
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def processor_s(pid: int) -> float:
    """User and system time that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


def asked(target: Target, sql: str) -> int:
    """One number from the daemon's database, read beside it."""
    link = sqlite3.connect(f"file:{target.home}/sky.db?mode=ro", uri=True, timeout=30)
    try:
        return int(link.execute(sql, {"now": time.time_ns() // 1000}).fetchone()[0] or 0)
    finally:
        link.close()


def wait_for(target: Target, sql: str, wanted: Callable[[int], bool], limit_s: float, what: str) -> float:
    """Seconds until what ``sql`` finds is as wanted."""
    began_s = time.perf_counter()
    while not wanted(asked(target, sql)):
        if time.perf_counter() - began_s > limit_s:
            raise SystemExit(f"{what}: not within {limit_s:g} s, but {asked(target, sql)}")
        time.sleep(POLL_S)
    return time.perf_counter() - began_s


BOUGHT = "SELECT count(*) FROM nodes WHERE state = 'connecting'"
LATE = "SELECT count(*) FROM passes WHERE due_us <= :now - 2000000"
"""Keys that should have been looked at two seconds ago."""


def build(target: Target, note: Callable[[str, float], None]) -> None:
    """Ask for the fleet, and wait until every machine is bought."""
    body = {
        "spec": {
            "specs": [{"provider": {"kind": "bench"}}],
            "nodes": {"desired": NODES_EACH},
            "options": {"ssh_connect_timeout": 86_400, "provision_timeout": 86_400},
        }
    }
    began_s = time.perf_counter()
    with ThreadPoolExecutor(ASKERS) as pool:
        list(pool.map(lambda _: target.ask("POST", "/v1/computes", body), range(COMPUTES)))
    wait_for(target, BOUGHT, lambda count: count == COMPUTES * NODES_EACH, BUILT_S_MAX, "machines bought")
    note("fleet_built_s", time.perf_counter() - began_s)


def steady(target: Target, note: Callable[[str, float], None]) -> None:
    """What the daemon uses while nothing happens."""
    wait_for(target, LATE, lambda count: count == 0, BUILT_S_MAX, "keys that are late")
    time.sleep(SETTLED_S)
    used_s, began_s = processor_s(target.process.pid), time.perf_counter()
    time.sleep(STEADY_S)
    used_s = processor_s(target.process.pid) - used_s
    note("fleet_steady_percent", 100 * used_s / (time.perf_counter() - began_s))


def recovery(target: Target, note: Callable[[str, float], None]) -> Target:
    """Kill the daemon, start it again, and wait until nothing that is due waits."""
    os.kill(target.process.pid, signal.SIGKILL)
    target.process.wait(10)
    began_s = time.perf_counter()
    again = restart_ours(sys.executable, target)
    wait_for(again, LATE, lambda count: count == 0, RECOVERED_S_MAX, "keys that are late")
    note("fleet_recovery_s", time.perf_counter() - began_s)
    note("fleet_memory_mb", memory(again))
    return again


def memory(target: Target) -> float:
    return memory_mb(target.server_pids())


def measure(make: Callable[[], Target], note: Callable[[str, float], None]) -> None:
    target = make()
    try:
        build(target, note)
        steady(target, note)
        target = recovery(target, note)
    finally:
        target.stop()
