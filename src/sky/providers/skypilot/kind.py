"""What the kind is of which providers are SkyPilot's servers, for those that have none yet.

Decides: that a provider keeps disks where its settings say so, and only there. Never: loads what speaks to
servers before there is one. Follows: what a server's settings may be is known before.
"""

from __future__ import annotations

import importlib
from functools import partial

from sky.providers.base import Kind, Provider, Setup
from sky.providers.skypilot import config as configs
from sky.providers.skypilot.config import SkypilotConfig


def _create(setup: Setup) -> Provider:
    from sky.providers.skypilot.provider import SkypilotProvider, SkypilotWithDisks

    config = setup.config
    keeps = isinstance(config, SkypilotConfig) and config.keep_disks
    return SkypilotWithDisks(setup) if keeps else SkypilotProvider(setup)


KIND = Kind(
    kind=configs.KIND,
    credential_fields=configs.CREDENTIALS,
    offers_ttl_seconds=configs.OFFERS_TTL_SECONDS,
    config_fields=SkypilotConfig,
    capabilities=configs.WITH_DISKS,
    create=_create,
    load=partial(importlib.import_module, "sky.providers.skypilot.provider"),
)
