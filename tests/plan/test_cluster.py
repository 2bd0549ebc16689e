"""What a cluster and the requests about it need next, in every situation they can be in."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plan import views

from sky.domain import cluster as k
from sky.domain import cluster_job as j
from sky.domain import compute as c
from sky.domain import node as n
from sky.domain import request as r
from sky.domain.cluster import Buying, ClusterView, Idling, JobView
from sky.domain.job import StepView
from sky.domain.lifecycle import Fact, advance
from sky.domain.snapshots import DiskView
from sky.plan import cluster, request
from sky.plan import compute as compute_plan
from sky.plan.node import PASSED_OVER_US

S = 1_000_000
NOW = 1_000_000 * S


def job(number: int = 1, **more: Any) -> JobView:
    base: dict[str, Any] = {
        "id": f"job_{number}",
        "number": number,
        "state": j.PENDING,
        "num_nodes": 1,
        "gpus": 0,
        "brings": False,
        "sets_up": False,
        "bring": (),
        "setup": (),
        "run": (),
        "stopping": False,
        "stop_error": None,
    }
    return JobView(**{**base, **more})


def view(*jobs: JobView, **more: Any) -> ClusterView:
    base: dict[str, Any] = {
        "id": "clu_1",
        "name": "dev",
        "state": k.UP,
        "num_nodes": 2,
        "gpus": 0,
        "compute_state": c.READY,
        "machines": 2,
        "ready": 2,
        "jobs": jobs,
        "idling": Idling(up_us=NOW - 600 * S),
    }
    return ClusterView(**{**base, **more})


moments = st.integers(min_value=0, max_value=2 * NOW)
idlings = st.builds(
    Idling,
    minutes=st.sampled_from([-1, 0, 1, 60]),
    down=st.booleans(),
    wait=st.sampled_from([k.JOBS, k.JOBS_AND_SSH, k.NOTHING]),
    set_us=moments,
    up_us=moments,
    used_us=moments,
    ended_us=moments,
    session_us=moments,
)
jobs_of = st.lists(
    st.builds(
        job, st.integers(1, 5), state=st.sampled_from([j.INIT, j.PENDING]), num_nodes=st.integers(1, 3)
    ),
    max_size=4,
    unique_by=lambda one: one.number,
).map(lambda found: tuple(sorted(found, key=lambda one: one.number)))
clusters = st.builds(
    view,
    state=st.sampled_from(sorted(k.STATES)),
    compute_state=st.sampled_from([None, *sorted(c.STATES)]),
    machines=st.integers(0, 2),
    ready=st.integers(0, 2),
    jobs=jobs_of,
    idling=idlings,
)


@given(clusters)
def test_at_most_one_thing_is_done_and_its_fact_is_a_legal_move(case: ClusterView) -> None:
    decision = cluster.plan(case, NOW)
    assert len(decision.actions) <= 1
    assert decision.why
    for action in decision.actions:
        if isinstance(action, Fact) and type(action) in k.MOVES:
            assert advance(k.MOVES, case.state, action) is not None, (
                "planned again, it would say something else"
            )


@given(clusters)
def test_only_an_idle_cluster_that_is_up_ends_by_itself(case: ClusterView) -> None:
    for action in cluster.plan(case, NOW).actions:
        ends = isinstance(action, cluster.Stop | cluster.TakeDown) and case.state != k.DOWN
        if ends:
            idling = case.idling
            assert case.state == k.UP
            assert idling.minutes >= 0
            assert idling.since_us() + idling.minutes * k.MINUTE_US <= NOW
            assert not case.jobs or idling.wait == k.NOTHING
            assert isinstance(action, cluster.TakeDown) == idling.down


@given(clusters)
def test_a_cluster_without_machines_begins_nothing(case: ClusterView) -> None:
    stopped = replace(case, state=k.STOPPED)
    begins = cluster.Bring | cluster.SetUp | cluster.Run | cluster.Stop
    assert not any(isinstance(action, begins) for action in cluster.plan(stopped, NOW).actions)


@pytest.mark.parametrize(("ready", "up"), [(0, False), (1, False), (2, True)])
def test_it_is_up_when_all_its_machines_are_ready(ready: int, up: bool) -> None:
    coming = cluster.plan(view(state=k.INIT, ready=ready), NOW).actions
    assert [type(action) for action in coming] == ([k.ClusterUp] if up else [])
    there = cluster.plan(view(ready=ready), NOW).actions
    assert [type(action) for action in there] == ([] if up else [k.ClusterImpaired])


def test_a_job_waits_for_as_many_nodes_as_it_needs_and_those_behind_it_wait_too() -> None:
    wide, narrow = job(1, num_nodes=3), job(2)
    assert cluster.plan(view(wide, narrow), NOW).actions == ()
    assert cluster.plan(view(wide, narrow, num_nodes=3, ready=3), NOW).actions == (cluster.Run("job_1"),)


@pytest.mark.parametrize(
    ("wait", "name", "counts"),
    [
        (k.JOBS, "ended_us", True),
        (k.JOBS, "session_us", False),
        (k.JOBS_AND_SSH, "session_us", True),
        (k.JOBS_AND_SSH, "used_us", True),
        (k.NOTHING, "used_us", False),
        (k.NOTHING, "ended_us", False),
        (k.NOTHING, "up_us", True),
        (k.NOTHING, "set_us", True),
    ],
)
def test_idle_time_begins_with_what_counts_as_use(wait: str, name: str, counts: bool) -> None:
    idling = Idling(minutes=1, wait=wait, **{name: NOW - 30 * S})
    ended = cluster.plan(view(idling=idling), NOW)
    assert ended.actions == (() if counts else (cluster.Stop(),))
    if counts:
        assert ended.next_us == NOW + 30 * S


# ── requests ────────────────────────────────────────────────────────────────────────────────────


def asked(name: str, **more: Any) -> request.RequestView:
    base: dict[str, Any] = {
        "id": "req_1",
        "name": name,
        "state": r.RUNNING,
        "started_us": NOW - 10 * S,
        "again_us": None,
        "retry": False,
        "cluster_state": k.UP,
        "compute_state": c.READY,
        "compute_error": None,
        "job_number": None,
        "job_state": None,
        "job_error": None,
    }
    return request.RequestView(**{**base, **more})


requests = st.builds(
    asked,
    st.sampled_from(["launch", "start", "exec", "stop", "down"]),
    state=st.sampled_from([r.RUNNING, r.WAITING]),
    again_us=st.none() | moments,
    retry=st.booleans(),
    cluster_state=st.sampled_from([None, *sorted(k.STATES)]),
    compute_state=st.sampled_from([None, *sorted(c.STATES)]),
    job_number=st.sampled_from([None, 1]),
    job_state=st.sampled_from(sorted(j.STATES)),
    buying=st.builds(Buying, coming=st.booleans(), moved_us=moments, refused_until_us=moments),
    jobs_running=st.integers(0, 2),
    graceful_us=st.sampled_from([None, 0, 5 * S, request.NO_TIME]),
    purge=st.booleans(),
    refused=st.none() | st.just("no"),
)


@given(requests)
def test_a_request_does_one_thing_and_every_fact_about_it_is_a_legal_move(case: request.RequestView) -> None:
    decision = request.plan(case, NOW)
    assert len(decision.actions) <= 1
    for action in decision.actions:
        if isinstance(action, Fact):
            assert advance(r.MOVES, case.state, action) is not None


@given(requests)
def test_what_was_begun_is_not_begun_again(case: request.RequestView) -> None:
    begun = replace(case, state=r.RUNNING)
    again = request.Start | request.End | request.Relaunch
    assert not any(isinstance(action, again) for action in request.plan(begun, NOW).actions)


@given(requests)
def test_who_may_wait_is_never_given_up_for_want_of_machines(case: request.RequestView) -> None:
    patient = replace(case, retry=True)
    assert not any(isinstance(action, request.GiveUp) for action in request.plan(patient, NOW).actions)


def test_an_offer_that_was_refused_just_now_is_not_the_last() -> None:
    buying = Buying(coming=False, moved_us=0, refused_until_us=NOW - S + PASSED_OVER_US)
    case = asked("launch", cluster_state=k.INIT, compute_state=c.DEGRADED, compute_error="no", buying=buying)
    waits = request.plan(case, NOW)
    assert (waits.actions, waits.next_us) == ((), NOW - S + request.NOTHING_COMES_US)
    [action] = request.plan(case, NOW + request.NOTHING_COMES_US).actions
    assert isinstance(action, request.GiveUp)
    assert action.error["type"] == "ResourcesUnavailableError"


# ── disks ───────────────────────────────────────────────────────────────────────────────────────


def disk(rank: int, *, going: bool = False) -> DiskView:
    return DiskView(f"cmp_1-{rank}", rank, "prv_1", "small", None, True, going)


@given(
    st.lists(st.sampled_from([*sorted(n.STATES)]), min_size=1, max_size=3),
    st.integers(0, 3),
    st.sampled_from([c.READY, c.DELETING]),
    st.sets(st.integers(0, 2)),
)
def test_a_disk_goes_only_when_nobody_wants_it_and_no_machine_may_use_it(
    states: list[str], wanted: int, state: str, going: set[int]
) -> None:
    nodes = [views.node(f"nod_{rank}", rank=rank, state=one) for rank, one in enumerate(states)]
    found = tuple(disk(rank, going=rank in going) for rank in range(3))
    case = replace(views.compute(*nodes, state=state), disks=found, disks_wanted=wanted)
    actions = compute_plan.plan(case, views.NOW).actions
    removed = {action.name for action in actions if isinstance(action, compute_plan.RemoveDisk)}
    let_go = {action.name for action in actions if isinstance(action, compute_plan.LetDiskGo)}
    ended = {action.id for action in actions if isinstance(action, n.NodeDeleting)}
    for one in found:
        node = nodes[one.rank] if one.rank < len(nodes) else None
        if one.name in removed:
            assert one.going or one.name in let_go
            assert node is None or node.state in {n.REQUESTED, *n.FINAL}, "no machine may use it"
        if one.name in let_go:
            assert state == c.DELETING or one.rank >= wanted
            assert node is None or node.state in n.ENDING | n.FINAL or node.id in ended
    deleted = any(isinstance(action, c.ComputeDeleted) for action in actions)
    assert not deleted, "a compute is not deleted while it has disks"


def step(state: str, **more: Any) -> StepView:
    base: dict[str, Any] = dict.fromkeys(("started_us", "finished_us", "result", "failed", "code", "message"))
    return StepView(**{**base, "state": state, **more})


LOST = step("indeterminate", message="its node was lost after it may have begun")
ENDED = step("succeeded", result={"exit_code": 3})


@pytest.mark.parametrize(
    ("more", "fact"),
    [
        ({"state": j.RUNNING, "run": (LOST,)}, j.JobFailedDriver),
        ({"state": j.RUNNING, "run": (ENDED,)}, j.JobFailed),
        ({"state": j.SETTING_UP, "sets_up": True, "setup": (LOST,)}, j.JobFailedDriver),
        ({"state": j.SETTING_UP, "sets_up": True, "setup": (ENDED,)}, j.JobFailedSetup),
    ],
)
def test_a_job_has_not_failed_by_itself_where_nobody_knows_how_it_ended(
    more: dict[str, Any], fact: type[j.Ended]
) -> None:
    action: Any = cluster.plan(view(job(**more)), NOW).actions[0]
    assert type(action) is fact
    if fact is j.JobFailedDriver:
        assert "nobody knows how" in action.error["message"]
        assert "its node was lost" in action.error["message"]


def test_that_nobody_knows_is_still_said_once_the_other_nodes_were_stopped() -> None:
    both = job(state=j.RUNNING, num_nodes=2, run=(LOST, step("running")))
    (stop,) = cluster.plan(view(both), NOW).actions
    assert isinstance(stop, cluster.StopTasks)
    stopped = replace(both, run=(LOST, step("cancelled")), stopping=True, stop_error=stop.error)
    (action,) = cluster.plan(view(stopped), NOW).actions
    assert type(action) is j.JobFailedDriver


def test_of_many_jobs_that_wait_only_the_first_is_looked_at() -> None:
    running = [job(number, state=j.RUNNING, run=(step("running"),)) for number in range(1, 5)]
    waiting = [job(number) for number in range(5, 4_005)]
    began_s = time.perf_counter()
    decision = cluster.plan(view(*running, *waiting), NOW)
    assert decision.actions == ()
    assert time.perf_counter() - began_s < 0.5
    (action,) = cluster.plan(view(*running[1:], *waiting), NOW).actions
    assert action == cluster.Run("job_5")
