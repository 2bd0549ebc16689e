"""A generator that goes on only after its first item has been seen here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import skyward as sky
from local import tell


@sky.stream
def count(folder: str) -> Iterator[int]:
    import time
    from pathlib import Path

    yield 1
    deadline = time.monotonic() + 30
    while not (Path(folder) / "seen").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    yield 2 if (Path(folder) / "seen").exists() else -1
    yield from range(3, 200)


got: list[int] = []
with sky.Compute.attached(sys.argv[1], console=False) as pool:
    for item in count(sys.argv[2]) >> pool:
        (Path(sys.argv[2]) / "seen").touch()
        got.append(item)
    tell(items=got)
