"""A state folder with something wrong in it: the daemon says what, and does not serve."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests import forked
from tests.conftest import RunningDaemon, free_port
from tests.databases import IN_A_FILE
from tests.disks import small_disk

from sky.server.wiring import holder_of

START_S = 120


def refusal(home: Path) -> str:
    """The words with which a daemon refuses to start."""
    words = ("--home", str(home), "--port", "0")
    ended = forked.run("sky.server.main", *words, environment=os.environ, timeout=START_S)
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


@pytest.mark.parametrize("name", ["blobs", "artifacts/incoming", "spool"])
def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    told = refusal(tmp_path)
    assert f"error: {tmp_path / name}" in told
    assert "is in the way" in told
    assert "move it away" in told


@pytest.mark.parametrize("name", ["token", "daemon.new", "daemon.json"])
def test_a_folder_where_a_file_should_be_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    told = refusal(tmp_path)
    assert f"{tmp_path / name} is in the way" in told
    assert "move it away" in told


@pytest.mark.real
def test_a_disk_without_room_and_one_that_takes_nothing_are_named(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as home:
        with suppress(OSError), open(home / "much", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        full = refusal(home)
        assert "room" in full
        assert str(home) in full
        subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
        assert f"the state folder {home} cannot be used: Read-only file system" in refusal(home)


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


@IN_A_FILE
def test_a_daemon_that_can_write_nothing_any_more_ends_in_order(tmp_path: Path) -> None:
    daemon = RunningDaemon(tmp_path, free_port())
    daemon.start()
    database = sqlite3.connect(tmp_path / "sky.db")
    deadline = time.monotonic() + START_S
    while not database.execute("SELECT 1 FROM passes WHERE holder IS NOT NULL").fetchone():
        assert time.monotonic() < deadline, "it claims nothing"
        time.sleep(0.02)
    database.close()
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1, 1))
    daemon.process.terminate()
    assert daemon.process.wait(START_S) == 0


def test_daemons_of_two_folders_have_no_claim_in_common(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    assert holder_of(one) != holder_of(other)
    assert holder_of(one) == holder_of(other / ".." / "one"), "and the next one in a folder finds its own"
