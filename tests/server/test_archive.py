"""The file of a backup: what of it is refused before anything is changed, and what a full disk says."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from tests import forked
from tests.conftest import free_port
from tests.disks import small_disk

from sky.kit import faults
from sky.server import unfinished
from sky.server.archive import BackupError, Writing, take_out
from sky.server.restoring import restore
from sky.server.settings import load
from sky.server.workspace import ALIVE, UNLOCKED_S, workspace
from sky.store import installation
from sky.store.engine import make_engine
from sky.store.migrate import FOLDER, upgrade

Entry = tuple[tarfile.TarInfo, bytes]
SYNCED = """
import os, sys
from sky.server import upkeep

def sync(descriptor, really=os.fsync):
    there = os.readlink(f"/proc/self/fd/{descriptor}")
    really(descriptor)
    if os.path.isdir(there):
        names = [name for name in os.listdir(there) if not name.startswith(".")]
        print("synced", there, "with", names, file=sys.stderr)

os.fsync = sync
sys.exit(upkeep.main())
"""


def upkeep(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What an operator has done to a folder."""
    environment = {**os.environ, "SKY_DATABASE": ""}
    return forked.run("sky.server.upkeep", "--home", str(home), *words, environment=environment, timeout=100)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a state folder, of keys, content and an empty database, and a backup of it."""
    folder = tmp_path_factory.mktemp("made")
    home = folder / "source"
    (home / "blobs" / "ab" / "cd").mkdir(parents=True)
    for name in ("token", "secret"):
        (home / name).write_text("k" * 40)
    (home / "blobs" / "ab" / "cd" / "large").write_bytes(b"large" * 100_000)
    upgrade(f"sqlite:///{home / 'sky.db'}")
    done = upkeep(home, "backup", str(folder / "sky.tar"))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    """The state folder, for one test."""
    return shutil.copytree(made / "source", tmp_path / "source")


@pytest.fixture
def file(made: Path, tmp_path: Path) -> Path:
    """The backup, for one test."""
    return shutil.copy(made / "sky.tar", tmp_path / "sky.tar")


def rewritten(file: Path, change: Callable[[list[Entry]], list[Entry]]) -> Path:
    """The same archive with other entries."""
    other = file.with_name("other.tar")
    with tarfile.open(file) as archive:
        entries: list[Entry] = []
        for info in archive:
            source = archive.extractfile(info)
            entries.append((info, b"" if source is None else source.read()))
    with tarfile.open(other, "w") as archive:
        for info, content in change(entries):
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return other


def without(name: str) -> Callable[[list[Entry]], list[Entry]]:
    return lambda entries: [one for one in entries if one[0].name != name]


def with_content(name: str, content: bytes) -> Callable[[list[Entry]], list[Entry]]:
    return lambda entries: [(info, content if info.name == name else old) for info, old in entries]


def with_entry(name: str, kind: bytes, target: str = "") -> Callable[[list[Entry]], list[Entry]]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return lambda entries: [*entries, (info, b"")]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (with_content("secret", b"x" * 40), "not as they were written: secret"),
        (with_content("blobs/ab/cd/large", b"large" * 99_999), "not as they were written: blobs/ab/cd/large"),
        (without("blobs/ab/cd/large"), "missing or not as they were written"),
        (without("manifest.json"), "its end is missing"),
        (with_content("manifest.json", b"{}"), "cannot be read"),
        (with_entry("blobs/more", tarfile.REGTYPE), "not as they were written: blobs/more"),
        (with_entry("blobs/out", tarfile.SYMTYPE, "/etc/passwd"), "is a link"),
        (with_entry("blobs/out", tarfile.SYMTYPE, "ab"), "is a link"),
        (with_entry("blobs/out", tarfile.LNKTYPE, "secret"), "is a link"),
        (with_entry("blobs/pipe", tarfile.FIFOTYPE), "no plain file"),
        (with_entry("blobs", tarfile.SYMTYPE, "/tmp"), "is a link"),
        (with_entry("blobs/../../out", tarfile.REGTYPE), "is not in one"),
        (with_entry("/out", tarfile.REGTYPE), "is not in one"),
        (with_entry("sky.db", tarfile.REGTYPE), "is not in one"),
        (with_entry("token", tarfile.REGTYPE), "is not in one"),
    ],
)
def test_one_that_is_not_as_it_was_written_changes_nothing(
    file: Path, tmp_path: Path, change: Callable[[list[Entry]], list[Entry]], why: str
) -> None:
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(BackupError, match="nothing was put back") as refused:
        take_out(rewritten(file, change), into)
    assert why in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_one_that_is_cut_off_is_refused_wherever_that_is(file: Path, home: Path, tmp_path: Path) -> None:
    whole, torn = file.read_bytes(), tmp_path / "torn.tar"
    with tarfile.open(file) as archive:
        ends = [info.offset for info in archive]
    for end in (*ends[1:], ends[-1] + 100, len(whole) // 2, 700):
        into = tmp_path / f"into-{end}"
        torn.write_bytes(whole[:end])
        into.mkdir()
        with pytest.raises(BackupError, match=r"nothing was put back|no backup of ours"):
            take_out(torn, into)
    again = tmp_path / "again"
    assert upkeep(again, "restore", str(torn)).returncode == 1
    assert {path.name for path in again.iterdir()} == {"daemon.lock"}


def test_a_key_behind_a_link_is_in_it_and_who_may_read_is_not_the_files_to_say(
    home: Path, tmp_path: Path
) -> None:
    (home / "secret").rename(tmp_path / "mounted")
    (home / "secret").symlink_to(tmp_path / "mounted")
    (tmp_path / "mounted").chmod(0o644)
    (home / "blobs" / "ab" / "cd" / "large").chmod(0o666)
    file = tmp_path / "sky.tar"
    assert upkeep(home, "backup", str(file)).returncode == 0
    with tarfile.open(file) as archive:
        for info in archive:
            info.mode = 0o777
    again = tmp_path / "again"
    assert upkeep(again, "restore", str(file)).returncode == 0
    assert not (again / "secret").is_symlink()
    assert (again / "secret").read_text() == "k" * 40
    for path in (again, *again.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_folder_behind_a_link_is_not_left_out_in_silence(home: Path, tmp_path: Path) -> None:
    (home / "blobs" / "ab").rename(tmp_path / "elsewhere")
    (home / "blobs" / "ab").symlink_to(tmp_path / "elsewhere")
    refused = upkeep(home, "backup", str(tmp_path / "sky.tar"))
    assert refused.returncode == 1
    assert "is a link to a folder, which a backup would miss" in refused.stderr
    assert not list(tmp_path.glob("*sky*"))


def test_an_earlier_releases_file_is_brought_up_to_date_and_a_newer_ones_refused(
    file: Path, tmp_path: Path
) -> None:
    """An earlier one has neither hashes nor the newest schema."""

    def at(schema: str) -> Callable[[list[Entry]], list[Entry]]:
        def change(entries: list[Entry]) -> list[Entry]:
            [database] = [content for info, content in entries if info.name == "database.db"]
            path = tmp_path / "older.db"
            path.write_bytes(database)
            step_down(path, "0010")
            with sqlite3.connect(path) as connection:
                connection.execute("UPDATE alembic_version SET version_num = ?", (schema,))
            connection.close()
            kept = [one for one in entries if one[0].name not in ("backup.json", "manifest.json")]
            return with_content("database.db", path.read_bytes())(kept)

        return change

    older = upkeep(tmp_path / "older", "restore", str(rewritten(file, at("0010"))))
    assert older.returncode == 0, older.stderr
    newer = upkeep(tmp_path / "newer", "restore", str(rewritten(file, at("9999"))))
    assert newer.returncode == 1
    assert "was made by a newer release: the database has schema 9999" in newer.stderr
    assert {path.name for path in (tmp_path / "newer").iterdir()} == {"daemon.lock"}


def step_down(path: Path, schema: str) -> None:
    """Undo the steps after that one."""
    engine = make_engine(f"sqlite:///{path}", writer=True)
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, schema)
    engine.dispose()


def test_an_older_database_is_not_copied_by_a_newer_release(home: Path, tmp_path: Path) -> None:
    with sqlite3.connect(home / "sky.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0009'")
    refused = upkeep(home, "backup", str(tmp_path / "sky.tar"))
    assert refused.returncode == 1
    assert "the database has schema 0009" in refused.stderr
    assert not list(tmp_path.glob("*sky*"))


def test_a_folder_that_a_daemon_holds_is_refused(file: Path, tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.mkdir()
    with open(held / "daemon.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = upkeep(held, "restore", str(file))
    assert refused.returncode == 1
    assert "a daemon runs there" in refused.stderr


def test_a_full_disk_is_named_and_loses_nothing(home: Path, file: Path, tmp_path: Path) -> None:
    (home / "blobs" / "ab" / "cd" / "larger").write_bytes(os.urandom(6 * 1024**2))
    larger = tmp_path / "larger.tar"
    assert upkeep(home, "backup", str(larger)).returncode == 0
    with small_disk(tmp_path / "small", "4m") as disk:
        made = upkeep(home, "backup", str(disk / "sky.tar"))
        assert made.returncode == 1
        assert f"there is no room on the disk of {disk}; make room there" in made.stderr
        assert list(disk.iterdir()) == []
        back = upkeep(disk / "home", "restore", str(larger))
        assert back.returncode == 1
        assert f"the disk of {disk / 'home'} has no room for what is in {larger}" in back.stderr
        assert {path.name for path in (disk / "home").iterdir()} == {"daemon.lock"}
        (disk / "filler").write_bytes(bytes(4 * 1024**2 - file.stat().st_size - 256 * 1024))
        rows = upkeep(disk / "rows", "restore", str(file))  # its database fits once, and not twice
        assert rows.returncode == 1
        assert "make room" in rows.stderr
        assert {path.name for path in (disk / "rows").iterdir()} == {"daemon.lock"}
        (disk / "filler").unlink()
        assert upkeep(disk / "rows", "restore", str(file)).returncode == 0


def test_a_database_that_is_not_there_is_named_by_whoever_needs_it(file: Path, home: Path) -> None:
    nobodys = f"postgresql://sky@127.0.0.1:{free_port()}/sky"
    others, shown = home.parent / "others", nobodys.replace("postgresql:", "postgresql+psycopg:")
    for done in (
        upkeep(home, "migrate", nobodys),
        upkeep(others, "--database", nobodys, "restore", str(file)),
        upkeep(home, "--database", nobodys, "takeover"),
    ):
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: the database {shown} cannot be used: "), done.stderr
    assert {path.name for path in others.iterdir()} == {"daemon.lock"}
    unknown = upkeep(home, "migrate", "oracle://nobody/sky")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("error: a database of the kind 'oracle' cannot be used"), unknown.stderr


def test_where_no_daemon_has_run_is_nothing_to_copy_and_no_full_disk(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for words in (("backup", str(tmp_path / "sky.tar")), ("migrate", str(tmp_path / "other.db"))):
        done = upkeep(nowhere, *words)
        assert done.returncode == 1
        shown = f"sqlite:///{nowhere / 'sky.db'}"
        said = f"error: there is no database of ours to copy from at {shown}; has a daemon run there?\n"
        assert done.stderr == said
    assert [path.name for path in tmp_path.rglob("*")] == ["nowhere", "daemon.lock"]


def test_what_came_while_it_was_taken_out_is_not_written_over(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_DATABASE", "")
    others = tmp_path / "others"

    def begin_a_daemon(name: str) -> None:
        if name == "restore: taken out":
            (others / "token").write_text("of another home")

    faults.watch(begin_a_daemon)
    try:
        with pytest.raises(BackupError, match="token is there already"):
            restore(load({"home": str(others)}), file, lambda _table, _rows: None, incomplete=False)
    finally:
        faults.watch(None)
    assert [path.name for path in others.iterdir()] == ["token"], "and nothing says that a restore was begun"
    assert (others / "token").read_text() == "of another home"


def test_a_restore_that_is_whole_says_so_whatever_fails_then(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_DATABASE", "")
    with sqlite3.connect(home / "sky.db") as connection:
        connection.execute("INSERT INTO counters (name, value) VALUES ('one', 1), ('other', 2)")
    connection.close()
    file = tmp_path / "sky.tar"
    assert upkeep(home, "backup", str(file)).returncode == 0

    def fail(name: str) -> None:
        if name == "copy is whole":
            raise OSError("the answer was lost")

    faults.watch(fail)
    try:
        back = restore(load({"home": str(tmp_path / "home")}), file, lambda *_: None, incomplete=False)
    finally:
        faults.watch(None)
    assert back.rows == 2
    assert not (tmp_path / "home" / "restoring.json").exists()


def test_those_who_look_at_once_take_nobody_for_a_restore(tmp_path: Path) -> None:
    chosen = load({"home": str(tmp_path)})
    with open(chosen.shared / unfinished.LOCK, "wb") as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        assert unfinished.under_way(chosen) is None
        fcntl.flock(looked_at, fcntl.LOCK_EX)
        assert "is under way" in (unfinished.under_way(chosen) or "")


def test_a_takeover_says_of_each_place_whose_it_was(home: Path) -> None:
    installation.begin(f"sqlite:///{home / 'sky.db'}")
    blobs, artifacts = home / "blobs", home / "artifacts"

    def said(*words: str) -> list[str]:
        done = upkeep(home, "takeover", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[1:]

    free = f"{artifacts} is nobody's; its next daemon makes it its own, and so does a takeover"
    assert said("--dry-run") == [f"{blobs} would become its own; until now, it carried no mark", free]
    took = f"{artifacts} is its own; until now, it carried no mark"
    assert said() == [f"{blobs} is its own; until now, it carried no mark", took]
    (blobs / "installation.json").write_bytes(b"{")
    own = f"{artifacts} is its own already"
    assert said() == [f"{blobs} is its own; until now, somebody had it whose mark cannot be read", own]
    (blobs / "installation.json").write_bytes(b'{"installation": "ins_other", "since_us": 1}')
    assert said() == [
        f"{blobs} is its own; until now, the installation ins_other had it",
        own,
        "whoever had that removes nothing there now; stop it, or give it a place of its own",
    ]
    assert said() == [f"{blobs} is its own already", own]


def test_only_what_dead_ones_left_is_removed(tmp_path: Path) -> None:
    names = ("dead", "early_00", "new_0000", "of_a_day", "20261130")
    dead, early, new, named, used = (tmp_path / f".work-{name}" for name in names)
    for folder in (dead, early, new, named, used):
        folder.mkdir()
    (dead / ALIVE).touch()
    (early / "database.db").touch()
    (used / "notes.txt").touch()
    named = named.rename(tmp_path / ".work-of-somebody")
    for folder in (early, named, used):
        old_s = folder.stat().st_mtime - UNLOCKED_S - 1
        os.utime(folder, (old_s, old_s))
    others = {new, named, used}
    with workspace(tmp_path, ".work-") as first:
        assert set(tmp_path.iterdir()) == {first, *others}
        with workspace(tmp_path, ".work-") as second:
            assert set(tmp_path.iterdir()) == {first, second, *others}
    assert set(tmp_path.iterdir()) == others


def test_what_is_no_file_is_not_left_out_in_silence(tmp_path: Path) -> None:
    pipe = tmp_path / "folder" / "pipe"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    with (
        tarfile.open(fileobj=io.BytesIO(), mode="w|") as archive,
        pytest.raises(BackupError, match="is no file"),
    ):
        Writing(archive).add_folder(pipe.parent, "blobs")


def test_a_backup_is_called_made_once_its_name_is_on_the_disk(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backups" / "sky.tar"
    file.parent.mkdir()
    command = [sys.executable, "-c", SYNCED, "--home", str(home), "backup", str(file)]
    made = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        env={**os.environ, "SKY_DATABASE": ""},
    )
    assert made.stderr.splitlines()[-1] == f"synced {file.parent} with ['sky.tar']"
