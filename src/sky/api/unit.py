"""What every operation works with: the parts of a running daemon, and its settings.

Decides: which parts the faces may use, and their limits. Never: builds one (``server`` does).
Follows: an operation gets everything from here, so a test can run the faces over parts of its own.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from msgspec import Struct, field

from sky.api.channels import Channels
from sky.api.gauges import Gauges
from sky.api.masking import Masking
from sky.api.meeting import Meetings
from sky.api.selling import Selling, nothing_sold
from sky.api.traffic import Traffic
from sky.api.unwritten import Unwritten
from sky.domain.keeping import USUAL, Keeping
from sky.domain.provider import Rules
from sky.domain.user import USER, Role
from sky.kit.clock import Clock
from sky.kit.meters import Family
from sky.kit.signals import Signals
from sky.kit.version import CLIENT_RELEASE, VERSION
from sky.store.blobs import Blobs
from sky.store.db import Database
from sky.store.events import Hub
from sky.wire.admin import Setting
from sky.wire.requests import API_VERSION, MIN_COMPATIBLE_API_VERSION

Network = IPv4Network | IPv6Network
GIB = 1024**3
MIB = 1024**2
WAIT_SECONDS_MAX = 60
RECHECK_S = 1.0
"""How long a waiter trusts that it would have been told; then it looks again by itself."""

Check = Callable[[], Awaitable[bool]]


class ApiSettings(Struct, frozen=True):
    """What an operator may set about the faces.

    ``hosts`` are further names, with a port where that is not the usual one, that a request may be addressed
    to, beside the loopback names with the port that it came in on. ``token`` is what a caller other than
    ``owner_uid`` may bring, beside the tokens of users. ``spool`` is where a body is kept while it goes to
    several nodes. ``proxies`` are where a proxy may be (``behind_proxy``) that says who asks; whom it names
    is made a user of ``default_role``. ``log_file`` is where the daemon's own log is read. ``metrics_open``
    and ``metrics_token`` say who may read ``/metrics`` beside admins. ``told`` is what an admin is shown.
    """

    hosts: frozenset[str] = frozenset()
    token: str | None = None
    owner_uid: int = field(default_factory=os.getuid)
    blob_bytes_max: int = 5 * GIB
    body_bytes_max: int = 8 * MIB
    release: str = VERSION
    client_release: str = CLIENT_RELEASE
    base_url: Callable[[], str] = lambda: "http://127.0.0.1:7590"
    spool: Path | None = None
    behind_proxy: bool = False
    proxies: tuple[Network, ...] = ()
    default_role: Role = USER
    api_version: int = API_VERSION
    api_version_min: int = MIN_COMPATIBLE_API_VERSION
    log_file: Path | None = None
    metrics_open: bool = False
    metrics_token: str | None = None
    told: tuple[Setting, ...] = ()


class Services(Struct, frozen=True):
    """A running daemon's parts. ``ready`` says whether it can serve; ``dependencies`` what it stands on;
    ``counted`` what is counted of the loops, and ``loops`` why each has nothing to do when that is so."""

    db: Database
    blobs: Blobs
    signals: Signals
    hub: Hub
    clock: Clock
    rules: Rules
    settings: ApiSettings = field(default_factory=ApiSettings)
    ready: Mapping[str, Check] = field(default_factory=dict[str, Check])
    dependencies: Mapping[str, Check] = field(default_factory=dict[str, Check])
    started_us: int = 0
    selling: Selling = field(default_factory=nothing_sold)
    meetings: Meetings = field(default_factory=Meetings)
    channels: Channels = field(default_factory=Channels)
    gauges: Gauges = field(default_factory=Gauges)
    masking: Masking = field(default_factory=Masking)
    keeping: Keeping = USUAL
    traffic: Traffic = field(default_factory=Traffic)
    unwritten: Unwritten = field(default_factory=Unwritten)
    counted: Callable[[], Iterable[Family]] = tuple
    loops: Mapping[str, str] = field(default_factory=dict[str, str])
