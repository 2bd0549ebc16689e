"""Tells many histories, or one again: what ``scripts/soak`` runs.

Decides: which seeds, in how many processes, and what is printed. Never: what a history is.
Follows: a seed that fails is printed at once, with the command that tells it again; the others go on.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from tests.databases import ON_POSTGRESQL
from tests.proving import page
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


def cpu_s() -> float:
    """What this process and those that it has ended took of a processor."""
    own, children = (resource.getrusage(x) for x in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def part(figures: dict[str, str], seen: str) -> str:
    """What docs/proof.md says of a soak."""
    rows = [f"| {name} | {value} |" for name, value in figures.items()]
    return "\n".join([seen, "", "| figure | seen |", "| --- | --- |", *rows])


def soak(first: int, count: int, jobs: int, *, write: bool = False) -> int:
    """Tell ``count`` histories from ``first`` on, and say how many were clean; ``write``: in the page too."""
    seen = page.surroundings()
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
    took_s = max(time.monotonic() - began, 0.001)
    figures = {
        "histories told": f"{done:,}, from seed {first:,} on",
        "clean": f"{done - len(failed):,}",
        "failed": ", ".join(map(str, failed)) or "none",
        "time that passed in them": f"{virtual_s / 3_600:,.0f} hours",
        "told in": f"{took_s:,.0f} s, in {jobs} process{'es' * (jobs > 1)}",
        "a minute": f"{done / took_s * 60:,.0f}",
        "of a processor, for each": f"{cpu_s() / done * 1_000:.0f} ms",
    }
    print("; ".join(f"{name}: {value}" for name, value in figures.items()))
    if write:
        page.put("histories_postgresql" if ON_POSTGRESQL else "histories", part(figures, seen))
    return 1 if failed else 0


def main() -> int:
    """0 all were clean, 1 some were not."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description="Tells seeded histories.")
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--replay", type=int, help="tell this one, and print its steps")
    parser.add_argument("--write", action="store_true", help="what was seen, into docs/proof.md")
    parser.add_argument("--postgresql", action="store_true", help="on a real server, which this starts")
    said = parser.parse_args()
    wanted = {"PYTHONHASHSEED": "0"}  # the order of a set is part of a history
    if said.postgresql:
        wanted["SKY_TESTS_DATABASE"] = "postgresql"
    if not wanted.items() <= os.environ.items():
        command = [sys.executable, "-m", "tests.simulation.soak", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **wanted})
    if said.replay is not None:
        return replay(said.replay)
    return soak(said.seed, said.histories, said.jobs, write=said.write)


if __name__ == "__main__":
    raise SystemExit(main())
