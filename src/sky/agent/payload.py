"""User values as bytes, inside a worker process: the codec ``cloudpickle-lz4``, with limits both ways.

Decides: how much a payload may unfold to, and what becomes a file instead of a message.
Never: runs in the agent itself, which must not unpickle anything of a user's.
Follows: a bomb ends one call with a clear error; a large result never sits in memory twice.
"""

from __future__ import annotations

import copyreg
import hashlib
import itertools
import os
import pickle
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

import cloudpickle
import lz4.frame
import msgspec

from sky.kit.folding import BLOCK_BYTES, LZ4_RATIO_MAX, Folding, Unfolding
from sky.wire.agent import INLINE_RESULT_BYTES_MAX

if TYPE_CHECKING:
    from typing_extensions import Buffer

UNFOLDED_BYTES_MAX = 16 * 1024**3
"""How much one payload may be after decompression."""
READ_BYTES = 1024 * 1024

_names = itertools.count()
_NEW: Any = vars(copyreg)["__newobj__"]
"""What pickles call to make an object without its ``__init__``."""
_PLAIN: frozenset[type] = frozenset({int, float, str, bytes, bool, type(None), complex})


class Packed(msgspec.Struct, frozen=True):
    """A payload: its bytes when small, otherwise its hash and the name of its file in the results folder."""

    value: bytes | None = None
    sha256: str | None = None
    file: str | None = None


class _Spool:
    """Takes a pickle as it is made; folds it on the way to a file once it is large."""

    def __init__(self, folder: Path) -> None:
        self._folding = Folding(self._put)
        self._hash = hashlib.sha256()
        self._name = f"{os.getpid()}-{next(_names)}.payload"
        self._path = folder / self._name
        self._fd = -1
        self.write = self._folding.write

    def _put(self, content: Buffer) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._hash.update(content)
        left = memoryview(content)
        while left:
            left = left[os.write(self._fd, left) :]

    def finish(self) -> Packed:
        content = self._folding.close()
        if content is not None:
            if len(content) <= INLINE_RESULT_BYTES_MAX:
                return Packed(content)
            self._put(content)
        os.close(self._fd)
        self._fd = -1
        return Packed(None, self._hash.hexdigest(), self._name)

    def abandon(self) -> None:
        """Remove what was begun."""
        if self._fd >= 0:
            os.close(self._fd)
            self._path.unlink(missing_ok=True)


class _ExceptionPickler(cloudpickle.Pickler):
    """Keeps an exception's cause, which plain pickling drops (its notes are kept by either)."""

    def __init__(self, file: Any, *, causes: bool, bare: bool) -> None:
        super().__init__(file, protocol=5)
        self._causes = causes
        self._bare = bare

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, BaseException) and type(obj).__setstate__ is BaseException.__setstate__:
            return _rebuilding(obj, causes=self._causes, bare=self._bare)
        return super().reducer_override(obj)


def _rebuilding(error: BaseException, *, causes: bool, bare: bool) -> Any:
    """How to rebuild an exception: its cause among the attributes that unpickling sets, and, where it is to
    be ``bare``, without the ``__init__`` of its class, which may want other arguments than it left."""
    reduced: Any = error.__reduce_ex__(5)
    if not isinstance(reduced, tuple):
        return reduced
    parts = cast("tuple[Any, ...]", reduced)
    kind = type(error)
    if bare and isinstance(kind.__init__, FunctionType) and parts[:2] == (kind, error.args):
        parts = (_NEW, (kind, *error.args), *parts[2:])
    told = {"__cause__": error.__cause__, "__context__": error.__context__} if causes else {}
    kept = {name: value for name, value in told.items() if value is not None}
    if not kept or len(parts) not in (2, 3):
        return parts
    state: Any = parts[2] if len(parts) == 3 else None
    if not isinstance(state, dict | None):
        return parts
    attributes = cast("dict[str, Any]", state or {})
    return (*parts[:2], {**attributes, **kept, "__suppress_context__": error.__suppress_context__})


def pack(value: Any, folder: Path) -> Packed:
    """The payload of a value; a large one becomes a file in ``folder``. Raises what pickling raises."""
    if type(value) in _PLAIN and not (isinstance(value, str | bytes) and len(value) > BLOCK_BYTES):
        content = pickle.dumps(value, protocol=5)
        if len(content) <= INLINE_RESULT_BYTES_MAX:
            return Packed(lz4.frame.compress(content))
    spool = _Spool(folder)
    return _spooled(spool, cloudpickle.Pickler(spool, protocol=5), value)


class _Nowhere:
    """Takes a pickle that nobody wants."""

    def write(self, content: Any) -> int:
        return memoryview(content).nbytes


def packs(value: Any) -> bool:
    """Whether a value can be pickled. Raises only what ends a process."""
    try:
        cloudpickle.Pickler(_Nowhere(), protocol=5).dump(value)
    except Exception:
        # Pickling runs code of the value's own classes, which may raise anything.
        return False
    return True


def pack_error(error: BaseException, folder: Path, *, causes: bool, bare: bool) -> Packed:
    """The payload of an exception, as ``pack`` makes one. ``causes`` keeps what it was raised from; ``bare``
    lets it come back without its ``__init__``, from its ``args`` and attributes alone."""
    spool = _Spool(folder)
    return _spooled(spool, _ExceptionPickler(spool, causes=causes, bare=bare), error)


def _spooled(spool: _Spool, pickler: cloudpickle.Pickler, value: Any) -> Packed:
    try:
        pickler.dump(value)
        return spool.finish()
    finally:
        spool.abandon()


def unpack(content: bytes, limit_bytes: int = UNFOLDED_BYTES_MAX) -> Any:
    """The value of an inline payload. Raises ``TooLarge``, RuntimeError (not LZ4), what unpickling raises."""
    if len(content) * LZ4_RATIO_MAX <= limit_bytes:
        return pickle.loads(lz4.frame.decompress(content))
    return pickle.load(Unfolding((content,), limit_bytes))


def unpack_file(path: Path, limit_bytes: int = UNFOLDED_BYTES_MAX) -> Any:
    """The value of a payload in a file. Raises as ``unpack`` does, and OSError."""
    with path.open("rb", buffering=0) as file:
        return pickle.load(Unfolding(iter(lambda: file.read(READ_BYTES), b""), limit_bytes))


def unpack_from(content: bytes | None, path: str | None) -> Any:
    """The value of an inline payload or of one in a file; None when there is neither. Raises as both do."""
    if content is not None:
        return unpack(content)
    return None if path is None else unpack_file(Path(path))
