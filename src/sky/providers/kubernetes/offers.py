"""A cluster as a list of offers.

Decides: which sizes its nodes have, how many of each would fit now, and what they cost.
Never: calls the API, or promises room: the scheduler has the last word when a pod is there.
Follows: a size is a power of two of cores, or of accelerators with their share of a node; what pods have
asked for is taken off what the nodes have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from msgspec.structs import replace

from sky.domain.money import to_micro
from sky.domain.offer import Offer, offer_id
from sky.providers.kubernetes.config import KubernetesConfig, Size, Toleration
from sky.providers.kubernetes.shape import Item, at, many, mapping

LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "gpu.nvidia.com/class",
    "amd.com/gpu.product-name",
    "karpenter.k8s.aws/instance-gpu-name",
)
"""Where a node says what its accelerators are, the most exact first."""
MEMORY_LABEL = "nvidia.com/gpu.memory"
ARCHITECTURE_LABEL = "kubernetes.io/arch"
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "arm64"}
_QUANTITY = re.compile(r"(?P<number>[0-9.]+(?:[eE][+-]?[0-9]+)?)(?P<unit>[numkMGTPE]?i?)")
_UNITS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_GIB = 1 << 30
_VENDOR = re.compile(r"^(nvidia|amd|tesla|geforce|instinct|quadro)[-_ ]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster: what it has, what of that is free, and how pods are told to go there."""

    name: str
    architecture: str
    cpus: float
    memory_gb: float
    gpus: int
    free_cpus: float
    free_memory_gb: float
    free_gpus: int
    accelerator: str | None = None
    vram: float | None = None
    selector: tuple[tuple[str, str], ...] = ()

    def fits(self, cpus: int, memory_gb: float, gpus: int) -> int:
        """How many machines of that size have room."""
        most = [int(self.free_cpus // cpus), int(self.free_memory_gb // memory_gb)]
        if gpus:
            most.append(self.free_gpus // gpus)
        return max(0, min(most))


def quantity(text: object) -> float:
    """A quantity as Kubernetes writes it: ``500m``, ``2``, ``16Gi``. What cannot be read is nothing."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        return 0.0
    number, unit = float(match["number"]), match["unit"]
    if unit in _BINARY:
        return number * (1 << _BINARY[unit])
    return number * 10.0 ** _UNITS[unit] if unit in _UNITS else 0.0


def accelerator_name(value: str, config: KubernetesConfig) -> str:
    """What a label calls an accelerator, as tasks call it: ``NVIDIA-A100-SXM4-80GB`` is ``A100-80GB``."""
    if value in config.accelerators:
        return config.accelerators[value]
    text = value
    while _VENDOR.match(text):
        text = _VENDOR.sub("", text, count=1)
    parts = [part for part in re.split(r"[-_ ]+", text.upper()) if part]
    if not parts:
        return value
    name = parts[0]
    if name in ("RTX", "GTX") and len(parts) > 1:
        name += parts[1]
    for model, size in (("A100", "80GB"), ("V100", "32GB")):
        if name == model and size in parts:
            name += f"-{size}"
    return name


def eligible(node: Item, config: KubernetesConfig) -> bool:
    """Whether pods of this provider may be put on a node at all."""
    if at(node, "spec", "unschedulable"):
        return False
    labels = mapping(node, "metadata", "labels")
    ready = [c.get("status") for c in many(node, "status", "conditions") if c.get("type") == "Ready"]
    if ready and ready[0] != "True":
        return False
    if any(labels.get(key) != value for key, value in config.node_selector.items()):
        return False
    own = Toleration(key=config.gpu_resource, operator="Exists")
    return all(
        any(_tolerates(one, taint) for one in (*config.tolerations, own))
        for taint in many(node, "spec", "taints")
        if taint.get("effect") in ("NoSchedule", "NoExecute")
    )


def nodes_of(items: Iterable[Item], pods: Iterable[Item], config: KubernetesConfig) -> tuple[Node, ...]:
    """The nodes that pods may be put on, less what ``pods`` have asked for."""
    asked: dict[str, tuple[float, float, float]] = {}
    for pod in pods:
        where = at(pod, "spec", "nodeName")
        if where and at(pod, "status", "phase") not in ("Succeeded", "Failed"):
            before, more = asked.get(where, (0.0, 0.0, 0.0)), requested(pod, config.gpu_resource)
            asked[where] = (before[0] + more[0], before[1] + more[1], before[2] + more[2])
    return tuple(
        _node(item, asked.get(item["metadata"]["name"], (0.0, 0.0, 0.0)), config)
        for item in items
        if eligible(item, config)
    )


def requested(pod: Item, gpu_resource: str) -> tuple[float, float, float]:
    """Cores, GiB and accelerators that a pod has asked for: all its containers, or its largest first one."""

    def of(container: Item) -> tuple[float, float, float]:
        told = mapping(container, "resources", "requests")
        return (
            quantity(told.get("cpu", 0)),
            quantity(told.get("memory", 0)) / _GIB,
            quantity(told.get(gpu_resource, 0)),
        )

    together = [of(one) for one in many(pod, "spec", "containers")]
    first = [of(one) for one in many(pod, "spec", "initContainers")]
    sums = [sum(one[index] for one in together) for index in range(3)]
    most = [max([sums[index], *(one[index] for one in first)]) for index in range(3)]
    return most[0], most[1], most[2]


def offers_of(
    nodes: Iterable[Node], config: KubernetesConfig, provider_id: str, provider_name: str, region: str
) -> tuple[Offer, ...]:
    """All sizes. One that fits nowhere now is listed as sold out."""
    nodes = tuple(nodes)
    found: dict[str, Offer] = {}
    maker = _Maker(config, provider_id, provider_name, region)
    for size in config.sizes:
        offer = maker.fixed(size)
        found[offer.instance_type] = offer
    plain = tuple(node for node in nodes if not node.gpus) or nodes
    for architecture in sorted({node.architecture for node in plain}):
        alike = [node for node in plain if node.architecture == architecture]
        largest_gb = max(node.memory_gb for node in alike)
        for cpus in _sizes(max(int(node.cpus) for node in alike)):
            memory_gb = min(float(int(cpus * config.memory_gb_per_cpu)) or 0.5, float(int(largest_gb)))
            if memory_gb > 0:
                offer = maker.cores(alike, architecture, cpus, memory_gb)
                found.setdefault(offer.instance_type, offer)
    for name, selector in sorted({(n.accelerator, n.selector) for n in nodes if n.accelerator and n.gpus}):
        alike = [node for node in nodes if node.accelerator == name and node.selector == selector]
        for count in _sizes(max(node.gpus for node in alike)):
            offer = maker.accelerated(alike, name or "", count)
            found.setdefault(offer.instance_type, offer)
    return tuple(found.values())


class _Maker:
    """Offers of one provider."""

    def __init__(self, config: KubernetesConfig, provider_id: str, provider_name: str, region: str) -> None:
        self._config = config
        self._blank = Offer(
            id="",
            provider_id=provider_id,
            provider_name=provider_name,
            kind="kubernetes",
            instance_type="",
            cpus=1,
            memory_gb=1.0,
            region=region,
            billing_unit="second",
        )

    def cores(self, nodes: list[Node], architecture: str, cpus: int, memory_gb: float) -> Offer:
        name = f"{cpus}cpu-{memory_gb:g}gb" + ("" if architecture == "amd64" else f"-{architecture}")
        room = sum(node.fits(cpus, memory_gb, 0) for node in nodes)
        selector = {ARCHITECTURE_LABEL: architecture}
        offer = replace(self._blank, cpus=cpus, memory_gb=memory_gb, architecture=_known(architecture))
        return self._priced(offer, name, selector, room)

    def accelerated(self, nodes: list[Node], accelerator: str, count: int) -> Offer:
        """So many accelerators of a node, with their share of what it has beside what its system uses."""
        node = max(nodes, key=lambda one: (one.gpus, one.cpus))
        share = min(1.0, count / node.gpus)
        cpus = max(1, int(node.cpus * 0.95 * share))
        memory_gb = max(1.0, float(int(node.memory_gb * 0.95 * share)))
        offer = replace(
            self._blank,
            cpus=cpus,
            memory_gb=memory_gb,
            accelerator=accelerator,
            accelerator_count=count,
            vram=node.vram,
            architecture=_known(node.architecture),
        )
        room = sum(one.fits(cpus, memory_gb, count) for one in nodes)
        return self._priced(
            offer, f"{count}x-{accelerator}-{cpus}cpu-{memory_gb:g}gb".lower(), dict(node.selector), room
        )

    def fixed(self, size: Size) -> Offer:
        name = f"{size.cpus}cpu-{size.memory_gb:g}gb"
        offer = replace(self._blank, cpus=size.cpus, memory_gb=size.memory_gb)
        if size.accelerator is not None:
            offer = replace(
                offer,
                accelerator=size.accelerator,
                accelerator_count=size.accelerator_count,
                vram=size.accelerator_memory_gb,
            )
            name = f"{size.accelerator_count}x-{size.accelerator}-{name}".lower()
        return self._priced(offer, name, dict(size.node_selector), None)

    def _priced(self, offer: Offer, name: str, selector: dict[str, str], room: int | None) -> Offer:
        config = self._config
        price = Decimal(str(config.price_per_cpu_hour_usd)) * offer.cpus
        price += Decimal(str(config.price_per_gb_hour_usd)) * Decimal(str(offer.memory_gb))
        if offer.accelerator is not None:
            each = config.gpu_prices_per_hour_usd.get(offer.accelerator, config.price_per_gpu_hour_usd)
            price += Decimal(str(each)) * offer.accelerator_count
        return replace(
            offer,
            id=offer_id(offer.provider_id, name, offer.region),
            instance_type=name,
            available=None if config.autoscaled else room,
            on_demand_micro=to_micro(price),
            specific={"node_selector": selector},
        )


def _node(item: Item, asked: tuple[float, float, float], config: KubernetesConfig) -> Node:
    labels = mapping(item, "metadata", "labels")
    has = mapping(item, "status", "allocatable")
    cpus, memory_gb = quantity(has.get("cpu", 0)), quantity(has.get("memory", 0)) / _GIB
    gpus = int(quantity(has.get(config.gpu_resource, 0)))
    keys = (config.accelerator_label, *LABELS) if config.accelerator_label else LABELS
    key = next((key for key in keys if labels.get(key)), None)
    accelerator = accelerator_name(labels[key], config) if key is not None and gpus else None
    memory = labels.get(MEMORY_LABEL, "")
    return Node(
        name=item["metadata"]["name"],
        architecture=labels.get(ARCHITECTURE_LABEL, "amd64"),
        cpus=cpus,
        memory_gb=memory_gb,
        gpus=gpus,
        free_cpus=cpus - asked[0],
        free_memory_gb=memory_gb - asked[1],
        free_gpus=int(gpus - asked[2]),
        accelerator=accelerator,
        vram=round(int(memory) / 1024, 1) if memory.isdigit() and int(memory) > 0 else None,
        selector=((key, labels[key]),) if key is not None and gpus else (),
    )


def _tolerates(own: Toleration, taint: Item) -> bool:
    if own.effect is not None and own.effect != taint.get("effect"):
        return False
    if own.key is None:
        return own.operator == "Exists"
    if own.key != taint.get("key"):
        return False
    return own.operator == "Exists" or (own.value or "") == (taint.get("value") or "")


def _known(architecture: str) -> str:
    return _ARCHITECTURES.get(architecture, architecture)


def _sizes(total: int) -> tuple[int, ...]:
    """1, 2, 4 … below ``total``, and ``total`` itself; none of nothing."""
    if total < 1:
        return ()
    return (*(1 << shift for shift in range(total.bit_length()) if 1 << shift < total), total)
