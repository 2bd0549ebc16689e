"""How a call ended, from any of the answers that say so, as a value or the exception to raise.

Decides: which exception stands for which end. Never: asks again, waits, or hides a traceback.
Follows: results of one call alone and of a thousand at once are read by the same few lines.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sky.client import calls
from sky.client.errors import (
    ApiError,
    CallError,
    PackError,
    TaskCancelled,
    TaskFailed,
    TaskIndeterminate,
    TaskTimedOut,
)
from sky.client.function import Settled
from sky.client.http import Http
from sky.client.pack import revive, unpack, unpack_from
from sky.client.request import Reply
from sky.kit.culprit import PACK_ERROR
from sky.wire import v1

ENDED_CODES = frozenset({"task_failed", "task_indeterminate"})
"""Codes with which the daemon answers for a result that there will never be."""

NOT_YET = 204
"""The status of an answer for a result that there is not yet."""

_KINDS: dict[str, type[CallError]] = {
    "indeterminate": TaskIndeterminate,
    "task_indeterminate": TaskIndeterminate,
    "cancelled": TaskCancelled,
    "timed_out": TaskTimedOut,
}


class Settler:
    """Reads ends of calls. Fetches what an answer only names."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def fetch(self, task: str, wait_s: int) -> Settled[Any] | None:
        """Ask for a result, which is read as it comes; None when there is none after ``wait_s`` seconds.

        Raises what asking raises, but not for the refusals that say how it ended.
        """
        try:
            return self._http.receive(
                calls.get_result(task, wait=wait_s), lambda reply, pieces: self._read(reply, pieces, task)
            )
        except ApiError as refused:
            if refused.code in ENDED_CODES:
                return self.of_refusal(refused, task)
            raise

    def _read(self, reply: Reply, pieces: Iterator[bytes], task: str) -> Settled[Any] | None:
        if reply.status == NOT_YET:
            return None
        lines = int(reply.headers.get("sky-console-lines", "0"))
        return self._value(lambda: unpack_from(pieces, length_of(reply)), task, lines)

    def of_payloads(self, payloads: list[bytes], task: str, console_lines: int) -> Settled[list[Any]]:
        """The results of every rank."""
        try:
            return Settled([unpack(content) for content in payloads], None, task, console_lines)
        except PackError as unreadable:
            return Settled(None, unreadable, task, console_lines)

    def of_refusal(self, refused: ApiError, task: str) -> Settled[Any]:
        """An answer that there will be no result."""
        details = refused.details
        error = self._error(refused.code, refused.message, details, task)
        return Settled(None, error, task, _count(details.get("console_lines")))

    def of_outcome(self, outcome: v1.TaskOutcome) -> Settled[Any]:
        """One of many outcomes."""
        if outcome.state == "succeeded":
            return self._value(lambda: self._value_of(outcome), outcome.task, outcome.console_lines)
        error = outcome.error
        code = outcome.state if outcome.state in _KINDS else (error.code if error else "task_failed")
        message = error.message if error else f"the call ended as {outcome.state}"
        details = (error.details if error else None) or {}
        ended = self._error(code, message, details, outcome.task, inline=outcome.result)
        return Settled(None, ended, outcome.task, outcome.console_lines)

    def _value(self, value: Callable[[], Any], task: str, lines: int) -> Settled[Any]:
        try:
            return Settled(value(), None, task, lines)
        except PackError as unreadable:
            return Settled(None, unreadable, task, lines)

    def _value_of(self, outcome: v1.TaskOutcome) -> Any:
        if outcome.result is not None:
            return unpack(outcome.result)
        if outcome.result_sha256 is None:
            raise PackError(f"{outcome.task} succeeded and left no result")
        return self._http.receive(
            calls.get_blob(outcome.result_sha256),
            lambda reply, pieces: unpack_from(pieces, length_of(reply)),
        )

    def _error(
        self, code: str, message: str, details: Mapping[str, Any], task: str, *, inline: bytes | None = None
    ) -> BaseException:
        kind = _KINDS.get(str(details.get("state") or code)) or _KINDS.get(code)
        if kind is not None:
            return kind(f"{task}: {message}", task, dict(details))
        original = str(details.get("type") or "")
        if original == PACK_ERROR:
            return PackError(f"{task}: {message}")
        payload = inline or self._exception_of(details)
        if payload is None and not original:
            return TaskFailed(f"{task}: {message}", task, dict(details))
        trace = str(details.get("traceback") or "")
        return revive(payload, kind=original, message=message, traceback=trace, task=task)

    def _exception_of(self, details: Mapping[str, Any]) -> bytes | None:
        inline, sha256 = details.get("payload"), details.get("payload_sha256")
        if isinstance(inline, str):
            try:
                return base64.b64decode(inline, validate=True)
            except binascii.Error:
                return None
        if not isinstance(sha256, str):
            return None
        try:
            return self._http.send(calls.get_blob(sha256))
        except ApiError:
            # The exception itself is gone from the store; its message and traceback are in our hands.
            return None


def length_of(reply: Reply) -> int | None:
    """How many bytes an answer's content has, where it says so."""
    told = reply.headers.get("content-length", "")
    return int(told) if told.isdecimal() else None


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
