"""What a system is given: the unit, the manual, and completion in a real shell.

Decides: that systemd, man and shells have nothing to say against what they are handed. Never: installs it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal
from tests.packaging.conftest import ROOT, clean, run
from tests.packaging.test_container import is_setting

from sky.cli.nouns import NOUNS

UNIT = ROOT / "packaging" / "systemd" / "skyfleet.service"
MANUAL = ROOT / "packaging" / "man" / "sky.1"
# What bash does when the tab key is pressed: the words so far, and which of them is being written.
PRESS = """
set -u
source "$1"; shift
while IFS= read -r line; do
    read -ra COMP_WORDS <<< "$line"
    case "$line" in *' ') COMP_WORDS+=("") ;; esac
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); COMP_LINE="$line"; COMP_POINT=${#line}; COMPREPLY=()
    _sky
    echo "${COMPREPLY[*]-}"
done
"""


def unit() -> list[tuple[str, str]]:
    lines = [line for line in UNIT.read_text(encoding="utf-8").splitlines() if "=" in line and line[0] != "#"]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    # What is not installed here stands where it would be; all else is as it is given.
    command = tmp_path / "sky"
    command.write_text("#!/bin/sh\n", encoding="utf-8")
    command.chmod(0o755)
    text = UNIT.read_text(encoding="utf-8").replace("/opt/skyfleet/bin/sky", str(command))
    tried = tmp_path / "skyfleet.service"
    tried.write_text(text, encoding="utf-8")
    done = run("systemd-analyze", "verify", "--man=no", tried)
    assert (done.returncode, done.stderr) == (0, "")
    tried.write_text(text.replace("KillMode=process", "KillMode=nobody"), encoding="utf-8")
    assert "kill mode" in run("systemd-analyze", "verify", "--man=no", tried).stderr, "it looks closely"
    judged = run("systemd-analyze", "security", "--offline=true", "--threshold=25", "--no-pager", UNIT)
    assert judged.returncode == 0, judged.stdout[-300:]


def test_the_unit_leaves_nodes_alone_and_waits_for_open_requests() -> None:
    said = dict(unit())
    assert (said["Type"], said["KillMode"], said["Restart"]) == ("notify", "process", "on-failure")
    assert said["ExecStart"] == "/opt/skyfleet/bin/sky server start --foreground"
    names = [word.partition("=")[0] for word in said["Environment"].split()]
    assert [name for name in names if name != "HOME" and not is_setting(name)] == []
    home = re.search(r"SKY_HOME=(\S+)", said["Environment"])
    assert home
    assert home[1].startswith(f"/var/lib/{said['StateDirectory']}/")


def test_the_user_of_the_unit_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    done = run("systemd-sysusers", f"--root={tmp_path}", UNIT.with_suffix(".sysusers"))
    assert done.returncode == 0, done.stderr
    [line] = (tmp_path / "etc" / "passwd").read_text().splitlines()
    name, _, number, _, _, home, shell = line.split(":")
    assert (name, home, Path(shell).name) == ("skyfleet", "/var/lib/skyfleet", "nologin")
    assert int(number) < 1000


def test_man_shows_the_manual_without_a_complaint(tmp_path: Path) -> None:
    folder = tmp_path / "man1"
    folder.mkdir()
    shutil.copy(MANUAL, folder)
    shown = run("man", "--warnings=w", "--local-file", "--pager=cat", "-E", "UTF-8", folder / "sky.1")
    assert (shown.returncode, shown.stderr) == (0, "")
    text = re.sub(r".\x08", "", shown.stdout)
    for noun in NOUNS:
        assert re.search(rf"^   sky {noun}$", text, re.MULTILINE), noun
    assert "$ sky compute create dev --nodes 2 --cpus 1 --pip numpy" in text
    assert re.search(r"^EXIT STATUS$", text, re.MULTILINE)


# A shell whose ``sky`` says what it was given: what is typed, and what the tab key has made of it.
SAYS = 'sky() { print -r -- "given: $*" }\nPS1="ready> "\n'
TYPED = {"comput": "compute", "admin led": "admin ledger"}


def test_zsh_completes_after_an_installation(tmp_path: Path) -> None:
    home = clean(HOME=str(tmp_path), ZDOTDIR=str(tmp_path), TERM="dumb")
    sky, startup = Path(sys.executable).with_name("sky"), tmp_path / ".zshrc"
    startup.write_bytes("# grüße".encode("latin-1"))
    assert run(sky, "completion", "install", "--shell", "zsh", env=home).returncode == 0
    written = startup.read_text(encoding="latin-1")
    for before in ("", "autoload -Uz compinit && compinit -u\n"):
        startup.write_text(before + SAYS + written, encoding="latin-1")
        with Terminal([str(shutil.which("zsh")), "-i"], home, tmp_path) as terminal:
            for typed, given in TYPED.items():
                terminal.until("ready> ")
                terminal.type(f"sky {typed}\t\r")
                terminal.until(f"given: {given}")


def test_fish_completes_what_was_installed_where_it_was_told(tmp_path: Path) -> None:
    sky, file = Path(sys.executable).with_name("sky"), tmp_path / "here.fish"
    home = clean(HOME=str(tmp_path), PATH=f"{sky.parent}:{os.environ['PATH']}")
    words = ("completion", "install", "--shell", "fish", "--file", file, "--no-startup")
    assert run(sky, *words, env=home).stdout == f"{file}\n"
    assert list(tmp_path.iterdir()) == [file]
    done = run("fish", "-c", f"source {file}; complete -C 'sky admin account re'", env=home, cwd=tmp_path)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["refund", "resume"]


@pytest.mark.parametrize("shell", ["bash"])
def test_a_shell_completes_commands_and_options(tmp_path: Path, shell: str) -> None:
    script, press = tmp_path / "sky.bash", tmp_path / "press"
    done = run(Path(sys.executable).with_name("sky"), "completion", "show", "--shell", shell)
    assert done.returncode == 0, done.stderr
    script.write_text(done.stdout, encoding="utf-8")
    press.write_text(PRESS, encoding="utf-8")
    lines = {
        "sky comp": ["completion", "compute"],
        "sky compute cr": ["create"],
        "sky server st": ["start", "status", "stop"],
        "sky completion show --shell ": ["bash", "fish", "zsh"],
        "sky compute create --max-": ["--max-hourly-cost"],
    }
    pressed = run(shell, press, script, input="\n".join(lines) + "\n")
    assert (pressed.returncode, pressed.stderr) == (0, "")
    told = [sorted(line.split()) for line in pressed.stdout.splitlines()]
    assert dict(zip(lines, told, strict=True)) == lines
