"""Where a page begins and ends.

Decides: what a cursor is: the list it belongs to and the place of the last row that was shown.
Never: reads a row.
Follows: a cursor stays good when the row it names is gone, since only its place counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from sky.domain.errors import InvalidRequest

T = TypeVar("T")

DEFAULT_ITEMS = 50
WHOLE_LIST_MAX = 10_000
"""How many items a list shows at once when it was asked for without a limit and is short by nature."""

SHOWN_CHARS_MAX = 100
_TEXT = re.compile(r"(?P<kind>[a-z]+)\.(?P<place>\d{1,18})")


def cursor_of(kind: str, place: int) -> str:
    """The cursor of the page that begins after ``place`` in the list ``kind``."""
    return f"{kind}.{place}"


def place_of(kind: str, cursor: str | None) -> int | None:
    """The place that a cursor of the list ``kind`` names; None without one. Raises InvalidRequest."""
    if cursor is None:
        return None
    match = _TEXT.fullmatch(cursor)
    if match is None or match["kind"] != kind:
        expected = f"next_cursor of an earlier page of these {kind}"
        shown = cursor if len(cursor) <= SHOWN_CHARS_MAX else cursor[:SHOWN_CHARS_MAX] + "…"
        raise InvalidRequest(
            f"query parameter cursor must be {expected}; it is {shown!r}",
            details={"field": "cursor", "value": shown, "expected": expected},
        )
    return int(match["place"])


def cut(
    rows: Sequence[T], limit: int, kind: str, place: Callable[[T], int]
) -> tuple[Sequence[T], str | None]:
    """Of up to ``limit`` + 1 rows, those of this page, and the cursor of the next one if there is any."""
    if len(rows) <= limit:
        return rows, None
    page = rows[:limit]
    return page, cursor_of(kind, place(page[-1]))
