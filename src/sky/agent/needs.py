"""What plugins ask of a node: packages in its environment, and a kind of worker.

Decides: which packages are added to the image (none that it names itself), and when calls must have a process
of their own. Never: installs, or runs anything.
Follows: an image with plugins is an image like any other; it is built, cached and refused by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from sky.wire.plugins import Plugin
from sky.wire.v1 import Image, PipIndex, Worker

_NAME = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def image_with(image: Image, plugins: Sequence[Plugin], *, accelerated: bool) -> Image:
    """The image with what its plugins need, where it does not say itself."""
    pip, indexes = list(image.pip), list(image.pip_indexes)
    named = {_plain(line) for line in pip}
    tied = {_plain(name) for index in indexes for name in index.packages}
    for plugin in plugins:
        if not plugin.install:
            continue
        need = plugin.needs(accelerated=accelerated)
        missing = [name for name in need.packages if name not in named]
        pip += [need.packages[name] for name in missing]
        named.update(missing)
        untied = tuple(name for name in missing if name not in tied)
        if need.index is not None and untied:
            indexes.append(PipIndex(url=need.index, packages=untied))
    return msgspec.structs.replace(image, pip=tuple(pip), pip_indexes=tuple(indexes))


def worker_with(worker: Worker, plugins: Sequence[Plugin]) -> Worker:
    """The worker with a process for each call that takes part in something, a new one if need be."""
    if any(plugin.collective for plugin in plugins) and worker.executor == "thread":
        worker = msgspec.structs.replace(worker, executor="process")
    if any(plugin.fresh for plugin in plugins):
        worker = msgspec.structs.replace(worker, reuse=False)
    return worker


def _plain(line: str) -> str:
    """The name of a package in a requirement line, as indexes compare it."""
    found = _NAME.match(line)
    return re.sub(r"[-_.]+", "-", found.group(1)).lower() if found else ""
