"""One history from one seed: asks and troubles in any order; then all is well, and must come to its end.

Decides: what happens next, and when. Never: takes any chance but the seed's, so that it can be told again.
Follows: after each step the checks look; the first thing that does not hold ends the history.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog.testing
import structlog.typing
from tests.databases import ON_POSTGRESQL
from tests.simulation import storage
from tests.simulation.acts import Act, Calls, Trouble, provider
from tests.simulation.checks import Checks
from tests.simulation.daemon import at_point
from tests.simulation.faces import Jobs, Requests
from tests.simulation.profiles import DRAWN, PAUSES_S, PROFILES, ROUGH_PAUSES_S
from tests.simulation.world import Answer, Violation, World

from sky.domain import job
from sky.domain.errors import Busy, SkyError, StorageFull
from sky.kit import faults, ids
from sky.kit.clock import SECOND_US
from sky.reconcile import nodes, runner, watch
from sky.store.tx import ConflictError
from sky.verbs import computes as compute_verbs
from sky.wire.agent import WorkItem

END_S = 3_000.0
FACES = ("calls",), ("calls",), ("jobs",), ("requests",), ("calls", "jobs", "requests")
UNDER_WAY = (
    "SELECT 1 FROM tasks WHERE state IN ('queued', 'running') LIMIT 1",
    "SELECT 1 FROM jobs WHERE settled_us IS NULL LIMIT 1",
    "SELECT 1 FROM requests WHERE finished_us IS NULL LIMIT 1",
    "SELECT 1 FROM cluster_jobs WHERE ended_us IS NULL LIMIT 1",
)
ROUGH = 0.25
"""How many histories are rough: more breaks in them, and there is more time for what follows from it."""
PACES = (
    (runner, "TIMER_S_MAX", 60.0),
    (nodes, "ENDING_FIRST_US", 3 * SECOND_US),
    (watch, "WATCH_EVERY_US", 5 * SECOND_US),
    (job, "HOLD_SECONDS", 40),
)
"""How often is looked for what no wake tells, in here: a look that finds nothing costs as much as one that
does, and what it finds is found a little later. And how much of a job's runtime one hold covers, so that more
has to be held."""
TICK_S, LONE_TICK_S = 3.0, 10.0
"""A tick finds what no timer does: what another daemon has made due, too, so that two can be at one key."""


class History:
    """A world, and the chance that drives it."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        faces: tuple[str, ...] | None = None,
        *,
        rough: bool = False,
        profile: str | None = None,
        postgresql: bool = ON_POSTGRESQL,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self._numbers = random.Random(seed + 1)
        draw = self.random
        self.world = World(folder, draw, draw.choice((1, 1, 2, 3)), postgresql=postgresql)
        self.checks = Checks(self.world)
        self.calls = Calls(self.world, self.checks)
        self.jobs = Jobs(self.world, self.checks)
        self.requests = Requests(self.world, self.checks)
        drawn = draw.choice(FACES)
        chosen = faces or drawn
        rough = draw.random() < ROUGH or rough
        self.profile = profile or random.Random(seed + 2).choice(DRAWN)
        mostly = PROFILES[self.profile]
        self._weights = mostly.weights
        self._pauses_s = mostly.pauses_s or (ROUGH_PAUSES_S if rough else PAUSES_S)
        self.world.leases_s = mostly.leases_s
        if mostly.end_s is not None:
            self.world.cloud.pace.end_s = mostly.end_s
        self.faces = [face for name, face in self._faces().items() if name in chosen]
        self.trouble = Trouble(self.world, rough=rough)
        if mostly.sets_clock is not None:
            self.trouble.sets_clock = mostly.sets_clock
        if self.trouble.sets_clock and self.world.shared:
            # Daemons of one computer whose clock was set between their starts differ by that for hours, and
            # what a listing does not show yet is told from what is gone by the time since.
            self.world.cloud.pace.list_after_s = 0.0
        self.world.answer = self._answer
        self.steps = draw.randint(3, 16)

    def _faces(self) -> dict[str, Calls | Jobs | Requests]:
        return {"calls": self.calls, "jobs": self.jobs, "requests": self.requests}

    def _answer(self, item: WorkItem) -> Answer:
        return self.jobs.answer(item) or self.requests.answer(item) or self.calls.answer(item)

    def tell(self) -> None:
        """All of it. Raises Violation."""
        world = self.world
        with (
            ids.numbered(lambda: self._numbers.getrandbits(128)),
            _here(world),
            storage.kept(),
            _errors() as logs,
        ):
            try:
                world.loop.run_until_complete(self._tell(logs))
            finally:
                _end(world.loop)
                world.close()

    async def _tell(self, logs: list[structlog.typing.EventDict]) -> None:
        self.world.say(f"a history of the kind {self.profile}")
        for daemon in self.world.daemons:
            daemon.start()
        await provider(self.calls)
        for face in self.faces:
            await face.begin()
        for _ in range(self.steps):
            await self._step()
            self._look(logs)
        self.world.say("everything is well from here on")
        self.trouble.mend_all()
        await self._end(logs)
        self._look(logs)

    async def _step(self) -> None:
        acts = [act for face in (*self.faces, self.trouble) for act in face.acts()]
        acts = [(self._weights.get(name, weight), name, act) for weight, name, act in acts]
        name, act = _chosen(self.random, acts)
        self.world.say(name)
        try:
            await act()
        except SkyError as refused:
            self.world.say(f"refused: {refused.message}")
        await asyncio.sleep(self.random.choice(self._pauses_s))

    async def _end(self, logs: list[structlog.typing.EventDict]) -> None:
        """What is under way comes to its end; then all is given back, and that too."""
        await asyncio.sleep(1.0)
        query = self.world.query
        deadline_s = self.world.loop.time() + END_S
        while any(query(sql) for sql in UNDER_WAY):
            self._hurry(deadline_s)
            await self.requests.down_all("STOPPED")  # a call to one would wait for its start
            await asyncio.sleep(5.0)
        self._look(logs)
        await self.requests.down_all()
        for (row_id,) in query(
            "SELECT id FROM computes WHERE state NOT IN ('deleting', 'deleted') AND owner IS NULL"
        ):
            await self.calls.ask(
                f"the end of {row_id}", lambda tx, x=row_id: compute_verbs.delete(tx, x, None)
            )
        while self.checks.unsettled():
            self._hurry(deadline_s)
            await asyncio.sleep(10.0)
        for what in self.checks.asked_once():
            self.world.wrong(what)

    def _hurry(self, deadline_s: float) -> None:
        for one in self.world.live_agents():
            one.hurry()
        if self.world.loop.time() > deadline_s:
            raise Violation(
                f"nothing was wrong for {END_S:g} s, and yet: {'; '.join(self.checks.unsettled())}"
            )

    def _look(self, logs: list[structlog.typing.EventDict]) -> None:
        self.checks.all()
        for line in logs:
            error = line.get("exc_info")
            passes = isinstance(error, Busy | StorageFull | ConflictError)
            if line["log_level"] == "error" and line["event"] != "background.failed" and not passes:
                self.world.wrong(f"{line['event']} of {line.get('key')}: {type(error).__name__}: {error}")
        logs.clear()
        if self.world.violations:
            raise Violation("; ".join(self.world.violations[:5]))


def _chosen(draw: random.Random, acts: Sequence[tuple[int, str, Act]]) -> tuple[str, Act]:
    _, name, act = draw.choices(acts, [weight for weight, _, _ in acts])[0]
    return name, act


@contextmanager
def _here(world: World) -> Generator[None]:
    """Within this, marked points are the daemons', and what looks now and then does so seldom."""
    paces = (*PACES, (runner, "TICK_S", TICK_S if world.shared else LONE_TICK_S))
    before = [getattr(module, name) for module, name, _ in paces]
    collects = gc.isenabled()
    gc.disable()  # a history is short, and a fifth of it would be the collector's
    for module, name, pace in paces:
        setattr(module, name, pace)
    faults.watch(at_point)
    try:
        yield
    finally:
        if collects:
            gc.enable()
        faults.watch(None)
        for (module, name, _), pace in zip(paces, before, strict=True):
            setattr(module, name, pace)


@contextmanager
def _errors() -> Generator[list[structlog.typing.EventDict]]:
    """What is logged as an error meanwhile; what is not costs nothing."""
    before = structlog.get_config()["wrapper_class"]
    with structlog.testing.capture_logs() as logs:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        try:
            yield logs
        finally:
            structlog.configure(wrapper_class=before)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    loop.set_exception_handler(lambda _loop, _context: None)
    for _ in range(10):
        there = asyncio.all_tasks(loop)
        if not there:
            break
        for task in there:
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()


def tell(seed: int, faces: tuple[str, ...] | None = None, **more: Any) -> History:
    """Tell the history of ``seed``. A failure names the command that tells it again, and what happened."""
    folder = Path(tempfile.mkdtemp(prefix="sky-simulation-", dir=_fast()))
    try:
        history = History(seed, folder, faces, **more)
        try:
            history.tell()
        except Exception as error:
            error.add_note(f"scripts/soak --replay {seed}  tells this history again.")
            error.add_note("\n".join(history.world.told))
            raise
        return history
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fast() -> str | None:
    """Where a file is in memory, if there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
