"""The nearest known name to a mistyped one.

Decides: how a hint is worded, and when one name is a slip of another: one letter more, less, other, or two
that changed places. Never: guesses for the caller.
Follows: a name that is no slip may be one that only somebody else knows.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(name: str, known: Iterable[str]) -> str:
    """A clause that names the nearest known name, or all of them, for the end of a message."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(names) or 'none'}"


def slip_of(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` is a slip of; None when it is one itself, or far from all. Case counts
    for nothing."""
    folded = name.casefold()
    found: str | None = None
    for other in sorted(known):
        if other.casefold() == folded:
            return None
        if found is None and _one_apart(folded, other.casefold()):
            found = other
    return found


def _one_apart(one: str, other: str) -> bool:
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    left, right = one[start:], other[start:]
    return (
        left[1:] == right[1:]
        or left[1:] == right
        or left == right[1:]
        or (left[:2] == right[:2][::-1] and left[2:] == right[2:])
    )
