"""A Python function as what a task runs.

Decides: how it travels (pickled by value, as one file) and which script runs it. Never: calls it here.
Follows: it runs under the agent's interpreter, so both sides have the same minor version of Python; the
script says so when they have not.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sky.client.exceptions import InvalidTaskError
from sky.client.pack import Packed as Payload
from sky.client.pack import pack_function
from sky.client.tasks import archive, tree
from sky.client.tasks.archive import Built
from sky.wire.scripts import FUNCTIONS, function_script


@dataclass(frozen=True, slots=True)
class Packed:
    """A function ready to be sent. Whoever has it closes the archive."""

    target: str
    archive: Built
    script: str


def pack(function: Callable[..., Any]) -> Packed:
    """Pack a function. Raises PackError naming what cannot travel, InvalidTaskError for one that wants other
    parameters."""
    name = getattr(function, "__name__", type(function).__name__)
    _check(function, name)
    payload: Payload = pack_function(function, name)
    target = f"{FUNCTIONS}/{payload.sha256}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / payload.sha256
        with path.open("wb") as file:
            content = payload.content
            for piece in (content,) if isinstance(content, bytes) else content():
                file.write(piece)
        built = archive.build(tree.of_file(path, path.name).entries)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Packed(target, built, function_script(target, python))


def _check(function: Callable[..., Any], name: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    ways: tuple[tuple[Any, ...], ...] = ((), (0, []))
    for arguments in ways:
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return
    raise InvalidTaskError(
        f"run: {name}{signature} would be called without arguments, or with the rank of a node and the "
        "addresses of all; it takes neither"
    )
