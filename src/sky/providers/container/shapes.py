"""What an engine tells of its computer, its containers and its volumes: the part of it that is read here.

Decides: nothing. Never: passes over a field of another type than it should have. Follows: docker and podman
are read alike; what one of them leaves out has a default.
"""

from __future__ import annotations

import msgspec

Labels = dict[str, str] | None


class _Told(msgspec.Struct, frozen=True, rename="pascal"):
    """Fields begin with a capital letter, as an engine writes them."""


class Image(_Told, frozen=True):
    """An image that is there."""

    id: str


class Info(_Told, frozen=True):
    """An engine's computer. Memory in bytes."""

    mem_total: int
    ncpu: int = msgspec.field(name="NCPU")
    architecture: str = ""


class Component(_Told, frozen=True):
    """One of the programs that an engine is made of."""

    name: str = ""


class Version(_Told, frozen=True):
    """What an engine is made of."""

    components: tuple[Component, ...] | None = None


class Listed(_Told, frozen=True):
    """A container in a listing."""

    id: str
    state: str
    labels: Labels = None

    def label(self, name: str) -> str | None:
        return (self.labels or {}).get(name)


class State(_Told, frozen=True):
    """How a container is. ``finished_at``: RFC 3339; a moment long ago for one that has not ended."""

    status: str
    exit_code: int = 0
    oom_killed: bool = msgspec.field(name="OOMKilled", default=False)
    error: str = ""
    finished_at: str = ""


class Config(_Told, frozen=True):
    """What a container was made from."""

    image: str = ""
    labels: Labels = None


class HostConfig(_Told, frozen=True):
    """What a container may use. Memory in bytes."""

    memory: int = 0


class Attached(_Told, frozen=True):
    """A container in a network."""

    ip_address: str = msgspec.field(name="IPAddress", default="")


class NetworkSettings(_Told, frozen=True):
    """Where a container is reached."""

    ip_address: str = msgspec.field(name="IPAddress", default="")
    networks: dict[str, Attached] | None = None


class Inspected(_Told, frozen=True):
    """A container."""

    id: str
    name: str
    state: State
    config: Config = Config()
    host_config: HostConfig = HostConfig()
    network_settings: NetworkSettings = NetworkSettings()

    def label(self, name: str) -> str | None:
        return (self.config.labels or {}).get(name)


class Volume(_Told, frozen=True):
    """A volume."""

    name: str
    labels: Labels = None


class Volumes(_Told, frozen=True):
    """A listing of volumes."""

    volumes: tuple[Volume, ...] | None = None
