"""Pods as machines: the conformance suite, and what a cluster says, loses, refuses and takes back.

Decides: what the provider promises over the API of a cluster. Never: replaces a part of the provider.
Follows: the API is another one's double, its manifests are held to the published schemas.
"""

from __future__ import annotations

import unittest
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.providers.kubernetes_cluster import Cluster

from sky.kit.clock import SystemClock
from sky.providers.base import (
    AgentSetup,
    Context,
    LaunchOrder,
    Provider,
    Setup,
)
from sky.providers.contract import ProviderContract
from sky.providers.kubernetes.config import KubernetesConfig
from sky.providers.kubernetes.provider import KIND

DAEMON = "http://daemon.example:46580"


def provider_of(
    cluster: Cluster, clock: Any = None, kubeconfig: str | None = None, **config: Any
) -> Provider:
    settings = KubernetesConfig(**{"daemon_url": DAEMON, **config})
    context = Context(Path("/nowhere"), "test", clock or SystemClock())
    credentials = {"kubeconfig": kubeconfig or cluster.kubeconfig()}
    return KIND.create(Setup("prv_k8s", "k8s", settings, credentials, context))


async def order_of(provider: Provider, tag: str = "nod_one", **spec: Any) -> LaunchOrder:
    offer = min(await provider.offers(), key=lambda one: one.cpus)
    agent = AgentSetup("http://127.0.0.1:9", "the-token-of-the-node", None, spec)
    return LaunchOrder(tag, offer, "on_demand", agent, 60)


class TestKubernetes(ProviderContract, unittest.IsolatedAsyncioTestCase):
    described = KIND
    wrong_configs = (
        ({"namespace": "No Such"}, "namespace"),
        ({"sizes": [{"cpus": 0, "memory_gb": 1}]}, "sizes[0].cpus"),
        ({"daemon_url": "sky.example.com"}, "daemon_url"),
    )

    async def asyncSetUp(self) -> None:
        self.cluster = Cluster()
        await self.cluster.__aenter__()
        self.addAsyncCleanup(self.cluster.__aexit__)
        self.cluster.add_node()

    def provider(self) -> Provider:
        return provider_of(self.cluster, disk_gb=10)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as made:
        made.add_node()
        yield made
