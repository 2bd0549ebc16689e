"""One trivial call and a map of many, in a peer's own environment. Neither peer keeps calls across a crash.

Decides: how each peer is set up: one worker process a core, warm, on this computer only.
Never: imports anything of ours. Follows: the same function, the same counts, the same clock as ``call_rows``.

    python bench/peer_calls.py ray|dask ROUNDS
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

CALLS = 200
MANY = 10_000
WARM = 20


def nothing(number: int) -> int:
    return number


def report(rounds: int, call: Callable[[int], int], many: Callable[[], list[int]]) -> None:
    for number in range(WARM):
        call(number)
    many()
    for _ in range(rounds):
        took_ms = []
        for number in range(CALLS):
            began_s = time.perf_counter()
            assert call(number) == number
            took_ms.append((time.perf_counter() - began_s) * 1000)
        began_s = time.perf_counter()
        assert many() == list(range(MANY))
        rate = MANY / (time.perf_counter() - began_s)
        print(json.dumps({"call_ms": took_ms, "map_10000_per_s": [rate]}), flush=True)


def with_ray(rounds: int) -> None:
    import ray

    ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    remote: Any = ray.remote(nothing)
    report(
        rounds,
        lambda number: ray.get(remote.remote(number)),
        lambda: ray.get([remote.remote(number) for number in range(MANY)]),
    )
    ray.shutdown()


def with_dask(rounds: int) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=os.cpu_count(),
            threads_per_worker=1,
            dashboard_address=None,
            host="127.0.0.1",
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        report(
            rounds,
            lambda number: client.submit(nothing, number, pure=False).result(),
            lambda: client.gather(client.map(nothing, range(MANY), pure=False)),
        )


if __name__ == "__main__":
    {"ray": with_ray, "dask": with_dask}[sys.argv[1]](int(sys.argv[2]))
