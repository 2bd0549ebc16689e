"""``sky log``: what nodes wrote, from the beginning, also when nobody watched.

Decides: which events are lines of the log, how ranks are told apart, and when a log that is followed is at
its end: when what it is of has ended, and everything that was recorded of it has been printed.
Never: loses or repeats a line, also when the daemon is restarted meanwhile. Follows: the log of a compute
tells how its nodes were made ready as well; the log of a task is only what that call wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, NamedTuple

from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.app import Output, noun, only
from sky.cli.connection import Api, reading
from sky.cli.watch import followed, recorded
from sky.client import calls
from sky.client.errors import ApiError, NotFound
from sky.client.events import Seen
from sky.wire import v1

TASK_ENDED = frozenset({"succeeded", "failed", "cancelled", "timed_out", "indeterminate"})


class _Subject(NamedTuple):
    """Whose log it is: ``ended`` says that nothing more will be written."""

    compute: str | None
    task: str | None
    several: bool
    ended: bool
    ranks_of: dict[str, int]


@only("log", "sky log dev", "sky log tsk_01… -f", "sky log dev --events", "sky log dev -o json | jq .content")
def log(
    of: Annotated[str | None, Parameter(help="A compute (name or id) or a task; else all.")] = None,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative=(), help="Go on until it ends, or Ctrl-C.")
    ] = False,
    events: Annotated[bool, Parameter(negative=(), help="Every event, not only what was written.")] = False,
    output_: Output = "table",
) -> int:
    """Print what the nodes of a compute, or a task, wrote, from the beginning.

    With --output json, each line is one event.
    """
    with reading() as api:
        subject = _subject(api, of)
        for seen in _followed(api, of, subject) if follow else _all(api, subject):
            if events or _is_line(seen, subject):
                _print(seen, subject, output_)
        return 0


def _all(api: Api, subject: _Subject) -> Iterator[Seen]:
    return recorded(api, compute=subject.compute, task=subject.task)


def _followed(api: Api, of: str | None, subject: _Subject) -> Iterator[Seen]:
    def may_end(event: v1.Event) -> bool:
        if isinstance(event, v1.TaskEvent):
            return subject.task is not None and event.state in TASK_ENDED
        return isinstance(event, v1.ComputeEvent) and event.state == "deleted"

    def over() -> bool:
        return _subject(api, of).ended

    return followed(api, compute=subject.compute, task=subject.task, over=over, may_end=may_end)


def _subject(api: Api, of: str | None) -> _Subject:
    if of is None:
        return _Subject(None, None, True, False, {})
    if render.looks_like_id(of) == "tsk":
        task = api.send(calls.get_task(of))
        return _Subject(None, task.id, len(task.executions) > 1, task.state in TASK_ENDED, {})
    try:
        compute = api.send(calls.get_compute(of))
    except NotFound as missing:
        raise _neither(of, missing) from missing
    many = (compute.spec.nodes.max or compute.spec.nodes.desired) > 1
    nodes = api.send(calls.list_nodes(compute.id, include_terminal=True)).items
    ranks = {node.id: node.rank for node in nodes}
    return _Subject(compute.id, None, many, compute.status.state == "deleted", ranks)


def _neither(of: str, missing: NotFound) -> ApiError:
    message = f"there is no compute or task {of!r}"
    return NotFound(message, missing.code, missing.status, False, missing.details, missing.request_id)


def _is_line(seen: Seen, subject: _Subject) -> bool:
    if isinstance(seen.event, v1.PhaseEvent):
        return subject.task is None
    return isinstance(seen.event, v1.ConsoleEvent)


def _print(seen: Seen, subject: _Subject, output_: str) -> None:
    event = seen.event
    if output_ == "json":
        output.say(output.dumps({"seq": seen.seq, "name": seen.name, **output.plain(event)}))
    elif isinstance(event, v1.ConsoleEvent):
        prefix = _prefix(event.node, event.rank, subject)
        for line in event.content.removesuffix("\n").split("\n"):
            output.say(prefix + line)
    elif isinstance(event, v1.PhaseEvent):
        why = f": {event.error}" if event.error else ""
        prefix = _prefix(event.node, None, subject)
        output.say(prefix + output.styled(output.clean(f"{event.phase} {event.event}{why}"), "dim"))
    else:
        output.say(output.styled(output.clean(render.event_text(event, subject.ranks_of)), "dim"))
    sys.stdout.flush()


def _prefix(node: str, rank: int | None, subject: _Subject) -> str:
    """Which node a line is from, where there is more than one."""
    if not subject.several:
        return ""
    known = subject.ranks_of.get(node) if rank is None else rank
    return output.styled(f"[rank {known}] " if known is not None else f"[{node}] ", "dim")


app = noun("log")
