"""Runs passes: keys in, one pass a key at a time, notes out. A listed supervisor.

Decides: when a pass runs and what happens when it raises (the key is quarantined with a growing delay, and
everything else goes on). Never: knows what a loop does.
Follows: a key that is woken while its pass runs is looked at again; a key whose wake was lost is found by the
tick; another daemon's claim is respected, and ours is renewed for as long as a call outside takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import structlog

from sky.domain.errors import SkyError
from sky.kit import about, backoff, faults, spans
from sky.kit.clock import SECOND_US, Clock
from sky.kit.meters import Family
from sky.reconcile.meters import Meters
from sky.reconcile.passes import PASSES_AT_ONCE_MAX, InnerLoop, OuterLoop
from sky.store import passes
from sky.store.db import Database
from sky.store.tx import ConflictError, Tx

_log = structlog.get_logger(__name__)

TICK_S = 1.0
CLAIM_S = 30.0
"""How long a claim is relied on. The row says twice that, so that it is renewed long before it is over."""
SHARED_CLAIM_S = 3.0
"""The same where several daemons share a database."""
ASKED_S = 0.05
PACE, PACE_S = 4, 0.01
"""So many passes begin in such a time while somebody asked within ``ASKED_S``."""
DECIDING = ""
"""The lane that all loops share that only decide."""
TIMER_S_MAX = 5.0
CONFLICT_RETRY_US = 20_000


class Runner:
    """The loops of one daemon. ``holder`` names it in claims; ``hints`` False throws every wake away.

    ``shared``: other daemons run the same loops on the same database. Then a claim is short, since its holder
    may be killed and not come back; and a pass that only decides takes none, since it is one transaction.
    """

    def __init__(
        self,
        db: Database,
        clock: Clock,
        loops: Iterable[InnerLoop | OuterLoop],
        *,
        holder: str,
        hints: bool = True,
        shared: bool = False,
    ) -> None:
        self._db = db
        self._shared = shared
        self._claim_s = SHARED_CLAIM_S if shared else CLAIM_S
        self._clock = clock
        self._loops: Mapping[str, InnerLoop | OuterLoop] = {loop.name: loop for loop in loops}
        self._holder = holder
        self._hints = hints
        self._ready: dict[str, dict[str, None]] = {DECIDING: {}}
        self._ready |= {name: {} for name, loop in self._loops.items() if isinstance(loop, OuterLoop)}
        self._busy = dict.fromkeys(self._ready, 0)
        self._room = {
            name: loop.passes_max for name, loop in self._loops.items() if isinstance(loop, OuterLoop)
        }
        self._room[DECIDING] = PASSES_AT_ONCE_MAX
        self._running: set[str] = set()
        self._again: set[str] = set()
        self._claims: dict[str, float] = {}
        self._calling: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopping = False
        self._pace, self._waits_for_pace = PACE, False
        self._meters = Meters(self._loops)
        self.ticked_s: float | None = None

    # ── waking ──────────────────────────────────────────────────────────────────────────────────

    def wake(self, keys: Iterable[str]) -> None:
        """Look at these keys soon. Those that begin with ``~`` are not ours."""
        if not self._hints or self._stopping:
            return
        for key in keys:
            if not key.startswith("~"):
                self.offer(key)
        self._pump()

    def offer(self, key: str) -> None:
        """Have a key looked at when there is room; one that is waiting already waits once."""
        if key in self._running:
            self._again.add(key)
        elif key.split("/", 1)[0] in self._loops:
            self._ready[self._lane(key)][key] = None

    def _lane(self, key: str) -> str:
        name = key.split("/", 1)[0]
        return name if isinstance(self._loops[name], OuterLoop) else DECIDING

    async def tick(self) -> int:
        """Offer every key that is due; returns how many."""
        await self._renew()
        now_us = self._clock.now_us()
        due = await self._db.read(lambda c: passes.due(c, now_us))
        for key in due:
            self.offer(key)
        self.ticked_s = self._clock.monotonic_s()
        return len(due)

    async def _renew(self) -> None:
        """Go on holding the keys of calls that take long: no other daemon is to begin beside them."""
        soon_s = self._clock.monotonic_s() + self._claim_s / 2
        due = [key for key in self._calling if self._claims.get(key, 0.0) < soon_s]
        if due:
            await self._db.write(lambda tx: [self._claim(tx, key) for key in due], later=True)

    async def run_forever(self) -> None:
        """Tick until cancelled; passes run beside."""
        while True:
            await self.tick()
            self._pump()
            await asyncio.sleep(TICK_S)

    async def stop(self) -> None:
        """Let running passes end, then let go of every claim."""
        self._stopping = True
        for ready in self._ready.values():
            ready.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10.0)
        await self._db.write(lambda tx: passes.release(tx, self._holder))

    def _pump(self) -> None:
        for lane, ready in self._ready.items():
            while ready and self._busy[lane] < self._room[lane] and not self._stopping and self._may_begin():
                key = next(iter(ready))
                del ready[key]
                self._busy[lane] += 1
                self._running.add(key)
                task = asyncio.create_task(self._supervised(key, lane))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _may_begin(self) -> bool:
        """Whether a pass may begin now. Whatever is asked for is served by the thread that passes begin in,
        so while somebody asks they begin at a pace; at any other time there is none."""
        if self._clock.monotonic_s() - self._db.asked_s > ASKED_S:
            return True
        if self._pace:
            self._pace -= 1
            return True
        if not self._waits_for_pace:
            self._waits_for_pace = True
            asyncio.get_running_loop().call_later(PACE_S, self._go_on)
        return False

    def _go_on(self) -> None:
        self._waits_for_pace = False
        self._pace = PACE
        self._pump()

    async def _supervised(self, key: str, lane: str) -> None:
        try:
            await self.look(key)
        finally:
            self._busy[lane] -= 1
            self._running.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._ready[lane][key] = None
            self._pump()

    def idle(self) -> Mapping[str, str]:
        """Every loop, and why it has nothing to do when it has no key."""
        return {name: loop.idle for name, loop in sorted(self._loops.items())}

    def families(self) -> Iterable[Family]:
        """What is counted of the loops."""
        age_s = None if self.ticked_s is None else self._clock.monotonic_s() - self.ticked_s
        ready = [key for lane in self._ready.values() for key in lane]
        return self._meters.families(tuple(self._running), ready, age_s)

    # ── one pass ────────────────────────────────────────────────────────────────────────────────

    async def drain(self, limit: int = 10_000) -> int:
        """Run what is ready, one after another, until nothing is; returns how many passes that took."""
        count = 0
        while ready := next(filter(None, self._ready.values()), None):
            key = next(iter(ready))
            del ready[key]
            await self.look(key)
            count += 1
            if count >= limit:
                msg = (
                    f"does not settle: {key} and {sum(map(len, self._ready.values()))} others are still ready"
                )
                raise RuntimeError(msg)
        return count

    async def look(self, key: str) -> None:
        """One pass of one key."""
        name, key_id = key.split("/", 1)
        loop = self._loops[name]
        began_s = self._clock.monotonic_s()
        token = about.begin(lambda: about.of_key(key))
        try:
            with spans.span(f"loop {name}", about.of_key(key) if spans.asked_for() else None):
                if isinstance(loop, InnerLoop):
                    due_us = await self._inner(loop, key, key_id)
                else:
                    due_us = await self._outer(loop, key, key_id)
        except ConflictError:
            self._meters.conflicted(name)
            self._claims.pop(key, None)
            due_us = self._clock.now_us() + CONFLICT_RETRY_US
        except Exception as error:
            self._meters.failed(name)
            self._claims.pop(key, None)  # It may have been undone, with all that the pass wrote.
            due_us = await self._failed(key, error)
        finally:
            about.end(token)
        self._meters.passed(name, self._clock.monotonic_s() - began_s, self._clock.now_us())
        self._set_timer(key, due_us)

    async def _inner(self, loop: InnerLoop, key: str, key_id: str) -> int | None:
        def work(tx: Tx) -> int | None:
            if not self._may_decide(tx, key):
                return None
            done = loop.look(tx, key_id)
            # Whoever writes is alone, so nobody has touched the key since. What the pass itself touches is
            # written when the transaction ends.
            passes.note(tx, key, due_us=done.due_us, decision=done.why)
            said.append(done.why)
            return done.due_us

        said: list[str] = []
        due_us = await self._db.write(work, later=True)
        if said:
            _log.debug("pass.done", why=said[-1])
        return due_us

    async def _outer(self, loop: OuterLoop, key: str, key_id: str) -> int | None:
        if self._claims.get(key, 0.0) <= self._clock.monotonic_s() and not await self._db.write(
            lambda tx: self._claimed(tx, key), later=True
        ):
            return None
        seen = await self._db.read(lambda c: passes.version(c, key))
        self._calling.add(key)
        try:
            done = await loop.look(key_id)
        finally:
            self._calling.discard(key)
        faults.point(f"{key.split('/', 1)[0]}: effect done, not written down")

        def write(tx: Tx) -> None:
            if not self._claimed(tx, key):
                msg = f"another daemon has looked at {key} meanwhile"
                raise ConflictError(msg)
            passes.finish(tx, key, seen, due_us=done.due_us, decision=done.why)
            if done.write is not None:
                done.write(tx)

        await self._db.write(write, later=True)
        _log.debug("pass.done", why=done.why)
        return done.due_us

    def follow(self, tx: Tx, key: str) -> bool:
        """One pass of an inner loop inside the transaction that made its key due; False: not now."""
        name, key_id = key.split("/", 1)
        loop = self._loops[name]
        if not isinstance(loop, InnerLoop) or not self._may_decide(tx, key):
            return False
        self._meters.followed(name)
        done = loop.look(tx, key_id)
        return done.due_us is None and passes.note(tx, key, due_us=None, decision=done.why)

    def _may_decide(self, tx: Tx, key: str) -> bool:
        return self._shared or self._claimed(tx, key)

    def _claimed(self, tx: Tx, key: str) -> bool:
        return self._claims.get(key, 0.0) > self._clock.monotonic_s() or self._claim(tx, key)

    def _claim(self, tx: Tx, key: str) -> bool:
        now_s = self._clock.monotonic_s()
        if not passes.claim(tx, key, self._holder, tx.now_us + round(2 * self._claim_s * SECOND_US)):
            self._claims.pop(key, None)
            return False
        if len(self._claims) > 10_000:
            # Copied first: it is changed here in the thread that writes, and in the event loop.
            self._claims = {k: until for k, until in dict(self._claims).items() if until > now_s}
        self._claims[key] = now_s + self._claim_s
        return True

    async def _failed(self, key: str, error: Exception) -> int | None:
        """Set a key aside. Where not even that can be written down, it stays due, and a tick finds it."""
        _log.error("pass.failed", key=key, exc_info=error)
        text = f"{type(error).__name__}: {error}"
        try:
            row = await self._db.read(lambda c: passes.row(c, key))
            failures = 1 + (row.failures if row else 0)
            due_us = self._clock.now_us() + round(backoff.delay_s(failures) * SECOND_US)
            name, key_id = key.split("/", 1)
            loop = self._loops[name]

            def write(tx: Tx) -> None:
                passes.fail(tx, key, due_us=due_us, failures=failures, error=text)
                if isinstance(loop, InnerLoop) and not isinstance(error, SkyError):
                    loop.broken(tx, key_id, failures, text)

            await self._db.write(write, later=True)
        except SkyError as unnoted:
            _log.warning("pass.not_noted", key=key, error=unnoted.message)
            return None
        return due_us

    def _set_timer(self, key: str, due_us: int | None) -> None:
        """What is due before the next tick is looked at on time; the tick finds everything else.

        A key has one timer, set by its newest pass: were there one for each pass, they would never end.
        """
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if due_us is None or not self._hints or self._stopping:
            return
        delay_s = (due_us - self._clock.now_us()) / SECOND_US
        if delay_s <= TIMER_S_MAX:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(max(0.0, delay_s), self._due, key)

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self.offer(key)
        self._pump()
