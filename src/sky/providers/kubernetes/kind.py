"""What the kind is of which providers are clusters, for those that have none yet.

Decides: that a provider keeps disks where its settings say so, and only there. Never: loads what speaks to
clusters before there is one. Follows: what a cluster's settings may be is known before.
"""

from __future__ import annotations

import importlib
from functools import partial

from sky.providers.base import Kind, Provider, Setup
from sky.providers.kubernetes import config as configs
from sky.providers.kubernetes.config import KubernetesConfig


def _create(setup: Setup) -> Provider:
    from sky.providers.kubernetes.provider import KubernetesProvider, KubernetesWithDisks

    config = setup.config
    keeps = isinstance(config, KubernetesConfig) and config.disk_gb is not None
    return KubernetesWithDisks(setup) if keeps else KubernetesProvider(setup)


KIND = Kind(
    kind=configs.KIND,
    credential_fields=configs.CREDENTIALS,
    offers_ttl_seconds=configs.OFFERS_TTL_SECONDS,
    config_fields=KubernetesConfig,
    capabilities=configs.WITH_DISKS,
    create=_create,
    load=partial(importlib.import_module, "sky.providers.kubernetes.provider"),
)
