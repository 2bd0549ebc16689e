"""When a request may be sent again, and after how long: the part both drivers share.

Decides: which losses and which answers are worth another try, the pause before it, and when to give up.
Never: sends, sleeps, or reads a socket.
Follows: a daemon that is killed and comes back at its address within ``PATIENCE_S`` is not noticed by
callers, except as time; a request that may have had its effect and carries no key is never sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sky.client.errors import ApiError, api_error_class, job_refused_class
from sky.client.request import Call, Reply
from sky.kit import backoff
from sky.kit.clock import SystemClock
from sky.wire.jobs import PATHS_FROM, QuotaViolation
from sky.wire.requests import VERSION_HEADER

PATIENCE_S = 60.0
"""How long a daemon may be away before a request fails."""
PAUSE_FIRST_S = 0.05
PAUSE_LONGEST_S = 1.0
BUSY_PAUSE_LONGEST_S = 10.0
"""The longest pause a daemon may ask for."""
RATE_LIMITED, NOT_NOW = 429, 503
TRY_AGAIN_STATUSES = frozenset({429, 502, 503, 504})

AWAY_TOLD_S = 2.0
"""After how much silence whoever wants to know is told that a daemon is away."""
FIRST_S = 3.0
"""How long somebody is waited for who has never answered: who is not there will hardly come."""
NEVER_ANSWERED = "Is the address right (SKY_URL)? Nobody answered yet; `sky server start` starts one here."
INTERRUPT_PATIENCE_S = 3.0
"""How long who was interrupted tries to take back what was asked."""
LONG_S = 10.0
"""A patience of less is over before it is worth a word."""

_clock = SystemClock()
_tell_away: list[Callable[[float], None]] = []


def when_away(tell: Callable[[float], None]) -> None:
    """Have it told once that a daemon is away that is waited for for long, and for how many seconds."""
    _tell_away[:] = [tell]


class Attempts:
    """The tries of one request. ``sent`` tells a loss before anything was sent from one after.

    ``first_s``: the patience with somebody who has never answered, where that is another one.
    """

    def __init__(
        self, call: Call[Any], patience_s: float = PATIENCE_S, *, first_s: float | None = None
    ) -> None:
        self._repeatable = call.repeatable
        self._sold = call.path.startswith(PATHS_FROM)
        self._whole_s = patience_s
        self._patience_s = patience_s if first_s is None else min(first_s, patience_s)
        self._began_s = _clock.monotonic_s()
        self._away_s: float | None = None
        self._failures = 0

    @property
    def waited_s(self) -> float:
        """Seconds since the first try began."""
        return _clock.monotonic_s() - self._began_s

    def after_loss(self, *, sent: bool, silent: bool = False) -> float | None:
        """Seconds to pause before the next try after the connection was lost; None to give up.

        ``silent``: nobody has said anything for all the time that was given.
        """
        if sent and not self._repeatable:
            return None
        if silent and self._away_s is None:
            self._away_s = self._began_s
        pause = self._pause(None)
        long = self._patience_s >= LONG_S and self._away_for_s() >= AWAY_TOLD_S
        if pause is not None and long and _tell_away:
            _tell_away.pop()(self._patience_s)
        return pause

    def after_answer(self, status: int, headers: Mapping[str, str]) -> float | None:
        """Seconds to pause when an answer asks to try again; None when it is the answer."""
        asked = _retry_after_s(headers)
        self._patience_s = self._whole_s
        still_running = status == 409 and asked is not None
        if not self._repeatable or not (status in TRY_AGAIN_STATUSES or still_running):
            return None
        if self._sold and status == NOT_NOW and asked is None:
            # A seller who does not say when it could work has nothing to run the job on.
            return None
        if status == RATE_LIMITED and asked is not None:
            # Asking again before then would be refused, and counted.
            return self._pause(asked, asked)
        return self._pause(asked)

    def _pause(self, asked_s: float | None, longest_s: float = BUSY_PAUSE_LONGEST_S) -> float | None:
        self._failures += 1
        if self._away_s is None:
            # An answer may have been waited for for long before its daemon went away.
            self._away_s = _clock.monotonic_s()
        pause = backoff.delay_s(self._failures, first_s=PAUSE_FIRST_S, longest_s=PAUSE_LONGEST_S)
        if asked_s is not None:
            pause = max(pause, min(asked_s, longest_s))
        return pause if self._away_for_s() + pause <= self._patience_s else None

    def _away_for_s(self) -> float:
        return 0.0 if self._away_s is None else _clock.monotonic_s() - self._away_s


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after")
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None


class _JobRefusal(msgspec.Struct):
    """The error object of paid jobs, as far as it can be read."""

    code: str
    type: str = ""
    message: str = ""
    param: str | None = None
    quotas: tuple[QuotaViolation, ...] = ()


class _Refusal(msgspec.Struct):
    """The error object as far as it can be read: a newer daemon's code is kept, not refused. ``error``: paid
    jobs have an envelope of their own."""

    code: str = ""
    message: str = ""
    retryable: bool = False
    request_id: str | None = None
    details: dict[str, Any] | None = None
    error: _JobRefusal | None = None


_refusals = msgspec.json.Decoder(_Refusal)


def refusal(call: Call[Any], reply: Reply) -> ApiError:
    """The error that an answer with a status of 400 or more stands for."""
    try:
        told = _refusals.decode(reply.content)
    except msgspec.DecodeError:
        told = _Refusal()
    if told.error is not None:
        return _of_jobs(told.error, reply)
    shown = reply.content[:200].decode("utf-8", "replace").strip()
    # A query may be a signature.
    asked = f"{call.method} {call.path.partition('?')[0]}"
    message = told.message if told.code else f"{asked} was answered with {reply.status} {shown}"
    code = told.code or _code_without_body(reply.status)
    kind = api_error_class(code, reply.status)
    error = kind(message, code, reply.status, told.retryable, told.details, told.request_id)
    version = reply.headers.get(VERSION_HEADER, "")
    error.api_version = int(version) if version.isdigit() else None
    return error


def _of_jobs(told: _JobRefusal, reply: Reply) -> ApiError:
    return job_refused_class(told.code)(
        told.message,
        told.code,
        reply.status,
        kind=told.type,
        param=told.param,
        quotas=told.quotas,
        retry_after=_retry_after_s(reply.headers),
        request_id=reply.headers.get("request-id"),
    )


def _code_without_body(status: int) -> str:
    # An answer to HEAD has no body, and a proxy's has not ours.
    return {404: "not_found", 401: "unauthorized", 403: "forbidden"}.get(status, "internal")
