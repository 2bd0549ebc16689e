"""What a pool remembers in the daemon's folder: on which host a node was begun, and which keys hosts have.

Decides: the names and shape of the files. Never: holds a secret. Follows: where a node is begun is written
before the host is asked, so that after a lost answer, or a new start of the daemon, that host alone says
whether there is one; and a host that shows another key than before is not spoken to.

    ssh/<provider>/nodes/<tag>          the name of the host
    ssh/<provider>/host_keys.json       the public key that each host has shown first, and when
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from sky.kit.clock import Clock

TAG = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


class Shown(msgspec.Struct, frozen=True):
    """The key that a host has shown at ``at_us``, as a line, and its fingerprint."""

    key: str
    fingerprint: str
    at_us: int


class Records:
    """The files of one pool. Each call is one small read or write; raises OSError."""

    def __init__(self, home: Path, provider_id: str, clock: Clock) -> None:
        self._folder = home / "ssh" / provider_id
        self._clock = clock

    def host_of(self, tag: str) -> str | None:
        """The name of the host on which that node was begun, or may have been."""
        if not TAG.match(tag):
            return None
        try:
            return (self._folder / "nodes" / tag).read_text(encoding="utf-8").strip() or None
        except FileNotFoundError:
            return None

    def begins(self, tag: str, host: str) -> None:
        """A node is about to be begun on a host."""
        self._write(self._folder / "nodes" / tag, host.encode())

    def forget(self, tag: str) -> None:
        """There is no such node anywhere."""
        if TAG.match(tag):
            (self._folder / "nodes" / tag).unlink(missing_ok=True)

    def prune(self, older_us: int) -> None:
        """Forget nodes that were begun longer ago: then every host is asked after them."""
        oldest_us = self._clock.now_us() - older_us
        folder = self._folder / "nodes"
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.stat().st_mtime_ns // 1_000 < oldest_us:
                path.unlink(missing_ok=True)

    def key_of(self, place: str) -> Shown | None:
        """The key that a host has shown when it was first spoken to."""
        return self._keys().get(place)

    def keep_key(self, place: str, key: str, fingerprint: str) -> None:
        """From now on this is the host's key."""
        keys = self._keys()
        if place not in keys:
            keys[place] = Shown(key, fingerprint, self._clock.now_us())
            self._write(self._folder / "host_keys.json", msgspec.json.format(msgspec.json.encode(keys)))

    def _keys(self) -> dict[str, Shown]:
        try:
            return msgspec.json.decode((self._folder / "host_keys.json").read_bytes(), type=dict[str, Shown])
        except FileNotFoundError:
            return {}

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        new.replace(path)
