"""What is said of a SQLite that cannot be opened or written: each cause by its name, and what helps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from tests.disks import small_disk
from tests.store.support import empty

from sky.domain.errors import SkyError, StorageFull
from sky.store.engine import explain, make_engine
from sky.store.migrate import UnusableDatabaseError, upgrade

WRITE = "CREATE TABLE more AS SELECT randomblob(4000000) AS content"
ALONE = """
import os, resource, sys
from sky.store.migrate import UnusableDatabaseError, upgrade

if sys.argv[1] == "stranger":
    os.setgid(65534)
    os.setuid(65534)
else:
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    some = [os.open(os.devnull, os.O_RDONLY) for _ in range(40 - len(os.listdir("/proc/self/fd")) + 1)]
try:
    upgrade(sys.argv[2])
except UnusableDatabaseError as error:
    print(error)
"""


def told(url: str, do: str = "SELECT 1") -> SkyError:
    """What a statement on that database fails with."""
    engine = make_engine(url, writer=True)
    try:
        with engine.begin() as connection:
            connection.execute(sa.text(do))
    except DBAPIError as error:
        known = explain(error)
        assert isinstance(known, SkyError)
        return known
    finally:
        engine.dispose()
    raise AssertionError("it was done")


def test_a_folder_that_is_not_there_is_no_full_disk(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'gone' / 'sky.db'}"
    assert "the folder of the database is not there" in told(url).message
    with pytest.raises(
        UnusableDatabaseError, match=r"gone/sky\.db cannot be used: the folder .* is not there"
    ):
        upgrade(url)


def test_a_file_for_a_folder_and_a_folder_for_a_file_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "a file is where the folder" in told(f"sqlite:///{tmp_path / 'file' / 'sky.db'}").message
    assert "a folder is where the file" in told(f"sqlite:///{tmp_path}").message


@pytest.mark.real
def test_a_disk_that_is_full_and_one_that_is_read_only_are_told_apart(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as folder:
        url = empty(folder / "sky.db")
        full = told(url, WRITE)
        assert isinstance(full, StorageFull)
        assert "is full" in full.message
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        assert "is read-only" in told(url, WRITE).message


@pytest.mark.real
@pytest.mark.parametrize(
    ("who", "said"), [("stranger", "let the daemon's user in"), ("many", "too many files are open")]
)
def test_a_file_that_may_not_be_opened_is_no_full_disk(tmp_path: Path, who: str, said: str) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    url = empty(tmp_path / "private" / "sky.db")
    done = subprocess.run(
        [sys.executable, "-c", ALONE, who, url], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert "full" not in done.stdout
