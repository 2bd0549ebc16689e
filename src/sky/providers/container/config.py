"""What a person sets for a container engine, and which of it is wrong before anything is asked.

Decides: names, limits and defaults. Never: asks an engine. Follows: a mistake is refused when the provider is
added, with the field and the value.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from sky.providers.base import Refused
from sky.providers.container.place import parse

Text = Annotated[str, Meta(min_length=1, max_length=500)]
CREDENTIALS = ("ca", "cert", "key", "registry_username", "registry_password")
DEFAULT_IMAGE = "docker.io/library/python:3.12-slim"
HOST = "host"
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MOUNT = re.compile(r"(?P<source>/[^:]*|[A-Za-z0-9][A-Za-z0-9_.-]*):(?P<target>/[^:]+)(?P<mode>:ro|:rw)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_URL = re.compile(r"https?://[^\s/]+/?")
OWN_VARIABLES = "SKY_AGENT_"


class ContainerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a container engine as a provider.

    ``engine``: ``unix:///PATH`` or ``tcp://HOST:PORT``; None: the engine of this computer. ``image``: of
    nodes whose spec names none. ``pull``: when an image is fetched. ``network``: ``host``, or a network of
    the engine. ``daemon_url``: where containers reach this daemon, if not at its own address. ``mounts``:
    ``SOURCE:TARGET`` or ``SOURCE:TARGET:ro``, a folder of the engine's computer or a named volume.
    ``environment``: variables of every node. ``registry``: which registry the credentials are for.
    ``price_per_hour_usd``: what the whole computer costs; a node costs its share. ``max_nodes``: how many run
    at once. ``accelerator``, ``accelerator_count``, ``accelerator_memory_gb``: what the computer has;
    ``accelerator_device``: how the engine calls one, before ``=`` and its number.
    """

    engine: Text | None = None
    image: Text = DEFAULT_IMAGE
    pull: Annotated[str, Meta(pattern="^(missing|always|never)$")] = "missing"
    network: Text = HOST
    daemon_url: Text | None = None
    mounts: Annotated[tuple[Text, ...], Meta(max_length=50)] = ()
    environment: Annotated[dict[str, Annotated[str, Meta(max_length=5_000)]], Meta(max_length=100)] = {}
    registry: Text = "docker.io"
    price_per_hour_usd: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    max_nodes: Annotated[int, Meta(ge=1, le=1_000)] = 64
    accelerator: Text | None = None
    accelerator_count: Annotated[int, Meta(ge=0, le=64)] = 0
    accelerator_memory_gb: Annotated[float, Meta(gt=0, le=10_000)] | None = None
    accelerator_device: Text = "nvidia.com/gpu"

    def __post_init__(self) -> None:
        _check_engine(self.engine)
        if not _NETWORK.fullmatch(self.network):
            raise ValueError(f"network: {self.network!r} is neither host nor the name of a network")
        if self.daemon_url is not None and not _URL.fullmatch(self.daemon_url):
            raise ValueError(f"daemon_url: {self.daemon_url!r} is no address such as http://10.0.0.5:7590")
        for mount in self.mounts:
            if not _MOUNT.fullmatch(mount):
                raise ValueError(
                    f"mounts: {mount!r} is not SOURCE:TARGET or SOURCE:TARGET:ro, with absolute paths"
                )
        for name in self.environment:
            if not _VARIABLE.fullmatch(name) or name.startswith(OWN_VARIABLES):
                raise ValueError(f"environment: {name!r} cannot be the name of a variable here")
        if not _DEVICE.fullmatch(self.accelerator_device):
            raise ValueError(f"accelerator_device: {self.accelerator_device!r} is no VENDOR/CLASS of devices")
        if (self.accelerator is None) != (self.accelerator_count == 0):
            raise ValueError("accelerator and accelerator_count are set together, or neither")


def _check_engine(address: str | None) -> None:
    """An address is checked for its form; whether its credentials fit is known when it is asked."""
    if address is None:
        return
    try:
        parse(address, {}, "engine")
    except Refused as refused:
        if "without TLS" not in refused.message:
            raise ValueError(refused.message) from None
