"""Who may remove what is kept outside of the database: only the installation whose mark is there.

Decides: that what carries no mark is marked where nothing is kept yet, or by an installation that has always
been this one and whose database names what is kept; all else an operator says. Never: keeps anybody from
reading or writing, or takes over what is another's. Follows: it is looked at again before each removal, so
whoever has lost a place removes nothing there from the next look on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from sky.domain.errors import Busy
from sky.kit.clock import Clock
from sky.store import known
from sky.store.db import Database
from sky.store.installation import Installation, who
from sky.store.marks import Mark, Place, Seen

LOOK_S = 60.0
"""How long a place may take to say whose it is."""
NOT_OURS_S = 6 * 3600.0
"""When somebody who was kept from removing should come again: a place changes hands once, if ever."""
TAKE_OVER = "`sky admin takeover` has this installation take it over"
_log = structlog.get_logger(__name__)


class TakenError(Exception):
    """Somebody else was a moment earlier; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Whose a place is. ``owner`` None: it has no mark, or one that cannot be read (``marked``); ``why_not``:
    why this installation removes nothing there, None: it is its own."""

    where: str
    owner: str | None
    since_us: int | None
    why_not: str | None
    marked: bool = True


def standing(place: Place, seen: Seen, mine: Installation | None) -> Standing:
    """Whose a place with that mark is, for the installation ``mine`` (None: it has no name yet)."""
    where = place.where
    if seen.version is None:
        if mine is None or mine.is_first:
            why = f"{where} carries no mark, and has content that this installation does not know"
        else:
            why = f"{where} carries no mark, has content, and this installation is {_kind(mine)}"
        return Standing(where, None, None, f"{why}; {TAKE_OVER}", marked=False)
    if seen.mark is None:
        return Standing(where, None, None, f"the mark of {where} cannot be read; {TAKE_OVER}")
    owner = seen.mark.installation
    if mine is not None and owner == mine.identity:
        return Standing(where, owner, seen.mark.since_us, None)
    me = "this one has no name yet" if mine is None else f"this is {mine.identity}, {_kind(mine)}"
    why = f"{where} is the installation {owner}'s, and {me}: it removes nothing there; {TAKE_OVER}"
    return Standing(where, owner, seen.mark.since_us, why)


def _kind(mine: Installation | None) -> str:
    origin = "first" if mine is None else mine.origin
    return "another one" if origin == "first" else f"a {origin} one"


class Owner(Protocol):
    """Whoever asks for a place: which installation that is, and what its database names. Each raises Busy."""

    async def who(self) -> Installation:
        """Which installation it is."""
        ...

    async def names(self, keys: Sequence[str]) -> bool:
        """Whether things with those keys are its own."""
        ...


async def may_mark(place: Place, seen: Seen, owner: Owner) -> bool:
    """Whether an installation makes a place its own without being told to. Raises Busy, OSError."""
    if seen.version is not None:
        return False
    keys = await place.some()
    return not keys or ((await owner.who()).is_first and await owner.names(keys))


class Tenure:
    """This installation at one place."""

    def __init__(self, place: Place, clock: Clock, mine: Owner) -> None:
        self._place = place
        self._clock = clock
        self._mine = mine
        self._said: str | None = None

    @property
    def where(self) -> str:
        """What people call the place."""
        return self._place.where

    async def kept_from(self) -> str | None:
        """Why nothing may be removed there now; None: it is ours. Raises Busy, OSError."""
        try:
            async with asyncio.timeout(LOOK_S):
                found = await self._look()
        except TimeoutError as error:
            msg = f"{self.where} did not say in {LOOK_S:g} s whose it is; try again"
            raise Busy(msg, after_s=1.0) from error
        if found.why_not != self._said:
            self._said = found.why_not
            if found.why_not is not None:
                _log.warning("storage.not_ours", where=found.where, owner=found.owner, why=found.why_not)
        return found.why_not

    async def _look(self) -> Standing:
        mine = await self._mine.who()
        seen = await self._place.read()
        if await may_mark(self._place, seen, self._mine):
            mark = Mark(mine.identity, self._clock.now_us())
            if await self._place.write(mark, seen):
                _log.info("storage.marked", where=self.where, owner=mine.identity)
            seen = await self._place.read()  # whoever was first
        return standing(self._place, seen, mine)


class OwnerOf:
    """The installation that a database is, which is asked once."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._told: Installation | None = None

    async def who(self) -> Installation:
        """Which installation it is."""
        if self._told is None:
            self._told = await self._db.write(lambda tx: who(tx.connection, tx.now_us))
        return self._told

    async def names(self, keys: Sequence[str]) -> bool:
        """Whether things with those keys are its own."""
        named_us = (await self.who()).named_us
        return await self._db.read(lambda connection: known.are_its_own(connection, keys, named_us))


async def take_over(place: Place, seen: Seen, mine: Installation, now_us: int) -> None:
    """Make a place this installation's own. Raises TakenError, Busy, OSError."""
    before = None if seen.mark is None else seen.mark.installation
    mark = Mark(mine.identity, now_us, before)
    if not await place.write(mark, seen) or (await place.read()).mark != mark:
        raise TakenError(
            f"{place.where} was marked by somebody else a moment ago; look again, with --dry-run"
        )


class Files(Protocol):
    """Where the files of jobs are."""

    async def delete_some(self, job_id: str) -> bool:
        """Remove some of a job's files; True when nothing is left."""
        ...


class Tenured:
    """Files of jobs that are removed only where they are ours."""

    def __init__(self, files: Files, tenure: Tenure) -> None:
        self._files = files
        self.tenure = tenure

    async def delete_some(self, job_id: str) -> bool:
        """Remove some of a job's files; True when nothing is left. Raises Busy: they are another's."""
        why = await self.tenure.kept_from()
        if why is not None:
            raise Busy(why, after_s=NOT_OURS_S)
        return await self._files.delete_some(job_id)
