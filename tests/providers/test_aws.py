"""EC2 as a provider: the conformance suite, and what AWS does to those who buy from it.

Decides: what is bought, how often, and what is told, when answers are lost, late, refused or never come.
Never: speaks to AWS; an account on this computer stands in for it.
"""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.providers.aws_cloud import KEYS, AwsCloud, LosesAnswer, running

from sky.kit.clock import SystemClock
from sky.providers.aws.provider import AwsProvider
from sky.providers.base import (
    AgainLater,
    AgentSetup,
    Context,
    DiskKeeper,
    Kind,
    LaunchOrder,
    keeper_of,
)
from sky.providers.contract import ProviderContract
from sky.providers.registry import Registry

pytestmark = pytest.mark.real
REGIONS = ("us-east-1", "us-west-2")
DEPLOYMENTS = count()
HERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def account() -> Iterator[AwsCloud]:
    """One account for all of these tests."""
    with running() as cloud:
        yield cloud


@pytest.fixture
def cloud(account: AwsCloud) -> Iterator[AwsCloud]:
    """The account, with nothing arranged."""
    account.forget()
    yield account
    account.forget()


@pytest.fixture
def deployment() -> str:
    """A deployment of which nothing was bought yet."""
    return f"test-{next(DEPLOYMENTS)}"


def provider_at(cloud: AwsCloud, deployment: str, keys: dict[str, str] = KEYS, **config: Any) -> DiskKeeper:
    settings = {"families": ["t3"], "daemon_url": HERE, "endpoint_url": cloud.url, **config}
    context = Context(Path("unused"), deployment, SystemClock())
    made = Registry([Kind.of(AwsProvider)]).build("aws", "prv_aws", "aws", settings, keys, context)
    keeper = keeper_of(made)
    assert keeper is not None
    return keeper


async def order_from(provider: DiskKeeper, tag: str, kind: str = "t3.micro") -> LaunchOrder:
    offer = next(one for one in await provider.offers() if one.instance_type == kind)
    return LaunchOrder(tag, offer, "on_demand", AgentSetup(HERE, "the-token"), 60)


class TestContract(ProviderContract, unittest.IsolatedAsyncioTestCase):
    """Everything that is asked of a provider, over an account that behaves."""

    described = Kind.of(AwsProvider)
    wrong_configs = (
        ({"regions": []}, "regions"),
        ({"regions": ["nowhere"]}, "regions"),
        ({"disk_gb": 1}, "disk_gb"),
        ({"image": "ubuntu"}, "image"),
        ({"region": "us-east-1"}, "region"),
        ({"spot_max_usd": 0}, "spot_max_usd"),
        ({"subnets": {"us-east-1": "vpc-12345678"}}, "subnets"),
    )

    @pytest.fixture(autouse=True)
    def _account(self, cloud: AwsCloud, deployment: str) -> None:
        self.cloud, self.deployment = cloud, deployment

    def provider(self) -> DiskKeeper:
        return provider_at(self.cloud, self.deployment)

    async def asyncTearDown(self) -> None:
        await super().asyncTearDown()
        assert self.cloud.living(self.deployment) == []
        assert await self.provider().disks() == ()


async def test_a_purchase_whose_answer_is_lost_is_made_once(cloud: AwsCloud, deployment: str) -> None:
    provider = provider_at(cloud, deployment)
    order = await order_from(provider, "nod_lost")
    cloud.then("RunInstances", LosesAnswer())
    with pytest.raises(AgainLater):
        await provider.launch(order)
    bought = await provider.launch(order)
    assert [one["InstanceId"] for one in cloud.instances(deployment)] == [bought.id]


async def test_a_purchase_that_no_listing_shows_yet_is_made_once(cloud: AwsCloud, deployment: str) -> None:
    provider = provider_at(cloud, deployment)
    order = await order_from(provider, "nod_late")
    cloud.hidden = True
    cloud.then("RunInstances", LosesAnswer())
    with pytest.raises(AgainLater):
        await provider.launch(order)
    assert await provider.find(order.tag) is None
    again = await provider_at(cloud, deployment).launch(order)
    cloud.hidden = False
    found = await provider.find(order.tag)
    assert found is not None
    assert found.id == again.id
    assert len(cloud.instances(deployment)) == 1
