"""How many nodes a compute that scales itself should have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.plan.views import NOW, SECOND, compute, compute_views, node, wanted

from sky.domain.compute import Bounds
from sky.domain.snapshots import ComputeView
from sky.plan import scale


def view(low: int, high: int, target: int, **more: Any) -> ComputeView:
    nodes = tuple(node(f"n{x}", rank=x) for x in range(target))
    return compute(*nodes, bounds=Bounds(target, low, high), target_nodes=target, **more)


@given(compute_views())
def test_a_target_is_within_the_bounds(one: ComputeView) -> None:
    wish, when = scale.target(one, NOW)
    assert one.bounds.low <= wish <= one.bounds.high
    assert when is None or when > NOW


@given(compute_views())
def test_it_never_shrinks_while_there_is_work(one: ComputeView) -> None:
    wish, _ = scale.target(one, NOW)
    now = min(max(one.target_nodes, one.bounds.low), one.bounds.high)
    assert wish >= now or one.running + one.waiting == 0


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
