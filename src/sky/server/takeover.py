"""Makes what this installation keeps outside of its database its own, because an operator says so.

Decides: which places of the settings are another's, and that they are taken only as they were seen. Never:
asks whoever had them. Follows: the one before removes nothing there from its next look on; what it still
writes there is removed as nobody's, so it is to be stopped, or given a place of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sky.kit.clock import SystemClock
from sky.server.setting_rules import NO_ARTIFACTS
from sky.server.settings import Settings
from sky.store import installation, known
from sky.store.installation import Installation
from sky.store.marks import MarkedFolder, Place, Seen
from sky.store.migrate import UnusableDatabaseError
from sky.store.tenure import Standing, may_mark, standing, take_over


@dataclass(frozen=True, slots=True)
class Found:
    """A place, whose it is, and whether it becomes or became this installation's; ``free``: it needs no
    taking over, since this installation's next daemon marks it by itself."""

    standing: Standing
    taken: bool
    free: bool = False


def places(chosen: Settings) -> Iterator[Place]:
    """What a daemon with those settings keeps content and files in. Raises SettingsError."""
    yield MarkedFolder(chosen.shared / "blobs")
    if chosen.jobs and chosen.artifacts != NO_ARTIFACTS and chosen.bucket is None:
        yield MarkedFolder(chosen.shared / "artifacts")
    if chosen.blob_bucket is None and chosen.bucket is None:
        return
    from sky.server import buckets  # with botocore, which is an extra, and slow

    seen: set[str] = set()
    for one in buckets.named(chosen):
        if one.url not in seen:
            seen.add(one.url)
            yield buckets.marked(buckets.bucket_of(chosen, one.setting, one.where, SystemClock()), one.where)


def look(chosen: Settings, mine: Installation | None) -> list[Found]:
    """Whose each place is; nothing is written. Raises SettingsError, Busy, OSError."""

    async def each() -> list[Found]:
        return [(await _look(place, mine, chosen.database_url))[0] for place in places(chosen)]

    return asyncio.run(each())


def take(chosen: Settings, mine: Installation) -> list[Found]:
    """Take over what is not this installation's. Raises TakenError, and as ``look``."""

    async def each() -> list[Found]:
        found: list[Found] = []
        for place in places(chosen):
            one, seen = await _look(place, mine, chosen.database_url)
            if one.taken:
                await take_over(place, seen, mine, SystemClock().now_us())
            found.append(one)
        return found

    return asyncio.run(each())


@dataclass(frozen=True, slots=True)
class _Owner:
    """The installation that a database will be once a daemon has begun to serve from it."""

    url: str
    mine: Installation | None

    async def who(self) -> Installation:
        return self.mine or Installation(installation.UNNAMED, installation.FIRST)

    async def names(self, keys: Sequence[str]) -> bool:
        if self.mine is None:  # of an older release, which named none; or there is no database yet
            return await asyncio.to_thread(installation.is_older, self.url)
        return await asyncio.to_thread(self._names, keys, self.mine.named_us)

    def _names(self, keys: Sequence[str], named_us: int) -> bool:
        with installation.reading(self.url) as connection:
            return known.are_its_own(connection, keys, named_us)


async def _look(place: Place, mine: Installation | None, url: str) -> tuple[Found, Seen]:
    seen = await place.read()
    told = standing(place, seen, mine)
    free = await may_mark(place, seen, _Owner(url, mine))
    return Found(told, taken=told.why_not is not None, free=free), seen


def mine_of(chosen: Settings, *, dry_run: bool) -> Installation:
    """Which installation this is; a copy gets its name here. Raises UnusableDatabaseError."""
    found = installation.peek(chosen.database_url)
    if found is None:
        shown = installation.shown_url(chosen.database_url)
        raise UnusableDatabaseError(f"{shown} has no name yet: start its daemon once, and then take over")
    return found if dry_run else installation.begin(chosen.database_url)
