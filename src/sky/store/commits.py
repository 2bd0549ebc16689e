"""What is put in line for the database, and what comes of it.

Decides: what a commit made true, from what its verbs did. Never: runs a verb.
Follows: who attends to a key is given what was read for it, and is not woken besides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sky.store.tx import Event, Tx


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit made true: recorded events in their order, and keys whose loops should look.

    ``anything``: others may have made more true than that, and whoever waits should look.
    """

    events: tuple[Event, ...]
    keys: tuple[str, ...]
    anything: bool = False


ANYTHING = frozenset({"*"})
"""Instead of keys: any may have been told."""
Listener = Callable[[Committed], None]
Follower = Callable[[Tx, str], bool]


@dataclass(slots=True)
class Job:
    verb: Callable[[Tx], Any]
    done: asyncio.Future[Any] | None
    heard: frozenset[str] | None = None
    """Keys that another daemon has told: they are not told again."""


@dataclass(slots=True)
class Outcome:
    job: Job
    value: Any = None
    error: BaseException | None = None
    tx: Tx | None = field(default=None)
    attended: str = ""


@dataclass(frozen=True, slots=True)
class Attended:
    verb: Callable[[Tx], Any]
    take: Callable[[Any, BaseException | None], None]


def made_by(outcomes: Sequence[Outcome]) -> Committed:
    """What a commit of these made true."""
    done = [o.tx for o in outcomes if o.tx is not None]
    attended = {o.attended for o in outcomes}
    keys = tuple(dict.fromkeys(k for tx in done for k in tx.keys if k not in attended))
    return Committed(tuple(e for tx in done for e in tx.events), keys)


def nothing(_tx: Tx) -> None:
    """A verb for what was only heard."""
