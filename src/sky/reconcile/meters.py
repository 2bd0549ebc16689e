"""What is counted of the loops.

Decides: which numbers those are. Never: names a key, of which there may be as many as there are things.
Follows: a loop that stands still is seen by its last pass, one that cannot go on by its errors.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterable, Iterator

from sky.kit.clock import SECOND_US
from sky.kit.meters import Counter, Family, Histogram, gauge

OF = ("loop",)


class Meters:
    """Of all loops of this daemon. ``followed`` is moved by the writer, everything else by the event loop."""

    def __init__(self, loops: Iterable[str]) -> None:
        self._loops = sorted(loops)
        self._seconds = Histogram("sky_loop_pass_seconds", "How long a pass took, whatever it did.", OF)
        self._errors = Counter("sky_loop_errors_total", "Passes that raised; their keys are set aside.", OF)
        self._conflicts = Counter("sky_loop_conflicts_total", "Passes that somebody else was before.", OF)
        self._followed = Counter(
            "sky_loop_followed_total", "Passes inside the transaction that made their key due.", OF
        )
        self._last_us: dict[str, int] = {}
        for loop in self._loops:
            self._errors.add(loop, by=0)

    def passed(self, loop: str, seconds: float, now_us: int) -> None:
        """A pass has ended."""
        self._seconds.add(seconds, loop)
        self._last_us[loop] = now_us

    def failed(self, loop: str) -> None:
        """A pass raised."""
        self._errors.add(loop)

    def conflicted(self, loop: str) -> None:
        """Somebody else wrote meanwhile what the pass was about to."""
        self._conflicts.add(loop)

    def followed(self, loop: str) -> None:
        """A pass was made where its key became due."""
        self._followed.add(loop)

    def families(
        self, running: Iterable[str], ready: Iterable[str], tick_age_s: float | None
    ) -> Iterator[Family]:
        """As it stands; ``running`` and ``ready`` are keys."""
        for one in (self._seconds, self._errors, self._conflicts, self._followed):
            yield one.family()
        told = "When a loop's newest pass ended, in seconds since 1970."
        last_s = {loop: us / SECOND_US for loop, us in self._last_us.items()}
        yield gauge("sky_loop_last_pass_timestamp_seconds", told, last_s, "loop")
        for name, told, keys in (
            ("sky_loop_passes_running", "Passes that are under way.", running),
            ("sky_loop_passes_ready", "Keys that wait for a place in this daemon.", ready),
        ):
            by_loop = Count(key.partition("/")[0] for key in keys)
            yield gauge(name, told, {loop: float(by_loop[loop]) for loop in self._loops}, "loop")
        told = "How long ago this daemon last looked for keys that are due; more than 15 is too long."
        yield gauge("sky_loops_tick_age_seconds", told, tick_age_s)
