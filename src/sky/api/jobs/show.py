"""Rows of paid jobs as customers see them.

Decides: how a row becomes a shape of ``wire/jobs``. Never: reads a row. Follows: what a job costs is computed
from its meter and its hold each time it is shown, until it is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET

from sky.domain.catalogue import JobTemplate, Mount, Place, Sku
from sky.domain.job import meter_of
from sky.domain.money import usd_text
from sky.kit.clock import SECOND_US
from sky.wire import jobs as wire


def job(row: Mapping[str, Any], held_micro: int, now_us: int) -> wire.Job:
    """A job; ``held_micro`` is all that was ever held for it."""
    meter = meter_of(row, row["ended_us"])
    past = row["past"] or ()
    began = [one["started_us"] for one in past if one["started_us"] is not None]
    settled = row["settled_micro"]
    cost = meter.cost_micro(now_us, held_micro) if settled is None else settled
    placement = row["placement"]
    error = row["error"]
    return wire.Job(
        id=row["id"],
        object="compute.job",
        status=row["state"],
        sku=row["sku"],
        created_at=row["created_us"] // SECOND_US,
        started_at=_seconds(began[0] if began else row["started_us"]),
        finished_at=_seconds(row["finished_us"]),
        spec=msgspec.convert(row["spec"], wire.JobSpec),
        usage=wire.JobUsage(
            gpu_seconds=meter.gpu_seconds(now_us),
            estimated_cost_usd=usd_text(cost),
            settled_cost_usd=usd_text(settled or 0),
            hold_usd=usd_text(held_micro),
        ),
        error=None if error is None else wire.JobError(code=error["code"], message=error["message"]),
        placement=None if placement is None else msgspec.convert(placement, wire.JobPlacement),
        metadata=row["labels"],
        after=tuple(row["after"] or ()) or UNSET,
        retry=UNSET if row["retry"] is None else msgspec.convert(row["retry"], wire.JobRetry),
        retries=len(past),
    )


def event(row: Mapping[str, Any]) -> wire.Event:
    """One entry of a job's log."""
    return wire.Event(
        id=row["id"],
        object="compute.event",
        job_id=row["job_id"],
        type=row["type"],
        created_at=row["at_us"] // SECOND_US,
        data=row["data"],
    )


def sku(one: Sku) -> wire.SKU:
    """A kind of machine."""
    return wire.SKU(
        id=one.id,
        object="compute.sku",
        gpu=one.gpu,
        accelerator=one.accelerator,
        gpu_count=one.gpu_count,
        gpu_memory_gb=one.gpu_memory_gb,
        vcpus=one.vcpus,
        memory_gb=one.memory_gb,
        price_usd_per_hour=usd_text(one.price_micro),
        tier=cast("wire.Tier", one.tier),
        interruptible=one.interruptible,
        regions=one.regions,
        providers=tuple(_place(place) for place in one.places),
        available=one.available,
        interconnect=cast("Literal['pcie', 'nvlink'] | None", one.interconnect) or UNSET,
        network=cast("Literal['ethernet', 'infiniband'] | None", one.network) or UNSET,
    )


def _place(place: Place) -> wire.Provider:
    return wire.Provider(
        cloud=place.cloud,
        instance_type=place.instance_type or UNSET,
        context=place.context or UNSET,
        regions=place.regions or UNSET,
    )


def template(one: JobTemplate, reason: str | None) -> wire.Template:
    """A template; ``reason`` says why it cannot be used."""
    return wire.Template(
        id=one.id,
        object="compute.template",
        title=one.title,
        description=one.description,
        image=one.image,
        command=one.command,
        env=dict(one.env),
        sku=one.sku,
        max_runtime_seconds=one.max_runtime_seconds,
        inputs=_mounts(one.inputs),
        outputs=_mounts(one.outputs),
        overridable=cast("tuple[wire.Overridable, ...]", one.overridable),
        available=reason is None,
        image_licence=one.image_licence or UNSET,
        image_source=one.image_source or UNSET,
        unavailable_reason=reason or UNSET,
    )


def _mounts(mounts: tuple[Mount, ...]) -> tuple[wire.TemplateMount, ...]:
    return tuple(wire.TemplateMount(mount=m.mount, description=m.description) for m in mounts)


def _seconds(moment_us: int | None) -> int | None:
    return None if moment_us is None else moment_us // SECOND_US
