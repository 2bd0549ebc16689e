"""What a compute needs next, as sentences that hold for every snapshot, and as the cases that matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace
from tests.plan.views import NOW, SECOND, carried_out, compute, compute_views, node

from sky.domain import compute as c
from sky.domain import node as n
from sky.domain.compute import Bounds
from sky.domain.snapshots import ComputeView, NodeView
from sky.plan import compute as plan
from sky.plan import scale
from sky.plan.node import SILENT_US


def wanted_nodes(view: ComputeView) -> list[NodeView]:
    return [x for x in view.nodes if x.state in n.WANTED]


def settled(view: ComputeView) -> ComputeView:
    """The snapshot once plans have been carried out until there is nothing to do."""
    for _ in range(4):
        actions = plan.plan(view, NOW).actions
        if not actions:
            return view
        view = carried_out(view, actions)
    raise AssertionError(f"plans never come to rest: {actions}")


@given(compute_views())
def test_planning_twice_changes_nothing(view: ComputeView) -> None:
    after = settled(view)
    assert plan.plan(after, NOW).actions == ()


@given(compute_views())
def test_no_rank_is_asked_for_twice(view: ComputeView) -> None:
    first = plan.plan(view, NOW).actions
    second = plan.plan(carried_out(view, first), NOW).actions
    asked = [a.rank for a in (*first, *second) if isinstance(a, plan.AskForNode)]
    assert len(asked) == len(set(asked))


@given(compute_views())
def test_never_more_wanted_nodes_than_asked_for_and_one_per_rank(view: ComputeView) -> None:
    after = settled(view)
    if after.state == c.FAILED:
        assert wanted_nodes(after) == []
        return
    wish, _ = scale.target(after, NOW)
    ranks = [x.rank for x in wanted_nodes(after)]
    assert len(ranks) == len(set(ranks))
    surplus = [x for x in wanted_nodes(after) if x.rank >= wish or x.unwanted_us is not None]
    assert all(x.active and x.state == n.DRAINING for x in surplus), "what is too many finishes what it has"


@given(compute_views())
def test_another_definition_costs_one_node_until_one_of_it_is_ready(view: ComputeView) -> None:
    wish, _ = scale.target(view, NOW)
    tried = any(x.state in n.SERVING and x.generation == view.generation for x in wanted_nodes(view))
    if tried or view.observed_generation == view.generation:
        return
    after = settled(view)
    if after.state == c.FAILED:
        return
    former = [
        x
        for x in wanted_nodes(view)
        if x.state in n.SERVING
        and x.rank < wish
        and x.generation != view.generation
        and x.unwanted_us is None
    ]
    left = {x.id for x in wanted_nodes(after) if x.state != n.DRAINING}
    assert sum(x.id not in left for x in former) <= 1


@given(compute_views())
def test_a_node_that_somebody_wants_gone_is_never_kept(view: ComputeView) -> None:
    for x in wanted_nodes(settled(view)):
        if x.unwanted_us is not None:
            assert x.active
            assert x.state == n.DRAINING or x.state in n.COMING


@given(compute_views())
def test_a_rank_is_asked_for_only_when_nothing_of_it_may_still_work(view: ComputeView) -> None:
    for action in plan.plan(view, NOW).actions:
        if isinstance(action, plan.AskForNode):
            same = [x for x in view.nodes if x.rank == action.rank]
            assert not [x for x in same if x.state in n.WANTED]
            for x in same:
                if x.state in n.ENDING and x.ready_us is not None:
                    assert x.fenced_us is not None
                    assert x.fenced_us <= NOW


@given(compute_views())
def test_a_node_with_work_is_never_given_back_while_the_compute_lives(view: ComputeView) -> None:
    decision = plan.plan(view, NOW)
    if any(isinstance(a, c.ComputeFailed) for a in decision.actions):
        return
    gone = {a.id for a in decision.actions if isinstance(a, n.NodeDeleting)}
    assert not [x for x in view.nodes if x.id in gone and x.active]


@given(compute_views())
def test_the_highest_ranks_go_first_and_rank_0_last(view: ComputeView) -> None:
    decision = plan.plan(view, NOW)
    if any(isinstance(a, c.ComputeFailed) for a in decision.actions):
        return
    let_go = {a.id for a in decision.actions if isinstance(a, n.NodeDeleting | n.NodeDraining)}
    present = [x for x in wanted_nodes(view) if x.generation == view.generation and x.unwanted_us is None]
    gone = [x.rank for x in present if x.id in let_go]
    kept = [x.rank for x in present if x.id not in let_go and x.state != n.DRAINING]
    assert not gone or not kept or min(gone) > max(kept)


@given(compute_views())
def test_a_compute_that_serves_or_has_served_is_never_given_up(view: ComputeView) -> None:
    failed = [a for a in plan.plan(view, NOW).actions if isinstance(a, c.ComputeFailed)]
    if view.observed_generation == view.generation:
        assert failed == []
    if any(x.state in n.SERVING and x.generation == view.generation for x in view.nodes):
        assert failed == []


@given(compute_views())
def test_ready_is_said_exactly_when_all_wanted_nodes_serve(view: ComputeView) -> None:
    after = settled(view)
    if after.state not in c.ACCEPTING:
        return
    wish, _ = scale.target(after, NOW)
    serving = [
        x
        for x in wanted_nodes(after)
        if x.state in n.SERVING
        and x.generation == after.generation
        and x.rank < wish
        and x.unwanted_us is None
    ]
    assert (after.state == c.READY) == (len(serving) >= wish)
    if after.state == c.READY:
        assert after.observed_generation == after.generation


@given(compute_views())
def test_a_plan_looks_again_later_and_never_at_once(view: ComputeView) -> None:
    decision = plan.plan(settled(view), NOW)
    assert decision.next_us is None or decision.next_us > NOW
    assert decision.why


# ── cases ───────────────────────────────────────────────────────────────────────────────────────


def test_missing_ranks_are_asked_for_before_anything_is_bought() -> None:
    view = compute(
        state=c.REQUESTED, observed_generation=0, ready_us=None, bounds=Bounds(3, 3, 3), target_nodes=3
    )
    decision = plan.plan(view, NOW)
    assert decision.actions == (
        plan.AskForNode("cmp_1", 0, 1),
        plan.AskForNode("cmp_1", 1, 1),
        plan.AskForNode("cmp_1", 2, 1),
        c.ComputeProvisioning("cmp_1"),
    )
    assert decision.why == "0 of 3 nodes are ready"


def test_a_drain_is_aborted_when_the_node_is_wanted_again() -> None:
    busy = node(state=n.DRAINING, active=1)
    assert plan.plan(compute(busy), NOW).actions == (n.NodeDrainAborted("nod_1"),)


def test_a_busy_node_drains_and_an_idle_one_goes_at_once() -> None:
    view = compute(
        node("a"), node("b", rank=1, active=1), node("c", rank=2), bounds=Bounds(1, 1, 1), target_nodes=1
    )
    decision = plan.plan(view, NOW)
    assert decision.actions == (n.NodeDraining("b"), n.NodeDeleting("c", NOW))
    assert decision.next_us == NOW + plan.DRAIN_CHECK_US


def test_a_lost_node_is_replaced_once_it_is_fenced() -> None:
    lost = node(state=n.LOST, ready_us=NOW - SECOND, fenced_us=NOW + 5 * SECOND)
    early = plan.plan(compute(lost), NOW)
    assert early.actions == (c.ComputeRecovering("cmp_1"),)
    assert early.next_us == NOW + 5 * SECOND
    late = plan.plan(compute(lost, state=c.RECOVERING), NOW + 5 * SECOND)
    assert plan.AskForNode("cmp_1", 0, 1) in late.actions


def test_growing_is_provisioning_and_losing_is_recovering() -> None:
    grown = compute(node(), bounds=Bounds(2, 2, 2), target_nodes=2)
    assert c.ComputeProvisioning("cmp_1") in plan.plan(grown, NOW).actions
    lost = compute(node(state=n.DELETING, ready_us=NOW - 9 * SECOND))
    assert c.ComputeRecovering("cmp_1") in plan.plan(lost, NOW).actions


def broken(key: str, ago_s: int, **more: object) -> NodeView:
    error = {"code": "capability_mismatch", "message": f"{key} broke", "retryable": True}
    values = {"state": n.DELETED, "last_error": error, "created_us": NOW - ago_s * SECOND, **more}
    return node(key, deleting_us=NOW - ago_s * SECOND, **values)


def test_three_broken_machines_are_enough_where_none_was_ever_ready() -> None:
    trouble = [broken(f"b{x}", 30 - x) for x in range(3)]
    young = compute(*trouble[:2], state=c.PROVISIONING, observed_generation=0, ready_us=None)
    assert plan.AskForNode("cmp_1", 0, 1) in plan.plan(young, NOW).actions, "two may be chance"
    spent = compute(*trouble, state=c.PROVISIONING, observed_generation=0, ready_us=None)
    assert plan.plan(spent, NOW).actions == (c.ComputeFailed("cmp_1", trouble[-1].last_error),)


def test_broken_machines_of_a_compute_that_was_ready_are_asked_for_ever_later() -> None:
    trouble = tuple(broken(f"b{x}", 60 - x) for x in range(5))
    view = compute(*trouble, ready_us=NOW - 3_600 * SECOND)
    decision = plan.plan(view, NOW)
    assert decision.actions == (
        c.ComputeDegraded("cmp_1", {**(trouble[-1].last_error or {}), "retryable": True}),
    )
    again = trouble[-1].deleting_us + 16 * plan.AGAIN_FIRST_US
    assert decision.next_us == again
    degraded = replace(view, state=c.DEGRADED)
    assert plan.AskForNode("cmp_1", 0, 1) in plan.plan(degraded, again).actions


def test_machines_that_broke_before_one_was_ready_do_not_count() -> None:
    trouble = tuple(broken(f"b{x}", 600 - x) for x in range(5))
    view = compute(*trouble, node("r", rank=1), bounds=Bounds(2, 2, 2), target_nodes=2)
    assert plan.AskForNode("cmp_1", 0, 1) in plan.plan(view, NOW).actions


def test_nothing_that_can_be_bought_ends_it_at_once_unless_it_serves() -> None:
    error = {"code": "capability_mismatch", "message": "nothing fits", "retryable": False}
    hopeless = node("h", state=n.FAILED, last_error=error, rank=0)
    new = compute(hopeless, state=c.PROVISIONING, observed_generation=0, ready_us=None)
    assert plan.plan(new, NOW).actions == (c.ComputeFailed("cmp_1", error),)
    grows = compute(node(), replace(hopeless, rank=1, created_us=NOW), bounds=Bounds(2, 2, 2), target_nodes=2)
    decision = plan.plan(grows, NOW)
    assert decision.actions == (c.ComputeDegraded("cmp_1", {**error, "retryable": True}),)
    assert decision.next_us == NOW + plan.AGAIN_FIRST_US


def test_a_degraded_compute_tells_another_reason_once() -> None:
    first = {"code": "provider_refused", "message": "no quota", "retryable": True}
    other = {"code": "provider_refused", "message": "sold out", "retryable": True}
    waiting = node(state=n.REQUESTED, last_error=other)
    view = compute(waiting, state=c.DEGRADED, last_error=first)
    assert plan.plan(view, NOW).actions == (c.ComputeNoted("cmp_1", other),)
    assert plan.plan(replace(view, last_error=other), NOW).actions == ()


def test_another_generation_is_tried_with_one_node_and_then_replaces_the_others() -> None:
    three = {"generation": 2, "bounds": Bounds(3, 3, 3), "target_nodes": 3}
    former = (node("a"), node("b", rank=1, active=2), node("c", rank=2))
    first = plan.plan(compute(*former, **three), NOW)
    assert first.actions == (n.NodeDeleting("c", NOW), c.ComputeProvisioning("cmp_1"))
    assert "2 of the definition before stay until one of this is ready" in first.why
    going = replace(former[2], state=n.DELETING)
    coming = node("d", rank=2, generation=2, state=n.BOOTSTRAPPING)
    three["state"] = c.PROVISIONING
    assert plan.plan(compute(*former[:2], going, **three), NOW).actions == ()
    assert plan.plan(compute(*former[:2], coming, **three), NOW).actions == ()
    ready = node("d", rank=2, generation=2)
    assert plan.plan(compute(*former[:2], ready, **three), NOW).actions == (
        n.NodeDeleting("a", NOW),
        n.NodeDraining("b"),
    )


def test_another_generation_that_breaks_leaves_the_others_and_is_never_given_up() -> None:
    trouble = [broken(f"b{x}", 30 - x, generation=2, rank=1) for x in range(5)]
    view = compute(
        node("a"), *trouble, generation=2, state=c.PROVISIONING, bounds=Bounds(2, 2, 2), target_nodes=2
    )
    decision = plan.plan(view, NOW)
    assert decision.actions == (
        c.ComputeDegraded("cmp_1", {**(trouble[-1].last_error or {}), "retryable": True}),
    )
    assert "1 of the definition before stay" in decision.why


def test_a_generation_is_told_when_it_is_applied() -> None:
    view = compute(node(generation=2), generation=2, state=c.PROVISIONING)
    assert plan.plan(view, NOW).actions == (
        c.GenerationApplied("cmp_1", 2),
        c.ComputeReady("cmp_1", view.ready_us or 0),
    )


@pytest.mark.parametrize("delete_on_exit", [True, False])
def test_a_lapsed_lease_abandons_or_only_lets_go(delete_on_exit: bool) -> None:
    held = compute(node(), lease_owner="me", lease_expires_us=NOW + SECOND, delete_on_exit=delete_on_exit)
    before = plan.plan(held, NOW)
    assert (before.actions, before.next_us) == ((), NOW + SECOND)
    after = plan.plan(held, NOW + SECOND).actions
    if delete_on_exit:
        assert after == (c.ComputeAbandoned("cmp_1"), c.ComputeDeleting("cmp_1", NOW + SECOND))
    else:
        assert after == (c.LeaseReleased("cmp_1", NOW + SECOND),)


def test_what_is_deleted_without_a_holder_waits_a_minute_for_one() -> None:
    never = compute(node(), created_us=NOW, delete_on_exit=True)
    assert plan.plan(never, NOW).next_us == NOW + plan.UNHELD_US
    assert plan.plan(never, NOW + plan.UNHELD_US).actions == (
        c.ComputeAbandoned("cmp_1"),
        c.ComputeDeleting("cmp_1", NOW + plan.UNHELD_US),
    )
    let_go = compute(node(), lease_expires_us=NOW, delete_on_exit=True)
    assert plan.plan(let_go, NOW + plan.UNHELD_US - 1).actions == ()
    assert plan.plan(let_go, NOW + plan.UNHELD_US).actions
    away = compute(node(), delete_on_exit=True, listening_us=NOW)
    assert plan.plan(away, NOW).next_us == NOW + plan.UNHELD_US, "nobody could claim it meanwhile"
    assert plan.plan(compute(node(), created_us=NOW), NOW + 2 * plan.UNHELD_US).actions == ()


def test_a_holder_has_time_to_be_heard_by_a_daemon_that_was_away() -> None:
    held = compute(
        node(), lease_owner="me", lease_expires_us=NOW - 3_600 * SECOND, delete_on_exit=True, listening_us=NOW
    )
    assert plan.plan(held, NOW + plan.LEASE_GRACE_US - 1).actions == ()
    assert plan.plan(held, NOW).next_us == NOW + plan.LEASE_GRACE_US
    assert plan.plan(held, NOW + plan.LEASE_GRACE_US).actions


@pytest.mark.parametrize("state", sorted(c.STATES))
def test_every_state_of_a_compute_has_a_plan(state: str) -> None:
    nodes = tuple(node(s, state=s, rank=i) for i, s in enumerate(sorted(n.STATES)))
    decision = plan.plan(compute(*nodes, state=state), NOW)
    assert decision.why
    if state == c.DELETED:
        assert decision.actions == ()
    if state in (c.DELETING, c.FAILED):
        told = {a.id for a in decision.actions}
        assert told == n.WANTED | {n.LOST}, "every machine is given back"


def test_deleted_is_said_when_the_last_machine_is_gone() -> None:
    left = compute(node(state=n.DELETING), state=c.DELETING)
    assert plan.plan(left, NOW).actions == ()
    assert plan.plan(compute(node(state=n.DELETED), state=c.DELETING), NOW).actions == (
        c.ComputeDeleted("cmp_1", NOW),
    )


def test_a_machine_is_kept_for_its_calls_to_be_stopped_while_it_is_heard() -> None:
    asked = NOW - SECOND
    view = compute(node(active=2), node("nod_2", rank=1), state=c.DELETING, deleting_us=asked)
    waits = plan.plan(view, NOW)
    assert waits.actions == (n.NodeDeleting("nod_2", NOW),), "one without calls goes at once"
    assert waits.next_us == NOW + plan.LAST_WORDS_CHECK_US
    silent_us = NOW - SECOND + SILENT_US
    assert plan.plan(view, silent_us - 1).actions == (n.NodeDeleting("nod_2", silent_us - 1),)
    assert plan.plan(view, silent_us).actions[0] == n.NodeDeleting("nod_1", silent_us)
    late = asked + plan.LAST_WORDS_US
    heard = compute(node(active=2, last_seen_us=late - 1), state=c.DELETING, deleting_us=asked)
    assert plan.plan(heard, late - 1).actions == ()
    assert plan.plan(heard, late).actions == (n.NodeDeleting("nod_1", late),), "and not for ever"


def test_a_spec_that_wants_it_deleted_deletes_it() -> None:
    assert plan.plan(compute(node(), desired="deleted"), NOW).actions == (c.ComputeDeleting("cmp_1", NOW),)
