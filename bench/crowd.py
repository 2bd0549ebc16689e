"""A crowd at one daemon: readers of the event stream, agents at their sockets, requests at a steady rate.

Decides: how many come and what they ask (``Crowd``), that a request counts from the moment it was due at, and
what is written down: every answer that is no success, what readers missed, what became of each call, and the
daemon's memory at each minute. Never: waits for an answer before it sends the next request; a daemon that is
slow is asked as often as a quick one.
Follows: agents are the protocol alone (``bench/crowd_members.py``): they answer each call at once, so what is
measured is the daemon. Machines are those of the simulated kind.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import lz4.frame
import uvloop
from bench.fleet_rows import asked, processor_s, wait_for
from bench.report import free_port
from bench.target import Target, memory_mb, start_ours

ROOT = Path(__file__).parents[1]
COMPUTES = 5
CONNECTIONS = 256
"""A request that finds none of them free waits for one, and that counts."""
ANSWER_S = 30.0
ARRIVED_S_MAX = 300.0
SETTLED_S_MAX = 120.0
CREATED_EVERY_S = 1.0
CREATED = "SELECT count(*) FROM events WHERE name = 'compute.created'"
MINUTE_S = 60.0


@dataclass
class Crowd:
    """How many there are, and for how long."""

    readers: int = 1_000
    agents: int = 500
    per_s: int = 200
    minutes: float = 3.0


@dataclass
class Seen:
    """What the askers saw. Latencies in seconds by kind of request, from the moment each was due."""

    took_s: dict[str, list[float]] = field(default_factory=dict)
    bad: Counter[str] = field(default_factory=Counter)
    tasks: int = 0
    created: int = 0
    late_s: float = 0.0
    memory_mb: list[float] = field(default_factory=list)


def members(target: Target, crowd: Crowd) -> subprocess.Popen[str]:
    """Readers and agents, in a process of their own; returns once all of them are there."""
    config = {"home": str(target.home), "url": target.url, "readers": crowd.readers}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.crowd_members", json.dumps(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if said != f"{crowd.agents} agents, {crowd.readers} readers":
        process.kill()
        raise SystemExit(f"the crowd did not come: {said or 'it ended'}")
    return process


def fleet(target: Target, crowd: Crowd) -> list[str]:
    """Computes whose machines are bought and wait for their agents."""
    body = {
        "spec": {
            "specs": [{"provider": {"kind": "bench"}}],
            "nodes": {"desired": crowd.agents // COMPUTES},
            "options": {"ssh_connect_timeout": 86_400, "provision_timeout": 86_400},
        }
    }
    made = [target.ask("POST", "/v1/computes", body)["id"] for _ in range(COMPUTES)]
    bought = "SELECT count(*) FROM nodes WHERE state = 'connecting'"
    wait_for(target, bought, lambda count: count == crowd.agents, ARRIVED_S_MAX, "machines bought")
    return made


class Asker:
    """Asks at a steady rate, mixed: reads of a compute, lists, checks of health, and calls."""

    def __init__(self, target: Target, computes: list[str], session: aiohttp.ClientSession) -> None:
        self.target, self.session = target, session
        self.computes = computes
        self.seen = Seen()
        self.mark = f"crowd-{os.getpid()}"
        function = lz4.frame.compress(b"a function that no agent of this crowd reads")
        self.function = hashlib.sha256(function).hexdigest()
        target.ask("PUT", f"/v1/blobs/{self.function}", function)
        target.ask("PUT", f"/v1/functions/{self.function}", function)

    def next(self, number: int, chance: random.Random) -> tuple[str, str, str, Any]:
        compute = chance.choice(self.computes)
        match number % 10:
            case 0 | 1 | 2 | 3:
                task = {"compute": compute, "function": self.function, "args_sha256": self.function}
                return "call", "POST", "/v1/tasks", {**task, "dispatch": "one"}
            case 4 | 5 | 6 | 7:
                return "compute", "GET", f"/v1/computes/{compute}", None
            case 8:
                return "calls, a page", "GET", f"/v1/tasks?compute={compute}&limit=20", None
            case _:
                return "health", "GET", "/v1/health/live", None

    async def ask(self, number: int, due_s: float, kind: str, method: str, path: str, body: Any) -> None:
        seen = self.seen
        headers = {"Idempotency-Key": f"{self.mark}-{number}"} if body is not None else {}
        try:
            async with self.session.request(
                method, self.target.url + path, json=body, headers=headers
            ) as answer:
                await answer.read()
                status = answer.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            seen.bad[f"{kind}: {type(error).__name__}"] += 1
            return
        seen.took_s.setdefault(kind, []).append(time.perf_counter() - due_s)
        if status >= 300:
            seen.bad[f"{kind}: {status}"] += 1
        elif kind == "call":
            seen.tasks += 1
        elif kind == "created":
            seen.created += 1

    async def run(self, crowd: Crowd) -> None:
        """Every request at its moment, for as long as was said."""
        chance, waiting = random.Random(1), set[asyncio.Task[None]]()
        began_s = time.perf_counter()
        memory = asyncio.create_task(self._memory(crowd))
        total = int(crowd.minutes * MINUTE_S * crowd.per_s)
        every = int(CREATED_EVERY_S * crowd.per_s)
        for number in range(total):
            due_s = began_s + number / crowd.per_s
            if (wait_s := due_s - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            self.seen.late_s = max(self.seen.late_s, time.perf_counter() - due_s)
            asks = [(number, due_s, *self.next(number, chance))]
            if number % every == 0:
                asks.append(
                    (total + number, due_s, "created", "POST", "/v1/computes", self.target.compute_body)
                )
            for one in asks:
                task = asyncio.create_task(self.ask(*one))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
        if waiting:
            await asyncio.wait(set(waiting), timeout=ANSWER_S)
        await memory

    async def _memory(self, crowd: Crowd) -> None:
        marks = [minute * MINUTE_S for minute in range(int(crowd.minutes) + 1)]
        began_s = time.perf_counter()
        for mark_s in marks:
            await asyncio.sleep(max(0.0, began_s + mark_s - time.perf_counter()))
            self.seen.memory_mb.append(memory_mb([self.target.process.pid]))


def queued_s(pid: int) -> float:
    """How long threads of a process were ready to run and had no core, all of them together."""
    waited_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        waited_ns += int((task / "schedstat").read_text().split()[1])
    return waited_ns / 1e9


def quantiles_ms(values: list[float]) -> dict[str, float]:
    """The middle one, and those that 95 and 99 of a hundred are below; the longest; in milliseconds."""
    ordered = sorted(values)
    at = {"p50": 50, "p95": 95, "p99": 99}
    found = {name: ordered[len(ordered) * part // 100] * 1000 for name, part in at.items()}
    return {"count": len(ordered), **found, "longest": ordered[-1] * 1000}


async def load(target: Target, computes: list[str], crowd: Crowd) -> Seen:
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit=CONNECTIONS), trust_env=False
    ) as session:
        asker = Asker(target, computes, session)
        await asker.run(crowd)
        return asker.seen


def measure(crowd: Crowd) -> dict[str, Any]:
    """Bring the crowd, ask, let it settle, and count."""
    target = start_ours(sys.executable, free_port())
    people: subprocess.Popen[str] | None = None
    try:
        idle_mb = memory_mb([target.process.pid])
        computes = fleet(target, crowd)
        people = members(target, crowd)
        ready = "SELECT count(*) FROM nodes WHERE state = 'ready'"
        wait_for(target, ready, lambda count: count == crowd.agents, ARRIVED_S_MAX, "nodes ready")
        used_s, began_s = processor_s(target.process.pid), time.perf_counter()
        before_s = queued_s(target.process.pid)
        seen = uvloop.run(load(target, computes, crowd))
        took_s = time.perf_counter() - began_s
        used_s = processor_s(target.process.pid) - used_s
        waited_s = queued_s(target.process.pid) - before_s
        open_tasks = "SELECT count(*) FROM tasks WHERE state IN ('queued', 'running')"
        settled_s = wait_for(
            target, open_tasks, lambda count: count == 0, SETTLED_S_MAX, "calls that are over"
        )
        told, _ = people.communicate("end\n", timeout=60)
        left_mb = memory_mb([target.process.pid])
        return {
            "crowd": asdict(crowd),
            "took_s": took_s,
            "load_average": os.getloadavg(),
            "cores_used": used_s / took_s,
            "waited_for_a_core": waited_s / took_s,
            "memory_mb": {"idle": idle_mb, "at_minutes": seen.memory_mb, "when_all_left": left_mb},
            "latency_ms": {kind: quantiles_ms(values) for kind, values in sorted(seen.took_s.items())},
            "not_answered_well": dict(seen.bad),
            "sent_late_s": seen.late_s,
            "calls": {
                "accepted": seen.tasks,
                "succeeded": asked(target, "SELECT count(*) FROM tasks WHERE state = 'succeeded'"),
                "settled_after_s": settled_s,
            },
            "events": {"written": asked(target, CREATED) - COMPUTES, **json.loads(told)},
            "nodes_ready_at_the_end": asked(target, ready),
        }
    finally:
        if people is not None and people.poll() is None:
            people.send_signal(signal.SIGKILL)
            people.wait()
        target.stop()


def main() -> None:
    usual = Crowd()
    parser = argparse.ArgumentParser(prog="bench/crowd", description="A crowd at one daemon.")
    parser.add_argument("--readers", type=int, default=usual.readers)
    parser.add_argument("--agents", type=int, default=usual.agents)
    parser.add_argument("--per-second", type=int, default=usual.per_s)
    parser.add_argument("--minutes", type=float, default=usual.minutes)
    parser.add_argument("--out", type=Path, default=ROOT / "build/crowd.json")
    said = parser.parse_args()
    found = measure(Crowd(said.readers, said.agents, said.per_second, said.minutes))
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    said.out.parent.mkdir(parents=True, exist_ok=True)
    said.out.write_text(json.dumps({"at": time.time(), "machine": machine, **found}, indent=1))
    print(said.out.read_text())


if __name__ == "__main__":
    main()
