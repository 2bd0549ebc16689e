"""Runs the rows for some rounds, ours and the peers' in the same run, and prints them side by side.

Decides: the order, the number of rounds, and which figure each row is held against.
Never: fails on a slow machine; it is a report and not a test. Read ratios: machines are noisy.
Follows: each round starts a new daemon in a new folder, so no round is paid for by the one before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import event_rows, fleet_rows, http_rows, job_rows, page, request_rows, start_rows
from bench.page import shown
from bench.rows import PARTS, ROWS
from bench.target import Target, memory_mb, start_ours, start_skyward

from sky.kit.version import VERSION

ROOT = Path(__file__).parents[1]
PACKAGES = {"dask": "distributed"}
"""Peers whose package has another name."""
Figures = dict[str, dict[str, list[float]]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def quantiles(values: list[float]) -> tuple[float, float]:
    """Median and 95th percentile."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]


def noter(figures: Figures, name: str) -> Callable[[str, float], None]:
    def note(row: str, value: float) -> None:
        figures.setdefault(name, {}).setdefault(row, []).append(value)

    return note


def http_round(make: Callable[[], Target], seconds: float, note: Callable[[str, float], None]) -> None:
    target = make()
    try:
        note("server_ready_ms", target.ready_s * 1000)
        note("memory_idle_mb", memory_mb(target.server_pids()))
        http_rows.measure(target, seconds, note)
    finally:
        target.stop()


def events_round(make: Callable[[], Target], note: Callable[[str, float], None]) -> None:
    target = make()
    try:
        event_rows.measure(target, note)
    finally:
        target.stop()


def calls(command: list[str], environment: dict[str, str], note: Callable[[str, float], None]) -> None:
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=900, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(b"{"):
            for row, values in json.loads(line).items():
                for value in values:
                    note(row, value)
    if done.returncode:
        say(f"  {' '.join(command)} ended with {done.returncode}")


def our_calls(rounds: int, note: Callable[[str, float], None]) -> None:
    target = start_ours(sys.executable, free_port())
    environment = {**os.environ, "SKY_HOME": str(target.home), "SKY_URL": target.url}
    try:
        script = "import bench.call_rows as rows; rows.CALLS, rows.MANY = 50, 50; rows.main()"
        calls([sys.executable, "-c", script, "1"], environment, lambda row, value: None)
        note("memory_after_50_calls_mb", memory_mb(target.server_pids()))
        calls([sys.executable, str(ROOT / "bench/call_rows.py"), str(rounds)], environment, note)
    finally:
        target.stop()


def our_program(name: str, rounds: int, note: Callable[[str, float], None]) -> None:
    """The rows of a program of this folder that needs a daemon of its own."""
    target = start_ours(sys.executable, free_port())
    more = {"SKY_HOME": str(target.home), "SKY_URL": target.url, "PYTHONPATH": str(ROOT)}
    try:
        calls([sys.executable, str(ROOT / "bench" / name), str(rounds)], {**os.environ, **more}, note)
    finally:
        target.stop()


def requests_round(make: Callable[[], Target], peer: str | None, seconds: float, figures: Figures) -> None:
    """The same program against our server, and against skypilot's in its own environment."""
    ours = noter(figures, "skyfleet")
    target = make()
    try:
        request_rows.both(target, sys.executable, seconds, calls, ours)
    finally:
        target.stop()
    if peer is not None:
        theirs = noter(figures, "skypilot")
        target = request_rows.start_skypilot(peer, free_port(), free_port())
        try:
            request_rows.both(target, peer, seconds, calls, theirs)
        finally:
            target.stop()
    request_rows.alone(make, ours)


def peers() -> dict[str, str]:
    built = subprocess.run(
        [ROOT / "bench/peers"], stdout=subprocess.PIPE, text=True, timeout=1200, check=True
    )
    return dict(line.split(" ", 1) for line in built.stdout.splitlines())


def releases(others: dict[str, str]) -> dict[str, str]:
    """Which release of each peer is measured."""
    program = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    return {
        name: subprocess.run(
            [python, "-c", program, PACKAGES.get(name, name)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=True,
        ).stdout.strip()
        for name, python in others.items()
    }


def table(figures: Figures) -> str:
    names = list(figures)
    lines = [["figure", *[f"{name} (p95)" for name in names], "to reach"]]
    for row, one in ROWS.items():
        cells = []
        for name in names:
            values = figures[name].get(row)
            cells.append("–" if not values else "{} ({})".format(*map(shown, quantiles(values))))
        if any(cell != "–" for cell in cells):
            lines.append([row, *cells, one.wanted()])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is measured (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each load lasts (3)")
    parser.add_argument("--only", choices=PARTS, action="append", help="some parts")
    parser.add_argument("--peers", action="store_true", help="skyward, skypilot, ray and dask beside it")
    parser.add_argument("--page", action="store_true", help="put what was measured into docs/benchmarks.md")
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench.json", help="where the JSON goes")
    return parser.parse_args()


def alone(
    parts: list[str], rounds: int, make: Callable[[], Target], note: Callable[[str, float], None]
) -> None:
    """The parts that no peer has beside it."""
    if "losses" in parts:
        say("losses …")
        our_program("loss_rows.py", rounds, note)
    if "flat" in parts:
        say("flat (some minutes) …")
        our_program("flat_rows.py", 1, note)
    if "fleet" in parts:
        say("fleet (some minutes) …")
        fleet_rows.measure(make, note)


def main() -> None:
    chosen = options()
    parts = chosen.only or list(PARTS)
    figures: Figures = {}
    ours = noter(figures, "skyfleet")
    others = peers() if chosen.peers else {}

    def make() -> Target:
        return start_ours(sys.executable, free_port())

    if "start" in parts:
        say("start …")
        start_rows.measure(sys.executable, chosen.rounds, ours)
        if "skypilot" in others:
            with tempfile.TemporaryDirectory(prefix="skypilot-bench-") as home:
                more = request_rows.peer_environment(Path(home))
                start_rows.measure(others["skypilot"], chosen.rounds, noter(figures, "skypilot"), more)
    for number in range(chosen.rounds):
        if "http" in parts:
            say(f"http, round {number + 1} …")
            http_round(make, chosen.seconds, ours)
            if "skyward" in others:
                theirs = noter(figures, "skyward")
                http_round(lambda: start_skyward(others["skyward"], free_port()), chosen.seconds, theirs)
        if "events" in parts:
            say(f"events, round {number + 1} …")
            events_round(make, ours)
        if "requests" in parts:
            say(f"requests, round {number + 1} …")
            requests_round(make, others.get("skypilot"), chosen.seconds, figures)
        if "jobs" in parts:
            say(f"jobs, round {number + 1} …")
            job_rows.measure(make, chosen.seconds, ours)
    if "calls" in parts:
        say("calls …")
        our_calls(chosen.rounds, ours)
        for name in ("ray", "dask"):
            if name in others:
                say(f"calls of {name} …")
                script = str(ROOT / "bench/peer_calls.py")
                calls(
                    [others[name], script, name, str(chosen.rounds)], dict(os.environ), noter(figures, name)
                )
    alone(parts, chosen.rounds, make, ours)
    print(table(figures))
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    summary = {
        name: {
            row: {"median": quantiles(values)[0], "p95": quantiles(values)[1], "values": values}
            for row, values in rows.items()
        }
        for name, rows in figures.items()
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps({"at": time.time(), "machine": machine, "figures": summary}, indent=1))
    say(f"written to {chosen.out}")
    if chosen.page:
        page.keep(parts, machine, {"skyfleet": VERSION, **releases(others)}, summary)
        say(f"drawn into {page.PAGE}")


if __name__ == "__main__":
    main()
