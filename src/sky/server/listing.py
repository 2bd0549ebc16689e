"""What is sold now: read whole when the daemon starts, and again whenever its file changes.

Decides: when the file is looked at, and that a broken new version changes nothing. Never: reads it while a
request waits. Follows: a mistake in the file is told in the log once, and shown to the operator until it is
mended; a job keeps the price that it was submitted at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import structlog

from sky.api.selling import CatalogueState
from sky.kit.clock import Clock, to_datetime
from sky.server import catalogue, templates
from sky.server.catalogue import SHIPPED, CatalogueError, Listed

LOOK_S = 1.0
_log = structlog.get_logger(__name__)
Stamp = tuple[int, int, int]


class Listing:
    """The catalogue of ``path`` (None: the one that comes along), with the templates of a folder beside it.
    Raises CatalogueError."""

    def __init__(
        self, path: Path | None, kinds: Collection[str], clock: Clock, folder: Path | None = None
    ) -> None:
        self._path = path or SHIPPED
        self._folder = folder
        self._shipped = path is None
        self.kinds = frozenset(kinds)
        self._clock = clock
        self._stamp = _stamps(self._path, folder)
        self._read_at = self._now()
        self._error: str | None = None
        self.listed = self._read()
        for text in self.listed.warnings:
            _log.warning("catalogue.warning", said=text)
        self._tell_broken()

    def state(self) -> CatalogueState:
        """How it stands with the file."""
        warnings = (*self.listed.warnings, *self.listed.catalogue.broken.values())
        return CatalogueState(str(self._path), self._read_at, warnings, self._error)

    async def run_forever(self) -> None:
        """Look at the file now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> bool:
        """Read the file if it changed; whether it did."""
        stamp = await asyncio.to_thread(_stamps, self._path, self._folder)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.listed = await asyncio.to_thread(self._read)
        except CatalogueError as error:
            self._error = str(error)
            _log.error(
                "catalogue.refused", file=str(self._path), said=self._error, kept=self._read_at.isoformat()
            )
        else:
            self._error, self._read_at = None, self._now()
            _log.info("catalogue.read", file=str(self._path), skus=len(self.listed.catalogue.skus))
            self._tell_broken()
        return True

    def _read(self) -> Listed:
        # The list that comes along names clouds for those who add them; nobody here can mend it.
        found = catalogue.listed(self._path, None if self._shipped else self.kinds)
        return replace(found, catalogue=templates.with_folder(found.catalogue, self._folder))

    def _tell_broken(self) -> None:
        for name, error in self.listed.catalogue.broken.items():
            _log.error("template.refused", template=name, said=error)

    def _now(self) -> datetime:
        return to_datetime(self._clock.now_us())


def _stamps(path: Path, folder: Path | None) -> tuple[Stamp | None, ...]:
    """What changes when any of the files does."""
    try:
        beside = [] if folder is None else templates.files(folder)
    except CatalogueError:
        beside = []
    return tuple(_stamp(one) for one in (path, *beside))


def _stamp(path: Path) -> Stamp | None:
    """What changes when the file does; None: it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
