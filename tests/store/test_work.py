"""What plans are shown of waiting and running work, read from rows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.store.support import compute_row, execution_row, node_row, task_row

from sky.domain import node as n
from sky.domain import task as t
from sky.domain.snapshots import AttemptsView, DispatchView, Waiting
from sky.kit.clock import SECOND_US, ManualClock
from sky.plan import attempt as plan
from sky.store import work
from sky.store.db import Database
from sky.store.snapshots import compute_view

SPEC: dict[str, Any] = {
    "specs": [{"provider": {"kind": "fake"}}],
    "selection": "cheapest",
    "allocation": "cheapest",
    "worker": {},
    "desired": "running",
    "delete_on_exit": False,
    "nodes": {"desired": 2, "min": 0, "max": 4},
}


async def put(
    db: Database, *executions: dict[str, Any], nodes: tuple[dict[str, Any], ...] = (), **more: Any
) -> None:
    """A ready compute with these nodes and executions, each of a task of its own unless it names one."""
    tasks = [task_row(x["task_id"], **more) for x in {x["task_id"]: x for x in executions}.values()]

    def verb(tx: Any) -> None:
        tx.add("computes", [compute_row(state="ready", spec=SPEC)])
        for node in nodes:
            tx.add("nodes", [node])
        for task in tasks:
            tx.add("tasks", [task])
        for x in executions:
            tx.add("executions", [x])

    await db.write(verb)


def at(number: int, state: str = "created", **more: Any) -> dict[str, Any]:
    return execution_row(f"exe_{number}", **{"task_id": f"tsk_{number}", "state": state, **more})


def ready(rank: int, **more: Any) -> dict[str, Any]:
    return node_row(f"nod_{rank}", **{"rank": rank, "state": "ready", "slots": 1, "window": 2, **more})


async def dispatch(db: Database) -> DispatchView:
    view = await db.write(lambda tx: work.dispatch_view(tx, "cmp_1"))
    assert view is not None
    return view


async def attempts(db: Database) -> AttemptsView:
    view = await db.read(lambda c: work.attempts_view(c, "cmp_1", db.clock.now_us()))
    assert view is not None
    return view


async def test_the_queue_is_shown_in_order_and_one_more_than_fits(db: Database) -> None:
    await put(
        db,
        *(at(number) for number in range(5)),
        at(5, wanted_rank=0),
        at(6, wanted_rank=3),
        at(7, "assigned", node_id="nod_0"),
        nodes=(ready(0), ready(1, generation=2), ready(2, state="draining")),
    )
    view = await dispatch(db)
    assert [(s.id, s.window, s.active) for s in view.seats] == [("nod_0", 2, 1)], (
        "of this definition, and ready"
    )
    assert view.waiting == (Waiting("exe_0", None), Waiting("exe_1", None), Waiting("exe_5", 0))
    assert view.scalable


async def test_without_a_place_one_that_waits_is_shown(db: Database) -> None:
    await put(db, at(0), at(1))
    view = await dispatch(db)
    assert (view.seats, view.waiting) == ((), (Waiting("exe_0", None),))


@pytest.mark.parametrize("state", ["deleting", "deleted", "failed"])
async def test_a_compute_that_takes_no_work_shows_none(db: Database, state: str) -> None:
    await db.write(lambda tx: tx.add("computes", [compute_row(state=state, spec=SPEC)]))
    assert await db.write(lambda tx: work.dispatch_view(tx, "cmp_1")) is None
    assert await db.write(lambda tx: work.dispatch_view(tx, "cmp_none")) is None


async def test_only_attempts_that_can_end_now_are_shown(db: Database, clock: ManualClock) -> None:
    now = clock.now_us()
    lost = node_row("nod_lost", rank=1, state="lost", fenced_us=now)
    soon = node_row("nod_soon", rank=2, state="lost", fenced_us=now + 5 * SECOND_US)
    going = node_row("nod_going", rank=3, state="deleting")
    gone = node_row("nod_gone", rank=3, state="deleted")
    shown = [
        at(1, "assigned", node_id="nod_going"),
        at(2, "started", node_id="nod_lost"),
        at(3, "dispatching", node_id="nod_gone"),
        at(4, "cancel_requested", node_id="nod_0", cancel_deadline_us=now),
        at(5, wanted_rank=4),
    ]
    hidden = [
        at(11, "started", node_id="nod_going"),
        at(12, "started", node_id="nod_soon"),
        at(13, "cancel_requested", node_id="nod_0", cancel_deadline_us=now + 9 * SECOND_US),
        at(14),
        at(15, "started", node_id="nod_0"),
        at(16, "succeeded", node_id="nod_lost", finished_us=1),
        at(17, wanted_rank=3),
    ]
    await put(db, *shown, *hidden, nodes=(ready(0), lost, soon, going, gone))
    view = await attempts(db)
    assert [a.id for a in view.attempts] == [x["id"] for x in shown]
    assert view.next_us == now + 5 * SECOND_US, "the first moment at which a hidden one may end"
    actions = plan.plan(view, now).actions
    assert len(actions) == len(shown), "each that is shown ends"


async def test_deadlines_are_shown_when_they_count(db: Database, clock: ManualClock) -> None:
    now = clock.now_us()
    rows = [at(1), at(2, "started", node_id="nod_0"), at(3, "cancel_requested", node_id="nod_0")]
    await put(db, *rows, nodes=(ready(0),), deadline_us=now + SECOND_US)
    assert (await attempts(db)).next_us == now + SECOND_US
    clock.advance(1)
    view = await attempts(db)
    assert [a.id for a in view.attempts] == ["exe_1"]
    assert view.next_us == now + SECOND_US + t.DEADLINE_GRACE_US
    clock.advance(t.DEADLINE_GRACE_US / SECOND_US)
    assert [a.id for a in (await attempts(db)).attempts] == ["exe_1", "exe_2"]


async def test_what_has_to_wait_never_hides_what_need_not(db: Database, clock: ManualClock) -> None:
    many = work.ATTEMPTS_MAX + 200
    running = [at(number, "started", node_id="nod_1") for number in range(many)]
    waiting = [at(many + number, "assigned", node_id="nod_1") for number in range(3)]
    await put(db, *running, *waiting, nodes=(node_row("nod_1", state="deleting"),))
    view = await attempts(db)
    assert [a.id for a in view.attempts] == [x["id"] for x in waiting]
    assert view.next_us is None, "and nobody looks in vain"


async def test_a_page_of_endings_that_is_full_is_followed_by_another(
    db: Database, clock: ManualClock
) -> None:
    many = work.ATTEMPTS_MAX + 1
    await put(
        db,
        *(at(number, "started", node_id="nod_1") for number in range(many)),
        nodes=(node_row("nod_1", state="deleted"),),
    )
    view = await attempts(db)
    assert len(view.attempts) == work.ATTEMPTS_MAX
    assert view.next_us == clock.now_us()


async def test_tries_are_counted_from_rows(db: Database) -> None:
    kinds = [None, "safe", "safe", "ambiguous", "person"]
    rows = [
        at(n, "failed", task_id="tsk_1", ordinal=n + 1, place=0, retry_kind=kind)
        for n, kind in enumerate(kinds[:4])
    ]
    await put(db, *rows)
    found = await db.read(lambda c: work.tries_used(c, [("tsk_1", 0), ("tsk_1", 1)]))
    assert found == {("tsk_1", 0): (2, 1)}
    assert await db.read(lambda c: work.tries_used(c, [])) == {}
    person = at(9, "failed", task_id="tsk_1", ordinal=9, place=0, retry_kind="person")
    later = at(10, "failed", task_id="tsk_1", ordinal=10, place=0, retry_kind="safe")
    await db.write(lambda tx: tx.add("executions", [person, later]))
    found = await db.read(lambda c: work.tries_used(c, [("tsk_1", 0)]))
    assert found == {("tsk_1", 0): (1, 0)}, "a person's retry begins the count anew"


async def test_a_compute_shows_its_live_nodes_and_its_newest_setbacks(
    db: Database, clock: ManualClock
) -> None:
    dead = [node_row(f"nod_d{x}", rank=1, state="deleted") for x in range(30)]
    served = node_row("nod_served", rank=1, state="deleted", ready_us=5)
    older = node_row("nod_older", rank=1, state="failed", generation=0)
    live = [
        node_row(f"nod_{s}", rank=10 + i, state=s) for i, s in enumerate(sorted(n.STATES.keys() - n.FINAL))
    ]
    await put(
        db, at(1, wanted_rank=2), at(2, "started", node_id="nod_ready"), nodes=(*dead, served, older, *live)
    )
    view = await db.read(lambda c: compute_view(c, "cmp_1", clock.now_us()))
    assert view is not None
    ids = [x.id for x in view.nodes]
    assert ids == [f"nod_d{x}" for x in range(10, 30)] + [x["id"] for x in live]
    assert (view.waiting, view.running, view.ranks_waited_for) == (1, 1, 3)
    assert {x.id: x.active for x in view.nodes}["nod_ready"] == 1
