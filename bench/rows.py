"""What each row of the report means, in which part it is measured, and what it is to reach.

Decides: the words, the unit and the goal of every figure. Never: measures.
Follows: a row that is measured and not described here is not shown, so a new one begins here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. ``goal`` None: nothing is wanted of it. ``beside``: another row of the same run, of which
    the goal is a multiple."""

    part: str
    title: str
    unit: str
    goal: float | None = None
    better: Literal["less", "more"] = "less"
    beside: str | None = None

    def reached(self, value: float, others: dict[str, float]) -> bool | None:
        """Whether it is as it is to be; None where nothing is wanted, or the other row was not measured."""
        goal = self.goal
        if goal is not None and self.beside is not None:
            goal = None if self.beside not in others else goal * others[self.beside]
        if goal is None:
            return None
        return value <= goal if self.better == "less" else value >= goal

    def wanted(self) -> str:
        """The goal, for people."""
        if self.goal is None:
            return ""
        if self.beside is not None:
            return f"{self.goal:g} × {ROWS[self.beside].title}"
        return f"{self.goal:,g} {self.unit}".rstrip()


PARTS = ("start", "http", "events", "jobs", "requests", "calls", "losses", "flat", "fleet")
"""The last two take minutes: they are measured once, whatever the number of rounds."""
TITLES = {
    "start": "Starting",
    "http": "The control plane over HTTP",
    "events": "Events",
    "jobs": "Paid jobs",
    "requests": "Requests",
    "calls": "Calls through the SDK",
    "losses": "A node that is killed",
    "flat": "A hundred thousand calls",
    "fleet": "Ten thousand nodes",
}
ROWS = {
    "python_ms": Row("start", "`python -c pass`, part of the next two", "ms"),
    "import_sky_ms": Row("start", "`import sky`", "ms", 60),
    "sky_help_ms": Row("start", "`sky --help`", "ms", 150),
    "server_ready_ms": Row("http", "a daemon is started until it answers", "ms", 1_500),
    "memory_idle_mb": Row("http", "memory, idle", "MB", 120),
    "health_live_16_per_s": Row("http", "GET health, 16 at once", "/s", 8_000, "more"),
    "compute_get_ms": Row("http", "GET a compute", "ms", 1),
    "compute_get_16_per_s": Row("http", "GET a compute, 16 at once", "/s", 3_000, "more"),
    "compute_post_ms": Row("http", "POST a compute, durable", "ms", 4),
    "compute_post_16_per_s": Row("http", "POST a compute, 16 at once", "/s", 800, "more"),
    "task_post_ms": Row("http", "POST a task, durable", "ms", 3),
    "task_post_16_per_s": Row("http", "POST a task, 16 at once", "/s", 1_500, "more"),
    "blob_up_mb_per_s": Row("http", "10 MB up", "MB/s", 300, "more"),
    "blob_down_mb_per_s": Row("http", "10 MB down", "MB/s", 600, "more"),
    "event_ms": Row("events", "commit to reader", "ms", 3),
    "event_lost": Row("events", "lost by a reader", "", 0),
    "event_500_readers_ms": Row("events", "commit to the last of 500 readers", "ms"),
    "event_500_readers_lost": Row("events", "lost by 500 readers", "", 0),
    "job_submit_ms": Row("jobs", "submit, with its hold", "ms", 6),
    "job_submit_16_per_s": Row("jobs", "submit, 16 at once", "/s", 500, "more"),
    "job_page_of_100_ms": Row("jobs", "a page of 100 jobs", "ms"),
    "jobs_under_way": Row("jobs", "jobs under way meanwhile", ""),
    "requests_ready_ms": Row("requests", "a server is started until it answers", "ms", 1_500),
    "requests_memory_idle_mb": Row("requests", "memory of all server processes, idle", "MB", 120),
    "memory_after_50_requests_mb": Row("requests", "the same after 50 requests", "MB", 150),
    "status_get_ms": Row("requests", "`sky.get(sky.status())`", "ms", 10),
    "status_get_8_per_s": Row("requests", "the same, 8 at once", "/s", 300, "more"),
    "status_idle_ms": Row("requests", "status of nothing", "ms"),
    "status_of_50_idle_ms": Row("requests", "status of 50 clusters, idle", "ms"),
    "status_beside_50_launches_ms": Row(
        "requests", "status of 50 clusters beside their launches", "ms", 2, beside="status_of_50_idle_ms"
    ),
    "status_of_none_idle_ms": Row("requests", "status of a name that nobody has", "ms"),
    "launches_per_s": Row("requests", "launches taken", "/s"),
    "status_of_none_behind_3000_ms": Row(
        "requests", "the same behind 3,000 launches", "ms", 2, beside="status_of_none_idle_ms"
    ),
    "memory_growth_3000_pending_mb": Row("requests", "memory that 3,000 launches take", "MB"),
    "cancel_3000_s": Row("requests", "all of them cancelled", "s"),
    "memory_after_50_calls_mb": Row("calls", "memory after 50 calls", "MB", 150),
    "call_ms": Row("calls", "one call, end to end, durable", "ms", 4),
    "map_10000_per_s": Row("calls", "a map of 10,000, durable", "/s", 4_000, "more"),
    "node_noticed_s": Row("losses", "killed until it is noticed", "s", 5),
    "retried_after_s": Row("losses", "noticed until the call is answered elsewhere", "s", 1),
    "memory_daemon_after_100k_mb": Row("flat", "memory of the daemon", "MB"),
    "memory_nodes_after_100k_mb": Row("flat", "memory of two nodes", "MB"),
    "memory_script_after_100k_mb": Row("flat", "memory of the script", "MB"),
    "memory_daemon_growth_mb": Row("flat", "growth of the daemon, from 30,000 calls on", "MB"),
    "memory_nodes_growth_mb": Row("flat", "growth of the nodes", "MB"),
    "memory_script_growth_mb": Row("flat", "growth of the script", "MB"),
    "fleet_built_s": Row("fleet", "until they are all there", "s"),
    "fleet_steady_percent": Row("fleet", "of a core, when nothing happens", "%", 2),
    "fleet_recovery_s": Row("fleet", "from `kill -9` until all is known again", "s", 10),
    "fleet_memory_mb": Row("fleet", "memory of the daemon", "MB"),
}
