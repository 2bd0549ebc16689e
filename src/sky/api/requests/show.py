"""Requests as they are shown.

Decides: how a row becomes a record. Never: reads one. Follows: secrets of a request's body are not in its
record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sky.kit.clock import SECOND_US
from sky.wire import requests as wire


def record(row: Mapping[str, Any]) -> wire.RequestRecord:
    """A request as it is."""
    error = row["error"]
    return wire.RequestRecord(
        request_id=row["id"],
        name=row["name"],
        status=row["state"],
        created_at=row["created_us"] / SECOND_US,
        user=row["owner"],
        started_at=_seconds(row["started_us"]),
        finished_at=_seconds(row["finished_us"]),
        cluster_name=row["cluster_name"],
        result=row["result"],
        error=None if error is None else _error(error),
    )


def _error(error: Mapping[str, Any]) -> wire.ErrorRecord:
    rest = {name: value for name, value in error.items() if name not in ("type", "message", "details")}
    details = {**rest, **error.get("details", {})}
    return wire.ErrorRecord(type=error["type"], message=error["message"], details=details)


def _seconds(moment_us: int | None) -> float | None:
    return None if moment_us is None else moment_us / SECOND_US
