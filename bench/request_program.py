"""What a script of requests waits for, by the same lines of one interface: ours, or a peer of that name.

Decides: the load: one `status` after another, and from several threads for some seconds. Never: imports
anything of ours by its name; whichever `sky` this Python has is measured.
Follows: the server is there and named by SKYPILOT_API_SERVER_ENDPOINT; the first calls are not counted.

    python bench/request_program.py status SECONDS | burst COUNT
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import sky

MANY = 8
WARM = 2


def once() -> float:
    """Milliseconds of one question and its answer."""
    began_s = time.perf_counter()
    assert isinstance(sky.get(sky.status()), list)
    return (time.perf_counter() - began_s) * 1000


def for_seconds(seconds: float) -> list[float]:
    until_s = time.perf_counter() + seconds
    took_ms = [once()]
    while time.perf_counter() < until_s:
        took_ms.append(once())
    return took_ms


def status(seconds: float) -> dict[str, list[float]]:
    for _ in range(WARM):
        once()
    alone = for_seconds(seconds)
    with ThreadPoolExecutor(MANY) as pool:
        list(pool.map(lambda _: once(), range(MANY)))
        began_s = time.perf_counter()
        many = [one for found in pool.map(lambda _: for_seconds(seconds), range(MANY)) for one in found]
        rate = len(many) / (time.perf_counter() - began_s)
    return {"status_get_ms": alone, "status_get_8_per_s": [rate]}


def burst(count: int) -> dict[str, list[float]]:
    """So many questions, several at once."""
    with ThreadPoolExecutor(MANY) as pool:
        list(pool.map(lambda _: once(), range(count)))
    return {}


if __name__ == "__main__":
    what, size = sys.argv[1:]
    print(json.dumps(status(float(size)) if what == "status" else burst(int(size))), flush=True)
