"""The page about the SDK of requests: its program prints what it says, and its table leaves no error out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import RunningDaemon

from sky import exceptions
from sky.client import endpoints
from sky.client.calls_requests import VERSION_VARIABLE

TEXT = (Path(__file__).parents[2] / "docs" / "sdk-requests.md").read_text(encoding="utf-8")


@pytest.mark.real
def test_its_program_prints_what_it_says(daemon: RunningDaemon, tmp_path: Path) -> None:
    program = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    (tmp_path / "page.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "SKY_URL": daemon.url},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = [line for line in done.stdout.splitlines() if not line.startswith("(task")]
    assert told == re.findall(r"# → (.*)$", program, re.MULTILINE)
    log = (tmp_path / "log").read_text(encoding="utf-8")
    assert sorted(log.splitlines()) == [f"(greet, rank={rank}) hello from {rank}" for rank in range(2)]


def test_its_table_has_every_error() -> None:
    rows = re.findall(r"^\| (.*?) \|", TEXT.partition("## Errors")[2], re.MULTILINE)
    told = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert told == set(exceptions.__all__) - {"JobExitCode", "SkyError"}


def test_it_names_what_the_environment_may_say() -> None:
    for name in (*endpoints.URL_VARIABLES, *endpoints.TOKEN_VARIABLES, VERSION_VARIABLE):
        assert f"`{name}`" in TEXT, name
    assert endpoints.LOGIN_FILE in TEXT
