"""A call that somebody interrupts."""

from __future__ import annotations

import sys

import skyward as sky
from local import PYTHON, Local


@sky.function
def wait(folder: str) -> None:
    import time
    from pathlib import Path

    (Path(folder) / "begun").touch()
    time.sleep(60)


image, own = sky.Image(python=PYTHON), sky.Executor(type="process")
with sky.Compute(provider=Local(), name=sys.argv[1], image=image, executor=own, console=False) as pool:
    wait(sys.argv[2]) >> pool
