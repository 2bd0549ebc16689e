"""What a person sets for EC2: where, what, from which image, and how machines find the daemon.

Decides: names, types and limits of the settings. Never: asks AWS whether a thing that is named exists.
Follows: with nothing but credentials and ``daemon_url``, the rest is made: the newest image, a group that
lets nobody in, a disk that is encrypted.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Region = Annotated[str, Meta(pattern=r"^[a-z]{2,3}(-[a-z]+){1,3}-[0-9]{1,2}$")]
Url = Annotated[str, Meta(pattern=r"^https?://[^\s]+$", max_length=500)]
Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[\w+=,.@/-]+$")]
UBUNTU = "ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
WITH_DRIVERS = (
    "ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
)
Subnet = Annotated[str, Meta(pattern=r"^subnet-[0-9a-f]{8,17}$")]
Groups = Annotated[tuple[Annotated[str, Meta(pattern=r"^sg-[0-9a-f]{8,17}$")], ...], Meta(max_length=5)]
Families = Annotated[tuple[Annotated[str, Meta(pattern=r"^[a-z0-9.-]{1,32}$")], ...], Meta(max_length=64)]
Image = Annotated[str, Meta(pattern=r"^(ami-[0-9a-f]{8,17}|ssm:/[\w./-]{1,400})$")]


class AwsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of an AWS account as a provider.

    ``regions``: where machines are bought. ``families``: only types of these families (``g5``, ``t3``), or
    these types (``p4d.24xlarge``); empty: all. ``daemon_url``: where machines reach this daemon.

    ``image``, ``gpu_image``: ``ami-...``, or ``ssm:`` and the name of a parameter that holds one; the second
    is for machines with accelerators. An image needs systemd, cloud-init and curl.

    ``subnets``, ``security_groups``: by region; without them, the default network, and a group of our own
    which admits only machines that are in it. ``key_name``: a key pair for SSH past this daemon; none by
    default. ``instance_profile``: the role that machines have. ``disk_gb``, ``disk_type``: of each machine.
    ``spot_max_usd``: no spot machine above this price an hour. ``profile``: of the AWS configuration files.
    ``live_prices``: ask AWS's own price list. ``endpoint_url``: another service that speaks as EC2 does.
    """

    regions: Annotated[tuple[Region, ...], Meta(min_length=1, max_length=32)] = ("us-east-1",)
    families: Families = ()
    daemon_url: Url | None = None
    image: Image = UBUNTU
    gpu_image: Image = WITH_DRIVERS
    subnets: dict[Region, Subnet] = {}
    security_groups: dict[Region, Groups] = {}
    key_name: Name | None = None
    instance_profile: Name | None = None
    disk_gb: Annotated[int, Meta(ge=8, le=16_384)] = 128
    disk_type: Literal["gp3", "gp2"] = "gp3"
    spot_max_usd: Annotated[float, Meta(gt=0, le=1_000)] | None = None
    profile: Name | None = None
    live_prices: bool = True
    endpoint_url: Url | None = None

    def __post_init__(self) -> None:
        if len(set(self.regions)) != len(self.regions):
            raise ValueError(f"regions: one is named twice in {', '.join(self.regions)}")
        for field, named in (("subnets", self.subnets), ("security_groups", self.security_groups)):
            for region in named:
                if region not in self.regions:
                    raise ValueError(f"{field}: {region!r} is not among regions, {', '.join(self.regions)}")
