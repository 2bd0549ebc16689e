"""A compute that is being used by this process, from the first request to the last.

Decides: the order of opening (ask, hold, listen, wait) and of leaving (cancel, delete, wait until gone).
Never: leaves something behind silently: what cannot be taken back is named, with the command that does it.
Follows: interrupted at any moment, also between a request and its answer, ``leave`` finds what was begun:
asking for a compute again with the same key tells which one it was.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from sky.client import calls, daemon, flows
from sky.client.blueprint import Blueprint, check_python
from sky.client.console import Console
from sky.client.errors import ApiError, CapabilityMismatch, DaemonUnreachable, NotAccepting, SkyError
from sky.client.events import Follower, Reader, Seen
from sky.client.http import Http
from sky.client.lease import LEASE_S, Lease, new_owner
from sky.client.progress import Progress, lasting, note
from sky.client.readiness import Readiness
from sky.client.request import Call
from sky.client.session import Session
from sky.wire import v1

GONE_S = 60.0
"""How long leaving waits for the machines to be gone."""
LEAVE_PATIENCE_S = 20.0
"""How long leaving waits for a daemon that is away."""
FOUND_S = 10.0
"""How long opening waits for somebody to answer at the daemon's address."""
STOPPED_S = 2.0
"""How long leaving waits for calls that are being stopped."""
LEASE_EVENTS = ("compute.lease.claimed", "compute.adopted")
NOW_S = 5.0
"""How long it may take to find out where in the history we are."""
NODE_STATES: tuple[v1.NodeState, ...] = (
    "requested",
    "provisioning",
    "connecting",
    "bootstrapping",
    "ready",
    "draining",
    "lost",
    "deleting",
    "deleted",
    "failed",
)
COMPUTE_STATES: tuple[v1.ComputeState, ...] = (
    "provisioning",
    "recovering",
    "ready",
    "degraded",
    "deleting",
    "deleted",
    "failed",
)
EVENTS = (
    "node.console",
    "node.phase",
    *(f"node.{state}" for state in NODE_STATES),
    *(f"compute.{state}" for state in COMPUTE_STATES),
)
"""What is listened to: not each task, of which there may be many."""


class Opened:
    """One use of one compute. ``open`` once, ``leave`` once, whatever happens in between."""

    def __init__(self, blueprint: Blueprint, name: str | None, *, quiet: bool) -> None:
        self._blueprint = blueprint
        self._name = name
        self._quiet = quiet
        self._request: Call[v1.Compute] | None = None
        self._attached = False
        self._was_ready = False
        self._lease: Lease | None = None
        self._reader: Reader | None = None
        self._http: Http | None = None
        self.compute: v1.Compute | None = None
        self.session: Session | None = None

    def open(self, url: str | None, database: str | None) -> Http:
        """Make it or attach to it, hold it, and wait until it is ready. Raises ComputeFailed and others."""
        with Progress(quiet=self._quiet) as progress:
            self._http = http = daemon.connect(url, database=database)
            # Nothing is under way yet that would be worth a long wait for a daemon that is away.
            http.send(calls.live(), patience_s=FOUND_S)
            try:
                included = "sending the included files, and " if self._blueprint.image.includes else ""
                with lasting(f"{included}asking for the compute …", quiet=self._quiet):
                    asking = flows.create_or_attach(self._name, self._make_request, self._tell_failed)
                    found = flows.run(http, asking)
            except ApiError as refused:
                if not refused.retryable and refused.status < 500:
                    self._request = None  # Nothing came of it, so nothing is left behind.
                raise
            compute, self._attached = found
            if self._attached:
                try:
                    check_python(compute)
                except CapabilityMismatch:
                    self._request = None  # It is not ours, and nothing was begun.
                    raise
            self.compute = compute
            progress.say(f"{'attached to' if self._attached else 'asked for'} {_label(compute)}")
            otherwise = self._blueprint.otherwise(compute.spec) if self._attached else ""
            if otherwise and not self._quiet:
                note(f"{_label(compute)} was made otherwise than asked for here: {otherwise}")
            owner, within_s = new_owner(), self._blueprint.ready_within_s
            self._lease = Lease(http, compute.id, owner)
            readiness = Readiness(http, compute.id)
            try:
                self._lease.claim(_label(compute), progress.say)
            except NotAccepting:
                # It has failed already: its own reason is the better answer.
                self.compute = readiness.wait(within_s, progress)
                raise
            console = Console(ranks=self._blueprint.several_nodes or compute.spec.nodes.desired > 1)
            self.session = Session(http, compute.id, console, quiet=self._quiet)
            after = self._now(http, compute.id, owner) if self._attached else 0
            follower = Follower(http, compute=compute.id, types=EVENTS, after=after)
            self._reader = Reader(follower, _both(readiness, console, progress))
            self._reader.start()
            self.compute = readiness.wait(within_s, progress, attached=self._attached)
            self._was_ready = True
            return http

    def _tell_failed(self, compute: v1.Compute) -> None:
        """One of our name has failed before, and is replaced."""
        if not self._quiet:
            error = compute.status.last_error
            why = f" ({error.message})" if error is not None else ""
            note(f"{_label(compute)}, which is {compute.id}, had failed{why}; another is asked for")

    def _now(self, http: Http, compute: str, owner: str) -> int | None:
        """The place in the history at which we came: what was written before is none of our business."""
        follower = Follower(http, compute=compute, types=LEASE_EVENTS, patience_s=LEAVE_PATIENCE_S)
        giving_up = threading.Timer(NOW_S, follower.close)
        giving_up.start()
        try:
            for seen in follower:
                if isinstance(seen.event, v1.ComputeEvent) and seen.event.owner == owner:
                    return seen.seq
        finally:
            giving_up.cancel()
            follower.close()
        return None

    def leave(self, error: BaseException | None = None) -> None:
        """Cancel what has not ended, and delete the compute or let go of it. ``error``: why.

        A first KeyboardInterrupt does not keep it from that; the second leaves at once and says what is left.
        That is the whole of it then: where the two hit is of no interest, and no traceback shows it.
        """
        http = self._http
        interrupted = isinstance(error, KeyboardInterrupt)
        try:
            if http is not None and interrupted and self.session is not None and self.session.hurried:
                raise KeyboardInterrupt
            if http is not None and interrupted:
                note(f"interrupted: {self._what()} is given back (again: leave at once)")
            if http is not None:
                self._leave(http)
        except KeyboardInterrupt:
            if isinstance(error, KeyboardInterrupt):
                self._say_left("interrupted again")
                error.__traceback__ = None
                return
            if http is not None:
                self.leave(KeyboardInterrupt())
            raise
        except (ApiError, DaemonUnreachable) as failed:
            self._say_left(str(failed))
        finally:
            self._stop()

    def _make_request(self) -> Call[v1.Compute]:
        assert self._http is not None, "there is a client before anything is asked for"
        self._request = self._blueprint.request(self._http, self._name)
        return self._request

    def _leave(self, http: Http) -> None:
        if self._lease is not None:
            self._lease.stop()
        if self.compute is None and self._request is not None:
            # Asked for, and interrupted before the answer: the same key tells which one it is.
            self.compute = http.send(self._request, patience_s=LEAVE_PATIENCE_S)
        compute, session = self.compute, self.session
        if compute is None:
            return
        ours = not self._attached and not self._was_ready
        if self._blueprint.delete_on_exit or ours:
            # What is stopped before its machine goes is known to be cancelled; else it might have gone on.
            with contextlib.suppress(SkyError):
                self._stop_calls()
            self._delete(http, compute)
            return
        if session is not None and session.busy:
            session.cancel_all()
        if self._lease is not None and self._lease.claimed:
            self._lease.release()

    def _stop_calls(self) -> None:
        if self.session is not None and self.session.busy:
            self.session.cancel_all()
            self.session.await_ends(STOPPED_S)

    def _delete(self, http: Http, compute: v1.Compute) -> None:
        if self.session is not None:
            self.session.close()
        deletion = flows.delete_compute(compute.id, compute.revision)
        if flows.run(http, deletion, patience_s=LEAVE_PATIENCE_S) is None:
            return
        if not flows.run(http, flows.await_gone(compute.id, GONE_S), patience_s=LEAVE_PATIENCE_S):
            self._say_left(f"its machines are not gone after {GONE_S:.0f} s")

    def _stop(self) -> None:
        if self._lease is not None:
            self._lease.stop()
        if self.session is not None:
            self.session.close()
        if self._reader is not None:
            self._reader.close()
        if self._http is not None:
            self._http.close()

    def _what(self) -> str:
        return _label(self.compute) if self.compute is not None else "what was asked for"

    def _say_left(self, why: str) -> None:
        if self.compute is None:
            if self._request is not None:
                note(f"{why}: a compute may be left; `sky compute list` shows it")
            return
        label = _label(self.compute)
        itself = ""
        if self._blueprint.delete_on_exit:
            itself = f"; the daemon deletes it by itself within {LEASE_S} s"
        note(f"{why}: {label} is left{itself}. Delete it now with: sky compute delete {label}")


def _label(compute: v1.Compute) -> str:
    return compute.name or compute.id


def _both(readiness: Readiness, console: Console, progress: Progress) -> Callable[[Seen], None]:
    def heard(seen: Seen) -> None:
        if isinstance(seen.event, v1.ConsoleEvent):
            console.heard(seen.event)
            progress.heard(seen.event)
        else:
            readiness.heard(seen)

    return heard
