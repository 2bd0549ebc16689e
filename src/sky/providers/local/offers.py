"""This computer as a list of offers.

Decides: which sizes are offered: 1, 2, 4 … cores up to all of them, memory in proportion, and the same
with accelerators when there are any. Never: counts what is in use; sizes may be sold several times over.
Follows: the price of a size is its share of the price for the whole computer.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from sky.domain.money import to_micro
from sky.domain.offer import Offer, offer_id

GPU_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
GPU_QUERY_SECONDS_MAX = 5.0
REGION = "local"
_GIB = 1024**3
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator: its short name, and its memory in GiB."""

    name: str
    vram_gb: float


@dataclass(frozen=True, slots=True)
class Computer:
    """What there is to offer. Memory in GiB."""

    cores: int
    memory_gb: float
    architecture: str
    gpus: tuple[Gpu, ...] = ()


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """The accelerators in what ``nvidia-smi`` prints: a name and MiB per line; other lines are passed over.

    ``NVIDIA A100-SXM4-80GB, 81920`` is an ``A100-SXM4-80GB`` with 80 GiB.
    """
    found: list[Gpu] = []
    for line in text.splitlines():
        name, comma, memory = line.rpartition(",")
        name, memory = name.strip().removeprefix("NVIDIA ").strip(), memory.strip()
        if comma and name and memory.isdigit():
            found.append(Gpu(name, round(int(memory) / 1024, 1)))
    return tuple(found)


def query_gpus() -> tuple[Gpu, ...]:
    """The accelerators of this computer; none when the tool is not there or does not answer."""
    try:
        done = subprocess.run(
            GPU_QUERY, capture_output=True, text=True, timeout=GPU_QUERY_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse_gpus(done.stdout) if done.returncode == 0 else ()


def memory_bytes() -> int:
    """The memory of this computer, or of the container we are in when that is less."""
    least = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _MEMORY_LIMITS:
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit() and int(text) > 0:
            least = min(least, int(text))
    return least


def this_computer() -> Computer:
    """What this process may use of the computer it runs on."""
    machine = platform.machine().lower()
    return Computer(
        cores=len(os.sched_getaffinity(0)),
        memory_gb=memory_bytes() / _GIB,
        architecture=_ARCHITECTURES.get(machine, machine),
        gpus=query_gpus(),
    )


def sizes(total: int) -> tuple[int, ...]:
    """1, 2, 4 … below ``total``, and ``total`` itself."""
    powers = [1 << shift for shift in range(total.bit_length()) if 1 << shift < total]
    return (*powers, total)


def offers_of(
    computer: Computer, provider_id: str, provider_name: str, price_per_hour_usd: float
) -> tuple[Offer, ...]:
    """All sizes, smallest first. ``price_per_hour_usd`` is for the whole computer."""
    whole = Decimal(str(price_per_hour_usd))

    def offer(instance_type: str, cpus: int, share: Decimal, gpu_count: int) -> Offer:
        gpu = computer.gpus[0] if gpu_count else None
        return Offer(
            id=offer_id(provider_id, instance_type, REGION),
            provider_id=provider_id,
            provider_name=provider_name,
            kind="local",
            instance_type=instance_type,
            cpus=cpus,
            memory_gb=round(computer.memory_gb * float(share), 2),
            accelerator=gpu.name if gpu else None,
            accelerator_count=gpu_count,
            vram=gpu.vram_gb if gpu else None,
            architecture=computer.architecture,
            region=REGION,
            on_demand_micro=to_micro(whole * share),
            billing_unit="second",
            specific={"gpus_total": len(computer.gpus)},
        )

    plain = [
        offer(f"local-{cpus}", cpus, Decimal(cpus) / computer.cores, 0) for cpus in sizes(computer.cores)
    ]
    # Accelerators are offered when they are all alike; a mixed computer would need names for mixtures.
    if len({gpu.name for gpu in computer.gpus}) != 1:
        return tuple(plain)
    total = len(computer.gpus)
    return (
        *plain,
        *(
            offer(
                f"local-gpu-{count}", max(1, computer.cores * count // total), Decimal(count) / total, count
            )
            for count in sizes(total)
        ),
    )
