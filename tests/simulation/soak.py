"""Tells many histories, or one again: what ``scripts/soak`` runs.

Decides: which seeds, in how many processes, and what is printed. Never: what a history is.
Follows: a seed that fails is printed at once, with the command that tells it again; the others go on.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from tests.simulation.history import tell

CHUNK = 8
PROGRESS_S = 10.0
Told = tuple[int, float, str]


def one(seed: int) -> Told:
    """Tell one: its seed, how much virtual time passed in it, and what failed."""
    try:
        return seed, tell(seed).world.clock.monotonic_s(), ""
    except Exception as error:
        return seed, 0.0, f"{type(error).__name__}: {error}"


def all_of(seeds: Iterable[int], jobs: int) -> Iterator[Told]:
    """Tell them, in so many processes."""
    if jobs == 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        left = iter(seeds)
        while chunk := list(islice(left, CHUNK * jobs * 8)):
            yield from pool.map(one, chunk, chunksize=CHUNK)


def replay(seed: int) -> int:
    """Tell one history and print its steps."""
    try:
        told = tell(seed).world.told
    except Exception as error:
        traceback.print_exception(error, limit=-4)
        return 1
    print("\n".join(told))
    print(f"history {seed} ends well")
    return 0


def soak(first: int, count: int, jobs: int) -> int:
    """Tell ``count`` histories from ``first`` on, and say how many were clean."""
    began = shown = time.monotonic()
    failed: list[int] = []
    done, virtual_s = 0, 0.0
    for seed, seconds, why in all_of(range(first, first + count), jobs):
        done += 1
        virtual_s += seconds
        if why:
            failed.append(seed)
            print(f"history {seed} fails: {why}\n    scripts/soak --replay {seed}", flush=True)
        now = time.monotonic()
        if now - shown >= PROGRESS_S:
            shown = now
            print(
                f"{done} of {count} told, {len(failed)} failed, {done / (now - began) * 60:.0f} a minute",
                flush=True,
            )
    took_s = time.monotonic() - began
    print(
        f"{done} histories, {done - len(failed)} clean, {len(failed)} failed;"
        f" {virtual_s / 3_600:.1f} virtual hours in {took_s:.0f} s,"
        f" {done / max(took_s, 0.001) * 60:.0f} a minute"
    )
    return 1 if failed else 0


def main() -> int:
    """0 all were clean, 1 some were not."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description="Tells seeded histories.")
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--replay", type=int, help="tell this one, and print its steps")
    said = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set is part of a history
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation.soak", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    return replay(said.replay) if said.replay is not None else soak(said.seed, said.histories, said.jobs)


if __name__ == "__main__":
    raise SystemExit(main())
