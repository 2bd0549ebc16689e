"""Disks of this computer: folders that outlive the nodes that work in them.

Decides: where they are, and whose they are now. Never: looks at a process; a disk is in use as long as the
folder of a node that was given it says nothing of its end. Follows: a disk goes in one rename, under the lock
under which nodes begin; what is left of a removal is cleared away at the next listing.

    disks/<name>/                 the working folder of its node, and what that left
    disks/<name>.removing/        one that goes
"""

from __future__ import annotations

from pathlib import Path

from sky.kit import faults
from sky.providers.base import AgainLater
from sky.providers.local.folder import Folder, folders, remove_tree

_REMOVING = ".removing"
USED_AGAIN_S = 0.5


class Disks:
    """All disks under ``home``. Everything that changes one is called under the lock of its nodes."""

    def __init__(self, home: Path, nodes: Path) -> None:
        self._disks = home / "disks"
        self._nodes = nodes

    def path(self, name: str) -> Path:
        """Where the disk of that name is."""
        return self._disks / name

    def give(self, name: str, tag: str) -> Path:
        """The disk of that name for the node ``tag``, made if it is not there. Raises AgainLater."""
        user = self._user(name, but=tag)
        if user is not None:
            raise AgainLater(f"disk {name} is still used by node {user}", after_s=USED_AGAIN_S)
        path = self.path(name)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def names(self) -> tuple[str, ...]:
        """Every disk; what is left of removals goes."""
        if not self._disks.is_dir():
            return ()
        there = sorted(path.name for path in self._disks.iterdir() if path.is_dir())
        for name in there:
            if name.endswith(_REMOVING):
                remove_tree(self._disks / name)
        return tuple(name for name in there if not name.endswith(_REMOVING))

    def put_aside(self, name: str) -> Path | None:
        """Take a disk away by its name: what is to be removed, None without any. Raises AgainLater."""
        path = self.path(name)
        aside = path.with_name(name + _REMOVING)
        if not path.is_dir():
            return aside if aside.exists() else None
        user = self._user(name)
        if user is not None:
            raise AgainLater(f"disk {name} is still used by node {user}", after_s=USED_AGAIN_S)
        if aside.exists():
            remove_tree(aside)
        path.rename(aside)
        faults.point("local.disk.renamed")
        return aside

    def _user(self, name: str, but: str | None = None) -> str | None:
        """The node that may be at work on a disk."""
        for folder in folders(self._nodes):
            if folder.tag != but and self._uses(folder, name):
                return folder.tag
        return None

    def _uses(self, folder: Folder, name: str) -> bool:
        launched = folder.launched()
        return launched is not None and launched.disk == name and folder.gone() is None
