"""What a loop is, and what one pass of it says when it ends.

Decides: those two shapes. Never: when a pass runs (``runner``).
Follows: a pass ends with what it decided in words, which ``sky why`` shows; a loop without a key says with
``idle`` why it has nothing to do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from sky.store.tx import Tx

PASSES_AT_ONCE_MAX = 64
"""Of those that only decide, and, unless it says otherwise, of each loop that calls out: whoever does not
answer one loop (a provider, a console) keeps no decision waiting, and no other loop."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a pass ended: ``write`` is its one write (None: nothing), ``due_us`` when to look again without
    news (None: only on news), ``why`` what it decided, for people."""

    why: str
    due_us: int | None = None
    write: Callable[[Tx], None] | None = None


class InnerLoop(ABC):
    """A loop without outside effects: it reads, plans and writes inside one transaction."""

    name: ClassVar[str]
    idle: ClassVar[str]

    @abstractmethod
    def look(self, tx: Tx, key_id: str) -> Done:
        """One pass. It writes as it goes, so ``write`` of what it returns is None."""

    def broken(self, tx: Tx, key_id: str, failures: int, why: str) -> None:
        """Its passes about this key have raised so many times in a row: whoever waits for it can be told.
        Unless a loop says otherwise nobody is, and the key is tried again for ever."""
        del tx, key_id, failures, why


class OuterLoop(ABC):
    """A loop that does at most one thing outside, with no transaction open. ``passes_max``: so many of its
    passes may be under way."""

    name: ClassVar[str]
    idle: ClassVar[str]
    passes_max: ClassVar[int] = PASSES_AT_ONCE_MAX

    @abstractmethod
    async def look(self, key_id: str) -> Done:
        """One pass: read, plan, at most one effect; what is to be written is returned."""
