"""A state folder with something wrong in it: the daemon says what, and does not serve."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import RunningDaemon, free_port

START_S = 30


def refusal(home: Path) -> str:
    """The words with which a daemon refuses to start."""
    command = [sys.executable, "-m", "sky.server.main", "--home", str(home), "--port", "0"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=START_S)
    assert ended.returncode == 3, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize(("name", "content"), [("token", ""), ("secret", "short\n")])
def test_a_damaged_secret_is_named(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    told = refusal(tmp_path)
    assert f"{tmp_path / name} is damaged" in told
    assert "remove it" in told


def test_a_secret_that_is_no_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x" * 44 + "!")
    assert "secret is damaged" in refusal(tmp_path)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "sky.db").write_bytes(b"no database at all\n" * 1000)
    told = refusal(tmp_path)
    assert str(tmp_path / "sky.db") in told
    assert "not a database" in told
    assert (tmp_path / "sky.db").read_bytes().startswith(b"no database")


def test_secrets_are_only_the_owners_and_never_half_written(tmp_path: Path) -> None:
    (tmp_path / "token.new").write_bytes(b"half")  # what a daemon that was killed while it began left
    daemon = RunningDaemon(tmp_path, free_port())
    daemon.start()
    daemon.stop()
    for name in ("token", "secret"):
        assert len((tmp_path / name).read_bytes()) >= 32
        (tmp_path / name).chmod(0o644)
    daemon.start()
    daemon.stop()
    for name in ("token", "secret"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
