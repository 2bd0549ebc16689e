"""Stored errors, and moments, as answers show them.

Decides: how JSON that a verb or a loop stored becomes an error object. Never: invents one.
Follows: an error that was stored by an older release is shown as well as it can be, and never breaks a read.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from sky.kit.clock import to_datetime
from sky.wire.error import CODES, Error, ErrorCode


def error_of(stored: Any) -> Error | None:
    """A stored error; None when there is none."""
    if not isinstance(stored, dict):
        return None
    found = cast("dict[str, Any]", stored)
    code = found.get("code")
    details = found.get("details")
    return Error(
        code=cast("ErrorCode", code if code in CODES else "internal"),
        message=str(found.get("message", "")),
        retryable=bool(found.get("retryable", False)),
        details=cast("dict[str, Any]", details) if isinstance(details, dict) else None,
    )


def moment(us: int | None) -> datetime | None:
    """A stored moment as UTC; None where nothing happened yet."""
    return None if us is None else to_datetime(us)
