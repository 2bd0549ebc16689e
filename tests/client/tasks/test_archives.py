"""Folders as archives: equal files give equal bytes, only what changed is packed again, nothing is lost."""

from __future__ import annotations

import os
import socket
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from sky.client.tasks import archive, tree
from sky.client.tasks.archive import Names
from sky.client.tasks.ignore import Ignored


def digests(root: Path) -> list[str]:
    found: list[str] = []
    for part in tree.parts_of(tree.of_folder(root, Ignored(root))):
        built = archive.build(part)
        found.append(built.sha256)
        built.close()
    return found


def unpacked(root: Path, to: Path) -> Path:
    for part in tree.parts_of(tree.of_folder(root, Ignored(root))):
        built = archive.build(part)
        with tarfile.open(fileobj=built.file if built.file.seek(0) == 0 else None, mode="r:gz") as packed:
            packed.extractall(to, filter="data")
        built.close()
    return to


def plant(root: Path) -> Path:
    (root / "folder" / "empty").mkdir(parents=True)
    (root / "folder" / "script.sh").write_text("echo")
    (root / "folder" / "script.sh").chmod(0o755)
    (root / "key").write_text("secret")
    (root / "key").chmod(0o600)
    (root / "ünï ☃").write_text("x")
    (root / "inside").symlink_to("folder/script.sh")
    (root / "dangling").symlink_to("folder/nothing")
    (root / "folder" / "up").symlink_to("../key")
    return root


def test_equal_folders_give_equal_bytes_and_come_out_as_they_were(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    plant(one)
    plant(other)
    for path in other.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (1, 1))
    assert digests(one) == digests(other)
    out = unpacked(one, tmp_path / "out")
    assert (out / "folder" / "empty").is_dir()
    assert (out / "folder" / "script.sh").stat().st_mode & 0o777 == 0o755
    assert (out / "key").stat().st_mode & 0o777 == 0o600
    assert (out / "ünï ☃").read_text() == "x"
    assert (out / "inside").readlink() == Path("folder/script.sh")
    assert (out / "dangling").is_symlink()
    assert (out / "folder" / "up").read_text() == "secret"
    (other / "key").write_text("Secret")
    assert digests(one) != digests(other)


def test_a_change_changes_one_part_of_a_large_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "ONE_PART_BYTES", 1000)
    monkeypatch.setattr(tree, "ALONE_BYTES", 50_000)
    for number in range(200):
        (tmp_path / f"{number}.txt").write_text(f"{number}" * 20)
    (tmp_path / "large").write_bytes(os.urandom(60_000))
    before = digests(tmp_path)
    assert len(before) > 4
    (tmp_path / "7.txt").write_text("changed")
    after = digests(tmp_path)
    assert len(set(before) - set(after)) == 1
    (tmp_path / "large").write_bytes(os.urandom(60_000))
    assert len(set(after) - set(digests(tmp_path))) == 1


def test_what_did_not_change_is_known_without_being_read(tmp_path: Path) -> None:
    root, home = tmp_path / "root", tmp_path / "home"
    root.mkdir()
    (root / "file").write_text("one")
    old = 1_600_000_000

    def entries() -> list[tree.Entry]:
        found = tree.of_folder(root, None).entries
        # As if it had been written long ago: nobody can set a file's time of change back.
        return [
            tree.Entry(one.name, one.path, one.kind, one.mode, one.size, one.link, (old, old, *one.mark[2:]))
            for one in found
        ]

    names = Names(home)
    assert names.find(entries()) is None
    names.note(tree.of_folder(root, None).entries, "a" * 64)
    assert names.find(tree.of_folder(root, None).entries) is None, "it may change within the same moment"
    names.note(entries(), "b" * 64)
    assert Names(home).find(entries()) == "b" * 64
    (root / "file").write_text("other")
    assert Names(home).find(entries()) is None
    (home / "cache" / "archives.json").write_text("{broken")
    assert Names(home).find(entries()) is None


def test_what_cannot_travel_is_told_and_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "out").symlink_to("/etc/hostname")
    (tmp_path / "above").symlink_to("../x")
    os.mkfifo(tmp_path / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket")) if len(str(tmp_path)) < 90 else None
    found = tree.of_folder(tmp_path, None)
    assert [one.name for one in found.entries] == ["file"]
    assert found.left[:3] == [
        "above (a link that leads out of the folder)",
        "out (a link that leads out of the folder)",
        "pipe (neither a file nor a folder)",
    ]
    listener.close()
    part = tree.of_folder(tmp_path, None).entries
    (tmp_path / "file").unlink()
    with pytest.raises(tree.Unreadable, match="file cannot be read: No such file"):
        archive.build(part)
    with pytest.raises(tree.Unreadable, match="nowhere cannot be read"):
        tree.of_folder(tmp_path / "nowhere", None)


def test_a_large_file_is_packed_in_little_memory(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(256 * 1024 * 1024)
    [part] = tree.parts_of(tree.of_folder(tmp_path, None))
    tracemalloc.start()
    built = archive.build(part)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(len(piece) for piece in built()) == built.size
    built.close()
    assert peak < 8 * 1024 * 1024
