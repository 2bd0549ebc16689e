"""What a person sets when a cluster is added as a provider.

Decides: the settings, their limits, and what they are when nothing is said. Never: reads a file or asks a
cluster. Follows: a wrong value is refused with its path when the provider is added.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sky.providers.base import Capabilities

Name = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Label = Annotated[str, Meta(min_length=1, max_length=317)]
Value = Annotated[str, Meta(max_length=63)]
Usd = Annotated[float, Meta(ge=0, le=1_000_000)]
Text = Annotated[str, Meta(min_length=1, max_length=512)]
DAY_S = 86_400
KIND = "kubernetes"
CREDENTIALS = ("kubeconfig",)
OFFERS_TTL_SECONDS = 30
CAPABILITIES = Capabilities(
    volumes=False,
    apt=True,
    base_image=True,
    clustering=True,
    includes=True,
    settle_seconds=5.0,
    can_tell_death=True,
)
WITH_DISKS = replace(CAPABILITIES, keeps_disks=True, disk_setting="disk_gb")


class Toleration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A taint that pods put up with, in Kubernetes' own words."""

    key: Label | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: Value | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Size(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One size of machine that is offered whatever the nodes are now. ``memory_gb`` is GiB.

    ``node_selector``: the labels of the nodes that have it, such as those of an accelerator.
    """

    cpus: Annotated[int, Meta(ge=1, le=4_096)]
    memory_gb: Annotated[float, Meta(gt=0, le=65_536)]
    accelerator: Text | None = None
    accelerator_count: Annotated[int, Meta(ge=1, le=64)] = 1
    accelerator_memory_gb: Annotated[float, Meta(gt=0, le=4_096)] | None = None
    node_selector: dict[Label, Value] = {}


class KubernetesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a cluster as a provider.

    How it is reached: the credential ``kubeconfig``; else ``in_cluster``, the account of the pod that the
    daemon runs in; else the file ``kubeconfig_file`` of the daemon's computer (KUBECONFIG or ~/.kube/config
    when that is not set either), at ``context``. ``daemon_url``: where pods reach the daemon; ``tunnel``:
    they reach it nowhere, and the daemon comes to them by port-forward.

    ``environment``: variables of every pod; no place for secrets. ``run_as_user``: pods run as that user, and
    with nothing that the strictest of the pod security standards forbids. ``unschedulable_seconds``: how long
    a pod that no node has room for is waited with.
    """

    kubeconfig_file: Text | None = None
    context: Text | None = None
    in_cluster: bool = False
    namespace: Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None = None
    daemon_url: Annotated[str, Meta(max_length=512, pattern=r"^https?://[^/\s]+(/\S*)?$")] | None = None
    tunnel: bool = False

    image: Text | None = None
    image_pull_secrets: tuple[Name, ...] = ()
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    service_account: Name | None = None
    priority_class: Name | None = None
    runtime_class: Name | None = None
    queue: Annotated[str, Meta(min_length=1, max_length=63)] | None = None
    node_selector: dict[Label, Value] = {}
    tolerations: Annotated[tuple[Toleration, ...], Meta(max_length=64)] = ()
    environment: dict[Label, Annotated[str, Meta(max_length=4_096)]] = {}
    labels: dict[Label, Value] = {}
    annotations: dict[Label, Annotated[str, Meta(max_length=4_096)]] = {}
    run_as_user: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    limit_cpu: bool = False
    limit_memory: bool = True

    gpu_resource: Label = "nvidia.com/gpu"
    accelerator_label: Label | None = None
    accelerators: dict[str, Text] = {}
    sizes: Annotated[tuple[Size, ...], Meta(max_length=256)] = ()
    memory_gb_per_cpu: Annotated[float, Meta(ge=0.25, le=64)] = 4.0
    autoscaled: bool = False

    price_per_cpu_hour_usd: Usd = 0.0
    price_per_gb_hour_usd: Usd = 0.0
    price_per_gpu_hour_usd: Usd = 0.0
    gpu_prices_per_hour_usd: dict[str, Usd] = {}

    disk_gb: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    storage_class: Name | None = None

    unschedulable_seconds: Annotated[float, Meta(ge=1, le=DAY_S)] = 60.0
    grace_seconds: Annotated[int, Meta(ge=0, le=3_600)] = 10

    def __post_init__(self) -> None:
        if self.in_cluster and (self.kubeconfig_file or self.context):
            msg = "in_cluster is the account of the daemon's own pod: leave kubeconfig_file and context out"
            raise ValueError(msg)
        if self.tunnel and self.daemon_url is not None:
            raise ValueError(
                "tunnel is for pods that cannot dial the daemon: leave daemon_url out, or tunnel"
            )
        if self.storage_class is not None and self.disk_gb is None:
            msg = "storage_class is for disks, which are kept when disk_gb says how large each is"
            raise ValueError(msg)
