"""What must hold after every step of a history, read from the database and compared with what really happened.

Decides: whether a promise is broken. Never: changes anything, or asks the engine.
Follows: each check is a sentence; what it finds names the rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.simulation.world import World

from sky.domain import compute as c
from sky.domain import node as n
from sky.domain import task as t
from sky.domain.lifecycle import Table

LEADS = {"task.queued": t.QUEUED, "compute.created": c.REQUESTED, "node.requested": n.REQUESTED}
"""Where rows are after the events of their birth; where other events lead, the tables say."""


def _leads(*tables: Table) -> dict[str, str]:
    found = {m.event: m.target for table in tables for m in table.values() if m.event and m.target}
    return found | LEADS


EVENT_LEADS = _leads(t.TASK_MOVES, c.MOVES, n.MOVES)
NEVER_BEGAN = (t.CREATED, t.ASSIGNED)


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
            if len(running) > 1 and not tasks[task][1] and self._queued[task] < 2:
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

    # ── at the end, when everything is well again ───────────────────────────────────────────────

    def unsettled(self) -> list[str]:
        """What has not come to its end yet."""
        query = self.world.query
        found = [f"{x} is {s}" for x, s in query("SELECT id, state FROM tasks") if s not in t.DONE]
        found += [f"{x} is {s}" for x, s in query("SELECT id, state FROM computes") if s != c.DELETED]
        found += [f"{x} is {s}" for x, s in query("SELECT id, state FROM nodes") if s not in n.FINAL]
        found += [f"the machine of {tag} runs" for tag in self.world.cloud.alive()]
        return found
