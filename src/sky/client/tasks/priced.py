"""Machines as they are asked for, and what they cost.

Decides: how resources become those of the wire. Never: knows a price: servers do.
Follows: an alternative that is there twice is sent once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from sky.client import request_flows
from sky.client.request_link import link
from sky.client.tasks.report import Report
from sky.wire import requests as wire

if TYPE_CHECKING:
    from sky.client.tasks.resources import Resources

MACHINES_MAX = 32


def machines(given: Sequence[Resources], report: Report) -> tuple[wire.Machine, ...]:
    """Every kind of machine that would do, in order."""
    found = dict.fromkeys(one for several in given for one in several.alternatives())
    if len(found) > MACHINES_MAX:
        said = f"they are {len(found)} kinds of machines; {MACHINES_MAX} at most can be alternatives"
        report.wrong(("resources",), said)
        return ()
    return tuple(_machine(one, report) for one in found)


def hourly_cost(resources: Resources) -> float:
    """What the best of these machines costs in USD per hour, as the server has it. Raises
    ResourcesUnavailableError when it has none."""
    report = Report()
    config = wire.TaskConfig(machines=machines((resources,), report), ordered=resources.is_ordered)
    report.finish()
    body = wire.OptimizeBody(tasks=(config,))
    connection = link()
    request_id = connection.run(request_flows.submit("optimize", body))
    answer: Any = connection.run(request_flows.get(request_id))
    return float(answer[0]["chosen"]["hourly_cost"])


def _machine(one: Resources, report: Report) -> wire.Machine:
    cpus, cpus_exact = _amount(one.cpus)
    memory, memory_exact = _amount(one.memory)
    named = cast("dict[str, int]", one.accelerators or {})
    name, count = next(iter(named.items()), (None, 1))
    config = one.to_yaml_config()
    return wire.Machine(
        infra=one.cloud,
        region=one.region,
        zone=one.zone,
        instance_type=one.instance_type,
        cpus=cpus,
        cpus_exact=cpus_exact,
        memory_gb=memory,
        memory_exact=memory_exact,
        accelerator=name,
        accelerator_count=count,
        use_spot=one.use_spot,
        max_hourly_cost=one.max_hourly_cost,
        disk_gb=config.get("disk_size"),
        disk_tier=config.get("disk_tier"),
        network_tier=config.get("network_tier"),
        image=_image(one, report),
        ports=tuple(one.ports or ()),
        labels=one.labels or {},
    )


def _amount(text: str | None) -> tuple[float | None, bool]:
    if text is None:
        return None, False
    return float(text.removesuffix("+")), not text.endswith("+")


def _image(one: Resources, report: Report) -> str | None:
    image = one.image_id
    if not isinstance(image, dict):
        return image
    found = image.get(one.region or "") or (next(iter(image.values())) if len(image) == 1 else None)
    if found is None:
        said = f"it has images for {', '.join(image)}; say the region of the machines"
        report.wrong(("resources", "image_id"), said)
    return found
