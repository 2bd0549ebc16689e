"""What the time was when the daemon of a state folder last looked, for the next one.

Decides: which moment a daemon begins with. Never: sets a clock.
Follows: somebody who sets the wall clock while no daemon runs lets no call run out of time and makes no job
cost more, as while one runs: the time that passed is what this computer counted since it was started. After
another start of it, and where a clock is off by more than a day, nothing better is known than the wall.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from sky.kit.clock import SECOND_US, Clock, SinceBoot, since_boot

FILE = "clock.json"
LOOK_S = 10.0
MOVED_US = 100_000
"""What was written is right until the clock leans away from it by so much."""
BELIEVED_US = 24 * 3600 * SECOND_US
_log = structlog.get_logger()


class _Kept(msgspec.Struct, frozen=True):
    """It was ``now_us`` when the computer had run for ``seconds`` since the start that is named ``boot``."""

    boot: str
    seconds: float
    now_us: int

    @property
    def began_us(self) -> int:
        """When that start was."""
        return self.now_us - round(self.seconds * SECOND_US)


class ClockMemory:
    """The clock of one state folder."""

    def __init__(self, home: Path, wall: Clock, look: Callable[[], SinceBoot | None] = since_boot) -> None:
        self._path = home / FILE
        self._wall = wall
        self._look = look
        begun = look()
        self._asleep_s = 0.0 if begun is None else begun.asleep_s
        self._kept: _Kept | None = None

    def begin(self) -> int:
        """The moment to begin with, in microseconds since 1970."""
        wall_us, here, kept = self._wall.now_us(), self._look(), self._read()
        if here is None or kept is None or kept.boot != here.boot or kept.seconds > here.seconds:
            return wall_us
        now_us = kept.began_us + round(here.seconds * SECOND_US)
        return now_us if abs(now_us - wall_us) <= BELIEVED_US else wall_us

    def keep(self, clock: Clock) -> None:
        """Write down what ``clock`` says, if it is not what was written."""
        here = self._look()
        if here is None:
            return
        now_us = clock.now_us()
        # What passed while this computer slept has not been counted yet, and is no doing of anybody's.
        slept_us = round((here.asleep_s - self._asleep_s) * SECOND_US)
        now_us += max(0, min(slept_us, self._wall.now_us() - now_us))
        found = _Kept(here.boot, here.seconds, now_us)
        if self._kept is not None and abs(found.began_us - self._kept.began_us) < MOVED_US:
            return
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_bytes(msgspec.json.encode(found))
            fresh.replace(self._path)
        except OSError as error:
            _log.warning("clock.not_kept", path=str(self._path), error=error.strerror)
        else:
            self._kept = found

    async def run_forever(self, clock: Clock) -> None:
        """Keep it for as long as the daemon runs."""
        while True:
            self.keep(clock)
            await asyncio.sleep(LOOK_S)

    def _read(self) -> _Kept | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("clock.not_read", path=str(self._path), error=str(error))
            return None
