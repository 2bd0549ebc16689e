"""The README's way from nothing to a settled job, typed as it stands there: commands, curl, Python.

Decides: that a reader who types it sees what the README promises. Never: changes a line, but for the
address of the daemon.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon
from tests.jobs.shop import Shop
from tests.test_docs import ROOT, blocks, environment
from tests.typist import Typist, steps

from sky.server import catalogue

README = ROOT / "README.md"
SCRIPT_S = 100.0


def bash(script: str, home: Path, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Type it into a shell that finds our commands."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={**environment(home), "PATH": path, **more},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SCRIPT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.real
def test_five_commands_lead_from_nothing_to_a_settled_job(daemon: RunningDaemon, tmp_path: Path) -> None:
    (block,) = (one for one in blocks(README, "console") if "sky admin" in one)
    assert block.count("$ sky ") + block.count("$(sky ") == 5
    # Ids, and what a second costs on a slow computer, are not those of the page.
    block = re.sub(r"\$0\.0\d+", "$0.0…", re.sub(r"\b(acc|job)_\w+", r"\1_…", block))
    typist = Typist(Sky(daemon.home, tmp_path, **daemon.environment), daemon.url)
    for command, shown in steps(block):
        typist.step(command, shown)
    assert (tmp_path / "results/out/answer").read_text() == "42\n"
    statement, verified = typist.sky.together(
        [["admin", "account", "statement", "acme"], ["admin", "ledger", "verify"]]
    )
    assert "0.004167" in statement.check().out
    assert "lines add up" in verified.check().out


@pytest.mark.real
def test_curl_and_python_do_the_same(daemon: RunningDaemon, tmp_path: Path) -> None:
    [lines] = (one for one in blocks(README, "sh") if "/admin/v1/accounts" in one)
    script = lines.replace("http://127.0.0.1:7590", daemon.url).replace("curl -s", "curl --fail-with-body -s")
    done = bash(script, daemon.home, tmp_path)
    assert "data: counting\n" in done.stdout
    assert re.search(r'^"settled_cost_usd":"0\.0*[1-9]\d*"$', done.stdout, re.MULTILINE)
    assert done.stdout.endswith("\n42\n")

    _, code = blocks(README, "python")
    (tmp_path / "paid.py").write_text(code)
    key = Shop(daemon.url).customer(paid="5").key
    done = bash(f"{shutil.which('env')} python paid.py", daemon.home, tmp_path, SKY_API_KEY=key)
    printed = done.stdout.splitlines()
    assert (printed[0], printed[-2]) == ("counting", "/out/answer 42")
    assert re.fullmatch(r"succeeded for 0\.0\d+ USD", printed[-1])
    Shop(daemon.url).audit()


def test_the_catalogue_of_the_page_can_be_sold(tmp_path: Path) -> None:
    (text,) = blocks(ROOT / "docs/jobs.md", "yaml")
    (tmp_path / "catalogue.yaml").write_text(text)
    sold = catalogue.read(tmp_path / "catalogue.yaml")
    assert [sku.id for sku in sold.skus.values() if sku.available] == ["cpu-4x", "l4-spot"]
    assert sold.unavailable(sold.templates["embed"]) is None
