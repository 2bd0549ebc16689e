"""Included files on a node: found where they are looked for, unpacked once, and never outside."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sky.agent import included
from sky.agent.included import Unpacking
from sky.agent.installer import Unbuildable


def packed(*members: tuple[str, bytes | tarfile.TarInfo], mode: int = 0o644) -> bytes:
    """A gzipped tar of files, and of whatever else a test makes up."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return name, info


def used() -> tuple[Any, ...]:
    """What a call finds of the files."""
    import importlib
    import os
    import subprocess
    import sys

    found = importlib.import_module("included_for_test.core")
    said = subprocess.run(
        [sys.executable, "-m", "included_for_test.core"], capture_output=True, text=True, check=True
    )
    with open("data/table.csv") as file:
        table = file.read()
    return found.VALUE, found.__file__, said.stdout, table, os.access("data/table.csv", os.X_OK)


def test_files_are_imported_and_read_and_unpacked_once(
    node_of: Any, daemon: Any, until: Any, tmp_path: Path
) -> None:
    code = packed(
        ("included_for_test/__init__.py", b""),
        ("included_for_test/core.py", b"VALUE = 7\nif __name__ == '__main__':\n    print('ran')\n"),
    )
    parts = [daemon.store(code), daemon.store(packed(("data/table.csv", b"a,b\n")))]
    whole = daemon.store(json.dumps({"parts": parts}).encode())
    spec = {"image": {"includes_sha256": whole}, "envs": str(tmp_path / "envs")}
    first = node_of(**spec).start()
    value, file, said, table, executable = first.value(used)
    assert (value, said, table, executable) == (7, "ran\n", "a,b\n", False)
    assert Path(file).is_relative_to(tmp_path / "envs")
    session = first.dial(kind="exec", command="cat data/table.csv && ls")
    assert session.exit().code == 0
    assert session.output["stdout"] == b"a,b\ndata\nincluded_for_test\n"
    # Another node of the computer needs nothing from its daemon, which does not even have them.
    other = type(daemon)()
    other.start()
    second = node_of(**spec)
    second.daemon = other
    try:
        second.start(ready=False)
        until(lambda: other.ready, "a ready node")
        assert second.value(used)[1] == file
    finally:
        second.end()
        other.close()


def test_files_that_cannot_be_had_fail_the_node_with_the_reason(
    node_of: Any, daemon: Any, until: Any
) -> None:
    whole = daemon.store(json.dumps({"parts": ["0" * 64]}).encode())
    node = node_of(image={"includes_sha256": whole}).start(ready=False)
    failed = until(lambda: [p for p in node.daemon.phases if p.event == "failed"], "a failed phase")
    assert "0" * 64 in failed[0].error
    assert list((node.home / "envs").glob("files-*/ready")) == []


def unpack(target: Path, *archives: bytes) -> None:
    async def all_of_them() -> None:
        unpacking = Unpacking(target)
        for number, content in enumerate(archives):
            path = target.parent / f"part{number}"
            path.write_bytes(content)
            await unpacking.add(path)

    target.mkdir()
    asyncio.run(all_of_them())


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("../evil", b"x")], "does not lie below"),
        ([("a/../../evil", b"x")], "does not lie below"),
        ([("/etc/evil", b"x")], "does not lie below"),
        ([("a//b", b"x")], "does not lie below"),
        ([special("a", tarfile.SYMTYPE, "/etc"), ("a/passwd", b"x")], "is a link"),
        ([special("a", tarfile.LNKTYPE, "/etc/passwd")], "is a link"),
        ([special("a", tarfile.FIFOTYPE)], "device"),
        ([special("a", tarfile.CHRTYPE)], "device"),
        ([("a", b"x"), ("a", b"y")], "is there twice"),
        ([("a", b"x"), ("a/b", b"y")], "needs a folder"),
        ([("/".join(["d"] * 300), b"x")], "deeper"),
        ([("n" * 300, b"x")], "too long"),
    ],
)
def test_nothing_is_unpacked_elsewhere(tmp_path: Path, members: list[Any], said: str) -> None:
    with pytest.raises(Unbuildable, match=said):
        unpack(tmp_path / "to", packed(*members))
    assert not (tmp_path / "evil").exists()
    assert not list(tmp_path.rglob("passwd"))


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(included, "BYTES_MAX", 1_000_000)
    monkeypatch.setattr(included, "FILES_MAX", 5)
    half = packed(("zeros", bytes(600_000)))
    assert len(half) < 2_000
    with pytest.raises(Unbuildable, match="1000000 bytes"):
        unpack(tmp_path / "bytes", half, packed(("more", bytes(600_000))))
    with pytest.raises(Unbuildable, match="more than 5 included files"):
        unpack(tmp_path / "files", packed(*((f"f{number}", b"") for number in range(6))))
    # Not a member's size but what stands between members.
    with pytest.raises(Unbuildable, match="1000000 bytes"):
        unpack(tmp_path / "long", packed(special("x" * 1_100_000, tarfile.REGTYPE)))


@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8b no gzip", gzip.compress(b"no tar" * 200), packed(("a", os.urandom(5000)))[:3000]],
    ids=["no gzip", "no tar", "torn"],
)
def test_a_damaged_archive_says_so(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Unbuildable, match="damaged"):
        unpack(tmp_path / "to", content)


def test_files_keep_being_executable_and_are_not_writable(tmp_path: Path) -> None:
    unpack(tmp_path / "to", packed(("./run.sh", b"#!/bin/sh\n"), mode=0o755), packed(("d/x", b"")))
    assert (tmp_path / "to/run.sh").stat().st_mode & 0o777 == 0o555
    assert (tmp_path / "to/d/x").stat().st_mode & 0o777 == 0o444
