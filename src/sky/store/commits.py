"""What is put in line for the database, and what comes of it.

Decides: what a commit made true, from what its verbs did. Never: runs a verb.
Follows: who attends to a key is given what was read for it, and is not woken besides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import DBAPIError

from sky.kit.meters import Counter, Histogram
from sky.store.engine import explain
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
    later: bool = False
    """Nobody waits for it: a loop has asked."""


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


class Refused(Exception):
    """Carries a verb's own refusal out of the transaction that it was alone in, so that it is rolled back."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        known = explain(error) if isinstance(error, DBAPIError) else None
        self.error = known or error


class Meters:
    """What is counted of the writer; it alone moves them."""

    def __init__(self) -> None:
        self.seconds = Histogram("sky_db_commit_seconds", "How long the writer took for one transaction.")
        self.verbs = Counter("sky_db_verbs_total", "Writes that were carried out, several to a transaction.")
        self.failed = Counter("sky_db_commit_errors_total", "Transactions that were not committed.")

    def seen(self, seconds: float, verbs: int, *, failed: bool) -> None:
        """The writer has served so many verbs in one transaction."""
        self.seconds.add(seconds)
        self.verbs.add(by=verbs)
        self.failed.add(by=failed)
