"""The page docs/proof.md: the parts of it that are written from what was seen.

Decides: how results, figures and surroundings read. Never: touches what stands outside of its marks, or makes
up a number. Follows: ``<!-- prove:3 -->`` begins the part of experiment 3, ``<!-- /prove:3 -->`` ends it.
"""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.proving.experiments import PROMISES, Attack, Experiment

from sky.kit.version import VERSION

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/proof.md"


@dataclass
class Result:
    """What was seen of one attack: tests that held, failed, or were left out, and what they counted."""

    held: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict[str, float])


def surroundings() -> str:
    """When, what, and on which kind of machine, in one line."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=False, capture_output=True, text=True
    ).stdout.strip()
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        f"Skyfleet {VERSION}" + (f" ({commit})" if commit else ""),
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
        f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        f"{os.cpu_count()} cores and {memory_gb:.0f} GB",
        f"a load average of {os.getloadavg()[0]:.0f} at the start",
    ]
    return "Seen " + ", ".join(parts) + "."


def marks(key: str) -> tuple[str, str]:
    return f"<!-- prove:{key} -->", f"<!-- /prove:{key} -->"


def replaced(text: str, key: str, part: str) -> str:
    """The page with another part between the marks of ``key``."""
    begin, end = marks(key)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(
            f"docs/proof.md needs {begin} and {end}, once each; put them back where the part stood"
        )
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{part.strip()}\n{end}{after}"


def put(key: str, part: str) -> None:
    """Write one part into the page."""
    fresh = PAGE.with_suffix(".new")
    fresh.write_text(replaced(PAGE.read_text(encoding="utf-8"), key, part), encoding="utf-8")
    fresh.replace(PAGE)


def link(attack: Attack) -> str:
    path, _, name = attack.partition("::")
    words = name.removeprefix("test_").replace("_", " ")
    return f"[{words}](../tests/{path})"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.1f}"


UNITS = {"_ms": " ms", "_s": " s", "_mb": " MB"}


def figure(name: str, value: float) -> str:
    """A figure in words: its name says the unit."""
    for ending, unit in UNITS.items():
        if name.endswith(ending):
            return f"{name.removesuffix(ending).replace('_', ' ')}: {number(value)}{unit}"
    return f"{name.replace('_', ' ')}: {number(value)}"


def told(result: Result) -> str:
    """How the tests of an attack ended."""
    found = [f"{result.failed} **failed**"] if result.failed else []
    found += [f"{result.held} held"] if result.held else []
    found += [f"{result.skipped} left out"] if result.skipped else []
    return ", ".join(found) or "not run yet"


def of_experiment(experiment: Experiment, results: Mapping[Attack, Result], seen: str) -> str:
    """The part of one experiment."""
    lines = [
        f"Done to it: {experiment.inject}.",
        "",
        f"Must hold: {experiment.holds}.",
        "",
        "| attack | tests | seconds | figures |",
        "| --- | --- | --- | --- |",
    ]
    for attack, result in results.items():
        figures = "; ".join(figure(name, value) for name, value in result.figures.items())
        lines.append(f"| {link(attack)} | {told(result)} | {result.seconds:.1f} | {figures} |")
    return "\n".join([*lines, "", seen])


def of_promises() -> str:
    lines = ["| # | promise | experiments | the attack that comes nearest |", "| --- | --- | --- | --- |"]
    for one in PROMISES:
        experiments = ", ".join(str(number) for number in one.experiments)
        lines.append(f"| {one.number} | {one.text} | {experiments} | {link(one.attack)} |")
    return "\n".join(lines)


def of_load(found: dict[str, Any], seen: str) -> str:
    """What a crowd saw."""
    crowd, calls, events = found["crowd"], found["calls"], found["events"]
    memory = found["memory_mb"]
    asked = sum(one["count"] for one in found["latency_ms"].values())
    wrong = found["not_answered_well"]
    minutes = number(crowd["minutes"]) + (" minute" if crowd["minutes"] == 1 else " minutes")
    who = (
        f"{number(crowd['readers'])} readers of the event stream, {number(crowd['agents'])} agents at their"
        f" sockets, and {number(crowd['per_s'])} requests a second for {minutes}."
    )
    head = "| request | answered | p50 ms | p95 ms | p99 ms | longest ms |"
    lines = [who, "", head, "| --- | --- | --- | --- | --- | --- |"]
    for kind, one in found["latency_ms"].items():
        cells = [number(one[name]) for name in ("count", "p50", "p95", "p99", "longest")]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    marks_mb = ", ".join(number(value) for value in memory["at_minutes"])
    bad = ", ".join(f"{kind} {number(count)} times" for kind, count in wrong.items()) or "none"
    rows = {
        "requests answered": number(asked),
        "not answered well": bad,
        "calls accepted; succeeded": f"{number(calls['accepted'])}; {number(calls['succeeded'])}",
        "events written": number(events["written"]),
        "of these told, soon after the end, to the reader that was told least": number(
            events["told_to_the_unluckiest_reader"]
        ),
        "connections lost, of readers; of agents": f"{events['readers_lost']}; {events['agents_lost']}",
        "memory of the daemon before they came": f"{number(memory['idle'])} MB",
        "memory of the daemon at each minute": f"{marks_mb} MB",
        "memory of the daemon when they had left": f"{number(memory['when_all_left'])} MB",
        "cores that the daemon used": f"{found['cores_used']:.2f}",
        "cores that it was ready to use and did not get": f"{found['waited_for_a_core']:.2f}",
        "the latest that a request was sent": f"{number(found['sent_late_s'] * 1000)} ms after it was due",
    }
    lines += ["", "| what | seen |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join([*lines, "", seen])


def parts(text: str) -> list[str]:
    """The keys of the parts that a page has."""
    return re.findall(r"<!-- prove:(\w+) -->", text)
