"""Calls that do not go well, on a compute that is there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import skyward as sky
from local import tell


@sky.function
def raises() -> None:
    raise KeyError("nothing under this name")


@sky.function
def dies() -> None:
    import os

    os._exit(9)


@sky.function(timeout=6)
def dawdles() -> None:
    import time

    time.sleep(30)


@sky.function
def keeps() -> object:
    import threading

    return threading.Lock()


@sky.stream
def breaks() -> Iterator[int]:
    yield 1
    yield 2
    raise ValueError("no third")


items: list[int] = []


def told(call: Callable[[], object]) -> tuple[str, str, str]:
    try:
        call()
    except sky.SkywardError as error:
        return type(error).__name__, error.code, str(error)
    return "", "", ""


with sky.Compute.attached(sys.argv[1], console=False) as pool:
    tell(
        raises=told(lambda: raises() >> pool),
        dies=told(lambda: dies() >> pool),
        dawdles=told(lambda: dawdles() >> pool),
        keeps=told(lambda: keeps() >> pool),
        breaks=told(lambda: [items.append(item) for item in breaks() >> pool]),
        items=items,
        broadcast=told(lambda: raises() @ pool),
        held=told(lambda: sky.Compute.attached(sys.argv[1], console=False).__enter__()),
    )
