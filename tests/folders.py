"""What is in the files of a folder that somebody works in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

READ_BYTES_MAX = 2**26


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Each file that is not very large, of those that do not go meanwhile."""
    for place, _, names in os.walk(folder):  # which passes over folders that go
        for path in (Path(place, name) for name in names):
            with suppress(FileNotFoundError):
                if path.is_file() and path.stat().st_size < READ_BYTES_MAX:
                    yield path, path.read_bytes()
