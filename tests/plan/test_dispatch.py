"""Which waiting execution goes to which node."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.plan.views import NOW

from sky.domain.snapshots import DispatchView, Seats, Waiting
from sky.plan.dispatch import plan


def seats(rank: int, slots: int, window: int, active: int = 0) -> Seats:
    return Seats(f"nod_{rank}", rank, slots, window, active)


def view(nodes: tuple[Seats, ...], *ranks: int | None) -> DispatchView:
    waiting = tuple(Waiting(f"exe_{number}", rank) for number, rank in enumerate(ranks))
    return DispatchView("cmp_1", scalable=False, seats=nodes, waiting=waiting)


@st.composite
def views(draw: st.DrawFn) -> DispatchView:
    nodes: list[Seats] = []
    for rank in draw(st.sets(st.integers(0, 6))):
        slots = draw(st.integers(1, 4))
        window = slots + draw(st.integers(0, 4))
        nodes.append(seats(rank, slots, window, draw(st.integers(0, window + 1))))
    ranks = draw(st.lists(st.none() | st.integers(0, 7), max_size=30))
    return view(tuple(nodes), *ranks)


def went(one: DispatchView) -> dict[str, int]:
    return {fact.id: fact.rank for fact in plan(one, NOW)}


@given(views())
def test_no_node_is_filled_above_its_window(one: DispatchView) -> None:
    gets = Counter(fact.rank for fact in plan(one, NOW))
    for node in one.seats:
        assert gets[node.rank] == 0 or node.active + gets[node.rank] <= node.window


@given(views())
def test_each_goes_once_to_a_node_that_is_there_and_to_its_own_rank(one: DispatchView) -> None:
    facts = plan(one, NOW)
    assert len({fact.id for fact in facts}) == len(facts)
    ids = {node.rank: node.id for node in one.seats}
    wanted = {x.id: x.wanted_rank for x in one.waiting}
    for fact in facts:
        assert ids[fact.rank] == fact.node_id
        assert wanted[fact.id] in (None, fact.rank)
        assert fact.assigned_us == NOW


@given(views())
def test_first_come_first_served(one: DispatchView) -> None:
    taken = went(one)
    any_rank = [x.id in taken for x in one.waiting if x.wanted_rank is None]
    assert any_rank == sorted(any_rank, reverse=True)
    for rank in range(8):
        bound = [x.id in taken for x in one.waiting if x.wanted_rank == rank]
        assert bound == sorted(bound, reverse=True)


@given(views())
def test_nothing_waits_where_there_is_room(one: DispatchView) -> None:
    facts = plan(one, NOW)
    gets = Counter(fact.rank for fact in facts)
    room = {n.rank for n in one.seats if n.active + gets[n.rank] < n.window}
    left = [x for x in one.waiting if x.id not in {fact.id for fact in facts}]
    assert not [x for x in left if x.wanted_rank in room]
    assert not room or not [x for x in left if x.wanted_rank is None]


@given(views())
def test_slots_are_filled_everywhere_before_anybody_queues(one: DispatchView) -> None:
    free = DispatchView(
        one.compute_id, one.scalable, one.seats, tuple(x for x in one.waiting if x.wanted_rank is None)
    )
    gets = Counter(fact.rank for fact in plan(free, NOW))
    queues = [n for n in free.seats if gets[n.rank] and n.active + gets[n.rank] > n.slots]
    idle = [n for n in free.seats if n.active + gets[n.rank] < n.slots]
    assert not queues or not idle


def test_work_is_spread_over_the_nodes() -> None:
    assert went(view((seats(0, 2, 4), seats(1, 2, 4)), None, None)) == {"exe_0": 0, "exe_1": 1}


def test_what_is_bound_to_a_full_or_absent_rank_waits_and_holds_nobody_up() -> None:
    nodes = (seats(0, 1, 1, 1), seats(1, 1, 1))
    assert went(view(nodes, 0, 5, None)) == {"exe_2": 1}


def test_what_is_bound_to_a_rank_takes_its_place_in_turn() -> None:
    assert went(view((seats(0, 1, 1),), None, 0)) == {"exe_0": 0}
    assert went(view((seats(0, 1, 1),), 0, None)) == {"exe_0": 0}
    assert went(view((seats(0, 1, 2), seats(1, 1, 1)), 0, 0, None, None)) == {
        "exe_0": 0,
        "exe_1": 0,
        "exe_2": 1,
    }


def test_no_nodes_no_work() -> None:
    assert plan(view((), None, 0), NOW) == ()
    assert plan(view((seats(0, 1, 1),)), NOW) == ()
