"""What is sold: SKUs with their prices and places, and templates of jobs.

Decides: what belongs to a SKU, where a job of it may run, and which of that this deployment can use.
Never: reads a file (``server/catalogue`` does). Follows: a catalogue is whole or refused; a job keeps the
price that its SKU had when it was submitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field


class Place(Struct, frozen=True):
    """Where a SKU can run: a cloud, which is a kind of provider, and what to ask there."""

    cloud: str
    instance_type: str | None = None
    context: str | None = None
    regions: tuple[str, ...] = ()


class Sku(Struct, frozen=True):
    """A kind of machine at a price. ``price_micro`` is per hour."""

    id: str
    gpu: str
    accelerator: str
    gpu_count: int
    gpu_memory_gb: int
    vcpus: int
    memory_gb: int
    price_micro: int
    tier: str
    interruptible: bool
    places: tuple[Place, ...]
    available: bool
    interconnect: str | None = None
    network: str | None = None

    @property
    def regions(self) -> tuple[str, ...]:
        """Every region of its places, once, in their order."""
        return tuple(dict.fromkeys(region for place in self.places for region in place.regions))

    @property
    def clouds(self) -> tuple[str, ...]:
        """The clouds of its places, once, in the order of preference."""
        return tuple(dict.fromkeys(place.cloud for place in self.places))


class Mount(Struct, frozen=True):
    """A folder inside a job, and what it is for."""

    mount: str
    description: str


class JobTemplate(Struct, frozen=True):
    """A job that is written down already. ``reason`` says why it cannot be used; None: it can."""

    id: str
    title: str
    description: str
    image: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    sku: str
    max_runtime_seconds: int
    inputs: tuple[Mount, ...]
    outputs: tuple[Mount, ...]
    overridable: tuple[str, ...]
    reason: str | None = None
    image_licence: str | None = None
    image_source: str | None = None


class Catalogue(Struct, frozen=True):
    """Everything that is listed. ``broken``: templates whose files cannot be read now, and why not."""

    skus: Mapping[str, Sku] = field(default_factory=dict[str, Sku])
    templates: Mapping[str, JobTemplate] = field(default_factory=dict[str, JobTemplate])
    note: str = ""
    broken: Mapping[str, str] = field(default_factory=dict[str, str])

    def unavailable(self, template: JobTemplate) -> str | None:
        """Why a template cannot be used; None: it can."""
        if template.reason is not None:
            return template.reason
        sku = self.skus.get(template.sku)
        if sku is None or not sku.available:
            return f"its machine {template.sku!r} is not sold here"
        return None

    def upstreams(self) -> dict[str, tuple[str, ...]]:
        """The SKUs of each cloud that any of them names, by cloud in alphabetical order."""
        found: dict[str, dict[str, None]] = {}
        for sku in self.skus.values():
            for cloud in sku.clouds:
                found.setdefault(cloud, {})[sku.id] = None
        return {cloud: tuple(found[cloud]) for cloud in sorted(found)}

    def placeable(self, kinds: Collection[str]) -> frozenset[str]:
        """The clouds that have a place which one of these kinds of provider serves."""
        places = (place for sku in self.skus.values() for place in sku.places)
        return frozenset(place.cloud for place in places if (place.context or place.cloud) in kinds)


def candidates(sku: Sku, wanted: Iterable[str] | None, enabled: Iterable[str]) -> tuple[Place, ...]:
    """Where a job of ``sku`` may be placed here, in the order of preference."""
    allowed = set(sku.clouds if wanted is None else wanted) & set(enabled)
    return tuple(place for place in sku.places if place.cloud in allowed)
