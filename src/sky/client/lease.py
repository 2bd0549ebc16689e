"""Holding a compute: claimed once, renewed in a thread for as long as this process lives.

Decides: for how long a compute outlives a holder that vanished (``LEASE_S``), how often it is renewed, and
that a holder of this computer that is gone is outwaited.
Never: ends anything; a daemon does that when a lease lapses. Takes nothing from a holder that renews.
Follows: a process that is killed leaves no machine behind, one that only lost the daemon for a while keeps
what it has, and a notebook whose kernel was killed has its machines again.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

from sky.client import calls
from sky.client.errors import ApiError, DaemonUnreachable, LeaseHeld, NotFound
from sky.client.http import Http
from sky.kit.clock import SystemClock

LEASE_S = 60
RENEW_S = LEASE_S / 3
RENEW_PATIENCE_S = 10.0
OUTWAIT_S = LEASE_S + 10
"""How long a holder that seems gone is waited for. One that is there renews, and is found so by then."""
LOOK_S = 1.0

_clock = SystemClock()


def new_owner() -> str:
    """A name for this holder that a person can place."""
    return f"sdk:{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class Holder(NamedTuple):
    """Who holds a compute, as far as its name tells."""

    host: str
    process: int

    @classmethod
    def named(cls, owner: object) -> Self | None:
        """Read from what ``new_owner`` made; None for a name of another making."""
        found = re.fullmatch(r"sdk:(.+):(\d+):[0-9a-f]+", str(owner))
        return cls(found[1], int(found[2])) if found else None

    @property
    def gone(self) -> bool:
        """Whether it was a process of this computer that is there no longer, as seen from here."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def __str__(self) -> str:
        if self.host != socket.gethostname():
            return f"process {self.process} of {self.host}: it lets go when it closes it or ends"
        if self.process == os.getpid():
            return "this program, by another sky.Compute of that name: call on that one, or close() it first"
        return f"process {self.process} of this computer: it lets go when it closes it or ends"


class Lease:
    """A hold on one compute: while ``claimed``. ``lost`` says why it is one no longer."""

    def __init__(self, http: Http, compute: str, owner: str) -> None:
        self._http = http
        self._compute = compute
        self._owner = owner
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="sky-lease", daemon=True)
        self.lost: ApiError | None = None
        self.claimed = False

    def claim(self, label: str, say: Callable[[str], None]) -> None:
        """Take it, and renew it from now on. Raises LeaseHeld when another process has it.

        What a process of this computer held that was killed is free once that lease has lapsed, which is
        waited for; ``say`` is told so, with what the compute is called.
        """
        deadline_s = _clock.monotonic_s() + OUTWAIT_S
        while not self._claimed(label, waiting=_clock.monotonic_s() < deadline_s):
            say(f"{label}: its holder on this computer is gone; it is free within {LEASE_S} s")
            self._ended.wait(LOOK_S)
        self._thread.start()

    def _claimed(self, label: str, *, waiting: bool) -> bool:
        try:
            self._http.send(calls.claim_lease(self._compute, self._owner, LEASE_S))
        except LeaseHeld as held:
            holder = Holder.named(held.details.get("owner"))
            if holder is None:
                raise
            if waiting and holder.gone and not self._ended.is_set():
                return False
            message = f"{label} is held by {holder}"
            raise LeaseHeld(message, held.code, held.status, held.retryable, held.details) from None
        self.claimed = True
        return True

    def stop(self) -> None:
        """Renew it no longer."""
        self._ended.set()

    def release(self) -> None:
        """Give it up, for the next to take."""
        self.stop()
        self._http.send(calls.release_lease(self._compute, self._owner), patience_s=RENEW_PATIENCE_S)

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_S):
            call = calls.claim_lease(self._compute, self._owner, LEASE_S)
            try:
                self._http.send(call, patience_s=RENEW_PATIENCE_S)
            except (LeaseHeld, NotFound) as lost:
                self.lost = lost
                self.claimed = False
                return
            except (ApiError, DaemonUnreachable):
                # The daemon is away or busy: the next round asks again, and the lease may still stand.
                continue
