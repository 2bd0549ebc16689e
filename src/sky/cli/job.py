"""``sky job``: paid jobs, as a customer submits and follows them.

Decides: how a job is written on a command line, and that a command which waits ends as the job did.
Never: retries what the SDK does not; shows the key. Follows: a submit prints the job's id on standard output
and everything else beside it, so ``JOB=$(sky job submit …)`` works with and without waiting.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn, cast

from cyclopts import Parameter

from sky.cli import job_webhooks, output, render
from sky.cli.app import Many, Output, command
from sky.cli.computes import LIST_ITEMS, check_limit, tell_more
from sky.cli.customer import KeyFile, buying, dollars, moment
from sky.cli.definition import seconds
from sky.cli.errors import FAILED, CliError
from sky.cli.job_files import download_all
from sky.cli.job_money import OutputOrFolder, app, show_estimate
from sky.cli.job_request import OPTIONS, Options, Words, outputs_of, wanted
from sky.cli.nouns import near
from sky.client.errors import JobFailed, JobNotFound, JobRefused
from sky.client.job_flows import TERMINAL, succeeded
from sky.client.jobs import Job, Jobs
from sky.wire import jobs as wire

__all__ = ["app", "job_webhooks"]
Id = Annotated[str, Parameter(name="JOB", help="Id of the job.")]
NAMED_MAX = 200
"""How many of the last jobs a mistyped id is compared with."""


@command(
    app,
    "sky job submit --sku cpu-1x --image debian --max-runtime 1h -- uname -a",
    "sky job submit --template embed --input https://example.com/a.txt:/in",
    "sky job submit --sku cpu-1x --image IMAGE --max-runtime 15m -f -- ./run",
    instead=("create", "run", "start", "launch"),
)
def submit(
    *words: Words,
    options: Options = OPTIONS,
    idempotency_key: Annotated[
        str | None, Parameter(metavar="KEY", help="Said again within a day, it is the same job.")
    ] = None,
    dry_run: Annotated[bool, Parameter(negative=(), help="Only tell what it would hold and cost.")] = False,
    wait: Annotated[bool, Parameter(negative=(), help="Wait for its end; exit code 1 if it failed.")] = False,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative=(), help="The same, and print its log meanwhile.")
    ] = False,
    key_file: KeyFile = None,
    output_: OutputOrFolder = (),
) -> int:
    """Submit a job and print its id.

    The money for its longest runtime, up to two hours of it, is held until it ends.
    """
    outputs, shown = outputs_of(output_)
    with buying(key_file) as jobs:
        if dry_run:
            show_estimate(jobs.estimate(**wanted(words, options, outputs)), shown)
            output.note("this was a dry run: nothing was submitted")
            return 0
        with output.waiting("submitting …"):
            job = jobs.submit(**wanted(words, options, outputs), idempotency_key=idempotency_key)
        if shown == "table" and not follow:
            output.say(job.id)
            sys.stdout.flush()
        with _left_alone(job):
            if follow:
                output.note(f"{job.id} is {job.status}")
                with output.waiting(f"{job.id} goes on …"):
                    _print_log(job.logs(follow=True), sys.stderr if shown == "json" else sys.stdout)
            if wait or follow:
                return _ended(job, None, shown)
        if shown == "json":
            output.json(job.seen)
        else:
            output.note(f"{job.status}; {dollars(job.usage.hold_usd)} are held")
    return 0


@command(
    app,
    "sky job list",
    "sky job list --status running --status queued",
    "sky job list --limit 500 -o json",
    name="list",
    instead=("ls", "ps"),
)
def list_(
    *,
    status: Annotated[tuple[wire.JobStatus, ...], Many, Parameter(help="Only those with this status.")] = (),
    limit: Annotated[int, Parameter(help="How many at most.")] = LIST_ITEMS,
    key_file: KeyFile = None,
    output_: Output = "table",
) -> int:
    """List your jobs, newest first."""
    check_limit(limit)
    with buying(key_file) as jobs:
        found = list(itertools.islice(jobs.list(status), limit + 1))
    shown = [job.seen for job in found[:limit]]
    if output_ == "json":
        output.json(shown)
    elif not shown:
        output.note("no jobs; `sky job submit` makes one")
    else:
        output.table(HEADINGS, map(_row, shown), flexible=("SKU", "COMMAND"))
    tell_more(len(found) > limit, limit)
    return 0


@command(
    app, "sky job get job_01…", "sky job get job_01… -o json", instead=("show", "describe", "info", "status")
)
def get(job: Id, /, *, key_file: KeyFile = None, output_: Output = "table") -> int:
    """Show a job, with what it costs so far."""
    with buying(key_file) as jobs:
        _show(_found(jobs, job).seen, output_)
    return 0


@command(app, "sky job logs job_01…", "sky job logs job_01… --follow", instead=("log", "tail", "output"))
def logs(
    job: Id,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative=(), help="Go on until the job is over, or Ctrl-C.")
    ] = False,
    key_file: KeyFile = None,
) -> int:
    """Print what a job printed. A connection that breaks is made again, and no line is lost or doubled."""
    with output.waiting(f"{job} goes on …"), buying(key_file) as jobs:
        _print_log(_found(jobs, job).logs(follow=follow), sys.stdout)
    return 0


@command(app, "sky job events job_01…", "sky job events job_01… --follow -o json", instead=("history",))
def events(
    job: Id,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative=(), help="Go on until the job is over, or Ctrl-C.")
    ] = False,
    key_file: KeyFile = None,
    output_: Output = "table",
) -> int:
    """Print what happened to a job, oldest first. With --output json, each line is one event."""
    with buying(key_file) as jobs:
        for event in _found(jobs, job).events(follow=follow):
            if output_ == "json":
                output.say(output.dumps(event))
            else:
                data = " ".join(f"{name}={_told(value)}" for name, value in event.data.items())
                at = moment(event.created_at).astimezone()
                said = f"{output.clean(event.type):<24}  {output.clean(data)}"
                output.say(f"{at:%Y-%m-%d %H:%M:%S}  {said}".rstrip())
            sys.stdout.flush()
    return 0


def _told(value: Any) -> str:
    """A place as its parts; anything else as it is."""
    if not isinstance(value, dict):
        return str(value)
    return "/".join(str(part) for part in cast("dict[str, Any]", value).values() if part)


@command(app, "sky job cancel job_01…", instead=("kill", "stop", "delete", "rm"))
def cancel(job: Id, /, *, key_file: KeyFile = None, output_: Output = "table") -> int:
    """End a job: its meter stops now. Exit code 4 when it has ended otherwise."""
    with buying(key_file) as jobs:
        _show(_found(jobs, job).cancel().seen, output_)
    return 0


@command(app, "sky job wait job_01…", "sky job wait job_01… --timeout 10m -o json")
def wait(
    job: Id,
    /,
    *,
    timeout: Annotated[str | None, Parameter(metavar="TIME", help="Give up after: 90, 15m, 2h.")] = None,
    key_file: KeyFile = None,
    output_: Output = "table",
) -> int:
    """Wait until a job is over: exit code 0 when it succeeded, 1 when it did not, or not in time."""
    within = None if timeout is None else seconds(timeout, "--timeout")
    with buying(key_file) as jobs:
        found = _found(jobs, job)
        with _left_alone(found):
            return _ended(found, within, output_)


@command(app, "sky job artifacts job_01…", "sky job artifacts job_01… -o json", instead=("files",))
def artifacts(job: Id, /, *, key_file: KeyFile = None, output_: Output = "table") -> int:
    """List the files that a job wrote. With --output json, with addresses that are good for an hour."""
    with buying(key_file) as jobs:
        found = _found(jobs, job)
        files = found.artifacts()
    if output_ == "json":
        output.json([file.told for file in files])
    elif not files:
        over = found.status in TERMINAL
        output.note(
            f"{job} kept no files" if over else f"{job} is {found.status}; its files come when it ends"
        )
    else:
        rows = [(file.path, file.size, file.sha256) for file in files]
        output.table(("PATH", "BYTES", "SHA-256"), rows, flexible=("SHA-256", "PATH"))
    return 0


@command(
    app,
    "sky job download job_01…",
    "sky job download job_01… --to results",
    "sky job download job_01… /out/model.bin --to model.bin",
    instead=("fetch", "get-files"),
)
def download(
    job: Id,
    path: Annotated[str | None, Parameter(help="One file, as the job wrote it; else all.")] = None,
    /,
    *,
    to: Annotated[
        str, Parameter(metavar="PLACE", help="Folder for all files; name or folder for one.")
    ] = ".",
    key_file: KeyFile = None,
    output_: Output = "table",
) -> int:
    """Have the files that a job wrote, each checked against its hash; prints where they are.

    All files go below the folder at the paths that they had. Folders are made, and files that are there are
    replaced once the new ones are whole.
    """
    with buying(key_file) as jobs:
        got = download_all(_found(jobs, job), path, to)
    if output_ == "json":
        output.json([{"path": file.path, "file": str(where), "sha256": file.sha256} for file, where in got])
    else:
        for _, where in got:
            output.say(str(where))
    return 0


# ── what they share ─────────────────────────────────────────────────────────────────────────────

HEADINGS = ("ID", "STATUS", "SKU", "COST", "AGE", "COMMAND")


def _row(job: wire.Job) -> tuple[object, ...]:
    command = " ".join(job.spec.command) if isinstance(job.spec.command, tuple) else None
    cost = dollars(job.usage.estimated_cost_usd)
    return job.id, render.state(job.status), job.sku, cost, render.ago(moment(job.created_at)), command


def _show(job: wire.Job, output_: str) -> None:
    if output_ == "json":
        output.json(job)
        return
    spec, usage = job.spec, job.usage
    placed = job.placement
    over = job.status in TERMINAL
    pairs: list[tuple[str, Any]] = [
        ("id", job.id),
        ("status", render.state(job.status)),
        ("error", output.Cell(f"{job.error.code}: {job.error.message}", "bad") if job.error else None),
        ("sku", job.sku),
        ("image", spec.image or None),
        ("command", " ".join(spec.command) if isinstance(spec.command, tuple) else None),
        ("placement", f"{placed.cloud} {placed.region} {placed.instance_type}" if placed else None),
        ("after", ", ".join(job.after) if isinstance(job.after, tuple) else None),
        ("begun again", f"{job.retries} times" if job.retries else None),
        ("created", render.when(moment(job.created_at))),
        ("started", job.started_at and render.when(moment(job.started_at))),
        ("finished", job.finished_at and render.when(moment(job.finished_at))),
        ("held", dollars(usage.hold_usd)),
        ("settled", dollars(usage.settled_cost_usd)) if over else ("cost", dollars(usage.estimated_cost_usd)),
        *((f"metadata {name}", value) for name, value in job.metadata.items()),
    ]
    output.pairs([(name, value) for name, value in pairs if value is not None])


def _ended(job: Job, within_s: float | None, output_: str) -> int:
    """Wait for the end, tell it, and end as it did."""
    output.progress(f"waiting for {job.id} …")
    try:
        job.wait(within_s)
    except TimeoutError as late:
        raise CliError("not_ended", str(late), f"`sky job cancel {job.id}` ends it", FAILED) from late
    output.clear_progress()
    if output_ == "json":
        output.json(job.seen)
    try:
        succeeded(job.seen)
    except JobFailed as failed:
        hint = (
            f"`sky job logs {job.id}` shows what it printed; settled: {dollars(job.usage.settled_cost_usd)}"
        )
        raise CliError("job_failed", str(failed), hint, FAILED) from failed
    output.note(f"{job.id} succeeded; settled: {dollars(job.usage.settled_cost_usd)}")
    return 0


@contextmanager
def _left_alone(job: Job) -> Generator[None]:
    """Who stops waiting has not stopped the job, and is told."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(f"{job.id} goes on; `sky job cancel {job.id}` ends it")
        raise


def _print_log(lines: Iterator[str], stream: Any) -> None:
    for line in lines:
        output.raw(line + "\n", stream)


def _found(jobs: Jobs, job: str) -> Job:
    try:
        return jobs.get(job)
    except JobNotFound as missing:
        _refuse_with_near_id(jobs, job, missing)


def _refuse_with_near_id(jobs: Jobs, job: str, missing: JobRefused) -> NoReturn:
    known = [other.id for other in itertools.islice(jobs.list(), NAMED_MAX)]
    meant = near(job, known)
    missing.details["hint"] = (
        f"did you mean `{meant[0]}`?" if meant else "`sky job list` shows those there are"
    )
    raise missing
