"""An engine's computer as a list of offers.

Decides: which sizes are offered: 1, 2, 4 … cores up to all of them, memory in proportion, and the same with
the accelerators that the settings name. Never: counts what is in use; sizes may be sold several times over.
Follows: the price of a size is its share of the price for the whole computer.
"""

from __future__ import annotations

from decimal import Decimal

from sky.domain.money import to_micro
from sky.domain.offer import Offer, offer_id
from sky.providers.container.config import ContainerConfig
from sky.providers.container.shapes import Info

KIND = "container"
_GIB = 1024**3
_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


def sizes(total: int) -> tuple[int, ...]:
    """1, 2, 4 … below ``total``, and ``total`` itself."""
    return (*(1 << shift for shift in range(total.bit_length()) if 1 << shift < total), total)


def offers_of(info: Info, provider_id: str, provider_name: str, config: ContainerConfig) -> tuple[Offer, ...]:
    """All sizes, smallest first. ``info``: what the engine says of its computer."""
    cores, memory_gb = max(1, info.ncpu), info.mem_total / _GIB
    machine = info.architecture.lower()
    whole = Decimal(str(config.price_per_hour_usd))

    def offer(instance_type: str, cpus: int, share: Decimal, gpus: int) -> Offer:
        return Offer(
            id=offer_id(provider_id, instance_type, None),
            provider_id=provider_id,
            provider_name=provider_name,
            kind=KIND,
            instance_type=instance_type,
            cpus=cpus,
            memory_gb=round(memory_gb * float(share), 2),
            accelerator=config.accelerator if gpus else None,
            accelerator_count=gpus,
            vram=config.accelerator_memory_gb if gpus else None,
            architecture=_ARCHITECTURES.get(machine, machine) or None,
            on_demand_micro=to_micro(whole * share),
            billing_unit="second",
        )

    plain = [offer(f"container-{cpus}", cpus, Decimal(cpus) / cores, 0) for cpus in sizes(cores)]
    total = config.accelerator_count
    fast = [
        offer(f"container-gpu-{count}", max(1, cores * count // total), Decimal(count) / total, count)
        for count in (sizes(total) if total else ())
    ]
    return (*plain, *fast)
