"""Draws docs/benchmarks.md from docs/benchmarks.json, which keeps the last figures of every part.

Decides: what stands beside what, and how long a bar is. Never: measures, or rounds a figure into its goal.
Follows: a part that was measured again takes the place of what it was, with its own date and machine; the
page is drawn from the file alone, so that it can be drawn again and be the same.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.rows import PARTS, ROWS, TITLES, Row

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs/benchmarks.json"
PAGE = ROOT / "docs/benchmarks.md"
OURS = "skyfleet"
BAR_CHARS = 24
_HEAD = """# Benchmarks

What `bench/run --peers --page` measured, drawn by the same command; nothing here was typed in. Figures are
medians, with the 95th percentile in brackets where there were several. Peers ran in the same run on the same
machine. Machines are noisy, and a busy one measures its own load: read ratios rather than digits.

A bar is as long as its figure, on one scale in each row. Of a figure whose goal was not reached it says so.
"""
Parts = dict[str, Any]


def keep(
    parts: list[str], machine: dict[str, Any], versions: dict[str, str], figures: dict[str, Any]
) -> None:
    """Put the parts that were measured in the place of what they were."""
    kept: Parts = json.loads(DATA.read_text()) if DATA.exists() else {}
    at = datetime.now(UTC).strftime("%Y-%m-%d")
    for part in parts:
        rows = {row: _medians(row, figures) for row, one in ROWS.items() if one.part == part}
        measured = {row: found for row, found in rows.items() if found}
        used = {
            name: release
            for name, release in versions.items()
            if any(name in found for found in measured.values())
        }
        kept[part] = {"at": at, "machine": machine, "versions": used, "rows": measured}
    DATA.write_text(json.dumps({part: kept[part] for part in PARTS if part in kept}, indent=1) + "\n")
    PAGE.write_text(drawn())


def _medians(row: str, figures: dict[str, Any]) -> dict[str, list[float]]:
    """The median and the 95th percentile of a row, by whose it is."""
    return {
        name: [_rounded(found[row]["median"]), _rounded(found[row]["p95"])]
        for name, found in figures.items()
        if row in found
    }


def drawn() -> str:
    """The page, as the file of figures has it."""
    kept: Parts = json.loads(DATA.read_text())
    lines = [_HEAD]
    for part in PARTS:
        if part in kept:
            lines += _section(part, kept[part])
    missing = [TITLES[part] for part in PARTS if part not in kept]
    if missing:
        lines += [f"Not measured yet: {', '.join(missing)}.", ""]
    return "\n".join(lines)


def _section(part: str, told: dict[str, Any]) -> list[str]:
    machine, versions = told["machine"], told["versions"]
    releases = ", ".join(f"{name} {release}" for name, release in versions.items())
    where = f"{machine['cores']} cores, Python {machine['python']}, {machine['system']}"
    lines = [f"## {TITLES[part]}", "", f"{told['at']}, {where}; {releases}.", ""]
    lines += ["| figure | of | | | to reach |", "| --- | --- | ---: | --- | --- |"]
    medians = {row: found[OURS][0] for row, found in told["rows"].items() if OURS in found}
    for row, found in told["rows"].items():
        lines += _lines(ROWS[row], found, medians)
    return [*lines, ""]


def _lines(row: Row, found: dict[str, list[float]], medians: dict[str, float]) -> list[str]:
    most = max(median for median, _ in found.values())
    lines: list[str] = []
    for place, (name, (median, p95)) in enumerate(found.items()):
        spread = f" ({shown(p95)})" if p95 != median else ""
        bar = "█" * max(1, round(BAR_CHARS * median / most)) if most > 0 and median > 0 else ""
        goal = ""
        if name == OURS:
            goal = row.wanted()
            if row.reached(median, medians) is False:
                goal += " – **not reached**"
        title = row.title if place == 0 else ""
        lines.append(f"| {title} | {name} | {shown(median)}{spread} {row.unit} | {bar} | {goal} |")
    return lines


def shown(value: float) -> str:
    """Three digits that count, and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _rounded(value: float) -> float:
    """Four digits that count: what the file keeps of a figure."""
    return float(f"{value:.4g}")
