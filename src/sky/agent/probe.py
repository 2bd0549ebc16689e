"""How the machine is doing: processor, memory and disk, and gauges of the user's own.

Decides: the names and units of metrics. Never: waits for a command longer than its interval.
Follows: what cannot be read on this system is left out, and nothing else suffers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from sky.agent.leftovers import kill_session
from sky.wire.v1 import MetricSpec

OUTPUT_BYTES_MAX = 4096
KIB = 1024


class Probe:
    """Reads gauges. ``metrics`` is cheap and never waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._busy, self._total = _processor()
        self._gauges: dict[str, float] = {}

    def metrics(self) -> dict[str, float]:
        """``cpu_percent`` since the last time, ``memory_*`` and ``disk_*`` in bytes, and the user's."""
        values = dict(self._gauges)
        busy, total = _processor()
        if total > self._total:
            values["cpu_percent"] = round(100.0 * (busy - self._busy) / (total - self._total), 2)
        self._busy, self._total = busy, total
        memory = _memory()
        if "MemTotal" in memory and "MemAvailable" in memory:
            values["memory_total_bytes"] = float(memory["MemTotal"])
            values["memory_used_bytes"] = float(memory["MemTotal"] - memory["MemAvailable"])
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return values
        values["disk_total_bytes"] = float(disk.f_blocks * disk.f_frsize)
        values["disk_used_bytes"] = float((disk.f_blocks - disk.f_bavail) * disk.f_frsize)
        return values

    async def watch(self, gauge: MetricSpec, environment: Mapping[str, str], work: Path) -> None:
        """Run a user's gauge for ever, at its interval."""
        while True:
            try:
                value = await _measure(gauge, environment, work)
            except OSError:
                value = None
            if value is None:
                self._gauges.pop(gauge.name, None)
            else:
                self._gauges[gauge.name] = value
            await asyncio.sleep(gauge.interval)


async def _measure(gauge: MetricSpec, environment: Mapping[str, str], work: Path) -> float | None:
    """What the gauge's command prints, as a number; None when it is none, fails or takes too long."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        gauge.command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(environment),
        cwd=work,
        start_new_session=True,
        limit=OUTPUT_BYTES_MAX,
    )
    try:
        async with asyncio.timeout(gauge.interval):
            assert process.stdout is not None
            said = await process.stdout.read(OUTPUT_BYTES_MAX)
            code = await process.wait()
        return float(said) if code == 0 else None
    except (TimeoutError, ValueError):
        return None
    finally:
        kill_session(process.pid)
        await process.wait()


def _processor() -> tuple[int, int]:
    """Busy and total time of all processors, in ticks; zeros where the system does not tell."""
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0]
    except OSError:
        return 0, 0
    ticks = [int(field) for field in first.split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def _memory() -> dict[str, int]:
    """``/proc/meminfo`` in bytes; empty where there is none."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return {}
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdigit():
            values[name] = int(number[0]) * KIB
    return values
