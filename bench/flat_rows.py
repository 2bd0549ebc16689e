"""Whether memory stays flat over many calls: of the daemon, of its nodes, and of the script that calls.

Decides: what is compared: after the first part of the calls, when everything is warm, and after all of them.
Never: counts what a page cache of the system holds. Follows: a leak of a hundred bytes a call shows as 9 MB.

Run as a program by ``bench/run`` against a daemon on this computer; prints one JSON object.
"""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

from bench.target import memory_mb, processes_under

import sky

PARTS = 10
CALLS_EACH = 10_000
WARM_PARTS = 3


@sky.function
def nothing(number: int) -> int:
    return number


def memory_now() -> dict[str, float]:
    """Megabytes of each of the three."""
    home = os.environ["SKY_HOME"]
    nodes = set(processes_under(f"SKY_AGENT_HOME={home}/nodes"))
    daemon = [int(json.loads(Path(home, "daemon.json").read_text())["pid"])]
    gc.collect()
    return {"daemon": memory_mb(daemon), "nodes": memory_mb([*nodes]), "script": memory_mb([os.getpid()])}


def main() -> None:
    with sky.Compute(provider=sky.Local(), nodes=2, cpus=1, quiet=True) as compute:
        warm: dict[str, float] = {}
        for part in range(PARTS):
            if part == WARM_PARTS:
                warm = memory_now()
            for result in sky.map(nothing, range(CALLS_EACH)) >> compute:
                assert result < CALLS_EACH
        after = memory_now()
    rows = {f"memory_{who}_after_100k_mb": [after[who]] for who in after}
    rows |= {f"memory_{who}_growth_mb": [after[who] - warm[who]] for who in after}
    print(json.dumps(rows), flush=True)


if __name__ == "__main__":
    main()
