"""What a pool of hosts over SSH is: its settings, and which host is reached by way of which.

Decides: names, limits and defaults; that names are told apart and that no way leads in a circle. Never: opens
a connection, or holds a secret: passwords and keys are credentials.
Follows: everything that is wrong is told when the pool is added, with the field that is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

HOSTS_MAX = 1_000
JUMPS_MAX = 5
SSH_PORT = 22
HOME = "~/.skyfleet"

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Address = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9.:%_-]*$")]
Port = Annotated[int, Meta(ge=1, le=65_535)]
User = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^\s@:]+$")]
Folder = Annotated[str, Meta(pattern=r"^(?:~/|/)[A-Za-z0-9._@+/ -]{1,500}$")]
HostKey = Annotated[
    str,
    Meta(max_length=2_000, pattern=r"^(?:SHA256:[A-Za-z0-9+/]{43}=?|[a-z0-9@.-]+ [A-Za-z0-9+/]+=*(?: .*)?)$"),
]
Price = Annotated[float, Meta(ge=0, le=1_000_000)]
Places = Annotated[int, Meta(ge=1, le=1_000)]
_GPUS = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9 ._-]{0,60}?)(?::(?P<count>[1-9][0-9]{0,2}))?$")
_WAY = re.compile(
    r"^(?:(?P<user>[^\s@:]+)@)?(?P<address>\[[0-9A-Fa-f:.%]+\]|[^\s@:\[\]]+)(?::(?P<port>[0-9]{1,5}))?$"
)


class Jump(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host on the way to others. ``jump``: on the way to this one. ``host_key``: see ``Host``."""

    name: Name
    address: Address | None = None
    port: Port = SSH_PORT
    user: User | None = None
    jump: str | None = None
    host_key: HostKey | None = None


class Host(Jump, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host of the pool; what is left out of its sizes is asked of the host itself.

    ``address``: None: its name. ``host_key``: a fingerprint (``SHA256:…``) or a public key; without one, that
    of the first connection is kept. ``jump``: the way to it: names of ``jumps`` or hosts, or
    ``user@address:port``, several with commas between. ``gpus``: ``A100:8``, or ``none``. ``max_nodes``: into
    how many equal nodes it is divided. ``home``: the folder of its nodes; ``price_per_hour_usd``: of all.
    """

    cpus: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    memory_gb: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    gpus: Annotated[str, Meta(pattern=_GPUS.pattern)] | None = None
    labels: dict[str, str] = {}
    max_nodes: Places | None = None
    home: Folder | None = None
    price_per_hour_usd: Price | None = None


class SshConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pool of hosts, and what holds for those of them that do not say otherwise.

    ``known_hosts``: lines of a known_hosts file. ``own_keys``: a host without a key or password of its own is
    tried with those of the daemon's user: its agent (SSH_AUTH_SOCK) and its files in ~/.ssh.
    ``daemon_url``: where hosts reach the daemon; ``tunnel``: whether they reach it through a tunnel that the
    daemon keeps over SSH: ``auto`` when they reach it no other way. ``apt``: images may install with apt.
    """

    hosts: Annotated[tuple[Host, ...], Meta(min_length=1, max_length=HOSTS_MAX)]
    jumps: Annotated[tuple[Jump, ...], Meta(max_length=HOSTS_MAX)] = ()
    user: User | None = None
    home: Folder = HOME
    max_nodes: Places = 1
    price_per_hour_usd: Price = 0.0
    known_hosts: Annotated[str, Meta(max_length=1_000_000)] | None = None
    own_keys: bool = True
    tunnel: Literal["auto", "always", "never"] = "auto"
    daemon_url: str | None = None
    apt: bool = False
    connect_seconds: Annotated[float, Meta(ge=0.5, le=120)] = 10.0
    call_seconds: Annotated[float, Meta(ge=1, le=100)] = 20.0
    keepalive_seconds: Annotated[float, Meta(ge=0.5, le=600)] = 10.0

    def __post_init__(self) -> None:
        names = [one.name for one in (*self.hosts, *self.jumps)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"hosts and jumps have names of their own; twice there: {', '.join(twice)}")
        if self.daemon_url is not None and urlsplit(self.daemon_url).scheme not in {"http", "https"}:
            raise ValueError(f"daemon_url is http:// or https://, not {self.daemon_url!r}")
        if self.tunnel == "never" and self.daemon_url is None:
            raise ValueError("tunnel: never needs daemon_url, an address of the daemon that the hosts reach")
        for host in self.hosts:
            ways(self, host)


@dataclass(frozen=True, slots=True)
class Place:
    """One host to log in to, and under which name its keys, its password and its host key are kept."""

    name: str
    address: str
    port: int
    user: str | None
    host_key: str | None = None

    @property
    def shown(self) -> str:
        """As people write it."""
        at = self.address if self.port == SSH_PORT else f"{self.address}:{self.port}"
        return at if self.name == self.address else f"{self.name} ({at})"


def ways(config: SshConfig, host: Jump) -> tuple[Place, ...]:
    """The places from here to ``host``, itself the last. Raises ValueError when there is no such way."""
    known: dict[str, Jump] = {one.name: one for one in (*config.jumps, *config.hosts)}
    return _ways(config, known, host, ())


def _ways(
    config: SshConfig, known: dict[str, Jump], host: Jump, behind: tuple[str, ...]
) -> tuple[Place, ...]:
    if host.name in behind:
        raise ValueError(
            f"host {behind[0]!r}: the way leads in a circle: {' by '.join((*behind, host.name))}"
        )
    if len(behind) > JUMPS_MAX:
        raise ValueError(f"host {behind[0]!r}: more than {JUMPS_MAX} jumps")
    before: tuple[Place, ...] = ()
    for text in (part.strip() for part in (host.jump or "").split(",")):
        if text in known:
            before += _ways(config, known, known[text], (*behind, host.name))
        elif text:
            before += (_written(config, host.name, text),)
    if len(before) > JUMPS_MAX:
        raise ValueError(f"host {host.name!r}: more than {JUMPS_MAX} jumps")
    address = host.address or host.name
    return (*before, Place(host.name, address, host.port, host.user or config.user, host.host_key))


def _written(config: SshConfig, name: str, text: str) -> Place:
    match = _WAY.match(text)
    if match is None:
        raise ValueError(
            f"host {name!r}: jump: {text!r} is neither the name of a jump or host nor [user@]address[:port]"
        )
    address = match["address"].strip("[]")
    port = int(match["port"] or SSH_PORT)
    return Place(text, address, port, match["user"] or config.user)


def parse_gpus(text: str) -> tuple[str | None, int]:
    """The name and the number in ``A100:8``; ``none`` is none."""
    match = _GPUS.match(text)
    if match is None or text.lower() == "none":
        return None, 0
    return match["name"], int(match["count"] or 1)
