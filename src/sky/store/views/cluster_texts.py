"""What a cluster or a job asks of machines, as it is shown.

Decides: how machines are written in short. Never: reads a row. Follows: the same request is always written
the same way, wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sky.store.sql import Row


def asked_for(row: Row) -> dict[str, Any]:
    """What machines a cluster was asked to have."""
    return {"machines": row["resources"]["machines"], "ordered": row["resources"].get("ordered", False)}


def resources_text(num_nodes: int, machines: Sequence[Mapping[str, Any]]) -> str:
    """Nodes and machines in short, such as ``2x[A100:8]`` or ``1x[CPU:4+]``; alternatives behind a bar."""
    return f"{num_nodes}x[{' | '.join(dict.fromkeys(map(_short, machines))) or 'CPU:1+'}]"


def _short(machine: Mapping[str, Any]) -> str:
    """A machine by what is asked of it first. What is not asked is not written down, or has its default."""
    if machine.get("accelerator"):
        text = f"{machine['accelerator']}:{machine.get('accelerator_count', 1)}"
    elif machine.get("instance_type"):
        text = str(machine["instance_type"])
    else:
        text = f"CPU:{machine.get('cpus') or 1:g}{'' if machine.get('cpus_exact') else '+'}"
    return f"{text}, spot" if machine.get("use_spot") else text
