"""Whether this computer can run containers, as paid jobs on it need to know before any money is held.

Decides: when to look again: an engine that works is believed for a while, one that does not for less.
Never: makes a request wait: looking happens in a thread, and until it has looked once only what is not even
installed is refused; nor the daemon's start, which the engine's own program would take the processor from.
Follows: an engine that is installed or started later is found without a restart of the daemon.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from sky.kit.clock import Clock
from sky.kit.containers import Engine, find, missing

CLOUD = "local"
GOOD_SECONDS = 120.0
BAD_SECONDS = 10.0
FIRST_SECONDS = 2.0
"""How long after the parts were put together the first look is, unless somebody asks before."""


class LocalEngine:
    """The container engine of this computer, as it was when last looked for."""

    def __init__(self, clock: Clock, look: Callable[[Mapping[str, str]], Engine | str] = find) -> None:
        self._clock = clock
        self._look = look
        self._lock = threading.Lock()
        self._looking = False
        self._reason = missing(os.environ)
        self._again_s = 0.0

    def look_soon(self) -> None:
        """Look once the daemon has started, so that the first who asks is told."""
        timer = threading.Timer(FIRST_SECONDS, self.unusable)
        timer.name, timer.daemon = "container-engine", True
        timer.start()

    def unusable(self) -> Mapping[str, str]:
        """Why jobs in containers cannot be placed on this computer, by the name of its cloud; empty: they
        can. Looks again in the background when it is time to."""
        with self._lock:
            due = not self._looking and self._clock.monotonic_s() >= self._again_s
            self._looking = self._looking or due
            reason = self._reason
        if due:
            threading.Thread(target=self._refresh, name="container-engine", daemon=True).start()
        return {} if reason is None else {CLOUD: reason}

    def _refresh(self) -> None:
        try:
            found = self._look(os.environ)
        except BaseException:
            self._know(None)
            raise
        self._know(found if isinstance(found, str) else None)

    def _know(self, reason: str | None) -> None:
        with self._lock:
            self._looking = False
            self._reason = reason
            self._again_s = self._clock.monotonic_s() + (GOOD_SECONDS if reason is None else BAD_SECONDS)
