"""Values to bytes and back: the payload codec, and exceptions that were raised somewhere else.

Decides: ``cloudpickle-lz4`` (pickle protocol 5 through cloudpickle, in an LZ4 frame); that a function
travels by value, with its file's source and the modules that `along` names; how a remote exception looks.
Never: unpacks anything but results of calls this user made; lets a small payload unpack without bound.
Follows: cloudpickle is used for plain data too: pickle alone would save 1.5 us a call and misplace every
class of ``__main__``. Two processes need not pack one function into equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import linecache
import pickle
import sys
import types
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import cloudpickle
import lz4.frame

from sky.client import along
from sky.client.errors import PackError, RemoteTraceback, TaskFailed
from sky.client.request import CutShort, Pieces
from sky.kit import culprit
from sky.kit.context import SOURCE_ATTRIBUTE
from sky.kit.folding import Folding, Unfolding

UNPACKED_BYTES_MAX = 8 * 1024**3
"""The most bytes a payload may unpack to."""
SMALL_BYTES = 64 * 1024
"""Up to this size a payload is unpacked at once: LZ4 cannot hold more than 255 times its own length."""
SOURCE_CHARS_MAX = 256 * 1024
"""Longer files travel without their source, and remote tracebacks show no lines of them."""
PROTOCOL = 5
LARGE_FUNCTION_BYTES = 64 * 1024 * 1024
"""A function larger than this is remarked upon: what it reads from around it goes along."""
_UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError, OSError)


class Packed(NamedTuple):
    """Bytes and their name."""

    sha256: str
    content: bytes | Pieces
    name: str | None = None


_OTHERS: MutableMapping[type, Callable[[Any], Any]] = vars(cloudpickle.Pickler)["dispatch_table"]


def _of_file(file: io.TextIOWrapper) -> Any:
    if file in (sys.stdout, sys.stderr):
        return _OTHERS[io.TextIOWrapper](file)
    raise pickle.PicklingError(f"cannot pickle the open file {file.name!r}")


class _Pickler(cloudpickle.Pickler):
    """Refuses open files: pickled, a file would be a copy of its content, whatever its size."""

    dispatch_table: Mapping[type, Callable[[Any], Any]] = ChainMap({io.TextIOWrapper: _of_file}, _OTHERS)


class _Nowhere:
    """Takes a pickle that nobody wants."""

    def write(self, content: Any) -> int:
        return memoryview(content).nbytes


def pack(value: Any, what: str = "the value") -> bytes | Pieces:
    """The payload of a value, in pieces if it is large. Raises PackError saying what in ``what`` cannot
    travel, and where it is."""
    try:
        return _folded(value)
    except _UNPICKLABLE as failed:
        raise _refused(what, failed, culprit.find(value, _packs)) from failed


def _folded(value: Any) -> bytes | Pieces:
    parts: list[bytes] = []
    folding = Folding(lambda piece: parts.append(bytes(piece)))
    _Pickler(folding, protocol=PROTOCOL).dump(value)
    content = folding.close()
    return Pieces(parts) if content is None else content


def _refused(what: str, failed: Exception, found: culprit.Culprit | None) -> PackError:
    said = f"{found} ({failed})" if found else str(failed)
    return PackError(f"{what} cannot be sent to a node: {said}")


def _packs(value: Any) -> bool:
    try:
        _Pickler(_Nowhere(), protocol=PROTOCOL).dump(value)
    except _UNPICKLABLE:
        return False
    return True


def hash_of(content: bytes | Pieces) -> str:
    """The name of a payload."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    running = hashlib.sha256()
    for piece in content():
        running.update(piece)
    return running.hexdigest()


def unpack(content: bytes, what: str = "the result") -> Any:
    """The value of a payload. Raises PackError when it is damaged, too large, or needs what is not here."""
    return unpack_from((content,), len(content), what)


def unpack_from(pieces: Iterable[bytes], size: int | None, what: str = "the result") -> Any:
    """The same of a payload of ``size`` bytes that comes in pieces; a large one is not put together."""
    try:
        if size is not None and size <= SMALL_BYTES:
            return pickle.loads(lz4.frame.decompress(b"".join(pieces)))
        return pickle.load(Unfolding(pieces, UNPACKED_BYTES_MAX))
    except CutShort:
        raise
    except (ImportError, AttributeError) as missing:
        raise PackError(f"{what} needs something that is not installed here: {missing}") from missing
    except Exception as failed:
        # Unpickling runs code of the value's own classes, which may raise anything.
        said = f"{type(failed).__name__}: {failed}".removesuffix(": ")
        raise PackError(f"{what} cannot be read here: {said}") from failed


def pack_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], name: str, parameters: Sequence[str] = ()
) -> bytes | Pieces:
    """The payload of a call's arguments. ``parameters`` are the names of the positional ones."""
    try:
        return _folded((args, kwargs))
    except _UNPICKLABLE as failed:
        # Looked at flat, so that what is wrong is called what its function calls it.
        positional = [
            *parameters[: len(args)],
            *(f"argument {n + 1}" for n in range(len(parameters), len(args))),
        ]
        names = dict(enumerate((*positional, *kwargs)))
        found = culprit.find((*args, *kwargs.values()), _packs, names)
        raise _refused(f"an argument of {name}()", failed, found) from failed


def pack_function(function: Callable[..., Any], name: str) -> Packed:
    """The payload of a function as it is now, with its globals and the source of its file.

    What it uses of its own module goes along with it, unless that module is an installed one, and so do the
    modules beside it, unless something in them cannot be packed: then the node must have them.
    """
    along.take_own(function)
    neighbours = along.take_neighbours(function)
    told = _with_source(function)
    try:
        content = pack(told, f"the function {name}()")
    except PackError:
        if not neighbours:
            raise
        with along.by_name(neighbours):
            content = pack(told, f"the function {name}()")
    if len(content) > LARGE_FUNCTION_BYTES:
        warnings.warn(
            f"the function {name}() is {len(content) / 1e6:.0f} MB with the variables that it reads from"
            " around it: what is large is better an argument, or made on the node",
            stacklevel=2,
        )
    return Packed(hash_of(content), content, name)


def _with_source(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a function that carries the text of its file, so that tracebacks elsewhere have lines."""
    if not isinstance(function, types.FunctionType):
        return function
    file = function.__code__.co_filename
    source = "".join(linecache.getlines(file, function.__globals__))
    if not source or len(source) > SOURCE_CHARS_MAX:
        return function
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__, copy.__doc__ = (
        function.__qualname__,
        function.__module__,
        function.__doc__,
    )
    copy.__dict__.update(function.__dict__)
    copy.__dict__[SOURCE_ATTRIBUTE] = {file: source}
    return copy


# ── exceptions ──────────────────────────────────────────────────────────────────────────────────


def revive(payload: bytes | None, *, kind: str, message: str, traceback: str, task: str) -> BaseException:
    """The exception a call ended with, as it was, with the remote traceback as its cause.

    What cannot be unpacked here, and what would end this program (``SystemExit`` and its like), is stood
    in for by TaskFailed, whose message names the original type.
    """
    error = _unpack_exception(payload) if payload else None
    if error is None:
        shown = message if not kind or message.startswith(kind) else f"{kind}: {message}".removesuffix(": ")
        error = TaskFailed(shown or "the call failed and left no reason", task, {"type": kind})
    if isinstance(error, ModuleNotFoundError) and error.name:
        error.add_note(
            f"The node has no module {error.name!r}: name its package, as in sky.Image(pip=[...]), "
            "or its files, as in sky.Image(includes=[...])."
        )
    if traceback:
        if error.__cause__ is None:
            error.__cause__ = RemoteTraceback(traceback)
        else:
            error.add_note(f"Raised on a node:\n{traceback.rstrip()}")
    return error


def _unpack_exception(payload: bytes) -> BaseException | None:
    try:
        value = unpack(payload, "the exception")
    except PackError:
        return None
    return value if isinstance(value, Exception) else None
