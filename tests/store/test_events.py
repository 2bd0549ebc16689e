"""Reading events back, and following them: no cursor skips, and no reader holds anybody up."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from tests.store.support import compute_row, task_row

from sky.domain.errors import CursorExpired, NotFound
from sky.kit import codec
from sky.kit.clock import SECOND_US, ManualClock
from sky.store import events
from sky.store.db import Database
from sky.store.events import SUBSCRIPTION_EVENTS_MAX, Filter, Hub
from sky.store.schema_jobs import job_events
from sky.store.tx import Event, Tx
from sky.store.views import events as views
from sky.wire import v1


def say(content: str, compute: str = "cmp_1", task: str | None = None) -> v1.ConsoleEvent:
    return v1.ConsoleEvent(compute=compute, node="nod_1", content=content, task=task)


async def write(db: Database, number: int) -> None:
    """A verb with one to three events, of which some are refused."""

    def verb(tx: Tx) -> None:
        for index in range(1 + number % 3):
            tx.emit("node.console", say(f"{number}.{index}"), compute_id=f"cmp_{number % 2}")
        if number % 7 == 0:
            raise NotFound("after all")

    try:
        await db.write(verb)
    except NotFound:
        assert number % 7 == 0


async def follow(db: Database, hub: Hub, wanted: Filter, after: int, until: asyncio.Event) -> list[Event]:
    """A reader as the faces are: subscribe, replay what is written, go on with what is told."""
    subscription = hub.subscribe(wanted)
    seen: list[Event] = []
    last = after
    while page := await db.read(lambda c, a=last: events.replay(c, a, wanted, limit=7)):
        seen.extend(page)
        last = page[-1].seq
        await asyncio.sleep(0)
    while True:
        ended = until.is_set()
        for delivery in await subscription.next(0.05):
            if delivery.event.seq > last:
                seen.append(delivery.event)
                last = delivery.event.seq
        if ended:
            hub.unsubscribe(subscription)
            return seen


@pytest.mark.parametrize("seed", range(3))
async def test_a_replay_and_the_live_stream_are_one_sequence(db: Database, seed: int) -> None:
    chance = random.Random(seed)
    hub, until = Hub(), asyncio.Event()
    db.listen(hub.on_commit)
    readers: list[asyncio.Task[list[Event]]] = []
    cursors: list[tuple[Filter, int]] = []
    for burst in range(20):
        writing = [asyncio.create_task(write(db, burst * 20 + n)) for n in range(20)]
        if burst % 3 == 0:
            wanted = chance.choice(
                [Filter(), Filter(compute_id="cmp_1"), Filter(names=frozenset({"node.console"}))]
            )
            after = chance.randrange(1 + await db.read(events.last_seq))
            cursors.append((wanted, after))
            readers.append(asyncio.create_task(follow(db, hub, wanted, after, until)))
        await asyncio.gather(*writing)
    await asyncio.sleep(0)
    until.set()
    whole = await db.read(lambda c: events.replay(c, 0, Filter(), limit=10_000))
    assert [e.seq for e in whole] == list(range(1, len(whole) + 1))
    for (wanted, after), reader in zip(cursors, readers, strict=True):
        got = await reader
        assert got == [e for e in whole if e.seq > after and wanted.wants(e)]


async def test_a_reader_that_does_not_read_is_over_and_comes_back_with_its_cursor(
    db: Database, clock: ManualClock
) -> None:
    hub = Hub()
    db.listen(hub.on_commit)
    slow, quick = hub.subscribe(Filter()), hub.subscribe(Filter())

    def many(tx: Tx) -> None:
        tx.add("tasks", [task_row(f"tsk_{tx.now_us}_{n}") for n in range(2_000)], event="task.queued")

    for _ in range(SUBSCRIPTION_EVENTS_MAX // 2_000 + 1):
        clock.advance(1)
        await db.write(many)
        assert len(await quick.next(5.0)) == 2_000
    assert slow.lagged
    assert not quick.lagged
    assert len(await slow.next(0.0)) == SUBSCRIPTION_EVENTS_MAX
    missed = await db.read(lambda c: events.replay(c, SUBSCRIPTION_EVENTS_MAX, Filter(), limit=5_000))
    assert [e.seq for e in missed] == list(
        range(SUBSCRIPTION_EVENTS_MAX + 1, SUBSCRIPTION_EVENTS_MAX + 2_001)
    )


async def test_waiting_for_nothing_ends(db: Database) -> None:
    hub = Hub()
    subscription = hub.subscribe(Filter(task_id="tsk_1"))
    db.listen(hub.on_commit)
    await db.write(lambda tx: tx.add("tasks", [task_row("tsk_2")], event="task.queued"))
    assert await subscription.next(0.01) == ()
    hub.unsubscribe(subscription)
    await db.write(lambda tx: tx.add("tasks", [task_row("tsk_1")], event="task.queued"))
    assert await subscription.next(0.01) == ()


async def test_filters_replay_what_they_let_through(db: Database) -> None:
    def verb(tx: Tx) -> None:
        tx.add("computes", [compute_row("cmp_1"), compute_row("cmp_2")], event="compute.created")
        tx.add("tasks", [task_row("tsk_1"), task_row("tsk_2", compute_id="cmp_2")], event="task.queued")
        tx.emit("node.console", say("x", task="tsk_1"), compute_id="cmp_1", node_id="nod_1", task_id="tsk_1")

    await db.write(verb)
    for wanted, seqs in (
        (Filter(), [1, 2, 3, 4, 5]),
        (Filter(compute_id="cmp_1"), [1, 3, 5]),
        (Filter(task_id="tsk_1"), [3, 5]),
        (Filter(names=frozenset({"task.queued", "compute.created"})), [1, 2, 3, 4]),
        (Filter(compute_id="cmp_2", names=frozenset({"task.queued"})), [4]),
        (Filter(task_id="tsk_9"), []),
    ):
        found = await db.read(lambda c, w=wanted: events.replay(c, 0, w))
        assert [e.seq for e in found] == seqs
    assert await db.read(events.last_seq) == 5
    assert await db.read(events.first_seq) == 1
    assert await db.read(events.last_at_us) == db.clock.now_us()


async def test_old_events_are_dropped_in_pages_and_never_the_newest(db: Database, clock: ManualClock) -> None:
    for number in range(6):
        await db.write(lambda tx, n=number: tx.add("tasks", [task_row(f"tsk_{n}")], event="task.queued"))
        clock.advance(10)
    half_us = clock.now_us() - 30 * SECOND_US
    assert await db.write(lambda tx: events.forget(tx, half_us, limit=2)) == 2
    assert await db.write(lambda tx: events.forget(tx, half_us)) == 1
    assert await db.write(lambda tx: events.forget(tx, half_us)) == 0
    assert await db.read(events.first_seq) == 4
    assert await db.write(lambda tx: events.forget(tx, clock.now_us() + 1)) == 2
    assert (await db.read(events.first_seq), await db.read(events.last_seq)) == (6, 6)


async def test_who_reads_more_slowly_than_events_are_dropped_skips_none(
    db: Database, clock: ManualClock
) -> None:
    for number in range(5):
        await db.write(lambda tx, n=number: tx.add("tasks", [task_row(f"tsk_{n}")], event="task.queued"))
        clock.advance(10)
    page, last = await db.read(lambda c: events.replay_to(c, 0, Filter()))
    assert ([e.seq for e in page], last) == ([1, 2, 3, 4, 5], 5)
    await db.write(lambda tx: events.forget(tx, clock.now_us() - 20 * SECOND_US))
    with pytest.raises(events.ForgottenError):
        await db.read(lambda c: events.replay_to(c, 2, Filter()))
    page, _ = await db.read(lambda c: events.replay_to(c, 3, Filter()))
    assert [e.seq for e in page] == [4, 5]
    with pytest.raises(CursorExpired) as expired:
        await db.read(lambda c: views.start_of(c, 1, Filter()))
    assert expired.value.details == {"after": 1, "oldest": 3}
    assert await db.read(lambda c: views.start_of(c, None, Filter(task_id="tsk_4"))) == 3


async def test_a_page_of_large_events_is_short_and_skips_none(db: Database) -> None:
    for number in range(30):
        await db.write(
            lambda tx, n=number: tx.emit("node.console", say(f"{n}." + "x" * 60_000), compute_id="cmp_1")
        )
    seen: list[int] = []
    pages = 0
    while True:
        page, last = await db.read(lambda c, a=seen[-1] if seen else 0: events.replay_to(c, a, Filter()))
        assert sum(len(event.payload) for event in page) < events.REPLAY_BYTES + 70_000
        seen += [event.seq for event in page]
        pages += 1
        if not events.is_full(page):
            break
    assert (seen, last) == (list(range(1, 31)), 30)
    assert pages >= 6


async def test_the_last_moment_is_of_whatever_was_written_last(db: Database) -> None:
    """A daemon begins no earlier than that: what was due then would wait until its clock was there again."""
    at_us = db.clock.now_us()
    row = {"id": "1", "job_id": "job_1", "owner": "acme", "type": "job.queued", "data": {}, "at_us": at_us}
    await db.write(lambda tx: tx.connection.execute(job_events.insert().values(row)))
    assert await db.read(events.last_at_us) == at_us


async def test_an_empty_log_has_no_cursor(db: Database) -> None:
    assert await db.read(events.last_seq) == 0
    assert await db.read(events.first_seq) == 0
    assert await db.read(events.last_at_us) == 0
    assert await db.read(lambda c: events.replay(c, 0, Filter())) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("é", "\\u00e9"),
        ("\u2028", "\\u2028"),
        ("😀", "\\ud83d\\ude00"),
        ("a\x7fb", "a\x7fb"),
    ],
)
def test_a_frame_is_ascii_and_one_message(text: str, shown: str) -> None:
    framed = events.frame(Event(7, "node.console", f'{{"content":"{text}"}}'))
    assert framed == f'id: 7\nevent: node.console\ndata: {{"content":"{shown}"}}\n\n'.encode("ascii")


@pytest.mark.parametrize("seed", range(3))
def test_escaping_changes_no_text_and_is_quick(seed: int) -> None:
    chosen = random.Random(seed)
    text = "".join(chosen.choices('au1\\"/\x01\x7f\n\u00e9\u2028\ufffd\U0001f600', k=200_000))
    began = time.process_time()
    framed = events.frame(Event(7, "node.console", codec.dumps({"content": text})))
    assert time.process_time() - began < 0.05
    assert framed.isascii()
    assert framed.endswith(b"\n\n")
    assert codec.loads(framed.split(b"data: ")[1])["content"] == text


def test_what_is_only_published_has_no_cursor() -> None:
    assert events.frame(Event(0, "compute.cost", "{}")) == b"event: compute.cost\ndata: {}\n\n"
