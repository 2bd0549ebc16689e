"""A restore that is killed anywhere: the state before, the state after, or one that says so and that the next
restore ends."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import forked
from tests.conftest import RunningDaemon, free_port
from tests.databases import server
from tests.system import killed_upkeep
from tests.system.killed_upkeep import KILLED_AT, STOPPED_AT

from sky.client import calls_admin
from sky.client.http import Http
from sky.store import installation
from sky.store.migrate import UnusableDatabaseError, upgrade
from sky.wire import admin

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

NOTHING = ("restore: taken out",)
HALF = (
    "restore: noted",
    "copy begun",
    "copied blobs",
    "copied user_tokens",
    "restore: token is in place",
    "restore: secret is in place",
    "restore: blobs is in place",
    "restore: artifacts is in place",
    "copy is not whole yet",
)
WHOLE = "restore: whole, and still noted"
SIZE = 300_000
BYTES = {"Content-Type": "application/octet-stream"}


@dataclass
class Backup:
    """A backup file, and what is in it."""

    file: Path
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Backup:
    """One with an account and large content."""
    running = RunningDaemon(tmp_path_factory.mktemp("source"), free_port(), {"SKY_DATABASE": ""})
    running.start()
    made = Backup(tmp_path_factory.mktemp("backup") / "sky.tar", os.urandom(SIZE))
    Http(running.url).send(calls_admin.create_account(admin.AccountCreate(name="acme")))
    put = urllib.request.Request(
        f"{running.url}/v1/blobs/{made.sha256}", data=made.content, method="PUT", headers=BYTES
    )
    with urllib.request.urlopen(put, timeout=20):
        running.stop()
    (running.home / "artifacts" / "job_1").mkdir(mode=0o700)
    (running.home / "artifacts" / "job_1" / "file").write_bytes(b"a job's")
    done = upkeep(running.home, "backup", str(made.file))
    assert done.returncode == 0, done.stderr
    return made


def upkeep(home: Path, *words: str, die_at: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """What an operator has done to a folder, killed at a point."""
    environment = {**os.environ, "SKY_DATABASE": "", KILLED_AT: die_at, **more}
    return forked.run(
        killed_upkeep.__name__, "--home", str(home), *words, environment=environment, timeout=100
    )


def start_of_daemon(home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A daemon that is expected not to serve."""
    environment = {**os.environ, "SKY_DATABASE": "", **more}
    return forked.run(
        "sky.server.main", "--home", str(home), "--port", "0", environment=environment, timeout=100
    )


def check_is_whole(home: Path, backup: Backup) -> None:
    """All of it is there, nobody else may read it, and nothing else is left."""
    with sqlite3.connect(home / "sky.db") as connection:
        assert connection.execute("SELECT name FROM accounts").fetchall() == [("acme",)]
        assert connection.execute("SELECT origin, whole FROM installation").fetchall() == [("restored", 1)]
    name = backup.sha256
    assert (home / "blobs" / name[:2] / name[2:4] / name).read_bytes() == backup.content
    assert (home / "artifacts" / "job_1" / "file").read_bytes() == b"a job's"
    for path in (home, *home.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    there = {path.name.partition("-")[0] for path in home.iterdir()}
    assert there == {"daemon.lock", "sky.db", "token", "secret", "blobs", "artifacts"}


@pytest.mark.parametrize("die_at", [*NOTHING, *HALF])
def test_killed_before_its_end_it_is_begun_anew_and_never_served_from(
    backup: Backup, tmp_path: Path, die_at: str
) -> None:
    home = tmp_path / "home"
    killed = upkeep(home, "restore", str(backup.file), die_at=die_at)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if die_at in NOTHING:
        there = {path.name.partition("-")[0] for path in home.iterdir()}
        assert there == {"daemon.lock", "restoring.lock", ".restore"}
    else:
        refused = start_of_daemon(home)
        assert refused.returncode == 3
        assert f"`sky admin restore {backup.file}` was begun in {home} and did not come" in refused.stderr
    again = upkeep(home, "restore", str(backup.file))
    assert again.returncode == 0, again.stderr
    assert ("undone first" in again.stderr) == (die_at in HALF)
    check_is_whole(home, backup)


@pytest.mark.parametrize("stop_at", [NOTHING[0], "copied blobs"])
def test_one_that_is_under_way_is_left_alone_by_the_next_one_from_elsewhere(
    backup: Backup, tmp_path: Path, stop_at: str
) -> None:
    """As two computers with one folder: each has a state folder of its own."""
    shared = tmp_path / "shared"
    environment = {"SKY_DATABASE": "", "SKY_SHARED_FOLDER": str(shared)}
    command = [sys.executable, killed_upkeep.__file__, "--home", str(tmp_path / "one"), "restore"]
    first = subprocess.Popen(
        [*command, str(backup.file)], env={**os.environ, **environment, STOPPED_AT: stop_at}
    )
    try:
        assert os.WIFSTOPPED(os.waitpid(first.pid, os.WUNTRACED)[1])
        second = upkeep(tmp_path / "two", "restore", str(backup.file), **environment)
        assert second.returncode == 1
        assert f"a restore of {backup.file} into {shared} is under way, since 20" in second.stderr
        assert f"by process {first.pid} on {socket.gethostname()}; wait for its end" in second.stderr
        if stop_at not in NOTHING:
            refused = start_of_daemon(tmp_path / "two", **environment)
            assert refused.returncode == 3
            assert "is under way, since" in refused.stderr
        first.send_signal(signal.SIGCONT)
        assert first.wait(100) == 0
    finally:
        first.kill()
    assert sorted(path.name for path in shared.iterdir()) == ["artifacts", "blobs", "secret", "token"]
    taken = upkeep(tmp_path / "two", "restore", str(backup.file), **environment)
    assert "is there already" in taken.stderr


def test_a_copy_that_something_else_removed_is_told_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sky.db'}"
    upgrade(url)
    with pytest.raises(UnusableDatabaseError, match="by something else meanwhile"):
        installation.copy_ends(url, installation.RESTORED, "ins_one")


def test_killed_after_its_last_word_it_is_all_there(backup: Backup, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert upkeep(home, "restore", str(backup.file), die_at=WHOLE).returncode == -signal.SIGKILL
    again = upkeep(home, "restore", str(backup.file))
    assert again.returncode == 1
    assert f"what was restored into {home} before is all there: start the daemon" in again.stderr
    running = RunningDaemon(home, free_port(), {"SKY_DATABASE": ""})
    running.start()
    assert [one.name for one in Http(running.url).send(calls_admin.list_accounts()).items] == ["acme"]
    running.stop()
    assert not (home / "restoring.json").exists()
    taken = upkeep(home, "restore", str(backup.file))
    assert taken.returncode == 1
    assert "is there already" in taken.stderr
    assert not list(home.glob(".restore-*"))


def test_into_postgresql_it_is_the_same(backup: Backup, tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    server().do("CREATE DATABASE put_back")
    url = server().url("put_back")
    killed = upkeep(home, "restore", str(backup.file), die_at="copied blobs", SKY_DATABASE=url)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    for folder in (home, other):
        refused = start_of_daemon(folder, SKY_DATABASE=url)
        assert refused.returncode == 3
        assert "sky admin restore" in refused.stderr
    elsewhere = upkeep(home, "restore", str(backup.file))
    assert elsewhere.returncode == 1
    assert "name that one in SKY_DATABASE" in elsewhere.stderr
    again = upkeep(home, "restore", str(backup.file), SKY_DATABASE=url)
    assert again.returncode == 0, again.stderr
    running = RunningDaemon(home, free_port(), {"SKY_DATABASE": url})
    running.start()
    assert [one.name for one in Http(running.url).send(calls_admin.list_accounts()).items] == ["acme"]
    running.stop()


def test_a_move_that_was_killed_is_begun_anew(backup: Backup, tmp_path: Path) -> None:
    home, target = tmp_path / "home", tmp_path / "target.db"
    assert upkeep(home, "restore", str(backup.file)).returncode == 0
    killed = upkeep(home, "migrate", str(target), die_at="copied blobs")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    refused = start_of_daemon(home, SKY_DATABASE=str(target))
    assert refused.returncode == 3
    assert "a copy into this database was begun" in refused.stderr
    again = upkeep(home, "migrate", str(target))
    assert again.returncode == 0, again.stderr
    assert f"removes nothing in {home / 'blobs'}" in again.stdout
    with sqlite3.connect(target) as connection:
        assert connection.execute("SELECT name FROM accounts").fetchall() == [("acme",)]


def test_a_move_ends_where_a_daemon_has_begun_to_serve_meanwhile(backup: Backup, tmp_path: Path) -> None:
    home, target = tmp_path / "home", tmp_path / "target.db"
    assert upkeep(home, "restore", str(backup.file)).returncode == 0
    (tmp_path / "other").mkdir()
    serving = RunningDaemon(tmp_path / "other", free_port(), {"SKY_DATABASE": str(home / "sky.db")})
    environment = {**os.environ, "SKY_DATABASE": "", STOPPED_AT: "migrate: rows are copied"}
    command = [sys.executable, killed_upkeep.__file__, "--home", str(home), "migrate", str(target)]
    move = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert os.WIFSTOPPED(os.waitpid(move.pid, os.WUNTRACED)[1])
        serving.start()
        move.send_signal(signal.SIGCONT)
        said = move.communicate(timeout=100)[1]
    finally:
        move.kill()
    assert (move.returncode, f"is served from by {serving.url}: stop that first" in said) == (1, True), said
    refused = start_of_daemon(home, SKY_DATABASE=str(target))
    assert "a copy into this database was begun" in refused.stderr
    serving.stop()
    again = upkeep(home, "migrate", str(target))
    assert again.returncode == 0, again.stderr


def test_what_was_used_since_is_not_undone(backup: Backup, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert upkeep(home, "restore", str(backup.file), die_at="copied blobs").returncode == -signal.SIGKILL
    with sqlite3.connect(home / "sky.db") as connection:
        connection.execute("UPDATE installation SET identity = 'ins_another', whole = 1")
    refused = upkeep(home, "restore", str(backup.file))
    assert refused.returncode == 1
    assert "has been used since" in refused.stderr
    with sqlite3.connect(home / "sky.db") as connection:
        assert connection.execute("SELECT identity FROM installation").fetchall() == [("ins_another",)]


@pytest.mark.parametrize("die_at", ["backup: rows are copied", "backup: written, not named"])
def test_what_a_killed_backup_left_goes_with_the_next_one(
    backup: Backup, tmp_path: Path, die_at: str
) -> None:
    home, file = tmp_path / "home", tmp_path / "backups" / "sky.tar"
    file.parent.mkdir()
    assert upkeep(home, "restore", str(backup.file)).returncode == 0
    assert upkeep(home, "backup", str(file), die_at=die_at).returncode == -signal.SIGKILL
    [left] = file.parent.iterdir()
    assert left.name.startswith(".sky-backup-")
    again = upkeep(home, "backup", str(file))
    assert again.returncode == 0, again.stderr
    assert list(file.parent.iterdir()) == [file]
