"""What every provider of machines is to the rest of the product.

Decides: the calls, what goes in and out of them, and the three ways in which they may fail.
Never: retries, remembers, or looks at a compute; and no call waits for a machine to become ready.
Follows: a machine carries the id of its node as its tag, which was stored before anything was bought. So
every call may be repeated after a lost answer: ``launch`` with the same tag is the same machine, and
``terminate`` of what is already gone is done.

    offers()                 what could be bought now
    launch(order)            buy, or find again what this tag has bought
    find(tag)                the machine of that tag, or None when there is none (any more)
    machines()               all machines of this deployment, for what no row owns
    terminate(tag, id)       ask for its end; returns when the request was taken, ``find`` tells the rest

and of a kind that keeps disks, for which an order may name one that outlives its machine:

    disks()                  the names of all disks of this deployment
    remove_disk(name)        the end of one; refused for now while a machine may still use it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, cast

import msgspec

from sky.domain.offer import Market, Offer
from sky.kit.clock import Clock

MachineState = Literal["pending", "running", "gone"]
RefusedCode = Literal[
    "unsupported_provider",
    "invalid_request",
    "unauthorized",
    "capability_mismatch",
    "quota",
    "capacity",
]
AGAIN_AFTER_S = 5.0


class ProviderError(Exception):
    """What a provider may raise, and nothing else:

    ProviderError
    ├── AgainLater   it may have happened or not; the same call later will tell
    ├── Refused      it did not happen, and the same call would be refused again
    └── Gone         what the call was about is no longer there
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class AgainLater(ProviderError):
    """Not now: no answer, too many calls, an outage. Try the same call in ``after_s`` seconds."""

    def __init__(self, message: str, after_s: float = AGAIN_AFTER_S) -> None:
        super().__init__(message)
        self.after_s = after_s


class Refused(ProviderError):
    """No, and for certain nothing was bought.

    ``quota`` and ``capacity``: this offer is not to be had now, another may be. ``capability_mismatch``:
    this offer cannot be launched like that. ``unauthorized``: the credentials are wrong.
    ``invalid_request``: the configuration is wrong, and ``field`` says where. ``unsupported_provider``:
    there is no such kind.
    """

    def __init__(self, message: str, code: RefusedCode, *, field: str | None = None) -> None:
        super().__init__(message)
        self.code: RefusedCode = code
        self.field = field


class Gone(ProviderError):
    """What the call named has existed and is no longer there, such as an offer that was withdrawn."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine as its provider sees it.

    ``reason`` says why it is gone (``preempted``, ``ended``, or a sentence). ``binding`` is what a person
    needs to find it at the provider; it is shown to clients and never holds a secret. ``provider_id`` is the
    row through which it was bought, where that is known: several rows may list the same machines.
    """

    id: str
    tag: str
    state: MachineState
    address: str | None = None
    launched_us: int | None = None
    reason: str | None = None
    binding: dict[str, Any] = field(default_factory=dict[str, Any])
    provider_id: str | None = None


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """What a new machine's agent needs in order to call home.

    ``url`` is the daemon's; ``url_file`` names a file on this computer that holds the current one, for
    machines that can read it. ``spec`` becomes the agent's JSON file of image, worker and sizes.
    """

    url: str
    token: str = field(repr=False)
    url_file: str | None = None
    spec: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One machine to buy. ``tag`` is the node's id.

    ``ttl_seconds``: how long the machine may live without reaching any daemon; then it ends itself, so
    that a purchase that everybody forgot does not cost for ever. 0 means that it never does.

    ``disk``: the name of a disk that stays when the machine is gone, made if there is none of that name. What
    the machine's calls and commands write into their working folder is on it. None: nothing stays. Only a
    kind that keeps disks is given one.
    """

    tag: str
    offer: Offer
    market: Market
    agent: AgentSetup
    ttl_seconds: int
    disk: str | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What machines of a kind can do.

    ``settle_seconds``: how long a launched machine may be missing from ``find`` and ``machines`` before
    that means that it is gone. ``can_tell_death``: ``find`` notices by itself when a machine has died.
    ``clustering``: nodes of one compute can reach each other. ``apt_setting``: the setting of the
    configuration, a boolean, that allows apt where it is not allowed without. ``keeps_disks``: a disk can
    outlive its machine, and be given to the next one; ``spot_keeps_disks``: of machines of the spot market
    too; ``disk_setting``: the setting of the configuration without which none is kept. ``open_ports``: who
    reaches this server reaches a port that a machine listens on, under the machine's address.
    """

    volumes: bool = False
    apt: bool = False
    base_image: bool = False
    clustering: bool = False
    includes: bool = True
    settle_seconds: float = 60.0
    can_tell_death: bool = True
    apt_setting: str | None = None
    keeps_disks: bool = False
    spot_keeps_disks: bool = True
    disk_setting: str | None = None
    open_ports: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """Where a provider runs: the state folder, the name of this deployment, and the clock.

    ``own_url``: where this daemon is for those on this computer; None: there is no daemon.
    """

    home: Path
    deployment: str
    clock: Clock
    own_url: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """What a provider is made from. ``config`` is an instance of its ``config_fields``."""

    provider_id: str
    name: str
    config: msgspec.Struct
    credentials: Mapping[str, str] = field(repr=False)
    context: Context


class Provider(Protocol):
    """A place to get machines from. One object per row; several may exist for one row at once."""

    kind: ClassVar[str]
    credential_fields: ClassVar[tuple[str, ...]]
    offers_ttl_seconds: ClassVar[int]
    config_fields: ClassVar[type[msgspec.Struct]]
    capabilities: ClassVar[Capabilities]

    def __init__(self, setup: Setup) -> None: ...

    async def offers(self) -> tuple[Offer, ...]:
        """All that could be bought now. Raises AgainLater, Refused."""
        ...

    async def launch(self, order: LaunchOrder) -> Machine:
        """Buy a machine for ``order.tag``, or return the one this tag has, running or not.

        Returns as soon as there is a machine to name. Raises AgainLater (it may have been bought; the
        same order will find it; or another machine still uses its disk), Refused (nothing was bought), Gone
        (the offer was withdrawn).
        """
        ...

    async def machines(self) -> tuple[Machine, ...]:
        """Every machine of this deployment that the provider still knows. Raises AgainLater, Refused."""
        ...

    async def find(self, tag: str) -> Machine | None:
        """The machine of that tag; None when it was never bought or is forgotten. Raises AgainLater."""
        ...

    async def terminate(self, tag: str, machine_id: str | None) -> None:
        """Ask for the end of a machine; already gone, or never there, counts as done.

        Returns within about a second, when the request was taken: it costs until ``find`` says ``gone``
        or None. ``machine_id`` is None when no answer to ``launch`` was ever seen. Raises AgainLater.

        A kind that keeps disks takes ``keep_disk`` as well: True means that the disk which the order named
        must stay; False that it may go with its machine, or wait for ``remove_disk``.
        """
        ...


class DiskKeeper(Provider, Protocol):
    """A provider whose disks can outlive their machines (``capabilities.keeps_disks``)."""

    async def terminate(self, tag: str, machine_id: str | None, *, keep_disk: bool = False) -> None: ...

    async def disks(self) -> tuple[str, ...]:
        """The names of all disks of this deployment, used or not. Raises AgainLater, Refused."""
        ...

    async def remove_disk(self, name: str) -> None:
        """Remove a disk; already gone, or never there, counts as done.

        Raises AgainLater while a machine that has not ended may use it.
        """
        ...


def keeper_of(provider: Provider) -> DiskKeeper | None:
    """The provider as one that keeps disks; None when it does not."""
    return cast("DiskKeeper", provider) if provider.capabilities.keeps_disks else None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of provider that this build knows, and how one of it is made. ``load`` loads what takes long to
    load and ``create`` needs, in a thread; None: nothing does."""

    kind: str
    credential_fields: tuple[str, ...]
    offers_ttl_seconds: int
    config_fields: type[msgspec.Struct]
    capabilities: Capabilities
    create: Callable[[Setup], Provider] = field(repr=False)
    load: Callable[[], object] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, provider: type[Provider], create: Callable[[Setup], Provider] | None = None) -> Kind:
        """The kind that a provider class describes; ``create`` replaces its constructor."""
        return cls(
            kind=provider.kind,
            credential_fields=provider.credential_fields,
            offers_ttl_seconds=provider.offers_ttl_seconds,
            config_fields=provider.config_fields,
            capabilities=provider.capabilities,
            create=create or provider,
        )
