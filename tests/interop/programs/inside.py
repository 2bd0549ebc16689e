"""What a function of the library may ask about the node that it runs on."""

from __future__ import annotations

import sys
from dataclasses import asdict

import skyward as sky
from local import tell


@sky.function
def about() -> tuple[dict[str, object], bool, list[int]]:
    return asdict(sky.instance_info()), sky.is_head(), list(sky.shard(list(range(10))))


with sky.Compute.attached(sys.argv[1], console=False) as pool:
    tell(compute=pool.id, every=about() @ pool)
