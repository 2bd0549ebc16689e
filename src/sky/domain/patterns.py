"""Regular expressions that somebody sends, which may not take for ever.

Decides: which ones are accepted: what repeats is a single character or class, and few things repeat.
Never: runs one. Follows: matching a name of a hundred characters takes a bounded number of steps, since
nothing that repeats is within something that repeats.
"""

from __future__ import annotations

import re

REPEATS_MAX = 3
OPTIONALS_MAX = 4
GROUPS_MAX = 4


def bounded(text: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """The pattern, to be searched with. Raises ValueError: what is wrong with it."""
    try:
        pattern = re.compile(text, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"{text!r} is no regular expression: {error}"
        raise ValueError(msg) from None
    why = _unbounded(text)
    if why is not None:
        msg = f"{text!r} is a regular expression that could take too long: {why}"
        raise ValueError(msg)
    return pattern


def _unbounded(text: str) -> str | None:
    bare = re.sub(r"\\.", lambda found: "\\" if found[0][1].isdigit() else "x", text, flags=re.DOTALL)
    bare = re.sub(r"\[\]?[^\]]*\]", "x", bare)
    bare = bare.replace("(?:", "(")
    if "\\" in bare or "(?" in bare:
        return "it refers back to groups, or looks around; leave that out"
    if re.search(r"\)[*+{]", bare):
        return "a group repeats; let single characters repeat"
    repeats = len(re.findall(r"[*+{]", bare))
    optionals = bare.count("?")
    groups = bare.count("(")
    for count, most, what in (
        (repeats, REPEATS_MAX, "things that repeat"),
        (optionals, OPTIONALS_MAX, "things that may be missing"),
        (groups, GROUPS_MAX, "groups"),
    ):
        if count > most:
            return f"it has {count} {what}, at most {most} are allowed"
    return None
