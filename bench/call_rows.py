"""The rows that go through the SDK, from a script's call to its result: one call, and many.

Decides: the functions called, which do nothing, so that everything measured is overhead.
Never: measures what a user's code costs. Follows: nodes are there and warm before the first timed call.

Run as a program by ``bench/run``; prints one JSON object per round.
"""

from __future__ import annotations

import json
import os
import sys
import time

import sky

CALLS = 200
MANY = 10_000
WARM = 20


@sky.function
def nothing(number: int) -> int:
    return number


def one_by_one(compute: sky.Compute) -> list[float]:
    """Milliseconds of each of some calls, one after the other."""
    took_ms: list[float] = []
    for number in range(CALLS):
        began_s = time.perf_counter()
        assert (nothing(number) >> compute) == number
        took_ms.append((time.perf_counter() - began_s) * 1000)
    return took_ms


def mapped(compute: sky.Compute) -> float:
    """Calls a second of a map."""
    began_s = time.perf_counter()
    results = list(sky.map(nothing, range(MANY)) >> compute)
    took_s = time.perf_counter() - began_s
    assert results == list(range(MANY))
    return MANY / took_s


def main() -> None:
    rounds = int(sys.argv[1])
    cpus = max(1, (os.cpu_count() or 2) // 2)
    with sky.Compute(provider=sky.Local(), nodes=2, cpus=cpus, quiet=True) as compute:
        for number in range(WARM):
            _ = nothing(number) >> compute
        list(sky.map(nothing, range(WARM)) >> compute)
        for _ in range(rounds):
            print(
                json.dumps({"call_ms": one_by_one(compute), "map_10000_per_s": [mapped(compute)]}), flush=True
            )


if __name__ == "__main__":
    main()
