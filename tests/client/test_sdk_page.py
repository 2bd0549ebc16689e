"""The page about the SDK: its program runs and prints what it says, and no error is left out of its table."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sky
from sky.client import errors

PAGE = Path(__file__).parents[2] / "docs" / "sdk.md"
TEXT = PAGE.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.real
@pytest.mark.timeout(300)
def test_its_program_prints_what_it_says(daemon: Any, tmp_path: Path) -> None:
    program = "\n".join(blocks("python"))
    (tmp_path / "page.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "SKY_URL": daemon.url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == re.findall(r"# → (.*)$", program, re.MULTILINE)


def test_its_definition_is_one(tmp_path: Path) -> None:
    (definition,) = blocks("toml")
    (tmp_path / "sky.toml").write_text(definition, encoding="utf-8")
    command = [sys.executable, "-m", "sky.cli.main", "config", "validate", "sky.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_table_has_every_error() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", TEXT.partition("## Errors")[2], re.MULTILINE))
    there = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.SkyError)
    }
    assert told == there


def test_its_parameters_are_those_of_a_compute() -> None:
    table = TEXT.partition("## Computes")[2].partition("## ")[0]
    told = {
        word
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for word in re.findall(r"`(\w+)`", row)
    }
    assert told == set(inspect.signature(sky.Compute).parameters)


def test_every_error_is_below_one_and_survives_pickling() -> None:
    job: Any = "a job"
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.SkyError):
            made: Any = partial(kind, job=job) if kind is errors.JobFailed else kind
            error = pickle.loads(pickle.dumps(made("what was wrong")))
            assert type(error) is kind, name
            assert "what was wrong" in str(error)
