"""What archives have brought to a cluster's folders, so that nothing is brought twice for nothing.

Decides: whether what an archive brought is still there, as it was. Never: reads what is in a file.
Follows: whoever overwrites, changes or removes one of its files has the archive brought again the next time.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

Look = list[int]
"""How a file was when it was brought: size, time of change."""


class Marks:
    """The marks of a cluster's home, each for an archive and the place it went to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def stands(self, digest: str, target: Path) -> bool:
        """Whether all that this archive brought there is there as it was."""
        told = _read(self._mark(digest, target))
        return told is not None and target.exists() and all(_look(path) == was for path, was in told.items())

    def note(self, digest: str, target: Path, brought: Iterable[Path]) -> None:
        """Note what an archive has brought; those that brought the same files before stand no more."""
        looks = {str(path): _look(str(path)) for path in brought}
        mark = self._mark(digest, target)
        self._folder.mkdir(exist_ok=True)
        for other in self._folder.iterdir():
            told = None if other == mark or other.suffix else _read(other)
            if told is not None and not looks.keys().isdisjoint(_files(told)):
                other.unlink(missing_ok=True)
        new = mark.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(looks))
        new.replace(mark)

    def _mark(self, digest: str, target: Path) -> Path:
        place = hashlib.sha256(os.fsencode(target)).hexdigest()[:16]
        return self._folder / f"{digest}-{place}"


def _files(told: dict[str, Look]) -> Iterable[str]:
    """What is no folder: folders are shared."""
    return (path for path, was in told.items() if was)


def _look(path: str) -> Look:
    try:
        told = Path(path).lstat()
    except OSError:
        return [-1]
    return [] if stat.S_ISDIR(told.st_mode) else [told.st_size, told.st_mtime_ns]


def _read(mark: Path) -> dict[str, Look] | None:
    try:
        told: Any = json.loads(mark.read_bytes())
    except (OSError, ValueError):
        return None
    return cast("dict[str, Look]", told) if isinstance(told, dict) else None
