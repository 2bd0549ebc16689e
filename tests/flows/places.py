"""Which of the points that a story passes a daemon dies at.

Decides: that each kind of point has its deaths in every run, and which of its many places they are at: all of
a rare kind, of the others every ``STRIDE``-th, begun elsewhere by each test; half as many on PostgreSQL, for
each costs three times as much there. ``SKY_TESTS_ALL_POINTS=1``: all.
Never: asks chance. A test dies at the same places in every run, as long as its story passes the same points.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence

from tests.databases import ON_POSTGRESQL

RARE = 3
"""A kind that a story passes no more often dies each time."""
ALL_POINTS = bool(os.environ.get("SKY_TESTS_ALL_POINTS"))


def every(points: int) -> int:
    """Of how many points a daemon dies at one, where it is ``points`` on a SQLite."""
    return points * 2 if ON_POSTGRESQL else points


STRIDE = every(4)


def places(names: Sequence[str], test: str) -> list[int]:
    """How many points are passed before each death, for ``test``, whose story passes ``names``."""
    if ALL_POINTS:
        return list(range(len(names)))
    turn = zlib.crc32(test.encode())
    kinds: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        kinds.setdefault(name, []).append(number)
    return sorted(
        number
        for there in kinds.values()
        for number in (there if len(there) <= RARE else there[turn % min(STRIDE, len(there)) :: STRIDE])
    )
