"""Files and folders of this computer that go along with an image.

Decides: what goes along and under which path, how it is cut into parts, and that equal files give equal
bytes. Never: follows a link, or keeps more than one part in memory.
Follows: a part that the daemon has is not sent again, so only what changed travels: a large file alone, a
small one with the few that are packed with it. A folder stands under its own name at the top of what is
unpacked, so that a package can be imported as it is here; one written with a slash at its end, or ``.``,
gives what is in it instead.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from sky.client import flows
from sky.client.errors import InvalidRequest
from sky.client.excludes import Excludes
from sky.client.flows import Flow
from sky.client.pack import Packed
from sky.wire.included import BYTES_MAX, FILES_MAX, LEVELS_MAX, PATH_BYTES_MAX, Parts

ALONE_BYTES = 256 * 1024
"""From this size on, a file is a part of its own."""
PART_BYTES_MAX = 4 * 1024 * 1024
PART_FILES = 32
"""About so many small files make a part. Names decide where one ends, so a new file moves no others."""
LEVEL = 1
"""How hard it is compressed: all is packed anew for every compute, so it has to be quick."""


class _Found(NamedTuple):
    name: str
    path: Path
    size: int


def store(
    includes: Sequence[str | os.PathLike[str]], excludes: Sequence[str], base: Path | None = None
) -> Flow[str]:
    """Store what is not stored yet; gives the name of the whole. Raises InvalidRequest naming a path.

    Relative paths begin in ``base``, or in the current folder.
    """
    names: list[str] = []
    for part in parts(includes, excludes, base):
        names.append(part.sha256)
        yield from flows.upload(part, ask_first=True)
    whole = together(names)
    yield from flows.upload(whole, ask_first=True)
    return whole.sha256


def name_of(
    includes: Sequence[str | os.PathLike[str]], excludes: Sequence[str], base: Path | None = None
) -> str:
    """The name that ``store`` would give it, without sending anything. Raises InvalidRequest."""
    return together([part.sha256 for part in parts(includes, excludes, base)]).sha256


def together(names: Sequence[str]) -> Packed:
    """The list of parts, as content."""
    content = msgspec.json.encode(Parts(tuple(names)))
    return Packed(hashlib.sha256(content).hexdigest(), content)


def parts(
    includes: Sequence[str | os.PathLike[str]], excludes: Sequence[str], base: Path | None = None
) -> Iterator[Packed]:
    """The parts, each a gzipped tar of some of the files, in order. Raises InvalidRequest naming a path."""
    for group in _groups(_files(includes, Excludes(excludes), base or Path())):
        try:
            yield _archive(group)
        except OSError as error:
            at = error.filename or group[0].path
            raise _refused(str(at), f"a file that can be read and holds still ({error})") from error


def _groups(files: Sequence[_Found]) -> Iterator[list[_Found]]:
    group: list[_Found] = []
    size = 0
    for file in files:
        if file.size >= ALONE_BYTES:
            yield [file]
            continue
        group.append(file)
        size += file.size
        if size >= PART_BYTES_MAX or _is_end(file.name):
            yield group
            group, size = [], 0
    if group:
        yield group


def _is_end(name: str) -> bool:
    return int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:4]) % PART_FILES == 0


def _archive(files: Sequence[_Found]) -> Packed:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, compresslevel=LEVEL) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for file in files:
            info = tarfile.TarInfo(file.name)
            with file.path.open("rb") as content:
                info.size = os.fstat(content.fileno()).st_size
                info.mode = 0o755 if os.access(file.path, os.X_OK) else 0o644
                tar.addfile(info, content)
    content = buffer.getvalue()
    return Packed(hashlib.sha256(content).hexdigest(), content)


def _files(includes: Sequence[str | os.PathLike[str]], excludes: Excludes, base: Path) -> list[_Found]:
    """Every file that goes along, by its path there."""
    found: dict[str, _Found] = {}
    total = 0
    for include in [os.fspath(one) for one in includes]:
        for path, name in _of(include, excludes, base):
            _check_path(name, path)
            file = _Found(name, path, path.stat().st_size)
            other = found.setdefault(name, file)
            if other.path != path:
                raise _refused(str(path), f"another name: {name!r} is {str(other.path)!r} already")
            if other is not file:
                continue
            total += file.size
            if total > BYTES_MAX:
                raise _refused(include, f"at most {BYTES_MAX} bytes of included files in all; see excludes")
            if len(found) > FILES_MAX:
                raise _refused(include, f"at most {FILES_MAX} included files in all; see excludes")
    return [found[name] for name in sorted(found)]


def _of(include: str, excludes: Excludes, base: Path) -> Iterator[tuple[Path, str]]:
    named = base / Path(include).expanduser()
    top = named.resolve()
    if top.is_file():
        yield top, named.name
        return
    if not top.is_dir():
        raise _refused(include, f"a file or folder that is there; {str(top)!r} is not")
    inner = include.endswith(("/", "/.")) or named.name in ("", "..") or include == "."
    under = "" if inner else f"{named.name}/"
    for folder, folders, files in os.walk(top, onerror=_unreadable):
        inside = Path(folder).relative_to(top).as_posix()
        at = "" if inside == "." else f"{inside}/"
        folders[:] = [name for name in folders if not excludes.match(f"{at}{name}", folder=True)]
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file() and not excludes.match(f"{at}{name}", folder=False):
                yield path, f"{under}{at}{name}"


def _unreadable(error: OSError) -> None:
    raise _refused(str(error.filename), f"a folder that can be read ({error.strerror})") from error


def _check_path(name: str, path: Path) -> None:
    if len(name.split("/")) > LEVELS_MAX or len(os.fsencode(name)) > PATH_BYTES_MAX:
        raise _refused(str(path), f"a path of at most {LEVELS_MAX} levels and {PATH_BYTES_MAX} bytes")


def _refused(value: str, expected: str) -> InvalidRequest:
    details = {"field": "image.includes", "value": value, "expected": expected}
    return InvalidRequest(
        f"image.includes: {value!r} cannot go along; expected {expected}",
        "invalid_request",
        400,
        details=details,
    )
