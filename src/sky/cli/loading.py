"""Finds the function that ``sky run file.py[:function]`` means, and reads a command line as its arguments.

Decides: which function of a file is meant when none is named, and that the file's own modules are shipped by
value (no node has them). Never: runs the function; runs ``if __name__ == "__main__"``.
Follows: the function's signature is its command line: types are checked and ``--help`` shows them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sky.cli.errors import FAILED, CliError, usage
from sky.cli.nouns import near
from sky.client.app import App as Declared
from sky.client.function import Function, function

if TYPE_CHECKING:
    from cyclopts import App

NAMES_SHOWN = 8


class Target(NamedTuple):
    """A function to run, and the compute it was declared with, if it was."""

    name: str
    function: Function[..., Any]
    declared: Declared[..., Any] | None


def is_target(word: str) -> bool:
    """Whether a word of a command line names a file."""
    return not word.startswith("-") and (word.endswith(".py") or ".py:" in word)


@functools.lru_cache(maxsize=4)
def find(word: str) -> Target:
    """The function that ``file.py`` or ``file.py:function`` means."""
    head, colon, name = word.partition(".py:")
    path = Path(f"{head}.py" if colon else word)
    if not path.is_file():
        raise usage(f"there is no file {path}", "write FILE.py, or FILE.py:FUNCTION")
    found = _candidates(_load(path))
    if name:
        if name not in found.named:
            meant = near(name, list(found.named))
            hint = f"did you mean `{path}:{meant[0]}`?" if meant else f"it has: {_listed(found.named)}"
            raise usage(f"{path} has no function {name!r}", hint)
        return _target(name, found.named[name])
    for group in (found.declared, found.marked, found.plain):
        if len(group) == 1:
            only = next(iter(group))
            return _target(only, group[only])
        if group:
            hint = f"name one: `{path}:{next(iter(group))}`; it has: {_listed(group)}"
            raise usage(f"{path} has {len(group)} functions that could be meant", hint)
    raise usage(f"{path} has no function to run", "write one and put @sky.function above it")


class _Candidates(NamedTuple):
    declared: dict[str, Any]
    marked: dict[str, Any]
    plain: dict[str, Any]

    @property
    def named(self) -> dict[str, Any]:
        return {**self.plain, **self.marked, **self.declared}


def _candidates(module: ModuleType) -> _Candidates:
    declared: dict[str, Any] = {}
    marked: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for name, value in vars(module).items():
        if isinstance(value, Declared):
            declared[name] = value
        elif isinstance(value, Function):
            if cast("Any", value).__module__ == module.__name__:
                marked[name] = value
        elif inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            plain[name] = value
    return _Candidates(declared, marked, plain)


def _target(name: str, value: Any) -> Target:
    if isinstance(value, Declared):
        declared = cast("Declared[..., Any]", value)
        return Target(name, declared.function, declared)
    if isinstance(value, Function):
        return Target(name, cast("Function[..., Any]", value), None)
    return Target(name, function(cast("Callable[..., Any]", value)), None)


def _listed(group: dict[str, Any]) -> str:
    names = list(group)
    more = f", … ({len(names)} in all)" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


# ── loading ─────────────────────────────────────────────────────────────────────────────────────


class _Loading:
    """While the user's file is executed: what it raises becomes one line that says where."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception | SystemExit):
            return
        said = " ".join(traceback.format_exception_only(error)[-1].split())
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(self._path, trace)
        where = f"{self._path}:{line}" if line else str(self._path)
        hint = "SKY_DEBUG=1 shows the way there" if not os.environ.get("SKY_DEBUG") else None
        raise CliError("cannot_load", f"{where}: {said}", hint, FAILED) from error


def _line_in(path: Path, trace: TracebackType | None) -> int | None:
    """The line of the file that was being executed."""
    lines = [n.lineno for n in traceback.extract_tb(trace) if n.filename == str(path.absolute())]
    return lines[-1] if lines else None


def _load(path: Path) -> ModuleType:
    import cloudpickle

    path = path.absolute()
    name = path.stem if path.stem.isidentifier() and not _taken(path.stem) else f"file_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise usage(f"{path} is not a Python file", "write FILE.py, or FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    # What the file prints is no result.
    with contextlib.redirect_stdout(sys.stderr), _Loading(path):
        spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


def _taken(name: str) -> bool:
    return name in sys.modules or name in sys.stdlib_module_names or name == "sky"


# ── arguments ───────────────────────────────────────────────────────────────────────────────────


def parser(target: Target, shown: str) -> App:
    """A parser whose options are the function's parameters."""
    from cyclopts import App

    from sky.cli.help import Pages

    app = App(
        name=f"sky run {shown}",
        help_format="plaintext",
        help_formatter=Pages(),
        version_flags=[],
        print_error=False,
        exit_on_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        usage=f"sky run {shown} [OPTIONS]",
    )
    app["--help"].show = False
    app.default(target.function.function)
    return app


def own_options(target: Target) -> frozenset[str]:
    """The options that the function itself has, as they are typed."""
    names = inspect.signature(target.function.function).parameters
    return frozenset(f"--{name.replace('_', '-')}" for name in names) | {f"--{name}" for name in names}
