"""A compute from beginning to end, with every way to call that the library has."""

from __future__ import annotations

import hashlib
import os
import sys

import skyward as sky
from local import PYTHON, Local, tell


@sky.function
def area(width: int, height: int = 2) -> int:
    print(f"area of {width} by {height}")
    return width * height


@sky.function
def where() -> tuple[str, int]:
    import os
    import sys

    return os.environ["PLACE"], sys.version_info.minor


@sky.function
def digest(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()


image = sky.Image(python=PYTHON, env={"PLACE": "there"})
with sky.Compute(provider=Local(), nodes=2, name=sys.argv[1], image=image) as pool:
    large = os.urandom(700_000)
    future = area(5, 5) > pool
    tell(
        compute=pool.id,
        one=area(3, 4) >> pool,
        every=where() @ pool,
        together=(area(1) & area(2) & area(3)) >> pool,
        gathered=sky.gather(*(area(n) for n in range(4))) >> pool,
        as_they_come=sorted(sky.gather(*(area(n) for n in range(4)), stream=True, ordered=False) >> pool),
        in_order=list(sky.gather(*(area(n) for n in range(4)), stream=True) >> pool),
        mapped=pool.map(area, range(12)),
        future=future.result(),
        implied=area(7) >> sky,
        large=(digest(large) >> pool) == hashlib.sha256(large).hexdigest(),
        nodes=pool.current_nodes(),
    )
