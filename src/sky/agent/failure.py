"""An exception of a user's code as it is told: type, message, traceback with source lines, and itself.

Decides: which frames are shown (the user's, not ours), how long texts may be, what travels with them.
Never: raises, whatever the exception does when it is looked at.
Follows: the caller can raise the original where it unpickles, and read a stand-in where it does not.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from sky.agent import payload
from sky.agent.payload import Packed
from sky.kit import culprit
from sky.kit.culprit import PACK_ERROR
from sky.wire.agent import ErrorInfo

MESSAGE_CHARS_MAX = 8 * 1024
TRACEBACK_CHARS_MAX = 64 * 1024
TYPE_CHARS_MAX = 512
_T = TypeVar("_T")
OUR_FOLDER = str(Path(__file__).parent)


class Failure(msgspec.Struct, frozen=True):
    """What is told of an exception, and its payload where it can be shipped."""

    info: ErrorInfo
    packed: Packed | None


def type_name(error: BaseException) -> str:
    """``ValueError`` for a built-in, otherwise the module's name and the class's own, in bounds."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return _cut(name, TYPE_CHARS_MAX)


def message_of(error: BaseException) -> str:
    """``str(error)``, whatever that does, in bounds."""
    text = guarded(lambda: str(error), lambda second: f"<no message: {type(second).__name__}>")
    return _cut(text, MESSAGE_CHARS_MAX)


def guarded(work: Callable[[], _T], otherwise: Callable[[BaseException], _T]) -> _T:
    """What ``work`` gives, or ``otherwise`` of what it raises. Listed supervisor: it runs users' methods."""
    try:
        return work()
    except BaseException as error:
        return otherwise(error)


def describe(error: BaseException, results: Path) -> Failure:
    """All of an exception that user code raised."""
    return Failure(
        ErrorInfo(
            code="task_failed",
            message=message_of(error),
            type=type_name(error),
            traceback=_cut(_traceback_of(error), TRACEBACK_CHARS_MAX),
        ),
        _packed(error, results),
    )


def missing(error: ModuleNotFoundError, message: str, results: Path) -> Failure:
    """A module that is not here, in our own words."""
    stand_in = ModuleNotFoundError(message, name=error.name)
    return _told(error, message, type_name(stand_in), _packed(stand_in, results))


def unpacked(error: BaseException, message: str) -> Failure:
    """What could not be read here or sent back, in our own words: not a failure of the user's function."""
    return _told(error, message, PACK_ERROR, None)


def _told(error: BaseException, message: str, kind: str, packed: Packed | None) -> Failure:
    info = ErrorInfo(
        code="task_failed",
        message=_cut(message, MESSAGE_CHARS_MAX),
        type=kind,
        traceback=_cut(_traceback_of(error), TRACEBACK_CHARS_MAX),
    )
    return Failure(info, packed)


def in_result(value: object, error: BaseException) -> str:
    """Which part of a result cannot be pickled, as far as that can be found."""
    said = f"{type_name(error)}: {message_of(error)}"

    def place() -> str:
        found = culprit.find((value,), payload.packs, {0: "result"})
        return f"{found.where} ({said})" if found else said

    return guarded(place, lambda _: said)


def _packed(error: BaseException, results: Path) -> Packed | None:
    """The exception's payload when it pickles and also comes back saying the same; one that comes back with
    other words if none does. Many classes build their message in ``__init__`` and cannot be called with it
    again, so they are tried without; causes are left out if need be."""
    other_words: Packed | None = None
    for causes, bare in ((True, False), (True, True), (False, False), (False, True)):
        attempt = partial(_proven, error, results, causes=causes, bare=bare)
        packed, same = guarded(attempt, lambda _: (None, False))
        if same:
            _forget(other_words, results)
            return packed
        if other_words is None:
            other_words = packed
        else:
            _forget(packed, results)
    return other_words


def _forget(packed: Packed | None, results: Path) -> None:
    if packed is not None and packed.file is not None:
        (results / packed.file).unlink(missing_ok=True)


def _proven(error: BaseException, results: Path, *, causes: bool, bare: bool) -> tuple[Packed | None, bool]:
    """The exception's payload, if an exception comes out of it again, and whether it says the same."""
    packed = payload.pack_error(error, results, causes=causes, bare=bare)
    path = None if packed.file is None else str(results / packed.file)
    back: object = payload.unpack_from(packed.value, path)
    if not isinstance(back, BaseException):
        return None, False
    return packed, message_of(back) == message_of(error)


def _traceback_of(error: BaseException) -> str:
    def shown() -> str:
        told = traceback.TracebackException(type(error), error, _users(error.__traceback__), compact=True)
        return "".join(told.format())

    return guarded(shown, lambda second: f"<no traceback: {type(second).__name__}>\n")


def _users(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from its first frame that is not ours; the whole of it when every frame is."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(OUR_FOLDER):
        first = first.tb_next
    return first


def _cut(text: str, chars_max: int) -> str:
    """``text`` with its middle left out where it is too long; lone surrogates made printable."""
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
