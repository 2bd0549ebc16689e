"""What a customer does with paid jobs, written once for both drivers.

Decides: how a submit is put together, which requests an operation takes, and how a log and a file survive
broken connections. Never: sends, sleeps or prints. Follows: each flow may be begun again after it broke off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypedDict

import msgspec
from msgspec import UNSET

from sky.client import calls_jobs as calls
from sky.client.errors import InvalidRequest, JobFailed, JobRefused, SkyError
from sky.client.flows import Flow, Pause, ask
from sky.client.request import Call
from sky.client.sse import Frames
from sky.kit.clock import SystemClock
from sky.wire import jobs as wire

TERMINAL = frozenset({"succeeded", "failed", "interrupted", "cancelled"})
PAGE_ITEMS = 100
LOOK_FIRST_S = 0.1
LOOK_LONGEST_S = 2.0
INTO_THE_END = "end"

Input = wire.JobInput | tuple[str, str] | Mapping[str, str]
"""A file to have before the command begins: where it is, and the folder it goes to."""
RetryOn = Literal["interrupted", "node_lost"]
"""Why a job is begun again: its spot machine was taken, or its machine failed."""
Output = wire.JobOutput | str | Mapping[str, str]
"""A folder whose files are kept."""

_clock = SystemClock()


# ── submitting ──────────────────────────────────────────────────────────────────────────────────


UNKNOWN = "whether the job was accepted is not known; `sky job list` shows it if it was"


def take_back(create: Call[wire.Job]) -> Flow[bool]:
    """Cancel a job whose submit was interrupted: it may be accepted already, or yet arrive. False: nobody who
    knows could be asked.

    Under its key it is the same job, asked for once more; so its id is told, and no later arrival is another.
    """
    try:
        job = yield from ask(create)
        yield from ask(calls.cancel_job(job.id))
    except JobRefused as refused:  # what is refused now was not accepted before, or is over
        return not refused.retryable
    except SkyError:
        return False
    return True


class Wanted(TypedDict, total=False):
    """What a submit may say."""

    sku: str | None
    template: str | None
    image: str | None
    command: Sequence[str] | None
    env: Mapping[str, str] | None
    inputs: Sequence[Input]
    outputs: Sequence[Output]
    max_runtime_seconds: int | None
    providers: Sequence[str]
    metadata: Mapping[str, str] | None
    after: Sequence[str]
    retries: int
    retry_on: Sequence[RetryOn]


def request_of(
    *,
    sku: str | None = None,
    template: str | None = None,
    image: str | None = None,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    inputs: Sequence[Input] = (),
    outputs: Sequence[Output] = (),
    max_runtime_seconds: int | None = None,
    providers: Sequence[str] = (),
    metadata: Mapping[str, str] | None = None,
    after: Sequence[str] = (),
    retries: int = 0,
    retry_on: Sequence[RetryOn] = ("interrupted",),
) -> wire.SubmitJobRequest:
    """A submit as it is sent. What is not said is left out: a template, or the seller, decides."""
    if isinstance(command, str):
        message = "command is a list of words, such as ['python', 'run.py']; a text would be taken apart"
        raise InvalidRequest(message, "invalid_request", 400, details={"field": "command"})
    spec = wire.JobSpec(
        image=UNSET if image is None else image,
        command=UNSET if command is None else tuple(command),
        env=UNSET if env is None else dict(env),
        inputs=tuple(map(_input, inputs)) or UNSET,
        outputs=tuple(map(_output, outputs)) or UNSET,
        max_runtime_seconds=UNSET if max_runtime_seconds is None else max_runtime_seconds,
    )
    return wire.SubmitJobRequest(
        template=UNSET if template is None else template,
        sku=UNSET if sku is None else sku,
        providers=tuple(providers) or UNSET,
        spec=UNSET if spec == wire.JobSpec() else spec,
        metadata=UNSET if metadata is None else dict(metadata),
        after=tuple(after) or UNSET,
        retry=wire.JobRetry(max=retries, on=tuple(retry_on)) if retries else UNSET,
    )


def _input(given: Input) -> wire.JobInput:
    match given:
        case wire.JobInput():
            return given
        case Mapping():
            return _converted(given, wire.JobInput)
        case (source, mount):
            return wire.JobInput(source=source, mount=mount)
        case _:
            message = f"{given!r} is no input: write (address, folder)"
            raise InvalidRequest(message, "invalid_request", 400, details={"field": "inputs"})


def _output(given: Output) -> wire.JobOutput:
    match given:
        case wire.JobOutput():
            return given
        case Mapping():
            return _converted(given, wire.JobOutput)
        case _:
            return wire.JobOutput(mount=given)


def _converted(given: Mapping[str, str], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{dict(given)!r}: {error}", "invalid_request", 400) from error


# ── one job ─────────────────────────────────────────────────────────────────────────────────────


def cancel(job: str) -> Flow[wire.Job]:
    """End a job. One that is cancelled already is the answer: the first asking may have been ours."""
    try:
        return (yield from ask(calls.cancel_job(job)))
    except JobRefused as refused:
        if refused.code != "job_terminal":
            raise
        ended = yield from ask(calls.get_job(job))
        if ended.status != "cancelled":
            raise
        return ended


def await_end(job: str, within_s: float | None) -> Flow[wire.Job]:
    """Look at a job until it is over. Raises TimeoutError after ``within_s`` seconds."""
    deadline_s = math.inf if within_s is None else _clock.monotonic_s() + within_s
    pause_s = LOOK_FIRST_S
    while True:
        seen = yield from ask(calls.get_job(job))
        if seen.status in TERMINAL:
            return seen
        left_s = deadline_s - _clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError(f"{job} is {seen.status} after {within_s:g} s; it goes on")
        yield Pause(min(pause_s, left_s))
        pause_s = min(LOOK_LONGEST_S, pause_s * 1.5)


def succeeded(job: wire.Job) -> wire.Job:
    """The same job. Raises JobFailed when it ended otherwise."""
    if job.status == "succeeded":
        return job
    why = f": {job.error.code}: {job.error.message}" if job.error is not None else ""
    raise JobFailed(f"{job.id} {'was cancelled' if job.status == 'cancelled' else job.status}{why}", job)


def jobs_page(statuses: Sequence[str], after: str | None) -> Flow[tuple[tuple[wire.Job, ...], str | None]]:
    """Some jobs, newest first, and where the next ones begin."""
    page = yield from ask(calls.list_jobs(statuses=statuses, after=after, limit=PAGE_ITEMS))
    following = page.next if isinstance(page.next, str) else None
    return page.data, following if page.has_more else None


def events_page(job: str, after: str | None) -> Flow[tuple[tuple[wire.Event, ...], str | None, bool]]:
    """Some events, oldest first; the last of them; and whether there are more."""
    page = yield from ask(calls.list_events(job, after=after, limit=PAGE_ITEMS))
    return page.data, page.data[-1].id if page.data else after, page.has_more


def statuses_of(status: str | Sequence[str] | None) -> tuple[str, ...]:
    """One status, several, or all."""
    if status is None:
        return ()
    return (status,) if isinstance(status, str) else tuple(status)


# ── what it printed ─────────────────────────────────────────────────────────────────────────────


def lines_of(text: str) -> list[str]:
    """The lines of a part of a log."""
    return text.removesuffix("\n").split("\n") if text else []


class Log:
    """A reader's place in a job's log, which outlives connections. ``over``: the job has ended, and all is
    read."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._cursor = 0
        self._frames = Frames()
        self.over = False

    def call(self) -> Call[None]:
        """A new connection, from the place that was reached."""
        self._frames = Frames()
        return calls.follow_log(self._job, self._cursor)

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines that are whole now."""
        # An endless line is no log of ours; the next connection begins behind what was read.
        with suppress(ValueError):
            for frame in self._frames.feed(piece):
                if frame.seq is not None:
                    self._cursor = frame.seq
                if frame.name == INTO_THE_END:
                    self.over = True
                elif frame.seq is not None:
                    yield from frame.data.decode("utf-8", "replace").split("\n")
