"""What must hold after every step of a history: what the database says, beside what really happened.

Decides: whether a promise is broken. Never: changes anything, or asks the engine.
Follows: each check is a sentence; what it finds names the rows.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.simulation.world import World

from sky.domain import compute as c
from sky.domain import job as j
from sky.domain import node as n
from sky.domain import task as t
from sky.domain.ledger import REVENUE
from sky.domain.lifecycle import Table
from sky.wire import requests as asks

LEADS = {"task.queued": t.QUEUED, "compute.created": c.REQUESTED, "node.requested": n.REQUESTED}
"""Where rows are after the events of their birth; where other events lead, the tables say."""


def _leads(*tables: Table) -> dict[str, str]:
    found = {m.event: m.target for table in tables for m in table.values() if m.event and m.target}
    return found | LEADS


EVENT_LEADS = _leads(t.TASK_MOVES, c.MOVES, n.MOVES)
OPEN_REQUESTS = "SELECT id, state FROM requests WHERE finished_us IS NULL"
SECOND_MICRO = 1_000
"""What a second of the jobs here costs."""
LEAN, SLACK_S, LATE = 1.2, 12.0, 0.11
"""A clock that was set leans by a tenth; and a message may be on its way for a while. What is told late is
told by how long ago it was, of which such a clock makes a tenth more or less, too."""
NEVER_BEGAN = (t.CREATED, t.ASSIGNED)


def _code(error: Any) -> str | None:
    """The code of an error as a row has it: JSON on SQLite, a value elsewhere."""
    told = json.loads(error) if isinstance(error, str) else error
    return told and told.get("code")


class Checks:
    """The checks of one history, and what they have to remember."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers: dict[str, Any] = {}
        """What was asked for and answered, by key: asked again, it has the same answer."""
        self._over: dict[str, tuple[Any, ...]] = {}
        self._seq = 0
        self._state: dict[str, str] = {}
        self._ends: Counter[str] = Counter()
        self._queued: Counter[str] = Counter()

    def all(self) -> None:
        """Every check; what does not hold is told to the world."""
        for what in (
            *self._events(),
            *self._final(),
            *self._attempts(),
            *self._machines(),
            *self._fences(),
            *self._money(),
            *self._given(),
            *self._jobs(),
            *self._clusters(),
        ):
            self.world.wrong(what)

    def _events(self) -> Iterator[str]:
        """The log has no gap, and whatever changed its state has said so: the last that was said is true."""
        for seq, name, compute, node, task in self.world.query(
            "SELECT seq, name, compute_id, node_id, task_id FROM events WHERE seq > ? ORDER BY seq", self._seq
        ):
            if seq != self._seq + 1:
                yield f"after event {self._seq} comes {seq}"
            self._seq = seq
            about = {"task": task, "node": node, "compute": compute}.get(name.partition(".")[0])
            if name in EVENT_LEADS and about is not None:
                self._state[about] = EVENT_LEADS[name]
            if name == "task.queued":
                self._queued[task] += 1
            elif about == task and EVENT_LEADS.get(name) in t.DONE:
                self._ends[task] += 1
                if self._ends[task] > self._queued[task]:
                    yield f"{task} has ended {self._ends[task]} times, and was wanted {self._queued[task]}"
        for table in ("tasks", "nodes", "computes"):
            for row_id, state in self.world.query(f"SELECT id, state FROM {table}"):
                if self._state.get(row_id) != state:
                    yield f"{row_id} is {state}, and its events say {self._state.get(row_id)}"

    def _final(self) -> Iterator[str]:
        """What is over stays as it is, unless a person wants it tried again."""
        for row_id, state, result, finished in self.world.query(
            "SELECT id, state, result_sha256, finished_us FROM tasks"
        ):
            times = self._queued[row_id]
            yield from self._stays(f"{row_id} ({times})", state in t.DONE, (state, result, finished))
        for row_id, state, result, error, finished in self.world.query(
            "SELECT id, state, result_sha256, error, finished_us FROM executions"
        ):
            yield from self._stays(row_id, state in t.DONE, (state, result, error, finished))
        for row_id, state in self.world.query("SELECT id, state FROM computes"):
            yield from self._stays(row_id, state == c.DELETED, (state,))
        for row_id, state in self.world.query("SELECT id, state FROM nodes"):
            yield from self._stays(row_id, state in n.FINAL, (state,))

    def _stays(self, key: str, over: bool, value: tuple[Any, ...]) -> Iterator[str]:
        before = self._over.get(key)
        if before is None:
            if over:
                self._over[key] = value
        elif before != value:
            yield f"{key} was over as {before}, and is {value}"

    def _attempts(self) -> Iterator[str]:
        """What the rows say of executions is what happened to them, and none runs beside another."""
        busy: dict[tuple[str, int], list[str]] = defaultdict(list)
        begun: Counter[tuple[str, int]] = Counter()
        safe: Counter[tuple[str, int]] = Counter()
        tasks = {
            row[0]: row[1:]
            for row in self.world.query("SELECT id, safe_retries, ambiguous_retries, state FROM tasks")
        }
        for row_id, task, place, state, node, kind, error in self.world.query(
            "SELECT id, task_id, place, state, node_id, retry_kind, error FROM executions ORDER BY seq"
        ):
            truth = self.world.truth.get(row_id)
            key = (task, place)
            safe[key] += kind == "safe"
            if truth is None:
                if state == t.SUCCEEDED:
                    yield f"{row_id} succeeded, and never began"
                continue
            begun[key] += 1
            if truth.node != node:
                yield f"{row_id} is said to be on {node}, and began on {truth.node}"
            if truth.ended is None:
                busy[key].append(row_id)
            if state in NEVER_BEGAN:
                yield f"{row_id} is {state}, and began at {truth.begun_s:.2f}"
            if state == t.FAILED and truth.ended != t.FAILED:
                yield f"{row_id} is failed ({error}), and it is {truth.ended or 'running'} where it began"
            if state == t.SUCCEEDED and truth.ended != t.SUCCEEDED:
                yield f"{row_id} is succeeded, and it is {truth.ended or 'running'} where it began"
            if state == t.INDETERMINATE and truth.ended is None and _code(error) == "node_lost":
                yield f"{row_id} is said to be lost with its node, and runs"
            if state == t.CANCELLED and truth.ended is None:
                yield f"{row_id} is cancelled, which says that it surely does not run, and it runs"
        for key, many in begun.items():
            task, place = key
            limit = (1 + tasks[task][1]) * max(1, self._queued[task])
            if many > limit:
                yield f"{task} was begun {many} times at place {place}, of {limit} that were allowed"
            limit = tasks[task][0] * max(1, self._queued[task])
            if safe[key] > limit:
                yield f"{task} was tried again {safe[key]} times at place {place}, of {limit} allowed"
        for (task, place), running in busy.items():
            if len(running) > 1 and self._queued[task] < 2:
                yield f"{task} runs {len(running)} times at place {place}: {', '.join(running)}"

    def _machines(self) -> Iterator[str]:
        """A wanted node has at most one machine, and what is said to be gone is gone."""
        for tag in self.world.cloud.duplicates():
            yield f"more than one machine was bought for {tag}"
        alive = set(self.world.cloud.alive())
        for row_id, machine in self.world.query("SELECT id, machine FROM nodes WHERE state = 'deleted'"):
            if machine is not None and row_id in alive:
                yield f"{row_id} is deleted, and its machine {machine} runs"
        for compute, rank, many in self.world.query(
            "SELECT compute_id, rank, count(*) FROM nodes WHERE state NOT IN"
            " ('lost', 'deleting', 'deleted', 'failed') GROUP BY compute_id, rank HAVING count(*) > 1"
        ):
            yield f"rank {rank} of {compute} is wanted {many} times"

    def _fences(self) -> Iterator[str]:
        """What is fenced surely runs nothing, and no two machines could be at work as one rank."""
        live = {one.node_id for one in self.world.live_agents() if one.served}
        ready: dict[tuple[str, int], list[str]] = defaultdict(list)
        for row_id, state, fenced, compute, rank in self.world.query(
            "SELECT id, state, fenced_us, compute_id, rank FROM nodes WHERE ready_us IS NOT NULL"
        ):
            if row_id not in live:
                continue
            ready[compute, rank].append(row_id)
            if fenced is not None:
                yield f"{row_id} is {state} and fenced, and its agent is there and may run anything"
        for (compute, rank), many in ready.items():
            if len(many) > 1:
                yield f"{compute} has {len(many)} machines at rank {rank}: {', '.join(many)}"

    def _given(self) -> Iterator[str]:
        """Nobody is given money that was not paid in."""
        for (account,) in self.world.query("SELECT DISTINCT account FROM ledger WHERE kind = 'credit'"):
            yield f"{account} has a credit, and nobody gave one"

    def _money(self) -> Iterator[str]:
        """Entries sum to zero, no balance is negative, each hold is resolved once and whole."""
        for reference, left in self.world.query(
            "SELECT reference, sum(amount_micro) FROM ledger GROUP BY reference HAVING sum(amount_micro) != 0"
        ):
            yield f"the entries of {reference} sum to {left}"
        sums: Counter[str] = Counter()
        earned: Counter[str] = Counter()
        of_job: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for account, amount, job in self.world.query(
            "SELECT account, amount_micro, job_id FROM ledger ORDER BY seq"
        ):
            sums[account] += amount
            if account.startswith("acc_") and sums[account] < 0:
                yield f"{account} was at {sums[account]}"
            if job is not None and account == REVENUE:
                earned[job] += amount
            if job is not None and account.endswith("/held"):
                of_job[job][0 if amount > 0 else 1] += abs(amount)
                of_job[job][2] += amount < 0
        for job, settled, charge in self.world.query("SELECT id, settled_us, settled_micro FROM jobs"):
            held, resolved, times = of_job[job]
            wanted = (held, 1) if settled is not None else (0, 0)
            if (resolved, times) != wanted:
                yield f"{job}: {held} were held, {resolved} resolved in {times} times, settled at {settled}"
            if settled is not None and earned[job] != charge:
                yield f"{job} was charged {charge}, and {earned[job]} of its hold was booked as earned"
            if settled is not None and not 0 <= charge <= held:
                yield f"{job} was charged {charge}, of {held} that were held"

    def _jobs(self) -> Iterator[str]:
        """A job ends once, stays so, and is charged for what it ran, as far as a clock can tell."""
        ends = Counter(
            row[0]
            for row in self.world.query(
                "SELECT job_id FROM job_events WHERE type IN"
                " ('job.succeeded', 'job.failed', 'job.cancelled', 'job.preempted')"
            )
        )
        for job, state, charge, finished, error, run_task, past in self.world.query(
            "SELECT id, state, settled_micro, finished_us, error, run_task, past FROM jobs"
        ):
            over = state in j.TERMINAL
            yield from self._stays(job, over, (state, finished, error))
            if ends[job] != over:
                yield f"{job} is {state}, and its end was told {ends[job]} times"
            if charge is not None and state != j.CANCELLED:
                ran_s = self._ran_s(run_task, past)
                late_s = self.world.loop.time() if self.world.clock_was_set else 0.0
                most = (ran_s * LEAN + SLACK_S + late_s * LATE) * SECOND_MICRO
                if charge > most and not self.world.clock_is_believed:  # then what was held is the limit
                    yield f"{job} ran for {ran_s:.2f} s, and was charged {charge / SECOND_MICRO:.2f}"

    def _ran_s(self, run_task: str | None, past: Any) -> float:
        past = json.loads(past) if isinstance(past, str) else past
        tasks = {run_task, *(one for before in past or () for one in before["tasks"])}
        running = self.world.truth.values()
        now_s = self.world.loop.time()
        return sum((x.ended_s or now_s) - x.begun_s for x in running if x.task in tasks)

    def _clusters(self) -> Iterator[str]:
        """Requests, clusters and their jobs: what is over stays so, and a name is one cluster's at a time."""
        for row_id, state, finished, error in self.world.query(
            "SELECT id, state, finished_us, error FROM requests"
        ):
            yield from self._stays(f"request {row_id}", finished is not None, (state, finished, error))
        for row_id, state, ended, error in self.world.query(
            "SELECT id, state, ended_us, error FROM cluster_jobs"
        ):
            yield from self._stays(row_id, ended is not None, (state, ended, error))
        for row_id, state in self.world.query("SELECT id, state FROM clusters"):
            yield from self._stays(row_id, state == "DOWN", (state,))
        for name, many in self.world.query(
            "SELECT name, count(*) FROM clusters WHERE removed_us IS NULL GROUP BY name HAVING count(*) > 1"
        ):
            yield f"{many} clusters have the name {name}"
        for cluster, number, many in self.world.query(
            "SELECT cluster_id, number, count(*) FROM cluster_jobs GROUP BY cluster_id, number"
            " HAVING count(*) > 1"
        ):
            yield f"{many} jobs of {cluster} have the number {number}"

    def asked_once(self) -> Iterator[str]:
        """Each ask that was answered is one effect, and there is nothing that nobody asked for."""
        known: Counter[str] = Counter()
        for key, answer in self.answers.items():
            known[key.partition(" ")[0]] += len(answer) if isinstance(answer, list) else 1
        query = self.world.query
        many = {
            "calls": query("SELECT count(*) FROM tasks WHERE owner IS NULL")[0][0],
            "computes": query("SELECT count(*) FROM computes WHERE owner IS NULL")[0][0],
            "jobs": query("SELECT count(*) FROM jobs")[0][0],
            "payments": query("SELECT count(DISTINCT reference) FROM ledger WHERE kind = 'top_up'")[0][0],
            "requests": query("SELECT count(*) FROM requests")[0][0],
        }
        wanted = {
            "calls": known["call"] + known["batch"],
            "computes": known["compute"],
            "jobs": known["job"],
            "payments": known["payment"],
            "requests": sum(known[name] for name in asks.BODIES),
        }
        for name, count in wanted.items():
            if many[name] != count:
                yield f"{count} {name} were asked for and answered, and there are {many[name]}"

    # ── at the end, when everything is well again ───────────────────────────────────────────────

    def unsettled(self) -> list[str]:
        """What has not come to its end yet."""
        query = self.world.query
        found = [f"{x} is {s}" for x, s in query("SELECT id, state FROM tasks") if s not in t.DONE]
        found += [f"{x} is {s}" for x, s in query("SELECT id, state FROM computes") if s != c.DELETED]
        found += [f"{x} is {s}" for x, s in query("SELECT id, state FROM nodes") if s not in n.FINAL]
        found += [f"{x} is {s}" for x, s in query("SELECT id, state FROM jobs WHERE settled_us IS NULL")]
        found += [f"{x} is {s}" for x, s in query("SELECT id, state FROM clusters") if s != "DOWN"]
        found += [f"{x} is {s}" for x, s in query(OPEN_REQUESTS)]
        found += [
            f"{x} is {s}" for x, s in query("SELECT id, state FROM cluster_jobs WHERE ended_us IS NULL")
        ]
        found += [f"the machine of {tag} runs" for tag in self.world.cloud.alive()]
        return found
