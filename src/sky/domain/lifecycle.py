"""How a state moves: one table per noun, one function for all tables.

A fact names what happened to one row. A table says from which states that fact may come and where it
leads. Decides: legality, and nothing else. Never: reads a clock or a row; ``store/tx`` does the writing.
Follows: no other code assigns a state, the diagrams in the documentation are drawn from these tables,
and saying again what is already true changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from msgspec import Struct


class Fact(Struct, frozen=True):
    """Something that happened to the row ``id``. Fields beside ``id`` are columns it sets.

    ``intent``: the fact says what somebody wants, so it moves the revision that clients compare.
    """

    intent: ClassVar[bool] = False
    id: str


class Move(NamedTuple):
    """From which states, to which state (None: it stays), under which event name (None: not told)."""

    sources: frozenset[str]
    target: str | None
    event: str | None


Table = Mapping[type[Fact], Move]


class IllegalMoveError(Exception):
    """A fact in a state that has no arrow for it: a bug, since news from outside is checked first."""


def advance(table: Table, state: str, fact: Fact) -> str | None:
    """The state after ``fact``, or None when it repeats what is already true (write nothing)."""
    move = table[type(fact)]
    if move.target is not None and state == move.target:
        return None
    if state not in move.sources:
        msg = f"{type(fact).__name__} cannot happen to {fact.id} in state {state!r}"
        raise IllegalMoveError(msg)
    return state if move.target is None else move.target


def states(table: Table) -> frozenset[str]:
    """Every state a table mentions."""
    found: set[str] = set()
    for move in table.values():
        found |= move.sources
        if move.target is not None:
            found.add(move.target)
    return frozenset(found)
