"""Arguments that are one thing or several.

Decides: what is one and what is several. Never: looks whether such a thing exists.
Follows: what is neither is refused here, with its name and value, and not somewhere in the middle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

from sky.client.exceptions import InvalidArgument

T = TypeVar("T")


def names(argument: str, given: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """The names that an argument gives; None where it gives none. Raises InvalidArgument."""
    if given is None:
        return None
    several = (given,) if isinstance(given, str) else _several(argument, given, "names")
    return tuple(map(str, several))  # as plain texts: an id of a request is one that knows more


def numbers(argument: str, given: Sequence[int] | int | None) -> tuple[int, ...] | None:
    """The numbers that an argument gives; None where it gives none. Raises InvalidArgument."""
    if given is None:
        return None
    found = (given,) if isinstance(given, int) else tuple(_several(argument, given, "numbers"))
    wrong = next((one for one in found if not isinstance(cast("object", one), int)), None)
    if wrong is not None:
        raise InvalidArgument(f"{argument} is a list of numbers, and {wrong!r} in it is none")
    return found


def _several(argument: str, given: Sequence[T], called: str) -> Sequence[T]:
    if not isinstance(cast("object", given), Iterable):
        raise InvalidArgument(f"{argument} is a list of {called}, and {given!r} was given")
    return given
