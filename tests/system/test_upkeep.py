"""What a deployment keeps, copied while it runs, put back elsewhere, and moved to PostgreSQL."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import commands, forked
from tests.conftest import RunningDaemon, free_port
from tests.databases import IN_A_FILE, server

import sky
from sky.client import calls, calls_admin
from sky.client.http import Http
from sky.server.archive import Writing
from sky.wire import admin

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
LARGE = 300_000


@sky.function
def twice(content: bytes) -> bytes:
    """More than fits into a row, both ways."""
    return content * 2


def sky_admin(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command of the operator of that folder."""
    return commands.sky("admin", *words, environment={**os.environ, "SKY_HOME": str(home), **environment})


def upkeep(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What such a command runs."""
    environment = {**os.environ, **environment}
    return forked.run("sky.server.upkeep", "--home", str(home), *words, environment=environment, timeout=200)


def use(daemon: RunningDaemon) -> str:
    """Calls and money; returns the task whose result is content."""
    content = os.urandom(LARGE)
    with sky.Compute(sky.Local(), nodes=1, url=daemon.url, quiet=True) as compute:
        assert (twice(content) >> compute) == content * 2
    http = Http(daemon.url)
    task = http.send(calls.list_tasks()).items[0].id
    http.send(calls_admin.create_account(admin.AccountCreate(name="acme")))
    return task


def result_of(daemon: RunningDaemon, task: str) -> bytes:
    """The bytes of a task's result, as they are kept."""
    with urllib.request.urlopen(f"{daemon.url}/v1/tasks/{task}/result", timeout=60) as answer:
        return answer.read()


@IN_A_FILE
def test_a_backup_made_while_it_runs_is_put_back_and_moved_to_postgresql(
    own_daemon: RunningDaemon, tmp_path: Path
) -> None:
    task = use(own_daemon)
    kept = result_of(own_daemon, task)
    file = tmp_path / "backup.tar"
    made = sky_admin(own_daemon.home, "backup", str(file), "-o", "json")
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    assert (told["file"], told["bytes"]) == (str(file), file.stat().st_size)
    assert told["rows"] > 0
    assert file.stat().st_mode & 0o077 == 0
    again = sky_admin(own_daemon.home, "backup", str(file), "-o", "json")
    assert again.returncode == 1
    assert "is there already" in json.loads(again.stderr)["message"]
    moved = sky_admin(own_daemon.home, "migrate", server().url("postgres"))
    assert moved.returncode == 1
    assert "a daemon runs there" in moved.stderr

    second = RunningDaemon(tmp_path / "second", free_port())
    assert sky_admin(second.home, "restore", str(file)).returncode == 0
    taken = upkeep(second.home, "restore", str(file))
    assert taken.returncode == 1
    assert "is there already" in taken.stderr
    second.start()
    assert result_of(second, task) == kept
    assert [one.name for one in Http(second.url).send(calls_admin.list_accounts()).items] == ["acme"]
    assert Http(second.url).send(calls_admin.audit_ledger()).ok
    second.stop()

    server().do("CREATE DATABASE moved")
    url = server().url("moved")
    gone = sky_admin(second.home, "migrate", url)
    assert gone.returncode == 0, gone.stderr
    full = upkeep(second.home, "migrate", url)
    assert full.returncode == 1
    assert "has rows in" in full.stderr
    third = RunningDaemon(second.home, free_port(), {"SKY_DATABASE": url})
    third.start()
    assert result_of(third, task) == kept
    use_more = Http(third.url).send(calls_admin.create_account(admin.AccountCreate(name="later")))
    assert use_more.name == "later"
    assert Http(third.url).send(calls_admin.audit_ledger()).ok
    third.stop()


def test_a_database_that_others_serve_from_is_neither_moved_nor_filled(tmp_path: Path) -> None:
    server().do("CREATE DATABASE served")
    url = server().url("served")
    with_it = {"SKY_DATABASE": url, "SKY_SHARED_FOLDER": str(tmp_path / "shared")}
    (tmp_path / "one").mkdir()
    serving = RunningDaemon(tmp_path / "one", free_port(), with_it)
    serving.start()
    file = tmp_path / "backup.tar"
    assert upkeep(serving.home, "backup", str(file), **with_it).returncode == 0
    moved = upkeep(tmp_path / "other", "migrate", str(tmp_path / "moved.db"), **with_it)
    filled = upkeep(tmp_path / "other", "restore", str(file), SKY_DATABASE=url, SKY_SHARED_FOLDER="")
    for refused in (moved, filled):
        assert refused.returncode == 1
        assert f"is served from by {serving.url}: stop that first" in refused.stderr
    assert not (tmp_path / "moved.db").exists()
    serving.stop()
    done = upkeep(tmp_path / "other", "migrate", str(tmp_path / "moved.db"), **with_it)
    assert done.returncode == 0, done.stderr


class Meanwhile(io.BytesIO):
    """An archive that is written to; with the first of it, something else happens."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens = [happens]

    def write(self, content: Any, /) -> int:
        if self._happens:
            self._happens.pop()()
        return super().write(content)


def test_a_folder_in_use_is_copied_whatever_goes_meanwhile(tmp_path: Path) -> None:
    there = tmp_path / "another disk"
    for name in ("incoming/half", "a/first", "a/second", "b/third", "c/fourth"):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_bytes(os.urandom(LARGE))
    (tmp_path / "artifacts").symlink_to(there)

    def goes() -> None:
        (there / "a" / "second").unlink()
        shutil.rmtree(there / "b")

    out = Meanwhile(goes)
    with tarfile.open(fileobj=out, mode="w|") as archive:
        Writing(archive).add_folder(tmp_path / "artifacts", "artifacts")
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        names = [one.name for one in archive.getmembers() if one.isreg()]
    assert names == ["artifacts/a/first", "artifacts/c/fourth"]


def test_what_is_no_backup_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "other.tar"
    with tarfile.open(file, "w") as archive:
        archive.add(__file__, "something")
    home = tmp_path / "home"
    refused = sky_admin(home, "restore", str(file))
    assert refused.returncode == 1
    assert "is no backup of ours" in refused.stderr
    assert not (home / "sky.db").exists()
    torn = tmp_path / "torn.tar"
    torn.write_bytes(file.read_bytes()[:700])
    assert upkeep(home, "restore", str(torn)).returncode == 1
    missing = upkeep(home, "backup", str(tmp_path / "nothing.tar"))
    assert missing.returncode == 1
    assert "has a daemon run there" in missing.stderr
