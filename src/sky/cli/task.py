"""``sky task``: the calls that were made, what became of them, and their results.

Decides: what is shown of a task, and how a packed value is shown. Never: unpacks a result unless it was asked
for; unpacking runs code of the value's own classes, with the rights of who asked.
Follows: a task that failed ends the command that asks for its result with 1, and says what was raised.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.app import Output, command, noun
from sky.cli.computes import LIST_ITEMS, check_limit, tell_more
from sky.cli.connection import Api, reading
from sky.cli.errors import FAILED, CliError, usage
from sky.cli.values import as_json
from sky.client import calls
from sky.client.errors import ApiError
from sky.wire import v1

app = noun("task")

Task = Annotated[str, Parameter(help="Id of the task.")]
FUNCTIONS_NAMED = 500
WAIT_ONCE_S = 20
"""How long one request waits for a result."""
WAIT_MAX_S = 31_536_000


def _function_names(api: Api) -> dict[str, str]:
    """Names of the functions that were sent last; a hash stands for the others."""
    page = api.send(calls.list_functions(limit=FUNCTIONS_NAMED))
    return {f.sha256: f.name for f in page.items if f.name}


@command(
    app,
    "sky task list",
    "sky task list --compute dev --state running",
    "sky task list --limit 500 -o json",
    name="list",
    instead=("ps", "status"),
)
def list_(
    *,
    compute: Annotated[str | None, Parameter(help="Only those of this compute (name or id).")] = None,
    state: Annotated[v1.TaskState | None, Parameter(help="Only those in this state.")] = None,
    limit: Annotated[int, Parameter(help="How many at most.")] = LIST_ITEMS,
    output_: Output = "table",
) -> int:
    """List tasks, newest first."""
    check_limit(limit)
    with reading() as api:
        if compute is not None:
            compute = api.send(calls.get_compute(compute)).id
        tasks = list(itertools.islice(api.tasks(compute, state), limit + 1))
        shown = tuple(tasks[:limit])
        if output_ == "json":
            output.json(v1.TaskPage(items=shown))
        elif not shown:
            output.note("no tasks; `sky run` makes one")
        else:
            computes = {c.id: c.name for c in api.computes() if c.name}
            functions = _function_names(api)
            rows = [render.task_row(task, computes, functions) for task in shown]
            output.table(render.TASK_HEADINGS, rows, flexible=("FUNCTION", "COMPUTE", "ID"))
    tell_more(len(tasks) > limit, limit)
    return 0


@command(app, "sky task get tsk_01…", "sky task get tsk_01… -o json", instead=("show", "describe", "info"))
def get(task: Task, /, *, output_: Output = "table") -> int:
    """Show one task and its executions."""
    with reading() as api:
        _show(api, api.send(calls.get_task(task)), output_)
    return 0


def _show(api: Api, task: v1.Task, output_: str) -> None:
    if output_ == "json":
        output.json(task)
        return
    output.pairs(render.task_pairs(task, _function_names(api).get(task.function)))
    if task.executions:
        output.say()
        rows = map(render.execution_row, task.executions)
        output.table(render.EXECUTION_HEADINGS, rows, flexible=("NODE",))


@command(
    app, "sky task retry tsk_01…", "sky task retry tsk_01… --acknowledge-duplication", instead=("rerun",)
)
def retry(
    task: Task,
    /,
    *,
    acknowledge_duplication: Annotated[
        bool, Parameter(negative=(), help="Also when it may have run already.")
    ] = False,
    rank: Annotated[tuple[int, ...], Parameter(negative_iterable=(), help="Only these ranks.")] = (),
    output_: Output = "table",
) -> int:
    """Run a task that ended again. It keeps its id."""
    with reading() as api:
        call = calls.retry_task(task, acknowledge_duplication=acknowledge_duplication, ranks=rank or None)
        _show(api, api.send(call), output_)
    return 0


@command(app, "sky task cancel tsk_01…", instead=("kill", "stop", "delete"))
def cancel(task: Task, /, *, output_: Output = "table") -> int:
    """Cancel a task: at once when it has not begun, else its process is asked to end."""
    with reading() as api:
        ended = api.send(calls.cancel_task(task))
        _show(api, ended, output_)
    if ended.finished_at is not None and ended.state != "cancelled":
        output.note(f"{task} had ended before: {ended.state}")
    return 0


@command(
    app,
    "sky task result tsk_01…",
    "sky task result tsk_01… --wait 60",
    "sky task result tsk_01… --raw > value.bin",
    instead=("output", "wait"),
)
def result(
    task: Task,
    /,
    *,
    wait: Annotated[int, Parameter(help="Seconds to wait for its end.")] = 0,
    raw: Annotated[
        bool, Parameter(negative=(), help="The packed bytes as they are stored, not as JSON.")
    ] = False,
    save: Annotated[Path | None, Parameter(metavar="FILE", help="Write there, not to the terminal.")] = None,
    output_: Output = "table",
) -> int:
    """Print what a task returned, as JSON. What JSON cannot hold is shown as Python shows it.

    The value is unpacked here: only ask for results of code you trust.
    """
    if not 0 <= wait <= WAIT_MAX_S:
        raise usage(f"--wait {wait} is out of range", f"give seconds from 0 to {WAIT_MAX_S}")
    if raw and save is None and sys.stdout.isatty():
        raise usage("--raw writes bytes, which a terminal cannot show", "add --save FILE, or pipe it")
    with reading() as api:
        content = _payload(api, task, wait)
    text = content if raw else as_json(content) + b"\n"
    if save is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return 0
    try:
        save.write_bytes(text)
    except OSError as error:
        raise usage(f"{save} cannot be written: {error.strerror}", "name another --save FILE") from error
    return 0


def _payload(api: Api, task: str, wait_s: int) -> bytes:
    left = wait_s
    while True:
        now = min(left, WAIT_ONCE_S)
        try:
            found = api.send(calls.get_result(task, now))
        except ApiError as error:
            raise _ended_badly(task, error) from error
        if found is not None:
            return found.content
        left -= now
        if left <= 0:
            state = api.send(calls.get_task(task)).state
            message = f"{task} is {state} and has no result yet"
            raise CliError("not_ended", message, "wait for it with --wait SECONDS", FAILED)


def _ended_badly(task: str, error: ApiError) -> ApiError | CliError:
    """Why there is no result, with the node's own traceback before it: that is the program's output."""
    if error.code not in ("task_failed", "task_indeterminate"):
        return error
    traceback: Any = error.details.get("traceback")
    if traceback:
        output.raw(str(traceback), sys.stderr)
    if error.code == "task_failed":
        code = render.cause(str(error.details.get("state") or ""), error.details)
        if code in ("", "failed"):
            code = error.code
        kind = str(error.details.get("type") or "")
        said = error.message if not kind or error.message.startswith(kind) else f"{kind}: {error.message}"
        return CliError(code, said, f"`sky task retry {task}` runs it again", FAILED)
    return error
