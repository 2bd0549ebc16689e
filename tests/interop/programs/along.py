"""What goes along to the nodes: a module of the program's own, and a plugin of the library."""

from __future__ import annotations

import sys
from pathlib import Path

import skyward as sky
from joblib import Parallel, delayed
from local import PYTHON, Local, tell

Path("lengths.py").write_text("FOOT = 12\n")
sys.path.insert(0, ".")


@sky.function
def inches(feet: int) -> int:
    import lengths

    return feet * lengths.FOOT


image = sky.Image(python=PYTHON, pip=[sys.argv[1]], includes=["lengths.py"])
plugins = [sky.plugins.Joblib()]
with sky.Compute(provider=Local(), nodes=2, image=image, plugins=plugins, console=False) as pool:
    powers = Parallel(n_jobs=-1)(delayed(pow)(number, 2) for number in range(8))
    tell(inches=inches(3) >> pool, powers=powers)
