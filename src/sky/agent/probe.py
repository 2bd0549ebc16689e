"""How the machine is doing: processor, memory, disk, network and accelerators, and gauges of the user's own.

Decides: the names and units of metrics. Never: waits for a command longer than its interval.
Follows: what cannot be read on this system is left out, and nothing else suffers; where there are no
accelerators, looking for them costs one search of the path.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from sky.agent.leftovers import kill_session
from sky.wire.v1 import MetricSpec

OUTPUT_BYTES_MAX = 4096
KIB = 1024
MIB = 1024 * KIB
GPUS_MAX = 16
GPU_INTERVAL_S = 10.0
GPU_FIELDS = (("percent", 1), ("memory_used_bytes", MIB), ("memory_total_bytes", MIB))
GPU_COMMAND = (
    "nvidia-smi",
    "--query-gpu=index,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)


class Probe:
    """Reads gauges. ``metrics`` is cheap and never waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._busy, self._total = _processor()
        self._traffic = (time.monotonic(), *_network())
        self._gauges: dict[str, float] = {}

    def metrics(self) -> dict[str, float]:
        """``cpu_percent`` and ``network_*`` (a second) since the last time, ``memory_*`` and ``disk_*``,
        all of them in bytes, ``gpu_*``, and the user's."""
        values = dict(self._gauges)
        self._add_network(values)
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

    def _add_network(self, values: dict[str, float]) -> None:
        then_s, received, sent = self._traffic
        self._traffic = (time.monotonic(), *_network())
        now_s, received_now, sent_now = self._traffic
        if now_s > then_s and received_now >= received > 0 and sent_now >= sent:
            values["network_received_bytes_per_second"] = round(
                (received_now - received) / (now_s - then_s), 1
            )
            values["network_sent_bytes_per_second"] = round((sent_now - sent) / (now_s - then_s), 1)

    async def watch_gpus(self, environment: Mapping[str, str]) -> None:
        """Read the accelerators for ever; returns at once where there is nothing that could tell."""
        path = shutil.which(GPU_COMMAND[0], path=environment.get("PATH"))
        if path is None:
            return
        while True:
            try:
                said = await _said((path, *GPU_COMMAND[1:]), environment, self._folder, GPU_INTERVAL_S)
            except OSError:
                said = None
            found = _gpus(said or "")
            for name in [name for name in self._gauges if name.startswith("gpu_") and name not in found]:
                del self._gauges[name]
            self._gauges.update(found)
            await asyncio.sleep(GPU_INTERVAL_S)

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
    said = await _said(("/bin/sh", "-c", gauge.command), environment, work, gauge.interval)
    try:
        value = float(said or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


async def _said(
    command: Sequence[str], environment: Mapping[str, str], work: Path, seconds_max: float
) -> str | None:
    """What a command prints by its end; None when it fails or takes too long. Raises OSError."""
    with _Pipe() as pipe:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe.to_write,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environment),
            cwd=work,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(seconds_max):
                code = await process.wait()
            return pipe.said().decode("utf-8", "replace") if code == 0 else None
        except TimeoutError:
            return None
        finally:
            kill_session(process.pid)
            await process.wait()


class _Pipe:
    """What a command prints, its first ``OUTPUT_BYTES_MAX`` bytes. Its end is that of the command: something
    that this has left running may keep the pipe open."""

    def __init__(self) -> None:
        self._to_read, self.to_write = os.pipe()
        os.set_blocking(self._to_read, False)
        self._said = bytearray()

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._to_read, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._to_read)
        os.close(self._to_read)
        os.close(self.to_write)

    def said(self) -> bytes:
        """All that was printed until now."""
        while len(self._said) < OUTPUT_BYTES_MAX and self._take():
            pass
        return bytes(self._said)

    def _take(self) -> bool:
        try:
            piece = os.read(self._to_read, OUTPUT_BYTES_MAX)
        except BlockingIOError:
            return False
        self._said += piece[: OUTPUT_BYTES_MAX - len(self._said)]
        return bool(piece)


def _gpus(text: str) -> dict[str, float]:
    """What the driver's tool prints: one accelerator a line; what it does not know is left out."""
    found: dict[str, float] = {}
    for line in text.splitlines()[:GPUS_MAX]:
        index, *numbers = (field.strip() for field in line.split(","))
        for (name, unit), number in zip(GPU_FIELDS, numbers, strict=False):
            if index.isdigit() and number.replace(".", "", 1).isdigit():
                found[f"gpu_{index}_{name}"] = float(number) * unit
    return found


def _network() -> tuple[int, int]:
    """Bytes that came in and went out over all real interfaces; zeros where the system does not tell."""
    received = sent = 0
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    except OSError:
        return 0, 0
    for line in lines:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if name.strip() != "lo" and len(fields) > 8:
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


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
