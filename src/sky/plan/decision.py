"""What every plan returns: what to do, when to look again, and why in words.

Decides: that shape. Never: carries anything out. Follows: ``sky why`` can say what a loop last thought.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

A = TypeVar("A")


class Decision(Struct, Generic[A], frozen=True):
    """``actions`` in order; ``next_us`` is when to look again without news (None: only on news)."""

    actions: tuple[A, ...]
    next_us: int | None
    why: str


def earliest(*moments: int | None) -> int | None:
    """The first of some moments, of which any may be absent."""
    there = [m for m in moments if m is not None]
    return min(there) if there else None
