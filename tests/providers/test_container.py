"""Nodes in containers of a real engine: the conformance suite, and what an engine's answers mean.

Decides: what the provider promises of containers, volumes and images. Never: replaces a part of the provider.
Follows: containers are real ones and run real agents, which find no daemon; a stand-in speaks only where an
engine has to fail in a way that cannot be had from one.
"""

from __future__ import annotations

import unittest
from pathlib import Path

import msgspec
import pytest
from tests.providers.container_engine import Boxes

from sky.kit.clock import SystemClock
from sky.providers.base import Context, Kind, Provider, Setup
from sky.providers.container.config import ContainerConfig
from sky.providers.container.provider import ContainerProvider
from sky.providers.contract import ProviderContract

HERE = "prv_boxes"


def provider_of(config: dict[str, object], deployment: str = "test", **credentials: str) -> ContainerProvider:
    context = Context(Path("/nonexistent"), deployment, SystemClock())
    settings = msgspec.convert(config, ContainerConfig)
    return ContainerProvider(Setup(HERE, "boxes", settings, credentials, context))


class TestContract(ProviderContract, unittest.IsolatedAsyncioTestCase):
    described = Kind.of(ContainerProvider)
    wrong_configs = (
        ({"max_nodes": 0}, "max_nodes"),
        ({"pull": "sometimes"}, "pull"),
        ({"engine": "ssh://host"}, "config"),
        ({"mounts": ["relative:/x/y", "/a:b"]}, "config"),
        ({"daemon_url": "localhost:1"}, "config"),
        ({"accelerator": "A100"}, "config"),
    )

    @pytest.fixture(autouse=True)
    def at(self, boxes: Boxes) -> None:
        self.boxes = boxes

    def provider(self) -> Provider:
        return provider_of(self.boxes.config)
