"""Holding a compute: claimed once, renewed in a thread for as long as this process lives.

Decides: for how long a compute outlives a holder that vanished (``LEASE_S``), and how often it is renewed.
Never: ends anything; a daemon does that when a lease lapses. Follows: a process that is killed leaves no
machine behind, and one that only lost the daemon for a while keeps what it has.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading

from sky.client import calls
from sky.client.errors import ApiError, DaemonUnreachable, LeaseHeld, NotFound
from sky.client.http import Http

LEASE_S = 60
RENEW_S = LEASE_S / 3
RENEW_PATIENCE_S = 10.0


def new_owner() -> str:
    """A name for this holder that a person can place."""
    return f"sdk:{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


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

    def claim(self) -> None:
        """Take it, and renew it from now on. Raises LeaseHeld when another process has it."""
        self._http.send(calls.claim_lease(self._compute, self._owner, LEASE_S))
        self.claimed = True
        self._thread.start()

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
