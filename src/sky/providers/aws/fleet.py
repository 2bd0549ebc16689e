"""The machines of one deployment in one AWS account: bought, found, stopped, ended.

Decides: how a tag stays one machine: AWS is handed a token made from it, and it is written on the machine
in the call that buys it. A disk is the machine that has it: kept, the end of a machine is a stop, and the
next one is the same one, started under its new tag. Never: waits for a machine, or asks a region that a
call is not about. Follows: what a lost answer has bought is found by its tag; a region that does not answer
is no machine that is gone.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from sky.providers.aws.api import Api
from sky.providers.aws.config import AwsConfig
from sky.providers.aws.ground import Ground
from sky.providers.aws.instances import (
    DEPLOYMENT,
    DISK,
    NODE,
    THERE,
    as_tags,
    filters,
    is_spot,
    state_of,
    tags_of,
)
from sky.providers.aws.userdata import user_data
from sky.providers.base import AgainLater, LaunchOrder, ProviderError, Refused

USED_AGAIN_S = 2.0
INSTANCES_A_PAGE = 1000


class Found(NamedTuple):
    """An instance, and the region it is in."""

    region: str
    instance: dict[str, Any]


class Fleet:
    """Raises ProviderError."""

    def __init__(self, api: Api, config: AwsConfig, ground: Ground, deployment: str) -> None:
        self._api = api
        self._config = config
        self._ground = ground
        self._deployment = deployment

    async def launch(self, order: LaunchOrder) -> Found:
        """The machine of that tag, bought or started if there is none."""
        region = order.offer.region or self._config.regions[0]
        told = await asyncio.to_thread(user_data, order, self._config.daemon_url)
        known = _latest(await self._in(region, node=order.tag))
        if known is not None and (order.disk is None or state_of(known) != "stopped"):
            return Found(region, known)
        if order.disk is not None:
            kept = _latest(await self._in(region, disk=order.disk, instance_state_name=list(THERE)))
            if kept is not None:
                return Found(region, await self._start(region, kept, order, told))
        return Found(region, await self._buy(region, order, told))

    async def find(self, tag: str) -> Found | None:
        """The machine of that tag, in whichever region; None when there is none in any."""
        found = await self._anywhere(lambda region: self._in(region, node=tag))
        return None if found is None else Found(found[0], _latest(found[1]) or {})

    async def all(self) -> list[Found]:
        """Every machine of the deployment; all regions have answered."""
        return [one for region in await self._each(self._in) for one in region]

    async def end(self, tag: str, *, keep_disk: bool) -> None:
        """Ask for the end of that machine; what is gone, or never was, is done."""
        found = await self.find(tag)
        if found is None:
            return
        region, instance = found
        named = [instance["InstanceId"]]
        state = state_of(instance)
        if keep_disk and DISK in tags_of(instance) and not is_spot(instance):
            if state in ("pending", "running"):
                await self._api.call(region, "ec2", "stop_instances", InstanceIds=named)
        elif state in THERE:
            await self._api.call(region, "ec2", "terminate_instances", InstanceIds=named)

    async def disks(self) -> tuple[str, ...]:
        """The disks of all machines that are there, running or stopped."""
        names = {
            tags_of(one.instance).get(DISK) for one in await self.all() if state_of(one.instance) in THERE
        }
        return tuple(sorted(name for name in names if name is not None))

    async def remove_disk(self, name: str) -> None:
        """End the stopped machine that has that disk. Raises AgainLater while it has not stopped."""
        wanted: dict[str, str | list[str]] = {"disk": name, "instance_state_name": list(THERE)}
        for region, instance in [
            one for found in await self._each(lambda region: self._in(region, **wanted)) for one in found
        ]:
            state, machine = state_of(instance), instance["InstanceId"]
            if state != "stopped":
                raise AgainLater(f"disk {name} is still used by {machine}, which is {state}", USED_AGAIN_S)
            await self._api.call(region, "ec2", "terminate_instances", InstanceIds=[machine])

    # ── buying and starting ─────────────────────────────────────────────────────────────────────

    async def _buy(self, region: str, order: LaunchOrder, told: bytes) -> dict[str, Any]:
        config, offer = self._config, order.offer
        gpu = offer.accelerator is not None
        keeps = order.disk is not None and order.market == "on_demand"
        image = await self._ground.image(region, config.gpu_image if gpu else config.image)
        tags = {
            "Name": f"skyfleet-{order.tag}",
            DEPLOYMENT: self._deployment,
            NODE: order.tag,
            **({} if order.disk is None else {DISK: order.disk}),
        }
        disk = {"VolumeSize": config.disk_gb, "VolumeType": config.disk_type, "Encrypted": True}
        request: dict[str, Any] = {
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": _token(self._deployment, order.tag, region, offer.instance_type, order.market),
            "ImageId": image.id,
            "InstanceType": offer.instance_type,
            "UserData": told,
            "SecurityGroupIds": list(await self._ground.groups(region)),
            # A machine that forgets us shuts itself down: by that it ends, or, with a disk to keep, stops.
            "InstanceInitiatedShutdownBehavior": "stop" if keeps else "terminate",
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "BlockDeviceMappings": [
                {"DeviceName": image.root_device, "Ebs": {**disk, "DeleteOnTermination": True}}
            ],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": as_tags(tags)} for kind in ("instance", "volume")
            ],
        }
        if order.market == "spot":
            price = {} if config.spot_max_usd is None else {"MaxPrice": f"{config.spot_max_usd:.6f}"}
            request["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                    **price,
                },
            }
        if region in config.subnets:
            request["SubnetId"] = config.subnets[region]
        if config.key_name is not None:
            request["KeyName"] = config.key_name
        if config.instance_profile is not None:
            request["IamInstanceProfile"] = {"Name": config.instance_profile}
        try:
            answer = await self._api.call(region, "ec2", "run_instances", **request)
        except Refused as refused:
            # The group or the image that was known may have been removed; the next launch reads them anew.
            self._ground.forget(region)
            if refused.field == "config.image" and gpu:
                raise Refused(refused.message, refused.code, field="config.gpu_image") from None
            raise
        return answer["Instances"][0]

    async def _start(
        self, region: str, instance: dict[str, Any], order: LaunchOrder, told: bytes
    ) -> dict[str, Any]:
        """Give a stopped machine to a node. It has its tag before it runs: what runs is somebody's."""
        machine, state = instance["InstanceId"], state_of(instance)
        if state != "stopped":
            raise AgainLater(f"disk {order.disk} is still used by {machine}, which is {state}", USED_AGAIN_S)
        if instance["InstanceType"] != order.offer.instance_type:
            wanted = order.offer.instance_type
            msg = f"disk {order.disk} is on {machine}, which is a {instance['InstanceType']}, not a {wanted}"
            raise Refused(msg, "capability_mismatch")
        call = self._api.call
        await call(region, "ec2", "modify_instance_attribute", InstanceId=machine, UserData={"Value": told})
        tags = {NODE: order.tag, "Name": f"skyfleet-{order.tag}"}
        await call(region, "ec2", "create_tags", Resources=[machine], Tags=as_tags(tags))
        await call(region, "ec2", "start_instances", InstanceIds=[machine])
        return {**instance, "State": {"Name": "pending"}}

    # ── looking ─────────────────────────────────────────────────────────────────────────────────

    async def _in(self, region: str, **wanted: str | list[str]) -> list[Found]:
        reservations = await self._api.pages(
            region,
            "ec2",
            "describe_instances",
            "Reservations",
            Filters=filters(deployment=self._deployment, **wanted),
            MaxResults=INSTANCES_A_PAGE,
        )
        return [Found(region, one) for each in reservations for one in each["Instances"]]

    async def _each(self, look: Callable[[str], Awaitable[list[Found]]]) -> list[list[Found]]:
        """What every region answers, all at once; the first failure is everybody's."""
        return await asyncio.gather(*(look(region) for region in self._config.regions))

    async def _anywhere(
        self, look: Callable[[str], Awaitable[list[Found]]]
    ) -> tuple[str, list[Found]] | None:
        """The first region that has something; one that does not answer keeps nobody from finding it."""
        looking = [asyncio.ensure_future(look(region)) for region in self._config.regions]
        failure: ProviderError | None = None
        try:
            for done in asyncio.as_completed(looking):
                try:
                    found = await done
                except ProviderError as error:
                    failure = error
                    continue
                if found:
                    return found[0].region, found
        finally:
            for one in looking:
                one.cancel()
            await asyncio.gather(*looking, return_exceptions=True)
        if failure is not None:
            raise failure
        return None


def _latest(found: list[Found]) -> dict[str, Any] | None:
    """Of several, which ought not to be, one that is there before one that has ended."""
    instances = [one.instance for one in found]
    return max(instances, key=lambda one: (state_of(one) in THERE, str(one.get("LaunchTime"))), default=None)


def _token(*parts: str) -> str:
    """What AWS knows a purchase by: as often as it is asked for, it is made once."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
