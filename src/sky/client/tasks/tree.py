"""The files of a folder that travel, and how they are divided into parts.

Decides: what travels (files, folders, links that stay inside) and what is only told of (sockets, pipes, links
that lead out), and which file is in which part. Never: reads a file's content.
Follows: a part depends on the names in it alone, so that a changed file changes one part.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sky.client.tasks.ignore import Ignored

FILES_MAX = 1_000_000
ONE_PART_BYTES = 8 * 1024 * 1024
"""Up to this size a folder is one part."""
PARTS_MAX = 32
ALONE_BYTES = 32 * 1024 * 1024
"""From this size on a file is a part of its own, the largest ``ALONE_MAX`` are."""
ALONE_MAX = 16
MODE_KEPT = 0o755


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that travels: ``name`` from the folder. ``link`` is where a link leads."""

    name: str
    path: Path
    kind: str
    mode: int
    size: int = 0
    link: str = ""
    mark: tuple[int, ...] = ()
    """What changes when its content does: time of change, number on the disk."""

    def identity(self) -> bytes:
        """What says, without reading it, that it is the same as it was."""
        return repr((self.name, self.kind, self.mode, self.size, self.link, self.mark)).encode()


@dataclass(slots=True)
class Tree:
    """What was found, and what stays behind although no rule says so."""

    entries: list[Entry] = field(default_factory=list[Entry])
    left: list[str] = field(default_factory=list[str])

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(entry.size for entry in self.entries)


class Unreadable(Exception):
    """Something that ought to travel cannot be read; ``path`` is which."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}")
        self.path = path


def of_file(path: Path, name: str) -> Tree:
    """One file, under a name. Raises Unreadable."""
    try:
        told = path.stat()
    except OSError as error:
        raise Unreadable(str(path), error.strerror or str(error)) from error
    return Tree([_file(name, path, told)])


def of_folder(root: Path, ignored: Ignored | None, under: str = "") -> Tree:
    """What is in a folder. Raises Unreadable."""
    tree = Tree()
    for entry in _walk(root.resolve(), "", ignored, tree, under):
        tree.entries.append(entry)
        if len(tree.entries) > FILES_MAX:
            raise Unreadable(str(root), f"it has more than {FILES_MAX} files; a .skyignore leaves some out")
    tree.entries.sort(key=lambda one: os.fsencode(one.name))
    return tree


def _walk(root: Path, at: str, ignored: Ignored | None, tree: Tree, under: str) -> Iterator[Entry]:
    waiting: list[tuple[str, int | None]] = [(at, None)]
    while waiting:
        inside, leave = waiting.pop()
        if leave is not None:
            if ignored is not None:
                ignored.leave(leave)
            continue
        if ignored is not None:
            waiting.append((inside, ignored.enter(inside)))
        folders: list[str] = []
        empty = True
        for found in _listed(root / inside):
            name = f"{inside}{found.name}"
            is_folder = found.is_dir(follow_symlinks=False)
            if ignored is not None and ignored.match(name, folder=is_folder):
                continue
            empty = False
            if is_folder:
                folders.append(f"{name}/")
                continue
            entry = _entry(root, name, Path(found.path), tree, under)
            if entry is not None:
                yield entry
        if empty and inside:
            yield Entry(f"{under}{inside}".rstrip("/"), root / inside, "folder", MODE_KEPT)
        waiting += [(folder, None) for folder in reversed(folders)]


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda one: os.fsencode(one.name))
    except OSError as error:
        raise Unreadable(str(folder), error.strerror or str(error)) from error


def _entry(root: Path, name: str, path: Path, tree: Tree, under: str) -> Entry | None:
    try:
        told = path.lstat()
        if stat.S_ISLNK(told.st_mode):
            link = str(path.readlink())
            if not _stays_inside(name, link):
                tree.left.append(f"{name} (a link that leads out of the folder)")
                return None
            return Entry(f"{under}{name}", path, "link", 0o777, link=link)
    except OSError as error:
        raise Unreadable(str(path), error.strerror or str(error)) from error
    if not stat.S_ISREG(told.st_mode):
        tree.left.append(f"{name} (neither a file nor a folder)")
        return None
    return _file(f"{under}{name}", path, told)


def _file(name: str, path: Path, told: os.stat_result) -> Entry:
    mode = (told.st_mode & MODE_KEPT) | 0o600
    mark = (told.st_mtime_ns, told.st_ctime_ns, told.st_ino, told.st_dev)
    return Entry(name, path, "file", mode, told.st_size, mark=mark)


def _stays_inside(name: str, link: str) -> bool:
    if link.startswith("/"):
        return False
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
    return inside != ".." and not inside.startswith("../")


def parts_of(tree: Tree) -> list[list[Entry]]:
    """The entries in parts, each in order; an empty folder is one part with nothing in it."""
    large = sorted(
        (one for one in tree.entries if one.size >= ALONE_BYTES), key=lambda one: (-one.size, one.name)
    )[:ALONE_MAX]
    alone = {one.name for one in large}
    rest = [one for one in tree.entries if one.name not in alone]
    buckets = _buckets(sum(one.size for one in rest))
    divided: list[list[Entry]] = [[] for _ in range(buckets)]
    for entry in rest:
        divided[_bucket(entry.name, buckets)].append(entry)
    found = [part for part in divided if part] + [[one] for one in sorted(large, key=lambda one: one.name)]
    return found or [[]]


def _buckets(size: int) -> int:
    """In how many parts small files are divided: a power of two, so that it seldom changes."""
    buckets = 1
    while buckets < PARTS_MAX and size > buckets * ONE_PART_BYTES:
        buckets *= 2
    return buckets


def _bucket(name: str, buckets: int) -> int:
    return int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:4]) % buckets


def total(parts: Sequence[Sequence[Entry]]) -> int:
    """Bytes in all files of some parts."""
    return sum(entry.size for part in parts for entry in part)
