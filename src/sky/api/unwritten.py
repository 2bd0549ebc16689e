"""Requests that only read, and were answered while there was no room to write them down.

Decides: how many of them are kept, and for how long: until newer ones take their place, or the daemon ends.
Never: keeps one that has begun anything. Follows: on a full disk reads are answered, under their ids too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEPT_MAX = 200
KEPT_BYTES_MAX = 8 * 1024 * 1024


class Unwritten:
    """The latest of them, by their ids."""

    def __init__(self) -> None:
        self._kept: dict[str, Mapping[str, Any]] = {}
        self._bytes = 0

    def keep(self, row: Mapping[str, Any]) -> None:
        """Keep one, and let the oldest go that are too many or too large."""
        self._kept[row["id"]] = row
        self._bytes += _size(row)
        while len(self._kept) > KEPT_MAX or (self._bytes > KEPT_BYTES_MAX and len(self._kept) > 1):
            self._bytes -= _size(self._kept.pop(next(iter(self._kept))))

    def matching(self, start: str, owner: str | None) -> list[Mapping[str, Any]]:
        """Those whose ids begin so, of that owner or, with None, of anybody; the one with that id alone."""
        exact = self._kept.get(start)
        found = (
            [row for name, row in self._kept.items() if name.startswith(start)] if exact is None else [exact]
        )
        return [row for row in found if owner in (None, row["owner"])]


def _size(row: Mapping[str, Any]) -> int:
    return len(row["result"] or b"")
