"""System packages: installed once for a computer, by apt, and shown when they cannot be."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="apt needs root"),
    pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="this computer has no dpkg"),
]

APT = """#!/bin/sh
echo "apt-get $*" >> "$(dirname "$0")/asked"
case "$*" in
*update*) echo "Hit:1 lists" ;;
*no-such-thing*) echo "E: Unable to locate package no-such-thing" >&2; exit 100 ;;
*) sleep 0.5; echo "Setting up tiny-for-test"; touch "$(dirname "$0")/installed" ;;
esac
"""
QUERY = """#!/bin/sh
for last; do :; done
if [ "$last" = tiny-for-test ] && [ -e "$(dirname "$0")/installed" ]; then echo "installed 1.0"; exit 0; fi
echo "no packages found matching $last" >&2; exit 1
"""


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    """Programs that stand in for those of the system, which no test may change; they note what is asked."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, text in (("apt-get", APT), ("dpkg-query", QUERY), ("dpkg", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def test_packages_are_installed_once_for_all_nodes(
    node_of: Any, daemon: Any, until: Any, tmp_path: Path, apt: Path
) -> None:
    spec = {"image": {"apt": ["tiny-for-test"]}, "envs": str(tmp_path / "envs")}
    other = type(daemon)()
    other.start()
    first, second = node_of(**spec), node_of(**spec)
    second.daemon = other
    try:
        for node in (first, second):
            node.extra = {"PATH": f"{apt}{os.pathsep}{os.environ['PATH']}"}
            node.start(ready=False)
        for node in (first, second):
            until(lambda node=node: node.daemon.ready, "a ready node")
        asked = (apt / "asked").read_text().splitlines()
        assert [line.split()[1] for line in asked] == ["update", "install"]
        assert "--no-remove -- tiny-for-test" in asked[1]
        said = first.daemon.text(None) + other.text(None)
        assert said.count("Setting up tiny-for-test") == 1
    finally:
        second.end()
        other.close()


def test_a_package_that_is_not_there_fails_the_node_in_apts_words(
    node_of: Any, until: Any, apt: Path
) -> None:
    node = node_of(image={"apt": ["no-such-thing"]})
    node.extra = {"PATH": f"{apt}{os.pathsep}{os.environ['PATH']}"}
    node.start(ready=False)
    failed = until(lambda: [p for p in node.daemon.phases if p.event == "failed"], "a failed phase")
    assert "Unable to locate package no-such-thing" in failed[0].error


def test_what_the_computer_has_needs_no_apt(node_of: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "apt-get").write_text("#!/bin/sh\nexit 1\n")
    (broken / "apt-get").chmod(0o755)
    node = node_of(image={"apt": ["dpkg"]})
    node.extra = {"PATH": f"{broken}{os.pathsep}{os.environ['PATH']}"}
    node.start()
