"""Which modules travel by value with a function: its own, and those of the same folder that it uses.

Decides: what is found from the names of the function's module, and of the modules found so.
Never: takes an installed module along, or one from elsewhere on the path: those a node has, or is told to
install. Imports anything.
Follows: a helper file beside a script needs no packaging; what such a module keeps in its own variables is
copied with it, so a node has its own.
"""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from sky.client.function import Function

MODULES_MAX = 500
"""So many modules of one folder are looked through at most."""
PACKAGE = "__init__.py"
_INSTALLED = (
    *(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
    site.getusersitepackages(),
)
"""Where modules are that a node has too, or can be told to install."""
_OURS = __name__.partition(".")[0]


def take_own(function: Callable[..., Any]) -> None:
    """Have classes and functions of the function's module travel by value, unless the module is installed."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is not None and module.__name__ != "__main__" and _file(module) and not is_installed(module):
        cloudpickle.register_pickle_by_value(module)


def take_neighbours(function: Callable[..., Any]) -> list[ModuleType]:
    """The same for modules and packages beside it that it reaches; gives them."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None:
        return []
    reached = [sys.modules[name] for name in sorted(_reached(module, _folder(module)))]
    for found in reached:
        cloudpickle.register_pickle_by_value(found)
    return reached


@contextmanager
def by_name(modules: list[ModuleType]) -> Generator[None, None, None]:
    """Within this, modules travel by name after all: the node must have them."""
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)


def _reached(first: ModuleType, folder: Path) -> set[str]:
    """The names of top modules of a folder that are in use, directly or through each other."""
    tops: set[str] = set()
    seen = {first.__name__}
    waiting = [first]
    while waiting and len(seen) < MODULES_MAX:
        for name in _used(waiting.pop()):
            top = sys.modules.get(name.partition(".")[0])
            if name in seen or name not in sys.modules or top is None:
                continue
            seen.add(name)
            if top is not first and _beside(top, folder):
                tops.add(top.__name__)
                waiting.append(sys.modules[name])
    return tops


def _used(module: ModuleType) -> Iterator[str]:
    """The names of the modules that what a module holds comes from."""
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value.__name__
            continue
        plain = value.function if isinstance(value, Function) else value
        kind = plain if isinstance(plain, FunctionType | type) else type(plain)
        name: object = getattr(kind, "__module__", None)
        if isinstance(name, str):
            yield name


def _folder(module: ModuleType) -> Path:
    """The folder from which a module, or the package that it is in, is imported."""
    file = _file(module)
    if file is None:
        return Path.cwd().resolve()
    spec = module.__spec__ if module.__name__ == "__main__" else None
    name = spec.name if spec is not None else module.__name__
    levels = name.count(".") + (file.name == PACKAGE)
    return file.parents[min(levels, len(file.parents) - 1)]


def _beside(top: ModuleType, folder: Path) -> bool:
    """Whether a module or package lies in a folder itself, and is neither installed nor this one."""
    if top.__name__ in (_OURS, "__main__") or is_installed(top):
        return False
    file = _file(top)
    if file is None:  # a package without __init__.py, of every folder of its name
        return any(Path(place).resolve().parent == folder for place in getattr(top, "__path__", ()))
    place = file.parent if file.name == PACKAGE else file
    return file.suffix == ".py" and place.parent == folder


def _file(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def is_installed(module: ModuleType) -> bool:
    """Whether a module is one that a node has too, or can be told to install: it travels by name."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return module.__name__ in sys.builtin_module_names
    return file.startswith(_INSTALLED) or module.__name__.partition(".")[0] == _OURS
