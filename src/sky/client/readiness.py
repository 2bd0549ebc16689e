"""Waiting until a compute is ready, and knowing when it will not be.

Decides: what counts as ready, what counts as hopeless, and what is shown meanwhile.
Never: asks in a tight loop: events say when to look, and a slow tick looks anyway.
Follows: whoever waits learns the daemon's own reason, at once when nothing can be bought.
"""

from __future__ import annotations

import threading

from sky.client import calls
from sky.client.errors import ComputeFailed
from sky.client.events import Seen
from sky.client.http import Http
from sky.client.progress import Progress
from sky.kit.clock import SystemClock
from sky.wire import v1

TICK_S = 2.0
"""How long without an event until it is looked anyway."""
USABLE: frozenset[v1.ComputeState] = frozenset({"ready", "degraded"})
HOPELESS: frozenset[v1.ComputeState] = frozenset({"failed", "deleting", "deleted"})

_clock = SystemClock()


class Readiness:
    """Hears a compute's events and waits on them."""

    def __init__(self, http: Http, compute: str) -> None:
        self._http = http
        self._compute = compute
        self._changed = threading.Event()
        self._phases: dict[str, str] = {}

    def heard(self, seen: Seen) -> None:
        """Something happened; the waiting thread looks again if it may matter."""
        match seen.event:
            case v1.PhaseEvent() as phase:
                self._phases[phase.node] = phase.phase if phase.event == "started" else ""
                self._changed.set()
            case v1.ComputeEvent() | v1.NodeEvent():
                self._changed.set()
            case _:
                pass

    def wait(self, within_s: float, progress: Progress, *, attached: bool = False) -> v1.Compute:
        """The compute once it is ready. Raises ComputeFailed with the reason that is known.

        ``within_s`` of 0 waits for ever. A compute that was ``attached`` may lack some of its nodes.
        """
        deadline_s = _clock.monotonic_s() + within_s if within_s else float("inf")
        while True:
            self._changed.clear()
            compute = self._http.send(calls.get_compute(self._compute))
            status = compute.status
            if status.state == "ready" or (attached and status.state in USABLE):
                return compute
            error = status.last_error
            if status.state in HOPELESS or (error is not None and not error.retryable):
                raise ComputeFailed(_reason(compute), compute.name or compute.id, _details(compute))
            progress.say(self._where(compute))
            left_s = deadline_s - _clock.monotonic_s()
            if left_s <= 0:
                message = f"not ready after {within_s:.0f} s: {_reason(compute)}"
                raise ComputeFailed(message, compute.name or compute.id, _details(compute))
            self._changed.wait(min(TICK_S, left_s))

    def _where(self, compute: v1.Compute) -> str:
        status = compute.status
        steps = sorted({phase for phase in self._phases.values() if phase})
        doing = f", now at: {', '.join(steps)}" if steps else ""
        trouble = f" ({status.last_error.message})" if status.last_error else ""
        ready = f"{status.nodes_ready} of {compute.spec.nodes.desired} nodes ready"
        return f"{compute.name or compute.id}: {status.state}, {ready}{doing}{trouble}"


def _reason(compute: v1.Compute) -> str:
    status = compute.status
    label = compute.name or compute.id
    if status.last_error is not None:
        return f"{label} is {status.state}: {status.last_error.code}: {status.last_error.message}"
    return (
        f"{label} is {status.state} with {status.nodes_ready} of {compute.spec.nodes.desired} nodes ready; "
        f"`sky why {label}` tells what the daemon last decided"
    )


def _details(compute: v1.Compute) -> dict[str, object]:
    error = compute.status.last_error
    return {"state": compute.status.state, "code": error.code if error else None}
