"""The accelerators of a host: as its settings say, or as it says itself.

Decides: that they are offered when all of a host are alike. Never: asks a host.
Follows: a host with a mixture offers its cores alone, unless its settings name what it has.
"""

from __future__ import annotations

from dataclasses import dataclass

from sky.wire.hosts import parse_gpus


@dataclass(frozen=True, slots=True)
class Gpus:
    """So many of one name, each with so many GiB of memory, where that is known."""

    name: str | None = None
    count: int = 0
    vram_gb: float | None = None


def gpus_of(told: str | None, printed: str) -> Gpus:
    """``told``: by the settings, which count; ``printed``: by nvidia-smi, a name and MiB on each line."""
    found: list[tuple[str, float]] = []
    for line in printed.splitlines():
        name, comma, memory = line.rpartition(",")
        name, memory = name.strip().removeprefix("NVIDIA ").strip(), memory.strip()
        if comma and name and memory.isdigit():
            found.append((name, round(int(memory) / 1024, 1)))
    vram = min((memory for _, memory in found), default=None)
    if told is not None:
        name, count = parse_gpus(told)
        return Gpus(name, count, vram if count and vram else None)
    if len({name for name, _ in found}) != 1:
        return Gpus()
    return Gpus(found[0][0], len(found), vram)
