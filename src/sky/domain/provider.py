"""What a build knows of providers, for rules that must refuse before anything is written.

Decides: the shape of that knowledge. Never: holds a provider. Follows: a verb can say no to a spec that no
provider here could serve, without talking to one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from sky.domain.task import CANCEL_CONFIRM_US


class Abilities(Struct, frozen=True):
    """What machines of a kind can do beyond running calls.

    ``apt_setting``: the setting of a provider's configuration that allows apt where the kind does not.
    ``open_ports``: a port that a machine listens on can be reached from here.
    ``keeps_disks``: what is on a machine's disk can stay when the machine is given back;
    ``spot_keeps_disks``: of one of the spot market too; ``disk_setting``: where this setting is made.
    """

    volumes: bool = False
    apt: bool = False
    base_image: bool = False
    cluster: bool = False
    includes: bool = False
    apt_setting: str | None = None
    keeps_disks: bool = False
    spot_keeps_disks: bool = True
    disk_setting: str | None = None
    open_ports: bool = False

    def keeps_disk_of(self, market: str | None) -> bool:
        """Whether the disk of a machine of that market can outlive it."""
        return self.keeps_disks and (market != "spot" or self.spot_keeps_disks)


class KindInfo(Struct, frozen=True):
    """One kind of provider. ``check_config`` returns what is wrong with a configuration, or None."""

    kind: str
    credential_fields: tuple[str, ...]
    offers_ttl_seconds: int
    abilities: Abilities
    check_config: Callable[[Mapping[str, Any]], str | None]


class Rules(Struct, frozen=True):
    """Everything of this build that a verb may have to hold a request against.

    ``cancel_confirm_us``: how long a node has to confirm that it stopped a call.
    """

    kinds: Mapping[str, KindInfo] = field(default_factory=dict[str, KindInfo])
    seal: Callable[[Mapping[str, str]], bytes] = field(default=lambda credentials: repr(credentials).encode())
    cancel_confirm_us: int = CANCEL_CONFIRM_US
