"""Which attempts end although nobody reported them, and which never do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plan.views import MOMENTS, NOW, SECOND

from sky.domain import node as n
from sky.domain import task as t
from sky.domain.snapshots import AttemptsView, AttemptView
from sky.domain.task import Tries
from sky.plan import attempt as plan

GRACE_US = t.DEADLINE_GRACE_US


def attempt(state: str, **more: Any) -> AttemptView:
    on_node = state in t.ON_NODE
    values: dict[str, Any] = {
        "id": "exe_1",
        "task_id": "tsk_1",
        "state": state,
        "wanted_rank": None,
        "node_id": "nod_1" if on_node else None,
        "node_state": n.READY if on_node else None,
        "node_fenced_us": None,
        "tries": Tries(3, 0, 0, 0),
        "deadline_us": None,
        "cancel_deadline_us": NOW + 60 * SECOND if state == t.CANCEL_REQUESTED else None,
    }
    return AttemptView(**{**values, **more})


def view(*attempts: AttemptView, accepting: bool = True, ranks: int = 4) -> AttemptsView:
    return AttemptsView("cmp_1", accepting, ranks, attempts, None)


def end_of(one: AttemptView, now_us: int = NOW, **more: Any) -> plan.End | None:
    actions = plan.plan(view(one, **more), now_us).actions
    if not actions:
        return None
    (action,) = actions
    assert isinstance(action, plan.End)
    return action


LIVE = st.sampled_from(sorted(t.EXECUTION_LIVE))
NODES = st.sampled_from(sorted(n.STATES))
ATTEMPTS = st.builds(
    attempt,
    LIVE,
    node_state=NODES,
    node_fenced_us=st.none() | MOMENTS,
    deadline_us=st.none() | MOMENTS,
    wanted_rank=st.none() | st.integers(0, 6),
    tries=st.builds(Tries, *[st.integers(0, 3)] * 4),
)


@given(ATTEMPTS, st.booleans())
def test_what_may_have_begun_never_ends_as_if_it_had_not(one: AttemptView, accepting: bool) -> None:
    end = end_of_any(one, accepting)
    if end is not None and one.state in t.HANDED_OUT:
        assert end.state == t.INDETERMINATE
        assert end.retry_kind in (None, "ambiguous")
    if end is not None and one.state in t.WAITING:
        assert end.state in (t.FAILED, t.CANCELLED, t.TIMED_OUT)
        assert end.retry_kind in (None, "safe")


@given(ATTEMPTS, st.booleans())
def test_retries_stay_within_what_was_allowed(one: AttemptView, accepting: bool) -> None:
    end = end_of_any(one, accepting)
    if end is not None and end.retry_kind == "safe":
        assert accepting
        assert one.tries.safe_used < one.tries.safe_allowed
    if end is not None and end.retry_kind == "ambiguous":
        assert accepting
        assert one.tries.ambiguous_used < one.tries.ambiguous_allowed
        assert one.state != t.CANCEL_REQUESTED, "what somebody wanted stopped is not begun again"


@given(ATTEMPTS)
def test_a_node_that_is_not_over_ends_nothing_by_itself(one: AttemptView) -> None:
    """Silence, draining, provisioning: whatever the node is going through, the attempt goes on."""
    serving = replace(one, node_state=n.READY, node_fenced_us=None, deadline_us=None, wanted_rank=None)
    assert plan.plan(view(serving), NOW).actions == ()


def end_of_any(one: AttemptView, accepting: bool) -> plan.End | None:
    ends = [a for a in plan.plan(view(one, accepting=accepting), NOW).actions if isinstance(a, plan.End)]
    return ends[0] if ends else None


# ── a node is over ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("node_state", sorted(n.ENDING | n.FINAL))
def test_one_in_the_mailbox_of_an_ending_node_is_tried_elsewhere(node_state: str) -> None:
    end = end_of(attempt(t.ASSIGNED, node_state=node_state))
    assert end == plan.End("exe_1", t.FAILED, "node_lost", "node nod_1 was lost before it began", "safe")


def test_safe_retries_are_counted() -> None:
    for used, kind in ((0, "safe"), (2, "safe"), (3, None), (4, None)):
        end = end_of(attempt(t.ASSIGNED, node_state=n.LOST, tries=Tries(3, 9, used, 0)))
        assert end is not None
        assert (end.state, end.retry_kind) == (t.FAILED, kind)


@pytest.mark.parametrize("state", [t.DISPATCHING, t.ACCEPTED, t.STARTED])
def test_one_that_was_handed_out_is_indeterminate(state: str) -> None:
    for allowed, used, kind in ((0, 0, None), (1, 0, "ambiguous"), (1, 1, None), (2, 1, "ambiguous")):
        end = end_of(attempt(state, node_state=n.DELETED, tries=Tries(3, allowed, 0, used)))
        assert end is not None
        assert (end.state, end.code, end.retry_kind) == (t.INDETERMINATE, "node_lost", kind)


@pytest.mark.parametrize("state", sorted(t.HANDED_OUT))
@pytest.mark.parametrize("node_state", sorted(n.ENDING))
def test_a_node_that_may_still_work_is_waited_for(state: str, node_state: str) -> None:
    one = attempt(state, node_state=node_state, node_fenced_us=NOW + 5 * SECOND)
    decision = plan.plan(view(one), NOW)
    assert decision.actions == ()
    assert decision.next_us == NOW + 5 * SECOND
    assert end_of(one, NOW + 5 * SECOND) is not None


@pytest.mark.parametrize("state", sorted(t.HANDED_OUT))
def test_a_node_whose_machine_cannot_be_ended_is_waited_for(state: str) -> None:
    assert end_of(attempt(state, node_state=n.DELETING)) is None


# ── deadlines ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", sorted(t.WAITING))
def test_a_deadline_ends_what_waits_at_once(state: str) -> None:
    one = attempt(state, deadline_us=NOW)
    assert plan.plan(view(one), NOW - 1).next_us == NOW
    assert end_of(one) == plan.End("exe_1", t.TIMED_OUT, "timed_out", "its deadline passed before it began")


@pytest.mark.parametrize("state", [t.DISPATCHING, t.ACCEPTED, t.STARTED])
def test_a_deadline_is_the_nodes_business_first_and_then_a_cancel(state: str) -> None:
    one = attempt(state, deadline_us=NOW)
    within = plan.plan(view(one), NOW)
    assert (within.actions, within.next_us) == ((), NOW + GRACE_US)
    late = plan.plan(view(one), NOW + GRACE_US)
    assert late.actions == (t.ExecutionCancelRequested("exe_1", NOW + GRACE_US + t.CANCEL_CONFIRM_US),)
    assert late.next_us == NOW + GRACE_US + t.CANCEL_CONFIRM_US


def test_a_deadline_counts_on_a_node_whose_end_takes_for_ever() -> None:
    one = attempt(t.STARTED, node_state=n.DELETING, deadline_us=NOW - GRACE_US)
    (asked,) = plan.plan(view(one), NOW).actions
    assert isinstance(asked, t.ExecutionCancelRequested)


# ── cancels ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("node_state", [n.READY, n.DRAINING, n.DELETING])
def test_a_cancel_that_nobody_confirms_is_indeterminate_and_never_cancelled(node_state: str) -> None:
    one = attempt(t.CANCEL_REQUESTED, node_state=node_state, cancel_deadline_us=NOW + SECOND)
    assert plan.plan(view(one), NOW).next_us == NOW + SECOND
    end = end_of(one, NOW + SECOND)
    assert end == plan.End("exe_1", t.INDETERMINATE, "cancelled", "the node did not confirm that it stopped")


# ── the compute ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", sorted(t.WAITING))
def test_what_waits_in_a_compute_that_ends_is_cancelled(state: str) -> None:
    end = end_of(attempt(state), accepting=False)
    assert end == plan.End("exe_1", t.CANCELLED, "cancelled", "its compute was deleted before it began")


def test_what_runs_in_a_compute_that_ends_is_stopped() -> None:
    decision = plan.plan(view(attempt(t.STARTED), accepting=False), NOW)
    assert decision.actions == (t.ExecutionCancelRequested("exe_1", NOW + t.CANCEL_CONFIRM_US),)
    assert plan.plan(view(attempt(t.STARTED)), NOW).actions == ()


def test_what_runs_in_a_compute_that_ends_is_known_only_when_its_node_is_gone() -> None:
    running = attempt(t.STARTED, node_state=n.DELETING)
    assert end_of(running, accepting=False) is None
    end = end_of(replace(running, node_state=n.DELETED), accepting=False)
    assert end is not None
    assert (end.state, end.retry_kind) == (t.INDETERMINATE, None)


def test_waiting_for_a_rank_that_is_no_more_is_in_vain() -> None:
    assert end_of(attempt(t.CREATED, wanted_rank=3), ranks=4) is None
    end = end_of(attempt(t.CREATED, wanted_rank=3), ranks=3)
    assert end is not None
    assert (end.state, end.retry_kind) == (t.FAILED, None)
    assert "rank 3" in end.message


def test_the_plan_looks_again_at_the_first_of_all_moments() -> None:
    several = view(
        attempt(t.CREATED, deadline_us=NOW + 9 * SECOND),
        attempt(t.CANCEL_REQUESTED, cancel_deadline_us=NOW + 3 * SECOND),
        attempt(t.STARTED, deadline_us=NOW - SECOND),
    )
    assert plan.plan(several, NOW).next_us == NOW + 3 * SECOND
    assert plan.plan(replace(several, next_us=NOW + SECOND), NOW).next_us == NOW + SECOND
    assert plan.plan(view(), NOW) == plan.Decision((), None, "nothing is overdue")


# ── outcomes ────────────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.builds(t.Attempt, st.sampled_from(sorted(t.EXECUTION_STATES)), st.integers(0, 5)), max_size=6)
)
def test_a_task_has_an_outcome_once_every_place_has_and_the_worst_counts(attempts: list[t.Attempt]) -> None:
    found = t.outcome("tsk_1", attempts, NOW)
    states = {a.state for a in attempts}
    if not attempts or states & t.EXECUTION_LIVE:
        assert found is None
        return
    order = [t.INDETERMINATE, t.FAILED, t.TIMED_OUT, t.CANCELLED, t.SUCCEEDED]
    assert found is not None
    assert t.TASK_MOVES[type(found)].target == min(states, key=order.index)


def test_the_result_of_a_task_on_all_ranks_is_that_of_its_lowest() -> None:
    attempts = [t.Attempt(t.SUCCEEDED, rank, f"result of {rank}") for rank in (2, 0, 1)]
    assert t.outcome("tsk_1", attempts, NOW) == t.TaskSucceeded("tsk_1", "result of 0", NOW)
