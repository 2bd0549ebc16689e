"""How many nodes a compute that scales itself should have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.plan.views import NOW, SECOND, compute, compute_views, node, wanted

from sky.domain.compute import Bounds
from sky.domain.node import SERVING
from sky.domain.snapshots import ComputeView
from sky.plan import scale


def view(low: int, high: int, target: int, **more: Any) -> ComputeView:
    quiet_us = more.get("idle_since_us", NOW)
    nodes = tuple(node(f"n{x}", rank=x, ready_us=0, worked_us=quiet_us) for x in range(target))
    return compute(*nodes, bounds=Bounds(target, low, high), target_nodes=target, **more)


@given(compute_views())
def test_a_target_is_within_the_bounds(one: ComputeView) -> None:
    wish, when = scale.target(one, NOW)
    assert one.bounds.low <= wish <= one.bounds.high
    assert when is None or when > NOW


@given(compute_views())
def test_no_rank_is_given_up_that_had_work_within_the_idle_time(one: ComputeView) -> None:
    wish, _ = scale.target(one, NOW)
    recent_us = NOW - one.wanted.idle_timeout_us
    for x in one.nodes:
        if x.state in SERVING and wish <= x.rank < min(one.target_nodes, one.bounds.high):
            moments = (x.ready_us, x.worked_us, x.assigned_us)
            assert all(moment is None or moment <= recent_us for moment in moments)


@given(compute_views())
def test_what_runs_and_waits_fits_into_what_is_kept(one: ComputeView) -> None:
    wish, _ = scale.target(one, NOW)
    slots = {x.rank: x.slots for x in one.nodes if x.state in SERVING}
    usual = min(slots.values(), default=1)
    room = sum(slots.get(rank, usual) for rank in range(wish))
    assert wish == one.bounds.high or room >= one.running + one.waiting
    assert wish >= min(one.bounds.high, max(one.ranks_waited_for, one.ranks_at_work))


@pytest.mark.parametrize(
    ("waiting", "running", "wish"), [(0, 0, 1), (1, 0, 1), (2, 0, 1), (3, 0, 2), (2, 2, 2), (99, 0, 5)]
)
def test_it_grows_at_once_to_what_the_queue_needs(waiting: int, running: int, wish: int) -> None:
    one = view(1, 5, 1, waiting=waiting, running=running, idle_since_us=NOW)
    assert scale.target(one, NOW) == (wish, None)


@pytest.mark.parametrize(("concurrency", "wish"), [(None, 4), (2, 2), (8, 1)])
def test_without_a_node_the_spec_says_how_much_one_takes(concurrency: int | None, wish: int) -> None:
    one = compute(bounds=Bounds(0, 0, 9), target_nodes=0, waiting=4, wanted=wanted(concurrency=concurrency))
    assert scale.target(one, NOW)[0] == wish


def test_it_grows_to_the_rank_that_is_waited_for() -> None:
    assert scale.target(view(0, 5, 1, waiting=1, ranks_waited_for=4), NOW) == (4, None)
    assert scale.target(view(0, 3, 1, waiting=1, ranks_waited_for=4), NOW) == (3, None)


def test_it_shrinks_only_after_the_idle_time() -> None:
    one = view(0, 5, 3, idle_since_us=NOW - 29 * SECOND)
    assert scale.target(one, NOW) == (3, NOW + SECOND)
    assert scale.target(one, NOW + SECOND) == (0, None)


def test_a_busy_node_does_not_keep_idle_ones() -> None:
    """One long call on a rank in the middle: what is above it goes, and it drains once rank 0 has room."""
    ago = NOW - 60 * SECOND
    nodes = [node(f"n{x}", rank=x, ready_us=0, worked_us=ago) for x in range(4)]
    nodes[1] = node("n1", rank=1, ready_us=0, assigned_us=NOW - 20 * SECOND, active=1)
    one = compute(*nodes, bounds=Bounds(0, 0, 5), target_nodes=4, running=1)
    assert scale.target(one, NOW) == (2, NOW + 10 * SECOND)
    assert scale.target(one, NOW + 10 * SECOND) == (1, None)


def test_a_broadcast_at_work_keeps_its_ranks() -> None:
    ago = NOW - 3_600 * SECOND
    nodes = [node(f"n{x}", rank=x, ready_us=0, assigned_us=ago, active=1) for x in range(4)]
    one = compute(*nodes, bounds=Bounds(0, 0, 5), target_nodes=4, running=4, ranks_at_work=4)
    assert scale.target(one, NOW) == (4, None)


def test_nodes_of_several_sizes_count_as_what_they_hold() -> None:
    nodes = (node("big", rank=0, slots=8), node("small", rank=1, slots=1))
    one = compute(*nodes, bounds=Bounds(2, 1, 9), target_nodes=2, waiting=12)
    assert scale.target(one, NOW) == (5, None)


def test_a_load_that_comes_and_goes_within_the_idle_time_moves_nothing() -> None:
    for second in range(0, 600, 10):
        now = NOW + second * SECOND
        busy = 4 if second % 20 == 0 else 0
        ended_us = now - 10 * SECOND
        nodes = [node(f"n{x}", rank=x, ready_us=0, worked_us=ended_us) for x in range(2)]
        one = compute(*nodes, bounds=Bounds(0, 0, 2), target_nodes=2, running=busy, idle_since_us=ended_us)
        assert scale.target(one, now)[0] == 2


def test_what_was_asked_for_and_is_coming_is_not_given_up_at_once() -> None:
    asked = compute(node(), bounds=Bounds(3, 0, 5), target_nodes=3, scaled_us=NOW, idle_since_us=0)
    assert scale.target(asked, NOW) == (3, NOW + 30 * SECOND)


def test_it_shrinks_to_the_minimum() -> None:
    assert scale.target(view(2, 5, 4, idle_since_us=NOW - 60 * SECOND), NOW) == (2, None)


def test_it_does_not_shrink_within_the_cooldown() -> None:
    one = view(
        0,
        5,
        3,
        idle_since_us=NOW - 3_600 * SECOND,
        scaled_us=NOW - 10 * SECOND,
        wanted=wanted(cooldown_us=60 * SECOND),
    )
    assert scale.target(one, NOW) == (3, NOW + 50 * SECOND)
    assert scale.target(one, NOW + 50 * SECOND) == (0, None)


def test_it_grows_again_within_the_cooldown() -> None:
    one = view(0, 5, 0, waiting=1, scaled_us=NOW, wanted=wanted(cooldown_us=60 * SECOND))
    assert scale.target(one, NOW)[0] == 1


def test_a_fixed_size_is_what_was_asked_for() -> None:
    one = compute(bounds=Bounds(3, 3, 3), target_nodes=3, waiting=100)
    assert scale.target(one, NOW) == (3, None)


def test_bounds_that_changed_move_the_target_into_them() -> None:
    assert scale.target(view(2, 4, 1, idle_since_us=NOW), NOW)[0] == 2
    assert scale.target(view(0, 2, 4, idle_since_us=NOW), NOW)[0] == 2
