"""How many passes run at once, and when a key is looked at again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from tests.store import support

from sky.kit.clock import SECOND_US, SystemClock
from sky.reconcile.passes import Done, InnerLoop, OuterLoop
from sky.reconcile.runner import PASSES_AT_ONCE_MAX, Runner
from sky.reconcile.webhooks import Webhooks
from sky.store.db import Database
from sky.store.tx import Tx
from sky.verbs.webhooks import Sealing

PATIENCE_S = 60.0


class Decides(InnerLoop):
    """Counts its passes; ``again`` says when the next one is due."""

    name: ClassVar[str] = "decides"

    def __init__(self, again: Callable[[Tx], int | None] = lambda _: None) -> None:
        self.passes = 0
        self._again = again

    def look(self, tx: Tx, key_id: str) -> Done:
        self.passes += 1
        return Done(key_id, self._again(tx))


class Hangs(OuterLoop):
    """Calls somebody who does not answer before ``answer`` is set."""

    name: ClassVar[str] = "hangs"

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.calling = 0
        self.answered = 0

    async def look(self, key_id: str) -> Done:
        self.calling += 1
        await self.answer.wait()
        self.answered += 1
        return Done(key_id)


class Answers(Hangs):
    """Calls somebody who answers at once."""

    name: ClassVar[str] = "answers"

    def __init__(self) -> None:
        super().__init__()
        self.answer.set()


def daemon(folder: Path, *loops: InnerLoop | OuterLoop) -> tuple[Database, Runner]:
    """A database, and loops that hear its wakes."""
    clock = SystemClock()
    db = Database(support.empty(folder / "sky.db"), clock, support.wakes)
    runner = Runner(db, clock, loops, holder="test")
    db.listen(lambda committed: runner.wake(committed.keys))
    db.start()
    return db, runner


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that has to come soon."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)


async def touch(db: Database, *keys: str) -> None:
    """Make keys due."""

    def verb(tx: Tx) -> None:
        for key in keys:
            tx.touch(key)

    await db.write(verb)


async def test_providers_that_hang_keep_no_decision_waiting(tmp_path: Path) -> None:
    decides, hangs = Decides(), Hangs()
    db, runner = daemon(tmp_path, decides, hangs)
    many = PASSES_AT_ONCE_MAX + 10
    await touch(db, *(f"hangs/{number}" for number in range(many)))
    await until(lambda: hangs.calling == PASSES_AT_ONCE_MAX)
    await touch(db, "decides/one")
    await until(lambda: decides.passes == 1)
    assert hangs.calling == PASSES_AT_ONCE_MAX, "no more call out than may"
    hangs.answer.set()
    await until(lambda: hangs.answered == many)
    await runner.stop()
    db.close()


async def test_one_loop_whose_calls_hang_keeps_no_other_waiting(tmp_path: Path) -> None:
    answers, hangs = Answers(), Hangs()
    db, runner = daemon(tmp_path, answers, hangs)
    await touch(db, *(f"hangs/{number}" for number in range(PASSES_AT_ONCE_MAX)))
    await until(lambda: hangs.calling == PASSES_AT_ONCE_MAX)
    await touch(db, "answers/one")
    await until(lambda: answers.answered == 1)
    hangs.answer.set()
    await runner.stop()
    db.close()


async def test_a_key_has_one_timer_however_often_it_was_woken(tmp_path: Path) -> None:
    every_us = SECOND_US // 5
    decides = Decides(lambda tx: tx.now_us + every_us)
    db, runner = daemon(tmp_path, decides)
    woken = 20
    for number in range(1, woken + 1):
        await touch(db, "decides/one")
        await until(lambda least=number: decides.passes >= least)
    before = decides.passes
    await until(lambda: decides.passes >= before + 5)
    begun_us = db.clock.now_us()
    seen = decides.passes
    await until(lambda: db.clock.now_us() - begun_us >= 5 * every_us)
    assert decides.passes - seen <= 6, "its passes are as far apart as it asked for"
    await runner.stop()
    db.close()


async def test_a_loop_that_writes_in_its_pass_is_nobody_who_waits(tmp_path: Path) -> None:
    """Else each message to a customer would slow down all loops, as somebody does who waits for an answer."""
    clock = SystemClock()
    db = Database(support.empty(tmp_path / "sky.db"), clock, support.wakes)
    db.start()
    done = await Webhooks(db, clock, Sealing(lambda _: b"", lambda _: {})).look("whk_none")
    assert done.why == "there is no such endpoint, or it is disabled"
    assert db.asked_s == float("-inf")
    await db.write(lambda _: None)
    assert db.asked_s <= clock.monotonic_s()
    assert db.asked_s > float("-inf"), "who asks does wait"
    db.close()
