"""Operations that take several requests, written once for both drivers.

Decides: which requests, in which order, and which refusals are part of the way. Never: sends or sleeps:
a flow yields calls and pauses, and is sent their answers or has their errors thrown into it.
Follows: ``run`` drives a flow with the synchronous driver and ``arun`` with the asynchronous one; a flow may
be begun again after it broke off anywhere, because every call in it may be.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sky.client import calls
from sky.client.errors import ApiError, ComputeFailed, NameTaken, NotFound, RevisionConflict, SkyError
from sky.client.http import Http
from sky.client.request import Call
from sky.kit.clock import SystemClock
from sky.wire import v1

if TYPE_CHECKING:
    from sky.client.http_async import AsyncHttp
    from sky.client.pack import Packed

T = TypeVar("T")

REVISION_TRIES = 5
"""How often a deletion reads the revision again before it says: whatever it is."""
GONE_PAUSE_FIRST_S = 0.02
GONE_PAUSE_LONGEST_S = 0.5
BLOB_ASK_FIRST_BYTES = 1024 * 1024
"""From this size on, it is asked whether content is there before it is sent."""

RELEASE_S = 60.0
"""How long a name is waited for whose compute is being given back."""
RELEASE_PAUSE_S = 0.2

_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Pause:
    """Let this many seconds pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Connect:
    """Begin an answer that comes in pieces; the one before is done with."""

    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Read:
    """The next piece of the answer; None at its end."""


@dataclass(frozen=True, slots=True)
class Give:
    """Hand an item to the consumer."""

    item: Any


Flow = Generator[Call[Any] | Pause, Any, T]


def ask(call: Call[T]) -> Flow[T]:
    """One request inside a flow; its answer keeps its type."""
    answer: T = yield call
    return answer


def run(http: Http, flow: Flow[T], *, patience_s: float | None = None, later_s: float | None = None) -> T:
    """Drive a flow to its end with the synchronous driver. ``later_s``: the patience with a daemon that has
    answered something of it."""
    try:
        step = next(flow)
        while True:
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                step = flow.send(None)
                continue
            try:
                answer = http.send(step, patience_s=patience_s)
            except SkyError as refused:
                step = flow.throw(refused)
            else:
                patience_s = patience_s if later_s is None else later_s
                step = flow.send(answer)
    except StopIteration as end:
        return end.value


async def arun(
    http: AsyncHttp, flow: Flow[T], *, patience_s: float | None = None, later_s: float | None = None
) -> T:
    """Drive a flow to its end with the asynchronous driver. ``later_s``: as for ``run``."""
    try:
        step = next(flow)
        while True:
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                step = flow.send(None)
                continue
            try:
                answer = await http.send(step, patience_s=patience_s)
            except SkyError as refused:
                step = flow.throw(refused)
            else:
                patience_s = patience_s if later_s is None else later_s
                step = flow.send(answer)
    except StopIteration as end:
        return end.value


# ── content ─────────────────────────────────────────────────────────────────────────────────────


def upload(packed: Packed, *, ask_first: bool = False) -> Flow[None]:
    """Store content that others name by its hash; large content only when it is not there."""
    if ask_first or len(packed.content) >= BLOB_ASK_FIRST_BYTES:
        try:
            yield from ask(calls.has_blob(packed.sha256))
            return
        except NotFound:
            pass
    yield from ask(calls.put_blob(packed.sha256, packed.content))


def submit(call: Call[T], functions: Sequence[Packed], blobs: Sequence[Packed] = ()) -> Flow[T]:
    """Ask for work, and send what it names only when the daemon says that it lacks it."""
    for _ in range(len(functions) + len(blobs)):
        try:
            return (yield from ask(call))
        except NotFound as missing:
            told = f"{missing.message} {missing.details}"
            lacking = [packed for packed in functions if packed.sha256 in told]
            named = [packed for packed in blobs if packed.sha256 in told]
            if not lacking and not named:
                raise
            for packed in lacking:
                yield from ask(calls.put_function(packed.sha256, packed.content, packed.name))
            for packed in named:
                yield from upload(packed)
    return (yield from ask(call))


# ── computes ────────────────────────────────────────────────────────────────────────────────────


def find_compute(name: str) -> Flow[v1.Compute | None]:
    """The compute of this name or id that can still be used; None when there is none."""
    try:
        found = yield from ask(calls.get_compute(name))
    except NotFound:
        return None
    return None if found.status.state == "deleted" else found


def create_or_attach(
    name: str | None,
    request: Callable[[], Call[v1.Compute]],
    failed: Callable[[v1.Compute], None] | None = None,
) -> Flow[tuple[v1.Compute, bool]]:
    """The compute of this name, or a new one; and whether it was there before.

    One that has failed serves nobody any more: ``failed`` is told of it, and another takes its place.
    A name whose compute is just being given back is waited for, ``RELEASE_S`` seconds at most.
    """
    deadline_s = _clock.monotonic_s() + RELEASE_S
    create: Call[v1.Compute] | None = None
    while True:
        found = (yield from find_compute(name)) if name is not None else None
        if found is not None and found.status.state == "failed":
            if failed is not None:
                failed(found)
            yield from delete_compute(found.id, found.revision)
        elif found is not None and found.status.state != "deleting":
            return found, True
        try:
            if found is None:
                create = create or request()
                return (yield from ask(create)), False
        except NameTaken:
            # Somebody was quicker between the look and the asking: theirs is the one.
            create = None
        except ApiError as refused:
            if refused.code != "release_pending" or _clock.monotonic_s() > deadline_s:
                raise
            create = None
        if _clock.monotonic_s() > deadline_s:
            message = f"the compute {name} is still being given back after {RELEASE_S:.0f} s; try again later"
            raise ComputeFailed(message, name or "")
        yield Pause(RELEASE_PAUSE_S)


def delete_compute(compute: str, revision: int | None) -> Flow[v1.Compute | None]:
    """Ask for a compute's end, against the revision as it is; None when there is none."""
    for _ in range(REVISION_TRIES):
        try:
            return (yield from ask(calls.delete_compute(compute, revision)))
        except NotFound:
            return None
        except RevisionConflict:
            found = yield from find_compute(compute)
            if found is None:
                return None
            revision = found.revision
    return (yield from ask(calls.delete_compute(compute, None)))


def await_gone(compute: str, within_s: float) -> Flow[bool]:
    """Wait until a compute and its machines are gone; False when they are not after ``within_s`` seconds."""
    deadline_s = _clock.monotonic_s() + within_s
    pause_s = GONE_PAUSE_FIRST_S
    while True:
        found = yield from find_compute(compute)
        if found is None:
            return True
        if _clock.monotonic_s() + pause_s > deadline_s:
            return False
        yield Pause(pause_s)
        pause_s = min(GONE_PAUSE_LONGEST_S, pause_s * 1.5)


def results_by_rank(task: str) -> Flow[list[bytes]]:
    """The payloads of a call that ran on every node, by rank: of each rank's last attempt."""
    told = yield from ask(calls.get_task(task))
    last: dict[int, v1.Execution] = {}
    for execution in sorted(told.executions, key=lambda one: one.ordinal):
        last[execution.rank] = execution
    payloads: list[bytes] = []
    for rank in sorted(last):
        sha256 = last[rank].result_sha256
        if sha256 is None:
            raise ComputeFailed(f"rank {rank} left no result for {task}: {last[rank].state}", told.compute_id)
        payloads.append((yield from ask(calls.get_blob(sha256))))
    return payloads
