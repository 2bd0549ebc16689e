"""Stored errors, and moments, as answers show them.

Decides: how JSON that a verb or a loop stored becomes an error object, and by which code it is told.
Never: invents one. Follows: a reader that knows the interface's codes alone can read whatever holds an error;
the cause that was stored is in its details. An error that was stored by an older release is shown as well as
it can be, and never breaks a read.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from sky.kit.clock import to_datetime
from sky.wire.error import PUBLISHED_CODES, Error, ErrorCode

TOLD_AS: dict[str, ErrorCode] = {
    "cancelled": "task_failed",
    "node_lost": "compute_not_connected",
    "provider_refused": "capability_mismatch",
    "timed_out": "task_failed",
    "worker_died": "task_failed",
}
"""Causes that are stored, and by which code each is told."""
OTHERS: ErrorCode = "capability_mismatch"
"""What a provider, a node or a compute could not do, whatever that was called."""


def error_of(stored: Any, code: ErrorCode | None = None) -> Error | None:
    """A stored error, by that code if one is given; None when there is none."""
    if not isinstance(stored, dict):
        return None
    found = cast("dict[str, Any]", stored)
    cause = str(found.get("code"))
    if code is None:
        code = cast("ErrorCode", cause) if cause in PUBLISHED_CODES else TOLD_AS.get(cause, OTHERS)
    details = found.get("details")
    more = cast("dict[str, Any]", details) if isinstance(details, dict) else {}
    if code != cause:
        more = {**more, "cause": cause}
    return Error(
        code=code,
        message=str(found.get("message", "")),
        retryable=bool(found.get("retryable", False)),
        details=more or None,
    )


def moment(us: int | None) -> datetime | None:
    """A stored moment as UTC; None where nothing happened yet."""
    return None if us is None else to_datetime(us)
