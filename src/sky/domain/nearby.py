"""The nearest known name to a mistyped one. Decides: how a hint is worded. Never: guesses for the caller."""

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
