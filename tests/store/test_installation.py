"""Which installation a database is: the same at each start, and another one where it is a copy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.databases import server
from tests.disks import small_disk

from sky.store import installation
from sky.store.installation import COPIED, FIRST
from sky.store.migrate import upgrade


@pytest.mark.real
def test_files_copied_from_the_root_of_a_volume_to_that_of_a_fresh_one_are_a_copy(tmp_path: Path) -> None:
    with small_disk(tmp_path / "one", "16m") as one, small_disk(tmp_path / "other", "16m") as other:
        url, copied = f"sqlite:///{one / 'sky.db'}", f"sqlite:///{other / 'sky.db'}"
        upgrade(url)
        first = installation.begin(url)
        subprocess.run(["cp", "--archive", f"{one}/.", str(other)], check=True)
        numbers = [(folder.stat().st_ino, (folder / "sky.db").stat().st_ino) for folder in (one, other)]
        assert numbers[0] == numbers[1], "all that Python tells of them is the same"
        assert first.origin == FIRST
        assert installation.begin(url) == first
        assert installation.peek(url) == first
        copy = installation.begin(copied)
        assert copy.origin == COPIED
        assert installation.begin(copied) == copy


def test_a_copy_in_another_folder_is_one_and_a_renamed_folder_is_none(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    upgrade(f"sqlite:///{tmp_path / 'home' / 'sky.db'}")
    first = installation.begin(f"sqlite:///{tmp_path / 'home' / 'sky.db'}")
    (tmp_path / "home").rename(tmp_path / "moved")
    assert installation.begin(f"sqlite:///{tmp_path / 'moved' / 'sky.db'}") == first
    shutil.copytree(tmp_path / "moved", tmp_path / "copy")
    assert installation.begin(f"sqlite:///{tmp_path / 'copy' / 'sky.db'}").origin == COPIED


@pytest.mark.real
@pytest.mark.parametrize("first", ["sky", "narrow"])
def test_roles_of_which_one_sees_less_of_a_postgresql_are_one_installation(first: str) -> None:
    url = server().empty()
    name = url.rpartition("/")[2]
    for sql in (
        f"CREATE ROLE narrow_{name} LOGIN",
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO narrow_{name}",
    ):
        server().do(sql, name)
    urls = {"sky": url, "narrow": url.replace("sky@", f"narrow_{name}@")}
    order = [urls.pop(first), *urls.values()]
    one = installation.begin(order[0])
    assert one.origin == FIRST
    for each in (*reversed(order), *order):
        assert installation.begin(each) == one
        assert installation.peek(each) == one
    [(mark,)] = server().do("SELECT database_mark FROM installation", name)
    assert " of " in str(mark), "and by what the one of them sees, a copy is known"
    copied = f"{name}_copied"
    server().do(f"CREATE DATABASE {copied} TEMPLATE {name}")
    for each in order:
        assert installation.begin(each.replace(f"/{name}", f"/{copied}")).identity != one.identity
