"""What a stored spec says, as plans read it.

Decides: what is wanted where a spec says nothing. Never: reads a row. Follows: a spec that cannot be read
fails whoever needs it, until its compute ends, which needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sky.domain.compute import ACCEPTING, Alternative, Bounds, Wanted
from sky.domain.money import to_micro
from sky.kit.clock import SECOND_US
from sky.store.engine import UNREADABLE
from sky.store.sql import Row
from sky.wire import v1

NEVER_US = 100 * 365 * 24 * 3600 * SECOND_US
"""What a time of 0, which means none, is to a plan that adds it to now."""


class UnreadableSpecError(Exception):
    """What a compute was asked to be cannot be read; its passes fail until it can, or it is deleted."""


def spec_of(compute: Row) -> Mapping[str, Any]:
    """The stored spec of a compute; one that ends needs none. Raises UnreadableSpecError."""
    spec: Mapping[str, Any] = compute["spec"]
    if compute["state"] not in ACCEPTING:
        return spec if is_spec(spec) else _NOTHING_WANTED
    if UNREADABLE in spec:
        msg = f"the spec is no JSON: {spec[UNREADABLE]!r}; delete the compute, or repair its row"
        raise UnreadableSpecError(msg)
    return spec


def is_spec(stored: Any) -> bool:
    """Whether what is stored can be read as a spec."""
    try:
        msgspec.convert(stored, v1.ComputeSpec)
    except msgspec.ValidationError:
        return False
    return True


def wanted_of(spec: Mapping[str, Any], narrow: Sequence[Mapping[str, Any]] | None = None) -> Wanted:
    """The part of a stored spec that decides what is bought; ``narrow``: what is asked beyond it."""
    options: Mapping[str, Any] = spec.get("options") or {}
    more = narrow or ()
    return Wanted(
        alternatives=tuple(
            _alternative(s, more[place] if place < len(more) else {}) for place, s in enumerate(spec["specs"])
        ),
        selection=spec["selection"],
        allocation=spec["allocation"],
        provision_timeout_us=microseconds(options.get("provision_timeout", 300.0)) or NEVER_US,
        idle_timeout_us=microseconds(options.get("autoscale_idle_timeout", 30.0)),
        cooldown_us=microseconds(options.get("autoscale_cooldown", 0.0)),
        concurrency=spec["worker"].get("concurrency"),
    )


def bounds_of(spec: Mapping[str, Any]) -> Bounds:
    """How many nodes a stored spec allows."""
    wish: Mapping[str, Any] = spec["nodes"]
    desired, low, high = wish["desired"], wish.get("min"), wish.get("max")
    if low is None and high is None:
        return Bounds(desired, desired, desired)
    return Bounds(desired, desired if low is None else low, desired if high is None else high)


def _alternative(spec: Mapping[str, Any], narrow: Mapping[str, Any]) -> Alternative:
    cap = spec.get("max_hourly_cost")
    return Alternative(
        provider=spec["provider"]["kind"],
        accelerator=spec.get("accelerator"),
        accelerator_count=spec.get("accelerator_count", 1),
        cpus=spec.get("cpus"),
        memory_gb=spec.get("memory_gb"),
        disk_gb=spec.get("disk_gb"),
        region=spec.get("region"),
        architecture=spec.get("architecture"),
        max_hourly_micro=None if cap is None else to_micro(cap),
        **narrow,
    )


def microseconds(seconds: float) -> int:
    """Seconds as a spec says them."""
    return round(seconds * SECOND_US)


_NOTHING_WANTED: Mapping[str, Any] = msgspec.to_builtins(
    v1.ComputeSpec(specs=(), nodes=v1.NodeBounds(desired=0), desired="deleted", ttl=0)
)
