"""What a machine needs to be there before it is bought: an image, and a group that decides who may reach it.

Decides: which image a parameter holds now, and the one group of this deployment in a network. Never: lets
anybody in but machines of that group. Follows: made twice at once, a group is one group; what was read is
kept for a while, so that most launches are one call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sky.kit.clock import SECOND_US, Clock
from sky.providers.aws.api import Api
from sky.providers.aws.config import AwsConfig
from sky.providers.aws.instances import DEPLOYMENT, as_tags
from sky.providers.base import Refused

IMAGE_KEPT_S = 3600


class Image(NamedTuple):
    """An image, and under which name it has its disk."""

    id: str
    root_device: str


class Ground:
    """For one account. Raises ProviderError."""

    def __init__(self, api: Api, config: AwsConfig, deployment: str, clock: Clock) -> None:
        self._api = api
        self._config = config
        self._deployment = deployment
        self._clock = clock
        self._images: dict[tuple[str, str], tuple[int, Image]] = {}
        self._groups: dict[str, str] = {}

    async def image(self, region: str, named: str) -> Image:
        """The image of that name in a region."""
        kept = self._images.get((region, named))
        now_us = self._clock.now_us()
        if kept is not None and kept[0] > now_us:
            return kept[1]
        found = named
        if named.startswith("ssm:"):
            name = named.removeprefix("ssm:")
            answer = await self._api.call(region, "ssm", "get_parameter", Name=name)
            found = str(answer["Parameter"]["Value"])
        images = await self._listed(region, "describe_images", "Images", ImageIds=[found])
        if not images:
            msg = f"AWS, {region}: the image {found} is not there; an image belongs to one region"
            raise Refused(msg, "invalid_request", field="config.image")
        image = Image(found, images[0].get("RootDeviceName") or "/dev/sda1")
        self._images[region, named] = (now_us + IMAGE_KEPT_S * SECOND_US, image)
        return image

    async def groups(self, region: str) -> tuple[str, ...]:
        """The security groups of a machine in that region."""
        named = self._config.security_groups.get(region)
        if named:
            return named
        if region not in self._groups:
            self._groups[region] = await self._own_group(region)
        return (self._groups[region],)

    def forget(self, region: str) -> None:
        """What was read of a region may no longer be so."""
        self._groups.pop(region, None)
        for key in [key for key in self._images if key[0] == region]:
            del self._images[key]

    async def _own_group(self, region: str) -> str:
        network = await self._network(region)
        name = f"skyfleet-{self._deployment}"
        group = await self._group(region, network, name)
        if group is None:
            try:
                made = await self._api.call(
                    region,
                    "ec2",
                    "create_security_group",
                    GroupName=name,
                    Description="Machines of a Skyfleet deployment; only they reach each other",
                    VpcId=network,
                    TagSpecifications=[
                        {"ResourceType": "security-group", "Tags": as_tags({DEPLOYMENT: self._deployment})}
                    ],
                )
                group = {"GroupId": made["GroupId"]}
            except Refused as refused:
                if "InvalidGroup.Duplicate" not in refused.message:
                    raise
                group = await self._group(region, network, name)
                if group is None:
                    raise
        await self._admit_itself(region, group)
        return str(group["GroupId"])

    async def _network(self, region: str) -> str:
        subnet = self._config.subnets.get(region)
        if subnet is not None:
            answer = await self._api.call(region, "ec2", "describe_subnets", SubnetIds=[subnet])
            return str(answer["Subnets"][0]["VpcId"])
        default = [{"Name": "is-default", "Values": ["true"]}]
        networks = await self._listed(region, "describe_vpcs", "Vpcs", Filters=default)
        if not networks:
            msg = f"AWS, {region}: the account has no default network there; name a subnet of it in subnets"
            raise Refused(msg, "invalid_request", field="config.subnets")
        return str(networks[0]["VpcId"])

    async def _group(self, region: str, network: str, name: str) -> dict[str, Any] | None:
        wanted = [{"Name": "group-name", "Values": [name]}, {"Name": "vpc-id", "Values": [network]}]
        groups = await self._listed(region, "describe_security_groups", "SecurityGroups", Filters=wanted)
        return groups[0] if groups else None

    async def _listed(self, region: str, operation: str, key: str, **wanted: Any) -> list[dict[str, Any]]:
        answer = await self._api.call(region, "ec2", operation, **wanted)
        return answer.get(key) or []

    async def _admit_itself(self, region: str, group: dict[str, Any]) -> None:
        """Machines of one deployment reach each other; nobody else reaches them."""
        if group.get("IpPermissions"):
            return
        own = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group["GroupId"]}]}]
        try:
            await self._api.call(
                region,
                "ec2",
                "authorize_security_group_ingress",
                GroupId=group["GroupId"],
                IpPermissions=own,
            )
        except Refused as refused:
            if "InvalidPermission.Duplicate" not in refused.message:
                raise
