"""The provider in docs/how-to-add/provider.md, as somebody has it who does what the page says.

Decides: that its code passes the conformance suite, and that its entry point makes the kind known. Never:
mends what the page shows.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to-add" / "provider.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What somebody has written and installed who followed the page."""
    blocks = re.findall(
        r"^ *```(\w+)\n(.*?)^ *```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    provider, suite = [text for kind, text in blocks if kind == "python"]
    (tmp_path / "skyfleet_shells.py").write_text(provider)
    (tmp_path / "test_shells.py").write_text(suite)
    [project] = [tomllib.loads(text) for kind, text in blocks if kind == "toml"]
    [(group, entries)] = project["project"]["entry-points"].items()
    info = tmp_path / "skyfleet_shells-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: skyfleet-shells\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())])
    )
    return tmp_path


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_provider_of_the_page_conforms(folder: Path) -> None:
    done = python(folder, "-m", "unittest", "test_shells")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Ran \d\d tests", done.stderr), done.stderr


LATER = """
import test_shells
from skyfleet_shells import ShellsProvider

from sky.providers.base import AgainLater

asked = set()


def first(call):
    if call not in asked:
        asked.add(call)
        raise AgainLater(f"{call} is not known yet")


class Later(ShellsProvider):
    async def launch(self, order):
        machine = await super().launch(order)
        first((self.home, "launch", order.tag))
        return machine

    async def terminate(self, tag, machine_id):
        await super().terminate(tag, machine_id)
        if tag != "nod_never0bought0by0anybody000":
            first((self.home, "terminate", tag))


test_shells.ShellsProvider = Later
TestShells = test_shells.TestShells
"""


def test_a_provider_may_say_later_of_what_it_was_asked_for_the_first_time(folder: Path) -> None:
    (folder / "test_later.py").write_text(LATER)
    done = python(folder, "-m", "unittest", "test_later")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Ran \d\d tests", done.stderr), done.stderr


def test_its_entry_point_makes_its_kind_known(folder: Path) -> None:
    tried = (
        "from sky.providers.registry import check_config, standard\n"
        "kind = standard().kind('shells')\n"
        "print(kind.create.__name__, check_config(kind, {'folder': '/nowhere'}).folder)\n"
    )
    done = python(folder, "-c", tried)
    assert done.stdout == "ShellsProvider /nowhere\n", done.stderr
