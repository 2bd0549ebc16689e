"""Flows, driven by hand: which requests follow which answers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from sky.client import calls, flows
from sky.client.errors import ApiError, ComputeFailed, NameTaken, NotFound, RevisionConflict
from sky.client.flows import Pause
from sky.client.pack import Packed
from sky.client.request import Call, Reply
from sky.wire import v1

FUNCTION = Packed("f" * 64, b"code", "train")
BLOB = Packed("b" * 64, b"data")
CREATE = calls.create_task(v1.TaskCreate(compute="c", function=FUNCTION.sha256, args_sha256=BLOB.sha256))


def drive(flow: Generator[Call[Any] | Pause, Any, Any], *answers: Any) -> tuple[list[str], Any]:
    """What was asked, and what came of it. An exception among the answers is thrown."""
    asked: list[str] = []
    left = list(answers)
    try:
        step = next(flow)
        while True:
            if isinstance(step, Pause):
                step = flow.send(None)
                continue
            asked.append(f"{step.method} {step.path[:20]}")
            answer = left.pop(0)
            step = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
    except StopIteration as end:
        assert not left, "every answer was wanted"
        return asked, end.value


def missing(sha256: str) -> NotFound:
    return NotFound(f"no {sha256}", "not_found", 404)


def compute(state: v1.ComputeState = "ready", revision: int = 1) -> v1.Compute:
    text = (
        f'{{"id":"cmp_1","name":"n","generation":1,"revision":{revision},"spec":{{"specs":[],"nodes":'
        f'{{"desired":1}}}},"status":{{"state":"{state}","observed_generation":1,"nodes_ready":1,'
        f'"nodes_total":1}},"lease":{{}},"created_at":"2026-01-01T00:00:00Z"}}'
    )
    return calls.get_compute("n").decode(Reply(200, {}, text.encode()))


def test_what_the_daemon_has_is_not_sent() -> None:
    assert drive(flows.submit(CREATE, (FUNCTION,), (BLOB,)), "task") == (["POST /v1/tasks"], "task")


def test_only_what_is_lacking_is_sent_and_the_same_request_again() -> None:
    flow = flows.submit(CREATE, (FUNCTION,), (BLOB,))
    asked, task = drive(flow, missing(FUNCTION.sha256), None, missing(BLOB.sha256), None, "task")
    assert asked == [
        "POST /v1/tasks",
        f"PUT /v1/functions/{'f' * 6}",
        "POST /v1/tasks",
        f"PUT /v1/blobs/{'b' * 10}",
        "POST /v1/tasks",
    ]
    assert task == "task"


def test_another_thing_that_is_not_there_is_the_callers_news() -> None:
    with pytest.raises(NotFound, match="no compute"):
        drive(flows.submit(CREATE, (FUNCTION,)), NotFound("no compute c", "not_found", 404))


def test_a_daemon_that_forgets_at_once_is_not_asked_for_ever() -> None:
    with pytest.raises(NotFound):
        drive(flows.submit(CREATE, (FUNCTION,)), missing(FUNCTION.sha256), None, missing(FUNCTION.sha256))


def test_large_content_is_asked_for_before_it_is_sent() -> None:
    large = Packed("c" * 64, b"x" * flows.BLOB_ASK_FIRST_BYTES)
    assert drive(flows.upload(large), True) == ([f"HEAD /v1/blobs/{'c' * 10}"], None)
    asked, _ = drive(flows.upload(large), missing(large.sha256), None)
    assert [line[:4] for line in asked] == ["HEAD", "PUT "]


def test_a_deletion_reads_the_revision_again() -> None:
    stale = RevisionConflict("stale", "revision_conflict", 412)
    asked, gone = drive(flows.delete_compute("n", 1), stale, compute(revision=2), compute("deleting"))
    assert asked == ["DELETE /v1/computes/n", "GET /v1/computes/n", "DELETE /v1/computes/n"]
    assert gone.status.state == "deleting"
    assert drive(flows.delete_compute("n", 1), missing("n")) == (["DELETE /v1/computes/n"], None)


def make() -> Call[v1.Compute]:
    spec = v1.ComputeSpec(specs=(), nodes=v1.NodeBounds(desired=1))
    return calls.create_compute(v1.ComputeCreate(spec=spec, name="n"))


def test_a_name_is_attached_to_when_it_is_there_and_made_when_not() -> None:
    assert drive(flows.create_or_attach("n", make), compute())[1] == (compute(), True)
    asked, made = drive(flows.create_or_attach("n", make), missing("n"), compute("requested"))
    assert asked == ["GET /v1/computes/n", "POST /v1/computes"]
    assert made == (compute("requested"), False)
    assert drive(flows.create_or_attach(None, make), compute())[0] == ["POST /v1/computes"]


def test_a_name_that_is_being_given_back_is_waited_for() -> None:
    pending = ApiError("soon", "release_pending", 409)
    taken = NameTaken("taken", "name_taken", 409)
    flow = flows.create_or_attach("n", make)
    asked, (found, attached) = drive(
        flow, compute("deleting"), missing("n"), pending, missing("n"), taken, compute()
    )
    assert asked.count("POST /v1/computes") == 2
    assert (found.status.state, attached) == ("ready", True)


def test_results_are_those_of_each_ranks_last_attempt() -> None:
    executions = ",".join(
        f'{{"id":"exe_{o}","ordinal":{o},"rank":{r},"state":"{s}","result_sha256":{sha}}}'
        for o, r, s, sha in [
            (1, 0, "failed", "null"),
            (2, 1, "succeeded", '"bb"'),
            (3, 0, "succeeded", '"aa"'),
        ]
    )
    text = (
        '{"id":"tsk_1","compute_id":"c","generation":1,"function":"f","args_sha256":"a","dispatch":"all",'
        f'"state":"succeeded","retry":{{}},"executions":[{executions}],"submitted_at":"2026-01-01T00:00:00Z"}}'
    )
    task = calls.get_task("tsk_1").decode(Reply(200, {}, text.encode()))
    asked, payloads = drive(flows.results_by_rank("tsk_1"), task, b"A", b"B")
    assert payloads == [b"A", b"B"]
    assert asked[1:] == ["GET /v1/blobs/aa", "GET /v1/blobs/bb"]


def test_a_rank_without_a_result_is_said() -> None:
    lost = v1.Execution(id="e", ordinal=1, rank=0, state="cancelled")
    task = v1.Task(
        id="t",
        compute_id="c",
        generation=1,
        function="f",
        args_sha256="a",
        dispatch="all",
        state="succeeded",
        retry=v1.RetryPolicy(),
        executions=(lost,),
        submitted_at=compute().created_at,
    )
    with pytest.raises(ComputeFailed, match="rank 0"):
        drive(flows.results_by_rank("t"), task)
