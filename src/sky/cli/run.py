"""``sky run``: one function of a file, called on a compute with arguments from the command line.

Decides: which words of the line are ours and which are the function's, where it runs, and that the result is
JSON on standard output while everything printed meanwhile is on standard error.
Never: leaves a temporary compute behind, or a call running that Ctrl-C was meant to end.
Follows: what the function raised is shown with the node's own traceback, and ends the command with 1.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Generator
from types import TracebackType
from typing import Annotated, Any, NamedTuple

from cyclopts import CycloptsError, Parameter

from sky.cli import output, values
from sky.cli.app import Output, call, noun, only, refusal
from sky.cli.computes import Name
from sky.cli.connection import PATIENCE_S, creating
from sky.cli.errors import FAILED, CliError, usage
from sky.cli.loading import Target, find, is_target, own_options, parser
from sky.client import calls, definition, flows, outgoing
from sky.client.console import Console
from sky.client.errors import NotFound, RemoteTraceback, SkyError
from sky.client.events import Follower, Reader, Seen
from sky.client.function import Pending, Settled
from sky.client.http import Http
from sky.client.resources import Image
from sky.client.session import end, take_back
from sky.client.settling import Settler
from sky.client.streaming import Source
from sky.wire import v1

RESULT_WAIT_S = 20
STOPPED_WAIT_S = 2
OURS = frozenset(
    {"--compute", "--nodes", "--provider", "--cpus", "--pip", "--all", "--timeout", "--output", "-o"}
)
FLAGS = frozenset({"--all"})
Line = Annotated[
    str,
    Parameter(name="FILE.py[:FUNCTION]", allow_leading_hyphen=True, help="The function, then its arguments."),
]


class Where(NamedTuple):
    """A compute to call on: by name, or a temporary one of this kind."""

    compute: str | None = None
    nodes: int | None = None
    provider: str | None = None
    cpus: int | None = None
    pip: tuple[str, ...] = ()


@only(
    "run",
    "sky run train.py --epochs 10",
    "sky run --compute dev train.py:train --epochs 10",
    "sky run --nodes 2 --pip numpy train.py:train --all",
    "sky run train.py:train --help",
)
def run(
    *line: Line,
    compute: Annotated[str | None, Parameter(help="Run it there; else on a temporary compute.")] = None,
    nodes: Annotated[int | None, Parameter(help="Nodes of the temporary compute [1].")] = None,
    provider: Annotated[str | None, Parameter(help="Where its machines come from [local].")] = None,
    cpus: Annotated[int | None, Parameter(help="CPUs of each of its nodes.")] = None,
    pip: Annotated[
        tuple[str, ...], Parameter(negative_iterable=(), metavar="PACKAGE", help="Package to install there.")
    ] = (),
    all_: Annotated[
        bool, Parameter(name="--all", negative=(), help="On every node; prints a list by rank.")
    ] = False,
    timeout: Annotated[float | None, Parameter(help="Seconds it may run; rounded up.")] = None,
    output_: Output = "table",
) -> int:
    """Run a function of a Python file on a compute and print what it returned, as JSON.

    The file's only @sky.function (or @sky.app) is meant unless one is named. What follows the file belongs to
    the function: its parameters are the options, and --help shows them.
    """
    if not line:
        raise usage("no file was given", "write `sky run FILE.py[:FUNCTION] --argument value`")
    if not is_target(line[0]):
        raise usage(f"{line[0]!r} is no Python file", "options of `sky run` come first, then FILE.py")
    target = find(line[0])
    bound = _bind(target, line[0], list(line[1:]))
    if bound is None:
        return 0
    pending = target.function.options(timeout=timeout)(*bound[0], **bound[1])
    if compute and (nodes or provider or cpus or pip):
        raise usage(
            "--compute names one that is there; the other options would make a new one", "use one way"
        )
    where = Where(compute, nodes, provider, cpus, pip)
    dispatch: v1.Dispatch = "all" if all_ else "stream" if target.function.streams else "one"
    with contextlib.redirect_stdout(sys.stderr), _compute(target, where) as (http, name, many):
        settled = _carry_out(http, name, pending, dispatch, many)
        if settled.error is None and dispatch == "stream":
            with _Items(settled.task):
                for item in settled.unwrap():
                    _result(item)
            return 0
    if settled.error is not None:
        raise _told(settled.error, settled.task)
    _result(settled.unwrap())
    return 0


def arranged(arguments: list[str]) -> list[str]:
    """The line with our options before the file, wherever they were typed.

    An option behind the file that the function does not have and we do is ours.
    """
    at = next((i for i, word in enumerate(arguments) if is_target(word)), None)
    if at is None:
        return arguments
    theirs = OURS
    if OURS.intersection(word.partition("=")[0] for word in arguments[at:]):
        theirs = own_options(find(arguments[at]))
    ours: list[str] = []
    rest: list[str] = []
    behind = iter(arguments[at + 1 :])
    for word in behind:
        name, equals, _ = word.partition("=")
        if word == "--":
            rest += [word, *behind]
        elif name in OURS and name not in theirs:
            ours.append(word)
            if not equals and name not in FLAGS:
                ours += [value for value in (next(behind, None),) if value is not None]
        else:
            rest.append(word)
    return [*arguments[:at], *ours, "--", arguments[at], *rest]


def _bind(target: Target, shown: str, arguments: list[str]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Arguments for the function; None when its help was asked for and printed."""
    app = parser(target, shown)
    if {"--help", "-h"}.intersection(arguments):
        call(app, ["--help"])
        return None
    try:
        _, bound, _ = app.parse_args(arguments)
    except CycloptsError as error:
        wrong = refusal(error)
        meant = wrong.hint if wrong.hint and wrong.hint.startswith("did you mean") else None
        hint = meant or f"`sky run {shown} --help` shows what it takes"
        raise usage(f"{target.name}: {wrong}", hint) from error
    return bound.args, bound.kwargs


# ── where ───────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _compute(target: Target, where: Where) -> Generator[tuple[Http, str, bool]]:
    """A compute to call on: its daemon, its id, and whether it has several nodes."""
    if where.compute is not None:
        with creating() as api:
            try:
                found = api.send(calls.get_compute(where.compute))
            except NotFound as missing:
                raise _not_made(where.compute, missing) from missing
            yield api.http, found.id, found.spec.nodes.desired > 1
        return
    from sky.client.compute import Compute

    with creating() as api:
        # Said at once, where the compute itself would wait for a daemon that may be on its way back.
        api.send(calls.live())
    given: dict[str, Any] = dict(target.declared.parameters) if target.declared else {}
    given |= {
        k: v for k, v in (("nodes", where.nodes), ("provider", where.provider), ("cpus", where.cpus)) if v
    }
    if where.pip:
        given["image"] = Image(pip=where.pip)
    given.setdefault("quiet", not sys.stderr.isatty())
    with Compute(**given) as compute:
        yield compute.http, compute.id, compute.status().spec.nodes.desired > 1


def _not_made(name: str, missing: NotFound) -> NotFound:
    """The same error, with what to do when ``sky.toml`` says what that compute is to be."""
    if definition.parameters(name) is not None:
        missing.details["hint"] = f"sky.toml says what it is: make it with `sky compute create {name}`"
    return missing


# ── one call ────────────────────────────────────────────────────────────────────────────────────


def _carry_out(
    http: Http, compute: str, pending: Pending[Any], dispatch: v1.Dispatch, many: bool
) -> Settled[Any]:
    """Send it, print what it prints, wait for its end."""
    ready = outgoing.prepare(pending)
    create = calls.create_task(ready.task(compute, dispatch, f"cli-{secrets.token_hex(8)}"))
    console, settler = Console(ranks=many), Settler(http)
    task: v1.Task | None = None
    reader: Reader | None = None
    # Wherever between these steps Ctrl-C comes, the call is ended, and what became of it is said.
    try:
        task = flows.run(http, flows.submit(create, (ready.function,), ready.blobs))
        console.expect(task.id)
        reader = Reader(Follower(http, task=task.id, after=0), lambda seen: _heard(console, seen))
        reader.start()
        if dispatch == "stream":
            return Settled(_source(http, settler, console, task.id).items(), None, task.id)
        settled = _wait(task.id, settler)
        if dispatch == "all" and settled.error is None:
            payloads = flows.run(http, flows.results_by_rank(task.id))
            settled = settler.of_payloads(payloads, task.id, settled.console_lines)
        console.settle(task.id, settled.console_lines)
        return settled
    except KeyboardInterrupt:
        if task is not None:
            _end(http, task.id, settler)
        elif not take_back(http, create):
            output.note(f"it may run all the same: `sky task list --compute {compute}` shows it")
        raise
    finally:
        if dispatch != "stream":
            if reader is not None:
                reader.close()
            console.close()


def _source(http: Http, settler: Settler, console: Console, task: str) -> Source:
    return Source(
        http,
        settler,
        submit=lambda: task,
        printed=console.settle,
        abandon=lambda name: end(http, name, PATIENCE_S),
    )


def _heard(console: Console, seen: Seen) -> None:
    if isinstance(seen.event, v1.ConsoleEvent):
        console.heard(seen.event)


def _wait(task: str, settler: Settler) -> Settled[Any]:
    while True:
        settled = settler.fetch(task, RESULT_WAIT_S)
        if settled is not None:
            return settled


def _end(http: Http, task: str, settler: Settler) -> None:
    """Have a call end that nobody waits for any more."""
    asked = end(http, task, PATIENCE_S)
    output.note(f"{task} was asked to end" if asked else f"{task} may go on: `sky task cancel {task}`")
    # What is stopped before its machine goes is known to be cancelled.
    with contextlib.suppress(SkyError):
        settler.fetch(task, STOPPED_WAIT_S)


# ── what is printed ─────────────────────────────────────────────────────────────────────────────


def _result(value: Any) -> None:
    out = sys.__stdout__
    assert out is not None, "a command has a standard output"
    out.write(values.dumps(value).decode() + "\n")
    out.flush()


class _Items:
    """While items arrive: what the generator raised is told as what a function raised is."""

    def __init__(self, task: str) -> None:
        self._task = task

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, BrokenPipeError):
            raise _told(error, self._task) from error


def _told(error: BaseException, task: str) -> SkyError:
    """What to raise for what a function raised. Its traceback on the node is shown: it is the user's own."""
    cause = error.__cause__
    if isinstance(cause, RemoteTraceback):
        output.raw(cause.text, sys.stderr)
    if isinstance(error, SkyError):
        return error
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    hint = f"`sky task get {task}` shows where it ran" if task else None
    if isinstance(error, ModuleNotFoundError):
        hint = "name the package it is in: --pip PACKAGE, or pip = [...] in sky.toml"
    told = CliError("task_failed", said, hint, FAILED)
    told.__cause__ = error
    return told


app = noun("run")


def run_on(compute: Name, /, *line: Line) -> int:
    """Run a function of a Python file on this compute: the same as `sky run --compute`."""
    return call(noun("run"), arranged(["--compute", compute, *line]))
