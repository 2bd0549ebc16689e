"""A world that outlives the daemon: every purchase and every end is a line of a file.

Decides: what of a world is written down, and how it is read back. Never: what happens in it.
Follows: a daemon that was killed finds the machines it had bought, as it would with a real provider. A line
cut short by a kill was never answered for, so it is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from sky.domain.offer import Market
from sky.providers.base import LaunchOrder, Machine
from sky.providers.fake.cloud import FakeCloud


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One machine was bought, or ended; or a disk (``tag``) was removed."""

    what: Literal["bought", "ended", "removed"]
    tag: str
    instance_type: str = ""
    region: str | None = None
    market: Market = "on_demand"
    disk: str | None = None


class Kept:
    """The file of one world."""

    def __init__(self, path: Path, cloud: FakeCloud, deployment: str, provider_id: str) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists():
            _restore(cloud, path.read_bytes(), deployment, provider_id)
        cloud.on_launch = self._bought
        cloud.on_end = self._ended
        cloud.disks.on_remove = self._removed

    async def _bought(self, order: LaunchOrder, _machine: Machine) -> None:
        offer = order.offer
        self._add(Line("bought", order.tag, offer.instance_type, offer.region, order.market, order.disk))

    async def _ended(self, tag: str) -> None:
        self._add(Line("ended", tag))

    async def _removed(self, disk: str) -> None:
        self._add(Line("removed", disk))

    def _add(self, line: Line) -> None:
        with open(self._path, "ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


def _restore(cloud: FakeCloud, text: bytes, deployment: str, provider_id: str) -> None:
    """Have in ``cloud`` what was written down."""
    whole = text[: text.rfind(b"\n") + 1]
    lines = [msgspec.json.decode(line, type=Line) for line in whole.splitlines()]
    ended = {line.tag for line in lines if line.what == "ended"}
    sold = {(offer.instance_type, offer.region): offer for offer in cloud.offers}
    disks: dict[str, None] = {}
    for line in lines:
        offer = sold.get((line.instance_type, line.region))
        if line.what == "removed":
            disks.pop(line.tag, None)
        if line.what == "bought" and offer is not None:
            over = line.tag in ended
            cloud.restore(line.tag, deployment, provider_id, offer, line.market, over=over, disk=line.disk)
            disks.update({line.disk: None} if line.disk is not None else {})
    for disk in disks:
        cloud.disks.give(deployment, disk)
