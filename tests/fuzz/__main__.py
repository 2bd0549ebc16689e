"""Runs readers of ``targets`` under atheris, which looks for inputs that lead to more of their code.

Decides: how long, one process for each reader, and the limits of time and memory. Never: mends anything.
Follows: an input that breaks a reader is kept in ``build/fuzz``, is told, and makes the exit code 1; as a
seed in ``targets`` it stays a test.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

BUILD = Path("build/fuzz")
INPUT_BYTES_MAX = 65_536
MEMORY_MB_MAX = 2_048
SLOW_S = 10
START_S = 900
LOOKED_INTO = [
    "sky.agent.frames",
    "sky.agent.included",
    "sky.agent.scripts",
    "sky.api.ranges",
    "sky.api.reading",
    "sky.client.sse",
    "sky.client.tasks",
    "sky.domain.price_list",
    "sky.kit",
    "sky.server.catalogue",
    "sky.verbs.webhooks",
    "yaml",
]
"""Of these atheris sees which way an input takes; to instrument all there is takes minutes."""


def one(name: str, seconds: int) -> None:
    """Fuzz a reader in this process; it ends by itself."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=LOOKED_INTO):
        targets = importlib.import_module("tests.fuzz.targets")
    target = targets.TARGETS[name]
    corpus = BUILD / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed[:INPUT_BYTES_MAX])

    def read(content: bytes) -> None:
        try:
            target.read(content)
        except target.errors:
            return

    options = {
        "max_total_time": seconds,
        "max_len": INPUT_BYTES_MAX,
        "rss_limit_mb": MEMORY_MB_MAX,
        "timeout": SLOW_S,
        "artifact_prefix": f"{BUILD}/{name}-",
        "print_final_stats": 1,
        "verbosity": 0,
    }
    atheris.Setup([name, *(f"-{key}={value}" for key, value in options.items()), str(corpus)], read)
    atheris.Fuzz()


def main() -> int:
    """Fuzz all readers that are named, or all there are; returns 1 if one broke."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz")
    parser.add_argument("names", nargs="*", help="readers; none: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        one(given.names[0], given.seconds)
        return 0
    known = list(importlib.import_module("tests.fuzz.targets").TARGETS)
    if unknown := sorted(set(given.names) - set(known)):
        sys.stderr.write(f"no reader is called {unknown[0]!r}; there are {', '.join(known)}\n")
        return 2
    broken: list[str] = []
    for name in given.names or known:
        command = [sys.executable, "-m", "tests.fuzz", name, "--here", "--seconds", str(given.seconds)]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=given.seconds + START_S, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"{name}: not told: it took over {given.seconds + START_S} s", flush=True)
            broken.append(name)
            continue
        counted = [line.split()[-1] for line in ended.stderr.splitlines() if "executed_units" in line]
        print(
            f"{name}: {counted[0] if counted else '?'} inputs, {'broke' if ended.returncode else 'holds'}",
            flush=True,
        )
        if ended.returncode:
            broken.append(name)
            print(ended.stdout[-2_000:] + ended.stderr[-4_000:])
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
