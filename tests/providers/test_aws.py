"""EC2 as a provider: the conformance suite, and what AWS does to those who buy from it.

Decides: what is bought, how often, and what is told, when answers are lost, late, refused or never come.
Never: speaks to AWS; an account on this computer stands in for it.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
import unittest
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.providers.aws_cloud import KEYS, AwsCloud, Fails, LosesAnswer, running

from sky.domain import price_list
from sky.domain.offer import Offer
from sky.kit.clock import SystemClock
from sky.providers.aws import api
from sky.providers.aws.config import AwsConfig
from sky.providers.aws.instances import machine_of
from sky.providers.aws.offers import SOURCE
from sky.providers.aws.provider import AwsProvider
from sky.providers.aws.userdata import user_data
from sky.providers.base import (
    AgainLater,
    AgentSetup,
    Context,
    DiskKeeper,
    Kind,
    LaunchOrder,
    Refused,
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


def built(keys: dict[str, str], deployment: str = "test", **config: Any) -> DiskKeeper:
    context = Context(Path("unused"), deployment, SystemClock())
    made = Registry([Kind.of(AwsProvider)]).build("aws", "prv_aws", "aws", config, keys, context)
    keeper = keeper_of(made)
    assert keeper is not None
    return keeper


def provider_at(cloud: AwsCloud, deployment: str, **config: Any) -> DiskKeeper:
    settings = {"families": ["t3"], "daemon_url": HERE, "endpoint_url": cloud.url, **config}
    return built(KEYS, deployment, **settings)


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


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("InsufficientInstanceCapacity", "capacity"),
        ("SpotMaxPriceTooLow", "capacity"),
        ("VcpuLimitExceeded", "quota"),
        ("Unsupported", "capability_mismatch"),
        ("UnauthorizedOperation", "unauthorized"),
        ("InvalidParameterValue", "invalid_request"),
    ],
)
async def test_a_refusal_says_why_and_nothing_was_bought(
    cloud: AwsCloud, deployment: str, code: str, meant: str
) -> None:
    provider = provider_at(cloud, deployment)
    order = await order_from(provider, "nod_no")
    cloud.then("RunInstances", Fails(code, f"no, {KEYS['secret_access_key']} will not do"))
    with pytest.raises(Refused) as refused:
        await provider.launch(order)
    assert refused.value.code == meant
    assert code in refused.value.message
    assert "us-east-1" in refused.value.message
    assert KEYS["secret_access_key"] not in refused.value.message
    assert cloud.instances(deployment) == []


@pytest.mark.parametrize(
    ("code", "message", "field"),
    [
        ("InvalidSubnetID.NotFound", "no such subnet", "config.subnets"),
        ("InvalidGroup.NotFound", "no such group", "config.security_groups"),
        ("InvalidKeyPair.NotFound", "no such key", "config.key_name"),
        ("InvalidAMIID.NotFound", "no such image", "config.image"),
        ("InvalidParameterValue", "wrong name (iamInstanceProfile.name)", "config.instance_profile"),
    ],
)
async def test_a_wrong_setting_is_told_by_its_name(
    cloud: AwsCloud, deployment: str, code: str, message: str, field: str
) -> None:
    provider = provider_at(cloud, deployment)
    order = await order_from(provider, "nod_wrong")
    cloud.then("RunInstances", Fails(code, message))
    with pytest.raises(Refused) as refused:
        await provider.launch(order)
    assert (refused.value.code, refused.value.field) == ("invalid_request", field)


@pytest.mark.parametrize(
    "trouble",
    [
        Fails("RequestLimitExceeded", status=503),
        Fails("ThrottlingException"),
        Fails("InternalError", status=500),
        Fails("Unheard", status=502),
        LosesAnswer(),
    ],
)
async def test_what_may_pass_is_asked_for_again(cloud: AwsCloud, deployment: str, trouble: object) -> None:
    provider = provider_at(cloud, deployment)
    for call, action in (
        (lambda: provider.find("nod_1"), "DescribeInstances"),
        (provider.machines, "DescribeInstances"),
        (provider.offers, "DescribeSpotPriceHistory"),
        (lambda: provider.terminate("nod_1", None), "DescribeInstances"),
    ):
        cloud.then(action, trouble)
        with pytest.raises(AgainLater):
            await call()
        await call()


async def test_a_region_that_is_silent_keeps_nobody_from_a_machine_elsewhere(
    cloud: AwsCloud, deployment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("READ_S", "CALL_S"):
        monkeypatch.setattr(api, limit, 60.0)
    provider = provider_at(cloud, deployment, regions=REGIONS)
    order = await order_from(provider, "nod_there")
    machine = await provider.launch(order)
    cloud.silent_regions.add("us-west-2")
    async with asyncio.timeout(20):  # a silent one is waited for much longer
        found = await provider.find(order.tag)
        assert found is not None
        assert found.id == machine.id
        await provider.terminate(order.tag, machine.id)
    assert cloud.living(deployment) == []


async def test_a_region_that_fails_is_no_machine_that_is_gone(cloud: AwsCloud, deployment: str) -> None:
    provider = provider_at(cloud, deployment, regions=REGIONS)
    cloud.always("DescribeInstances", "us-west-2", Fails("Unavailable", status=503))
    for call in (provider.machines, provider.disks, lambda: provider.find("nod_x")):
        with pytest.raises(AgainLater, match="us-west-2"):
            await call()


async def test_a_region_that_fails_offers_nothing_and_the_others_do(cloud: AwsCloud, deployment: str) -> None:
    provider = provider_at(cloud, deployment, regions=REGIONS)
    cloud.always("DescribeSpotPriceHistory", "us-west-2", Fails("OptInRequired"))
    assert {offer.region for offer in await provider.offers()} == {"us-east-1"}
    cloud.always("DescribeSpotPriceHistory", "us-east-1", Fails("AuthFailure", "not your keys"))
    with pytest.raises(Refused) as refused:
        await provider.offers()
    assert refused.value.code == "unauthorized"


async def test_prices_are_those_that_aws_tells_before_those_of_the_list(
    cloud: AwsCloud, deployment: str
) -> None:
    cloud.prices["us-east-1"] = {"t3.micro": "0.0200000000", "x9.huge": "99.0"}
    before = datetime.now(UTC)
    provider = provider_at(cloud, deployment)
    offers = {one.instance_type: one for one in await provider.offers()}
    assert offers["t3.micro"].on_demand_micro == 20_000
    days = {day.date().isoformat() for day in (before, datetime.now(UTC))}
    assert offers["t3.micro"].specific["price_as_of"] in days, "the day on which it was read"
    assert offers["t3.micro"].specific["price_source"] == SOURCE
    assert offers["t3.small"].on_demand_micro == 20_800
    listed = {"price_as_of": "2025-01", "price_source": price_list.shipped().source}
    assert offers["t3.small"].specific == listed
    assert set(offers) == {
        f"t3.{size}" for size in ("micro", "small", "medium", "large", "xlarge", "2xlarge")
    }
    assert all(one.spot_micro is not None for one in offers.values())
    cloud.prices["us-east-1"] = {"t3.micro": "0.0300000000"}
    again = {one.instance_type: one.on_demand_micro for one in await provider_at(cloud, deployment).offers()}
    assert again["t3.micro"] == 30_000, "prices that have changed since are taken"


async def test_who_may_not_ask_for_prices_has_those_of_the_list(cloud: AwsCloud, deployment: str) -> None:
    cloud.always("GetProducts", "us-east-1", Fails("AccessDeniedException"))
    cloud.always("DescribeSpotPriceHistory", "us-east-1", Fails("UnauthorizedOperation"))
    offers = await provider_at(cloud, deployment, families=["g5.xlarge"]).offers()
    (offer,) = offers
    assert (offer.accelerator, offer.accelerator_count, offer.vram) == ("A10G", 1, 24.0)
    assert (offer.on_demand_micro, offer.spot_micro) == (1_006_000, None)


async def test_a_machine_is_encrypted_shut_to_others_and_told_no_more_than_it_needs(
    cloud: AwsCloud, deployment: str
) -> None:
    provider = provider_at(cloud, deployment)
    order = await order_from(provider, "nod_safe")
    other = replace(order, tag="nod_spot", market="spot")
    machine, spot = await asyncio.gather(provider.launch(order), provider.launch(other))
    assert "the-token" not in repr(machine.binding)
    assert (machine.binding["market"], spot.binding["market"]) == ("on_demand", "spot")
    ec2 = cloud.client()
    (instance,) = [one for one in cloud.instances(deployment) if one["InstanceId"] == machine.id]
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    volumes = ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [machine.id]}])
    assert [(one["Encrypted"], one["Size"]) for one in volumes["Volumes"]] == [(True, 128)]
    named = [{"Name": "group-name", "Values": [f"skyfleet-{deployment}"]}]
    (group,) = ec2.describe_security_groups(Filters=named)["SecurityGroups"]
    assert [one["GroupId"] for one in instance["SecurityGroups"]] == [group["GroupId"]]
    for rule in group["IpPermissions"]:
        assert [one["GroupId"] for one in rule["UserIdGroupPairs"]] == [group["GroupId"]], "only its own"
        assert not rule["IpRanges"]
        assert not rule["Ipv6Ranges"]
    told = cloud.user_data(machine.id).decode()
    assert told.startswith("#!/bin/sh\n")
    assert "the-token" in told
    assert KEYS["secret_access_key"] not in told


async def test_an_image_is_what_a_parameter_says_now(cloud: AwsCloud, deployment: str) -> None:
    """No name of an image is known beforehand: the store of parameters is asked, in the region."""
    image = cloud.client().register_image(Name="own", RootDeviceName="/dev/xvda")["ImageId"]
    store = cloud.client(service="ssm")
    store.put_parameter(Name="/ours/image", Value=image, Type="String", Overwrite=True)
    provider = provider_at(cloud, deployment, image="ssm:/ours/image")
    machine = await provider.launch(await order_from(provider, "nod_image"))
    [instance] = cloud.instances(deployment)
    assert (instance["InstanceId"], instance["ImageId"]) == (machine.id, image)
    nameless = provider_at(cloud, deployment, image="ssm:/ours/other")
    with pytest.raises(Refused, match="ParameterNotFound") as refused:
        await nameless.launch(await order_from(nameless, "nod_nameless"))
    assert (refused.value.code, refused.value.field) == ("invalid_request", "config.image")
    store.put_parameter(Name="/ours/image", Value="ami-00000000", Type="String", Overwrite=True)
    gone = provider_at(cloud, deployment, image="ssm:/ours/image")
    with pytest.raises(Refused, match="ami-00000000") as refused:
        await gone.launch(await order_from(gone, "nod_gone"))
    assert refused.value.field == "config.image"
    assert len(cloud.instances(deployment)) == 1


async def test_what_is_told_to_a_machine_is_packed_where_it_is_long(cloud: AwsCloud, deployment: str) -> None:
    provider = provider_at(cloud, deployment)
    order = await order_from(provider, "nod_long")
    long = AgentSetup(HERE, "t", spec={"image": {"env": {"A": "x" * 20_000}}})
    machine = await provider.launch(replace(order, agent=long))
    assert b"x" * 20_000 in gzip.decompress(cloud.user_data(machine.id))
    noise = "".join(f"{number * 2654435761 % 2**32:x}" for number in range(8_000))
    longer = AgentSetup(HERE, "t", spec={"image": {"env": {"A": noise}}})
    with pytest.raises(Refused, match="16384") as refused:
        await provider.launch(replace(order, tag="nod_longer", agent=longer))
    assert refused.value.field == "spec.image"


async def test_a_machine_is_not_told_an_address_of_this_computer(cloud: AwsCloud, deployment: str) -> None:
    provider = provider_at(cloud, deployment, daemon_url=None)
    order = await order_from(provider, "nod_lonely")
    with pytest.raises(Refused) as refused:
        await provider.launch(order)
    assert refused.value.field == "config.daemon_url"
    reachable = replace(order, agent=AgentSetup("https://sky.example.com", "t"))
    assert (await provider.launch(reachable)).tag == order.tag


async def test_a_start_whose_answer_is_lost_is_the_same_machine(cloud: AwsCloud, deployment: str) -> None:
    provider = provider_at(cloud, deployment)
    order = replace(await order_from(provider, "nod_a"), disk="dsk-a")
    first = await provider.launch(order)
    await provider.terminate("nod_a", first.id, keep_disk=True)
    assert cloud.living(deployment) == []
    following = replace(order, tag="nod_b")
    for action in ("ModifyInstanceAttribute", "CreateTags", "StartInstances"):
        cloud.then(action, LosesAnswer())
        with pytest.raises(AgainLater):
            await provider.launch(following)
    second = await provider.launch(following)
    assert (second.id, second.tag) == (first.id, "nod_b")
    assert [one["InstanceId"] for one in cloud.living(deployment)] == [first.id]
    assert b"SKY_AGENT_NODE=nod_b" in cloud.user_data(first.id)
    await provider.terminate("nod_a", first.id)
    assert len(cloud.living(deployment)) == 1, "the end of the node before is not the end of this one"


async def test_a_disk_stays_with_its_type_of_machine(cloud: AwsCloud, deployment: str) -> None:
    provider = provider_at(cloud, deployment)
    order = replace(await order_from(provider, "nod_a"), disk="dsk-b")
    first = await provider.launch(order)
    await provider.terminate("nod_a", first.id, keep_disk=True)
    larger = replace(await order_from(provider, "nod_b", "t3.small"), disk="dsk-b")
    with pytest.raises(Refused, match=r"a t3\.micro") as refused:
        await provider.launch(larger)
    assert refused.value.code == "capability_mismatch"


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("terminated", "Server.SpotInstanceTermination", "preempted"),
        ("terminated", "Client.UserInitiatedShutdown", "ended"),
        ("terminated", "Client.InstanceInitiatedShutdown", "the machine has shut itself down"),
        ("terminated", "Server.Odd", "in their words"),
        ("running", "", None),
    ],
)
def test_why_a_machine_has_ended_is_told_in_words(state: str, code: str, said: str | None) -> None:
    instance = {
        "InstanceId": "i-1",
        "State": {"Name": state},
        "StateReason": {"Code": code, "Message": "in their words"},
    }
    assert machine_of(instance, "us-east-1", "nod_1").reason == said


def test_keys_come_in_pairs_and_a_region_has_one_place() -> None:
    with pytest.raises(ValueError, match="named twice"):
        AwsConfig(regions=("us-east-1", "us-east-1"))
    with pytest.raises(ValueError, match="us-west-2"):
        AwsConfig(subnets={"us-west-2": "subnet-12345678"})
    with pytest.raises(Refused) as refused:
        built({"access_key_id": "AKIAEXAMPLE"})
    assert refused.value.field == "credentials.secret_access_key"
    assert "AKIAEXAMPLE" not in refused.value.message


def test_without_its_package_the_kind_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(Refused, match=r"pip install 'skyfleet\[aws\]'"):
        built({})


async def test_what_was_bought_is_not_given_up_while_the_keys_are_refused(
    cloud: AwsCloud, deployment: str
) -> None:
    provider = provider_at(cloud, deployment)
    order = await order_from(provider, "nod_mine")
    machine = await provider.launch(order)
    for call in (
        lambda: provider.find(order.tag),
        lambda: provider.terminate(order.tag, machine.id),
        lambda: provider.remove_disk("dsk-mine"),
    ):
        cloud.then("DescribeInstances", Fails("AuthFailure"))
        with pytest.raises(AgainLater, match="AuthFailure"):
            await call()
    assert len(cloud.living(deployment)) == 1


@pytest.mark.parametrize(("ends_with", "tries"), [(0, 1), (97, 5)])
async def test_a_machine_becomes_what_it_is_told_now_and_ends_with_its_node(
    tmp_path: Path, ends_with: int, tries: int
) -> None:
    """What the service runs at each start of a machine, with a metadata service that says something new."""
    offer = Offer("ofr_1", "prv_aws", "aws", "aws", "t3.micro", 2, 1.0)
    order = LaunchOrder("nod_now", offer, "on_demand", AgentSetup(HERE, "t"), 60)
    told = user_data(order, None).decode()
    boot = told.partition("<<'END'\n")[2].partition("\nEND\n")[0]
    programs = tmp_path / "programs"
    (tmp_path / "skyfleet").mkdir()
    programs.mkdir()
    now = tmp_path / "now"
    now.write_bytes(gzip.compress(f'echo "ran $1" >>"$HOME/log"; exit {ends_with}\n'.encode()))
    curl = f'while [ "$#" -gt 0 ]; do [ "$1" = -o ] && cp {now} "$2"; shift; done; echo key'
    for name, text in (("curl", curl), ("shutdown", 'echo "$*" >>"$HOME/log"'), ("sleep", "true")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    environment = {"HOME": str(tmp_path), "PATH": f"{programs}:{os.environ['PATH']}"}
    done = await asyncio.create_subprocess_exec("sh", "-c", boot, env=environment)
    assert await done.wait() == 0
    assert (tmp_path / "log").read_text().splitlines() == ["ran node"] * tries + ["-h now"]
