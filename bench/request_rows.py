"""What requests cost: `sky.get(sky.status())`, alone, at once, beside launches under way, and behind many
that wait; and what the server's processes hold after a burst.

Decides: the order: first memory and the burst, then the rates. Never: counts the start of the program that
asks. Follows: skypilot's server is started on this computer only, with a home of its own, and asked by its
own SDK with the same program; the rows beside launches are ours alone.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.target import Target, memory_mb, start

Note = Callable[[str, float], None]
Run = Callable[[list[str], dict[str, str], Note], None]

BURST = 50
LOOKS = 60
LAUNCHES = 50
PENDING = 3_000
ASKERS = 8
PROGRAM = str(Path(__file__).with_name("request_program.py"))
SLOW, FULL = "slow", "full"


def start_skypilot(python: str, port: int, metrics_port: int) -> Target:
    """Its server; whatever it writes is below a home that is removed."""
    home = Path(tempfile.mkdtemp(prefix="skypilot-bench-"))
    command = [python, "-m", "sky.server.server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--metrics-port", str(metrics_port)]
    more = {**peer_environment(home), "PATH": f"{Path(python).parent}:{os.environ['PATH']}"}
    return start("skypilot", command, more, home, port, {}, live="/api/health")


def peer_environment(home: Path) -> dict[str, str]:
    """Nothing is told to anybody about its use."""
    return {"HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}


def both(target: Target, python: str, seconds: float, run: Run, note: Note) -> None:
    """The rows that ours and the peer's have in common."""
    environment = {**os.environ, "HOME": str(target.home), "SKYPILOT_API_SERVER_ENDPOINT": target.url}
    environment |= {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    note("requests_ready_ms", target.ready_s * 1000)
    note("requests_memory_idle_mb", memory_mb(target.server_pids()))
    run([python, PROGRAM, "burst", str(BURST)], environment, note)
    note("memory_after_50_requests_mb", memory_mb(target.server_pids()))
    run([python, PROGRAM, "status", str(seconds)], environment, note)


def looked(target: Target) -> float:
    """Milliseconds of a `status` of everything, the median of some."""
    took_s: list[float] = []
    for _ in range(LOOKS):
        began_s = time.perf_counter()
        told = target.ask("POST", "/status", {})
        took_s.append(time.perf_counter() - began_s)
        assert told["record"]["status"] == "SUCCEEDED"
    return 1000 * statistics.median(took_s)


def named(target: Target) -> float:
    """The same, of a name that no cluster has: what asking costs, without what there is to tell."""
    began_s = time.perf_counter()
    for _ in range(LOOKS):
        target.ask("POST", "/status", {"cluster_names": ["nosuch"]})
    return 1000 * (time.perf_counter() - began_s) / LOOKS


def launch(target: Target, infra: str, number: int) -> None:
    body: dict[str, Any] = {
        "task": {"run": "true", "machines": [{"infra": infra}]},
        "cluster_name": f"{infra}-{number}",
        "retry_until_up": True,
    }
    target.ask("POST", "/launch", body)


def with_clusters_of(make: Callable[[], Target], other: Target) -> Target:
    """A daemon that has the clusters of another one, and nothing that is under way: no loop has notes of
    them."""
    target = make()
    link = sqlite3.connect(target.home / "sky.db", timeout=30)
    try:
        link.execute("ATTACH ? AS other", (str(other.home / "sky.db"),))
        with link:
            for table in ("clusters", "computes", "nodes"):
                link.execute(f"INSERT INTO {table} SELECT * FROM other.{table}")
    except BaseException:
        target.stop()
        raise
    finally:
        link.close()
    return target


def alone(make: Callable[[], Target], note: Note) -> None:
    """Ours: beside launches whose machines are booting, and as many clusters where none are; behind launches
    that find no machines."""
    target = make()
    try:
        slow = {"kind": "fake", "name": SLOW, "config": {"boot_seconds": 3600}}
        full = {"kind": "fake", "name": FULL, "config": {"refuse": "no machine is left here"}}
        for body in (slow, full):
            target.ask("POST", "/v1/providers", body)
        note("status_idle_ms", looked(target))
        with ThreadPoolExecutor(ASKERS) as pool:
            list(pool.map(lambda number: launch(target, SLOW, number), range(LAUNCHES)))
            note("status_beside_50_launches_ms", looked(target))
            copy = with_clusters_of(make, target)
            try:
                note("status_of_50_idle_ms", looked(copy))
            finally:
                copy.stop()
            before_mb = memory_mb(target.server_pids())
            note("status_of_none_idle_ms", named(target))
            began_s = time.perf_counter()
            list(pool.map(lambda number: launch(target, FULL, number), range(PENDING)))
        note("launches_per_s", PENDING / (time.perf_counter() - began_s))
        note("status_of_none_behind_3000_ms", named(target))
        note("memory_growth_3000_pending_mb", memory_mb(target.server_pids()) - before_mb)
        began_s = time.perf_counter()
        target.ask("POST", "/api/cancel", {})
        note("cancel_3000_s", time.perf_counter() - began_s)
    finally:
        target.stop()
