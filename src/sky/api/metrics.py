"""``/metrics``: what there is and what is done, in numbers, as Prometheus reads them.

Decides: which numbers there are, and their names. Never: a label that somebody chose, such as a name or an
id. Follows: what concerns this process is its own; what stands in the database is the same from every daemon
on it. The route is in no document: it belongs to no face.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from litestar import get
from litestar.connection import Request
from litestar.response.base import ASGIResponse

from sky.api.agent.connect import Lines
from sky.api.stream import Whole
from sky.api.unit import Services
from sky.domain.user import METRICS_PATH
from sky.kit.clock import SECOND_US
from sky.kit.meters import CONTENT_TYPE, Counter, Family, gauge, written
from sky.kit.version import VERSION
from sky.store.views.standing import Standing, standing

PROC = Path("/proc/self")


@get(METRICS_PATH, include_in_schema=False)
async def serve_metrics(request: Request[Any, Any, Any]) -> ASGIResponse:
    """All of it."""
    unit: Services = request.app.state["unit"]
    lines: Lines = request.app.state["lines"]
    now_us = unit.clock.now_us()
    there = await unit.db.read(lambda connection: standing(connection, now_us))
    families = (
        *_process(unit),
        *_own(unit, len(lines)),
        *unit.traffic.families(),
        *unit.counted(),
        *_all(there),
    )
    return Whole(written(families), media=CONTENT_TYPE)


def _own(unit: Services, agents: int) -> Iterator[Family]:
    """Of this process: its connections, and its writer."""
    yield Family("sky_build_info", "gauge", "Which release this is.", [("", {"version": VERSION}, 1)])
    yield gauge("sky_agents_connected", "Nodes whose agent is connected to this daemon.", agents)
    yield gauge("sky_event_readers", "Readers that follow the events of this daemon.", unit.hub.readers)
    yield gauge("sky_channels_open", "Connections to nodes that run through this daemon.", len(unit.channels))
    yield gauge("sky_db_writes_waiting", "Writes that wait for the writer.", unit.db.waiting)
    meters = unit.db.meters
    for meter in (meters.seconds, meters.verbs, meters.failed):
        yield meter.family()


def _all(there: Standing) -> Iterator[Family]:
    """Of the whole deployment."""
    yield gauge("sky_computes", "Computes that are not deleted.", there.computes, "state")
    yield gauge("sky_nodes", "Nodes that are not over.", there.nodes, "state")
    yield gauge("sky_calls", "Calls that are not over: queued, or in a node's hands.", there.calls, "state")
    yield gauge("sky_requests", "Requests that are not over.", there.requests, "state")
    yield gauge("sky_clusters", "Clusters that are not removed.", there.clusters, "state")
    yield gauge("sky_cluster_jobs", "Jobs of clusters that are not over.", there.cluster_jobs, "state")
    yield gauge("sky_jobs", "Paid jobs that are not settled.", there.jobs, "state")
    yield gauge("sky_ledger_holds", "Paid jobs for which money is held.", there.holds)
    yield gauge(
        "sky_webhook_deliveries_due", "Messages to customers whose time has come.", there.webhooks_due
    )
    told = "Messages to customers that are still to be delivered, now or later."
    yield gauge("sky_webhook_deliveries_waiting", told, there.webhooks_waiting)
    told = "Keys whose time has come; of 1,000 that are due longest."
    yield gauge("sky_loop_keys_due", told, there.keys_due, "loop")
    told = "For how long the key has been due that waits longest; a loop without one keeps up."
    yield gauge("sky_loop_lag_seconds", told, there.lag_s, "loop")


def _process(unit: Services) -> Iterator[Family]:
    """Of the process, under the names that everybody uses."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = Counter("process_cpu_seconds_total", "Processor time, of user and system.")
    cpu.add(by=used.ru_utime + used.ru_stime)
    yield cpu.family()
    began_s = unit.started_us / SECOND_US
    yield gauge("process_start_time_seconds", "When the daemon was put together, since 1970.", began_s)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield gauge("process_max_fds", "How many files may be open.", None if limit < 0 else limit)
    if PROC.is_dir():
        sizes = (PROC / "statm").read_text(encoding="ascii").split()
        page = resource.getpagesize()
        yield gauge("process_virtual_memory_bytes", "Memory that is addressed.", int(sizes[0]) * page)
        yield gauge("process_resident_memory_bytes", "Memory that is in use.", int(sizes[1]) * page)
        yield gauge("process_open_fds", "How many files are open.", sum(1 for _ in (PROC / "fd").iterdir()))


ROUTES = (serve_metrics,)
