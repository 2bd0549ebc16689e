"""Archives of included files: what is in them, and that equal files make equal bytes."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from sky.client.errors import InvalidRequest
from sky.client.includes import archive


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "mylib"
    for name in ("__init__.py", "core/deep.py", "data/big.bin", "__pycache__/x.pyc", ".git/config"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "secret").symlink_to("/etc/passwd")
    return folder


def names(content: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return tar.getnames()


def test_a_package_stands_under_its_own_name_without_caches_and_links(package: Path, tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("x = 1")
    packed = archive([str(package), str(tmp_path / "alone.py")], ["data/*"])
    assert names(packed.content) == ["alone.py", "mylib/__init__.py", "mylib/core/deep.py"]


def test_equal_files_make_equal_bytes(package: Path) -> None:
    first = archive([str(package)], [])
    os.utime(package / "__init__.py", (1, 1))
    assert archive([str(package)], []) == first


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="nowhere") as raised:
        archive([str(tmp_path / "nowhere")], [])
    assert raised.value.details["field"] == "image.includes"
