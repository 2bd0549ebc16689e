"""What stays behind of a folder is what git itself says, and ``.skyignore`` stands instead."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sky.client.tasks import tree
from sky.client.tasks.ignore import Ignored

NAMES = ("a", "b.py", "b.pyc", "ab", "#x", "!x", "a b", "x ", "[z]", "\\q", "ä", "data")
LEVELS = ("", "a/", "data/", "a/b/", "data/a/c/")


def plant(root: Path) -> list[str]:
    """Some files at several levels; their paths."""
    found = [
        f"{level}{name}_" if name in ("a", "data") else f"{level}{name}" for level in LEVELS for name in NAMES
    ]
    found += [f"{level}deep/file" for level in LEVELS]
    for path in found:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    return found


def git_keeps(root: Path, paths: list[str]) -> set[str]:
    """What git would not ignore."""
    given_paths = "\0".join(paths).encode()
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    ran = subprocess.run(
        ["git", "check-ignore", "--stdin", "-z", "--no-index"],
        cwd=root,
        input=given_paths,
        capture_output=True,
        env=environment,
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stderr
    return set(paths) - set(ran.stdout.decode().split("\0"))


def we_keep(root: Path) -> set[str]:
    found = tree.of_folder(root, Ignored(root, around=True))
    return {one.name for one in found.entries if one.kind == "file"} - {".gitignore", "a/.gitignore"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root, plant(root)


CASES = [
    "*.pyc", "a", "/a", "a/", "a/*", "data/\n!data/a", "data/*\n!data/a", "**/deep", "deep/**", "a/**/file",
    "**", "*\n!*/\n!*.py", "\\#x", "#x", "\\!x", "!x", "x\\ ", "x ", "[[]z]", "[z]", "\\\\q", "\\", "[", "[]",
    "[!a]*", "[^a-z]*", "[a-", "?", "a?", "*/deep", "deep/", "/deep/", "b.py\r", "a b", "ä",
    "?y", "??", "[[:alpha:]]b", "[[:punct:]]x", "***",
    "a**", "**b", "a/**", "/**/a", "data/**/c", "\n\n#\n", "/", "//", "a//b", "!a\na",
    "*\n!a\n!a/b\n!a/b/b.py", "[]z]", "[a\\]z]*", "[b-a]x", "dat[a-a]", "*.py[!c]", "**/", "data/**/", "/**",
]  # fmt: skip


@pytest.mark.parametrize("rules", CASES, ids=repr)
def test_every_rule_means_what_git_says(repository: tuple[Path, list[str]], rules: str) -> None:
    root, paths = repository
    (root / ".gitignore").write_text(rules)
    assert we_keep(root) == git_keeps(root, paths)


signs = st.sampled_from(
    ["*", "**", "?", "/", "a", "b", ".py", "data", "deep", "file", "[a-c]", "!", "\\", "#", " "]
)
lines = st.lists(st.lists(signs, max_size=5).map("".join), min_size=1, max_size=4).map("\n".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines, lines)
def test_rules_of_two_levels_mean_what_git_says(
    repository: tuple[Path, list[str]], outer: str, inner: str
) -> None:
    root, paths = repository
    (root / ".gitignore").write_text(outer)
    (root / "a" / ".gitignore").write_text(inner)
    try:
        assert we_keep(root) == git_keeps(root, paths)
    finally:
        (root / "a" / ".gitignore").unlink()


def test_rules_around_the_working_folder_count_as_far_as_the_repository_goes(
    repository: tuple[Path, list[str]],
) -> None:
    root, paths = repository
    (root / ".gitignore").write_text("/data/a/*\n!/data/a/c\nb.py\n")
    inside = [path.removeprefix("data/") for path in paths if path.startswith("data/")]
    assert we_keep(root / "data") == git_keeps(root / "data", inside)
    alone = tree.of_folder(root / "data", Ignored(root / "data"))
    assert {one.name for one in alone.entries} == set(inside)


def test_a_skyignore_stands_instead(tmp_path: Path) -> None:
    plant(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")
    (tmp_path / ".gitignore").write_text("*.py\n")
    (tmp_path / ".skyignore").write_text("*.pyc\n/data/\n")
    kept = {one.name for one in tree.of_folder(tmp_path, Ignored(tmp_path)).entries}
    assert "b.py" in kept
    assert not [name for name in kept if name.endswith(".pyc") or name.startswith(("data/", ".git/"))]
    (tmp_path / ".skyignore").write_text("!.git\n*.pyc\n")
    assert ".git/config" in {one.name for one in tree.of_folder(tmp_path, Ignored(tmp_path)).entries}
