"""What a paid job needs next, in every situation it can be in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sky.domain import job as j
from sky.domain.job import JobView, Meter, StepView
from sky.domain.money import charge_micro, covered_us, hold_micro
from sky.plan import job as plan

HOUR = 3_600
S = 1_000_000
AN_HOUR_OF = 1_000_000


def step(state: str = "running", **more: Any) -> StepView:
    base: dict[str, Any] = {
        "state": state,
        "started_us": None,
        "finished_us": None,
        "result": None,
        "failed": None,
        "code": None,
        "message": None,
    }
    return StepView(**{**base, **more})


def job(**more: Any) -> JobView:
    base: dict[str, Any] = {
        "id": "job_1",
        "state": "provisioning",
        "price_micro": AN_HOUR_OF,
        "held_micro": hold_micro(AN_HOUR_OF, 2 * HOUR),
        "max_runtime_seconds": 4 * HOUR,
        "interruptible": False,
        "outputs": False,
        "compute_state": "ready",
        "compute_error": None,
        "placement": {"cloud": "local", "region": "here", "instance_type": "x"},
        "last_seen_us": 100 * S,
        "prepare": None,
        "run": None,
        "upload": None,
        "started_us": None,
        "ended_us": None,
        "exit_code": None,
        "exhausted_us": None,
        "stop_error": None,
        "settled_us": None,
    }
    return JobView(**{**base, **more})


def running(**more: Any) -> JobView:
    known = {"state": "running", "started_us": 10 * S, "prepare": step("succeeded"), "run": step()}
    return job(**{**known, **more})


def does(view: JobView, now_us: int = 200 * S) -> Any:
    actions = plan.plan(view, now_us).actions
    assert len(actions) <= 1
    return actions[0] if actions else None


def test_a_job_goes_from_its_hold_to_its_end() -> None:
    assert does(job(state="queued", compute_state=None)) == plan.Provision()
    assert does(job(compute_state="provisioning", placement=None)) is None
    assert does(job()) == plan.Prepare({"cloud": "local", "region": "here", "instance_type": "x"})
    assert does(job(prepare=step())) is None
    assert does(job(prepare=step("succeeded"))) == plan.Run()
    assert does(job(prepare=step("succeeded"), run=step("queued"))) is None
    begun = job(prepare=step("succeeded"), run=step(started_us=150 * S))
    assert does(begun) == j.JobRunning("job_1", 150 * S)
    assert does(running()) is None
    over = step("succeeded", finished_us=190 * S, result={"exit_code": 0})
    assert does(running(run=over)) == j.JobSucceeded("job_1", 200 * S, 190 * S)


def test_outputs_are_uploaded_whatever_the_command_said() -> None:
    for code in (0, 3):
        over = step("succeeded", finished_us=190 * S, result={"exit_code": code})
        assert does(running(run=over, outputs=True)) == plan.Upload(190 * S, code)
        uploading = running(run=over, outputs=True, ended_us=190 * S, exit_code=code, upload=step())
        assert does(uploading) is None
        end = does(replace(uploading, upload=step("succeeded")))
        assert type(end) is (j.JobSucceeded if code == 0 else j.JobFailed)
        assert end.ended_us == 190 * S, "uploading is free"


def test_a_command_that_fails_fails_its_job_with_its_exit_code() -> None:
    over = step("succeeded", finished_us=190 * S, result={"exit_code": 3})
    end = does(running(run=over))
    assert end.error == {"code": "command_failed", "message": "the command ended with 3", "exit_code": 3}


def test_a_job_that_ran_as_long_as_it_may_fails_and_uploads_nothing() -> None:
    over = step("succeeded", finished_us=190 * S, result={"exit_code": 143, "timed_out": True})
    end = does(running(run=over, outputs=True))
    assert isinstance(end, j.JobFailed)
    assert end.error["code"] == "max_runtime_exceeded"


def test_an_image_that_cannot_be_pulled_costs_nothing() -> None:
    failed = step("succeeded", result={}, failed={"code": "image_unavailable", "message": "no such image"})
    end = does(job(prepare=failed))
    assert end == j.JobFailed(
        "job_1", 200 * S, None, {"code": "image_unavailable", "message": "no such image"}
    )


def test_no_machine_to_be_had_fails_the_job_for_free() -> None:
    end = does(job(compute_state="failed", compute_error="no capacity anywhere"))
    assert end == j.JobFailed(
        *("job_1", 200 * S, None),
        {
            "code": "placement_failed",
            "message": "no machine could be had for it",
            "cause": "no capacity anywhere",
        },
    )
    assert j.customers(end.error) == {
        "code": "placement_failed",
        "message": "no machine could be had for it",
    }


@pytest.mark.parametrize(("interruptible", "kind"), [(True, j.JobInterrupted), (False, j.JobFailed)])
def test_a_lost_machine_is_paid_up_to_its_last_sign_of_life(interruptible: bool, kind: type) -> None:
    lost = step("indeterminate", finished_us=199 * S, code="node_lost", message="node nod_1 was lost")
    end = does(running(run=lost, interruptible=interruptible))
    assert type(end) is kind
    assert end.ended_us == 100 * S


def test_a_machine_that_cannot_be_reached_is_left_alone() -> None:
    for state in ("provisioning", "recovering", "degraded", "ready"):
        assert does(running(compute_state=state, last_seen_us=0)) is None


def test_more_is_held_before_the_hold_is_used_up() -> None:
    view = running()
    covered = 10 * S + 2 * HOUR * S
    waits = plan.plan(view, 20 * S)
    assert waits.actions == ()
    assert waits.next_us == covered - plan.EXTEND_AHEAD_US
    assert does(view, covered - plan.EXTEND_AHEAD_US) == plan.Extend(2 * AN_HOUR_OF)
    assert does(replace(view, held_micro=4 * AN_HOUR_OF), covered) is None, "all of it is held"


def test_a_job_that_cannot_be_extended_is_stopped_in_time() -> None:
    covered = 10 * S + 2 * HOUR * S
    short = running(exhausted_us=covered - plan.EXTEND_AHEAD_US)
    again = plan.plan(short, covered - plan.EXTEND_AHEAD_US + S)
    assert again.actions == (), "it is tried again later, for somebody may pay meanwhile"
    assert does(short, covered - plan.EXTEND_AHEAD_US + plan.EXTEND_AGAIN_US) == plan.Extend(2 * AN_HOUR_OF)
    stop = does(short, covered - plan.STOP_AHEAD_US)
    assert isinstance(stop, plan.Stop)
    assert stop.error["code"] == "balance_exhausted"
    stopped = replace(short, stop_error=stop.error)
    assert does(stopped, covered) is None
    over = step("cancelled", finished_us=covered - 20 * S)
    end = does(replace(stopped, run=over), covered)
    assert isinstance(end, j.JobFailed)
    assert end.error["code"] == "balance_exhausted"


def test_after_the_end_the_hold_is_resolved_first_and_the_machine_given_back_then() -> None:
    for state in sorted(j.TERMINAL):
        assert does(job(state=state)) == plan.Settle()
        assert does(job(state=state, settled_us=1)) == plan.TearDown()
        assert does(job(state=state, settled_us=1, compute_state="deleting")) is None
        assert does(job(state=state, settled_us=1, compute_state=None)) is None


@given(st.integers(0, 500_000_000), st.integers(1, 86_400))
def test_a_hold_covers_every_second_it_was_made_for(price: int, seconds: int) -> None:
    held = hold_micro(price, seconds)
    assert charge_micro(price, seconds) <= held
    covered = covered_us(price, held)
    assert covered is None or covered >= seconds * S


@given(st.integers(1, 500_000_000), st.integers(0, 86_400 * S), st.integers(0, 86_400))
def test_a_cost_is_never_more_than_is_held(price: int, used_us: int, seconds: int) -> None:
    meter = Meter(price, 8, 5, 5 + used_us)
    held = hold_micro(price, seconds)
    assert 0 <= meter.cost_micro(0, held) <= held
    assert meter.gpu_seconds(0) == 8 * meter.seconds(0)
