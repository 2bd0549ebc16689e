"""Files and folders of this computer that go along with an image, as one archive.

Decides: what is in it and under which path, and that equal files give equal bytes (so they are sent once).
Never: follows a link out of what was named; takes caches, virtual environments or version control along.
Follows: the archive is a gzipped tar; each file or folder named stands at its top under its own name, so a
package that is unpacked into a folder on the path can be imported as it is here.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sky.client.errors import InvalidRequest
from sky.client.pack import Packed

ARCHIVE_BYTES_MAX = 1024**3
"""The most that the files may amount to, before compression."""
NEVER = (
    "__pycache__",
    "*.pyc",
    ".git",
    ".hg",
    ".venv",
    "venv",
    "node_modules",
    ".mypy_cache",
    ".pytest_cache",
)


def archive(includes: Sequence[str], excludes: Sequence[str]) -> Packed:
    """The archive of ``includes`` without what ``excludes`` matches. Raises InvalidRequest naming a path."""
    buffer = io.BytesIO()
    total = 0
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, name in sorted(_files(includes, (*NEVER, *excludes)), key=lambda found: found[1]):
            total += path.stat().st_size
            if total > ARCHIVE_BYTES_MAX:
                raise _refused(str(path), f"at most {ARCHIVE_BYTES_MAX} bytes of included files in all")
            _add(tar, path, name)
    content = buffer.getvalue()
    return Packed(hashlib.sha256(content).hexdigest(), content)


def _files(includes: Sequence[str], excludes: Sequence[str]) -> Iterator[tuple[Path, str]]:
    for include in includes:
        top = Path(include).expanduser().resolve()
        if top.is_file():
            yield top, top.name
            continue
        if not top.is_dir():
            raise _refused(include, "a file or folder that is there")
        for folder, folders, files in os.walk(top):
            here = Path(folder)
            folders[:] = [name for name in folders if not _left_out(here / name, top, excludes)]
            for name in files:
                path = here / name
                if path.is_file() and not path.is_symlink() and not _left_out(path, top, excludes):
                    yield path, f"{top.name}/{path.relative_to(top).as_posix()}"


def _left_out(path: Path, top: Path, excludes: Sequence[str]) -> bool:
    inside = path.relative_to(top).as_posix()
    return any(fnmatch.fnmatch(path.name, one) or fnmatch.fnmatch(inside, one) for one in excludes)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    with open(path, "rb") as file:
        info.size = os.fstat(file.fileno()).st_size
        info.mode = 0o755 if os.access(path, os.X_OK) else 0o644
        tar.addfile(info, file)


def _refused(value: str, expected: str) -> InvalidRequest:
    details = {"field": "image.includes", "value": value, "expected": expected}
    return InvalidRequest(
        f"image.includes: {value!r} cannot go along; expected {expected}",
        "invalid_request",
        400,
        details=details,
    )
