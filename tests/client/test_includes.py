"""Included files: what goes along, that equal files make equal bytes, and that a change moves little."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import sky
from sky.client.errors import InvalidRequest
from sky.client.excludes import Excludes
from sky.client.includes import name_of, parts


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "mylib"
    for name in ("__init__.py", "core/deep.py", "data/big.bin", "__pycache__/x.pyc", ".git/config"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "secret").symlink_to("/etc/passwd")
    (folder / "outside").symlink_to("/etc", target_is_directory=True)
    return folder


def names(includes: Sequence[str | Path], excludes: Sequence[str] = ()) -> list[str]:
    found: list[str] = []
    for part in parts([str(include) for include in includes], excludes):
        with tarfile.open(fileobj=io.BytesIO(part.content)) as tar:
            found += tar.getnames()
    return sorted(found)


def hashes(*includes: Path) -> list[str]:
    return [part.sha256 for part in parts(includes, ())]


def test_a_package_stands_under_its_own_name_without_caches_and_links(package: Path, tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("x = 1")
    found = names([package, tmp_path / "alone.py"], ["data/*"])
    assert found == ["alone.py", "mylib/__init__.py", "mylib/core/deep.py"]


def test_a_folder_with_a_slash_gives_what_is_in_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = ["__init__.py", "core/deep.py", "data/big.bin"]
    assert names([f"{package}/"]) == inside
    monkeypatch.chdir(package)
    assert names(["."]) == inside
    assert names(["core"]) == ["core/deep.py"]


def test_equal_files_make_equal_bytes(package: Path) -> None:
    first = list(parts([str(package)], []))
    os.utime(package / "__init__.py", (1, 1))
    assert list(parts([str(package)], [])) == first


def test_a_change_moves_only_what_is_packed_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(300):
        (folder / f"m{number:03}.py").write_text(f"x = {number}")
    for number in range(3):
        (folder / f"large{number}.bin").write_bytes(os.urandom(300_000))
    before = set(hashes(folder))
    assert len(before) > 6
    (folder / "large1.bin").write_bytes(os.urandom(300_000))
    assert len(set(hashes(folder)) - before) == 1
    before = set(hashes(folder))
    (folder / "m150.py").write_text("x = -1")
    assert len(set(hashes(folder)) - before) == 1
    before = set(hashes(folder))
    (folder / "m150b.py").write_text("new = True")
    assert len(set(hashes(folder)) - before) <= 2


def test_paths_are_as_good_as_texts(package: Path) -> None:
    assert hashes(package) == [part.sha256 for part in parts([str(package)], ())]
    assert sky.Image(includes=[package]).to_wire().includes == (str(package),)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="nowhere") as raised:
        name_of([str(tmp_path / "nowhere")], [])
    assert raised.value.details["field"] == "image.includes"


def test_two_files_for_one_place_are_named(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "util.py").write_text(folder)
    with pytest.raises(InvalidRequest, match=r"util\.py"):
        name_of([str(tmp_path / "a/util.py"), str(tmp_path / "b/util.py")], [])
    # The same file named twice is one file.
    assert names([tmp_path / "a/util.py", f"{tmp_path}/a/"]) == ["util.py"]


def test_a_folder_that_is_too_deep_is_named(tmp_path: Path) -> None:
    deep = tmp_path / "top" / "/".join(["d"] * 300)
    deep.mkdir(parents=True)
    (deep / "x").write_text("")
    with pytest.raises(InvalidRequest, match="64 levels"):
        name_of([str(tmp_path / "top")], [])


@pytest.mark.parametrize(
    ("patterns", "path", "folder", "stays"),
    [
        ((), "a/__pycache__", True, True),
        ((), "a/__pycache__", False, False),
        ((), ".venv", True, True),
        (("!.venv/",), ".venv", True, False),
        ((), "x.pyc", False, True),
        (("*.csv",), "a/b/c.csv", False, True),
        (("*.csv", "!keep.csv"), "a/keep.csv", False, False),
        (("/data",), "data", True, True),
        (("/data",), "a/data", True, False),
        (("data/",), "data", False, False),
        (("data/",), "a/data", True, True),
        (("a/*.txt",), "a/x.txt", False, True),
        (("a/*.txt",), "a/b/x.txt", False, False),
        (("a/**/x.txt",), "a/x.txt", False, True),
        (("a/**/x.txt",), "a/b/c/x.txt", False, True),
        (("**/logs",), "a/logs", True, True),
        (("a/**",), "a/b", True, True),
        (("a/**",), "a", True, False),
        (("m[0-3].py",), "m2.py", False, True),
        (("m[!0-3].py",), "m2.py", False, False),
        (("what?",), "what/", False, False),
        (("a+b(c).txt",), "a+b(c).txt", False, True),
        (("[",), "[", False, True),
        (("",), "x", False, False),
    ],
)
def test_patterns_are_those_of_a_gitignore(
    patterns: tuple[str, ...], path: str, folder: bool, stays: bool
) -> None:
    assert Excludes(patterns).match(path, folder=folder) is stays
