"""docs/proof.md names attacks that are there, and has a part for each experiment, of which none failed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.proving import page
from tests.proving.experiments import EXPERIMENTS, PROMISES
from tests.proving.page import Result

TESTS = Path(__file__).parents[1]


def test_there_are_twelve_experiments_and_seven_promises() -> None:
    assert [one.number for one in EXPERIMENTS] == list(range(1, 13))
    assert [one.number for one in PROMISES] == list(range(1, 8))
    attacks = {attack for one in EXPERIMENTS for attack in one.attacks}
    assert {one.attack for one in PROMISES} <= attacks
    assert {number for one in PROMISES for number in one.experiments} <= set(range(1, 13))


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: str(one.number))
def test_every_attack_is_there(experiment: page.Experiment) -> None:
    missing: list[str] = []
    for attack in experiment.attacks:
        path, _, name = attack.partition("::")
        tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
        names = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        if name not in names:
            missing.append(attack)
    assert missing == []


def test_the_page_has_every_part_and_none_of_them_failed() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert sorted(page.parts(text)) == sorted(
        [*map(str, range(1, 13)), "promises", "load", "histories", "histories_postgresql"]
    )
    assert page.replaced(text, "promises", page.of_promises()) == text, "scripts/prove writes it anew"
    for experiment in EXPERIMENTS:
        begin, end = page.marks(str(experiment.number))
        part = text.partition(begin)[2].partition(end)[0]
        assert experiment.inject in part, "scripts/prove --only writes it anew"
        assert all(page.link(attack) in part for attack in experiment.attacks)
        assert "**failed**" not in part, "something did not hold when it was last proved"


def test_prose_between_the_parts_stays() -> None:
    text = "before\n<!-- prove:3 -->\nold\n<!-- /prove:3 -->\nafter\n"
    assert page.replaced(text, "3", "new") == text.replace("old", "new")
    with pytest.raises(ValueError, match="prove:4"):
        page.replaced(text, "4", "new")


def test_what_failed_is_told_as_failed() -> None:
    experiment = EXPERIMENTS[2]
    results = {attack: Result(held=1) for attack in experiment.attacks}
    assert "**" not in page.of_experiment(experiment, results, "Seen now.")
    results[experiment.attacks[0]] = Result(held=3, failed=1, figures={"slowest_read_ms": 12.0})
    part = page.of_experiment(experiment, results, "Seen now.")
    assert "| 1 **failed**, 3 held |" in part
    assert "slowest read: 12 ms" in part
