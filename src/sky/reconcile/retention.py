"""Removes what paid jobs left once its time is over: files, and lines that were printed.

Decides: when a job's files and lines go, and in which order: they are no longer offered, then removed, then
forgotten. Never: looks at a job that is not over, or removes more than some in one pass.
Follows: each job has its own time, so waiting costs nothing; a storage that does not answer is asked again,
and what is still there is still known.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar, Protocol

from sky.domain.errors import Busy
from sky.domain.job_errors import JobRefused
from sky.kit.clock import SECOND_US, Clock
from sky.reconcile.passes import Done, OuterLoop
from sky.store.db import Database
from sky.store.rows import artifacts as rows
from sky.store.tx import Tx

DAY_US = 24 * 3600 * SECOND_US
LINES_MAX = 2_000
"""Lines that one pass drops."""
DELETE_S_MAX = 120.0
AGAIN_US = 300 * SECOND_US
"""How long a storage that did not answer is left alone."""


class Keeper(Protocol):
    """Where the files of jobs are."""

    async def delete_some(self, job_id: str) -> bool:
        """Remove some of a job's files; True when nothing is left. Raises Busy, JobRefused, OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """How long is kept what jobs left: files from their upload, lines from the end of the job."""

    files_us: int = 30 * DAY_US
    lines_us: int = 7 * DAY_US


class Retention(OuterLoop):
    """One pass: some lines or some files of one job whose time is over."""

    name: ClassVar[str] = "retention"
    idle: ClassVar[str] = "no paid job has left files or lines"

    def __init__(self, db: Database, clock: Clock, keeper: Keeper | None, terms: Terms) -> None:
        self._db = db
        self._clock = clock
        self._keeper = keeper
        self._terms = terms

    async def look(self, key_id: str) -> Done:
        kept = await self._db.read(lambda c: rows.kept(c, key_id))
        if kept is None or kept.finished_us is None:
            return Done("there is no such job, or it is not over")
        now_us = self._clock.now_us()
        lines_us = kept.finished_us + self._terms.lines_us if kept.lines else None
        files_us = kept.uploaded_us + self._terms.files_us if kept.uploaded_us is not None else None
        if lines_us is not None and lines_us <= now_us:
            return Done("dropped lines that it printed", now_us, lambda tx: _drop(tx, key_id))
        if files_us is not None and files_us <= now_us:
            return await self._remove(key_id, listed=kept.listed, now_us=now_us)
        moments = [moment for moment in (lines_us, files_us) if moment is not None]
        if not moments:
            return Done("nothing of it is kept any more")
        return Done("what it left has its time", min(moments))

    async def _remove(self, job_id: str, *, listed: bool, now_us: int) -> Done:
        if listed:
            return Done("its files are no longer offered", now_us, lambda tx: rows.hide(tx, job_id))
        if self._keeper is None:
            return Done("its files are over, and no storage is configured", now_us + DAY_US)
        try:
            async with asyncio.timeout(DELETE_S_MAX):
                done = await self._keeper.delete_some(job_id)
        except Busy as error:  # each look costs a request to the bucket, and there may be many jobs
            wait_us = round((error.after_s or 0.0) * SECOND_US)
            return Done(f"its files could not be removed: {error}", now_us + max(wait_us, AGAIN_US))
        except (JobRefused, OSError, TimeoutError) as error:
            return Done(f"its files could not be removed: {error}", now_us + AGAIN_US)
        if not done:
            return Done("removed some of its files", now_us)
        return Done("removed its files", now_us, lambda tx: rows.forget(tx, job_id))


def _drop(tx: Tx, job_id: str) -> None:
    rows.forget_lines(tx, job_id, LINES_MAX)
