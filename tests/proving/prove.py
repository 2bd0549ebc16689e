"""Runs the experiments and writes what was seen into docs/proof.md: what ``scripts/prove`` starts.

Decides: which experiments run, their attacks in one session of pytest, and where each result stands. Never:
what an experiment is (``experiments``), or how a result is written (``page``).
Follows: a result that does not hold is written too, and makes this fail.

    scripts/prove              all twelve
    scripts/prove --only 3     one of them; may be said several times
    scripts/prove --load 3     the crowd, for three minutes
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as Xml
from pathlib import Path

from tests.proving import page
from tests.proving.experiments import EXPERIMENTS, Attack, Experiment
from tests.proving.page import Result

ROOT = Path(__file__).parents[2]
EXPERIMENT_S_MAX = 1_800
LOAD_S_MAX = 1_800


def attack_of(classname: str, name: str) -> Attack:
    """The attack that a test of a report belongs to."""
    path = classname.removeprefix("tests.").replace(".", "/")
    return f"{path}.py::{name.partition('[')[0]}"


def read_report(report: Path, results: dict[Attack, Result]) -> None:
    """Count what pytest told of each test."""
    for case in Xml.parse(report).getroot().iter("testcase"):
        attack = attack_of(case.get("classname", ""), case.get("name", ""))
        result = results.setdefault(attack, Result())
        result.seconds += float(case.get("time", "0"))
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
        elif case.find("skipped") is not None:
            result.skipped += 1
        else:
            result.held += 1


def read_figures(out: Path, results: dict[Attack, Result]) -> None:
    """Put the figures of an attack together: what is counted adds up, of times the longest stays."""
    for line in out.read_text().splitlines() if out.exists() else ():
        told = json.loads(line)
        path, _, name = told["test"].partition("::")
        attack = f"{path.removeprefix('tests/')}::{name.partition('[')[0]}"
        kept = results.setdefault(attack, Result()).figures
        for figure, value in told["figures"].items():
            longest = figure.endswith(("_s", "_ms"))
            kept[figure] = max(kept.get(figure, 0), value) if longest else kept.get(figure, 0) + value


def run(experiments: list[Experiment], workers: int) -> dict[Attack, Result]:
    """Let every attack of these experiments run, and give what was seen of each."""
    attacks = list(dict.fromkeys(attack for one in experiments for attack in one.attacks))
    results = {attack: Result() for attack in attacks}
    with tempfile.TemporaryDirectory(prefix="sky-prove-") as folder:
        report, out = Path(folder) / "report.xml", Path(folder) / "figures"
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--dist", "worksteal"]
        command += ["-p", "no:cacheprovider", f"--junitxml={report}"]
        command += [f"tests/{attack}" for attack in attacks]
        more = {name: value for one in experiments for name, value in one.environment.items()}
        said = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **more, "SKY_PROOF_OUT": str(out)},
            check=False,
            timeout=EXPERIMENT_S_MAX * len(experiments),
            stdout=subprocess.PIPE,
            text=True,
        )
        if not report.exists():
            numbers = ", ".join(str(one.number) for one in experiments)
            raise SystemExit(f"experiments {numbers} did not run; pytest said:\n{said.stdout[-4000:]}")
        read_report(report, results)
        read_figures(out, results)
    if said.returncode:
        print(said.stdout[-8000:], flush=True)
    return results


def prove(numbers: list[int], workers: int) -> bool:
    """Run some experiments, or all; returns whether all that was to hold did."""
    chosen = [one for one in EXPERIMENTS if not numbers or one.number in numbers]
    seen = page.surroundings()
    results = run(chosen, workers)
    well = True
    for experiment in chosen:
        own = {attack: results[attack] for attack in experiment.attacks}
        held = all(result.held and not result.failed for result in own.values())
        well = well and held
        page.put(str(experiment.number), page.of_experiment(experiment, own, seen))
        print(f"experiment {experiment.number} {'holds' if held else 'DOES NOT HOLD'}: {experiment.title}")
    page.put("promises", page.of_promises())
    return well


def load(minutes: float) -> bool:
    """Bring the crowd and write what was seen; returns whether all was answered and nobody was lost."""
    seen = page.surroundings()
    out = ROOT / "build/crowd.json"
    subprocess.run(
        [sys.executable, "-m", "bench.crowd", "--minutes", str(minutes), "--out", str(out)],
        cwd=ROOT,
        check=True,
        timeout=LOAD_S_MAX + minutes * 60,
        stdout=subprocess.DEVNULL,
    )
    found = json.loads(out.read_text())
    page.put("load", page.of_load(found, seen))
    return not found["not_answered_well"] and not found["events"]["readers_lost"]


def main() -> int:
    """0 everything held, 1 something did not."""
    parser = argparse.ArgumentParser(
        prog="scripts/prove", description="Runs the experiments of docs/proof.md."
    )
    numbers = [one.number for one in EXPERIMENTS]
    parser.add_argument("--only", type=int, choices=numbers, action="append", default=[], metavar="NUMBER")
    parser.add_argument("--load", type=float, metavar="MINUTES", help="the crowd, and no experiment")
    parser.add_argument("--workers", type=int, default=2, help="tests at once (2)")
    said = parser.parse_args()
    well = load(said.load) if said.load is not None else prove(said.only, said.workers)
    return 0 if well else 1


if __name__ == "__main__":
    raise SystemExit(main())
