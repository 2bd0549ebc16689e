"""``sky compute view``: one compute as it is now, and as it changes.

Decides: how often the screen is drawn and the daemon is asked, which keys there are, and when it is over.
Never: changes anything; q and Ctrl-C end the view and nothing else, and give the terminal back as it was.
Follows: piped, it is one plain line per change; either way it ends by itself when the compute does.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
import tty
from collections.abc import Callable, Generator

from sky.cli import output, render
from sky.cli.app import command, noun
from sky.cli.computes import Name
from sky.cli.connection import Api, reading
from sky.cli.errors import FAILED, OK
from sky.cli.screen import Screen
from sky.cli.terminal import keys_of
from sky.cli.watch import Feed, followed
from sky.client import calls
from sky.client.errors import DaemonUnreachable
from sky.wire import v1

app = noun("compute")

DRAW_S = 0.25
ASK_S = 1.0
"""How often the resources are read again while nothing happens."""
OVER = frozenset({"deleted", "failed"})
QUIT = frozenset({b"q", b"Q"})
KEY_BYTES = 64


@command(
    app, "sky compute view dev", "sky compute view dev | grep failed", instead=("watch", "top", "events")
)
def view(compute: Name, /) -> int:
    """Watch a compute: nodes with their gauges, running calls, cost, console. q ends the view alone.

    Piped, it prints one line per change, from the beginning. It ends with the compute: exit code 0 when that
    was deleted, 1 when it failed.
    """
    with reading() as api:
        found = api.send(calls.get_compute(compute))
        return _on_screen(api, found) if output.movable() else _as_lines(api, found)


def _on_screen(api: Api, compute: v1.Compute) -> int:
    from rich.console import Console
    from rich.live import Live

    screen = Screen(compute)
    console = Console(
        force_terminal=True,
        color_system="auto" if output.coloured() else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with (
        _keys() as pressed,
        Feed(api, compute=compute.id, after=0) as feed,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        asked_s = drawn_s = -ASK_S
        size = console.size
        changed = True
        while not pressed().intersection(QUIT):
            now_s = time.monotonic()
            if now_s - asked_s >= ASK_S:
                screen.away = not _read(screen, api)
                asked_s, changed = now_s, True
            if console.size != size:
                size, changed = console.size, True
            if changed and now_s - drawn_s >= DRAW_S:
                live.update(screen.draw(size.width, size.height), refresh=True)
                drawn_s, changed = now_s, False
            if screen.compute.status.state == "deleted" and not changed:
                break
            seen = feed.next(DRAW_S)
            if seen is not None:
                screen.hear(seen)
                changed = True
    state = screen.compute.status.state
    output.note(f"{render.title(screen.compute)} is {state}")
    return FAILED if state == "failed" else OK


def _read(screen: Screen, api: Api) -> bool:
    """Whether the daemon answered; while it does not, the feed decides for how long that is borne."""
    try:
        screen.read(api)
    except DaemonUnreachable:
        return False
    return True


@contextlib.contextmanager
def _keys() -> Generator[Callable[[], frozenset[bytes]]]:
    """Keys one by one as they are pressed, unseen, while this lasts; gives which were since the last time."""
    if not sys.stdin.isatty():
        yield frozenset
        return
    keyboard = sys.stdin.fileno()

    def pressed() -> frozenset[bytes]:
        if not select.select([keyboard], [], [], 0)[0]:
            return frozenset()
        typed = os.read(keyboard, KEY_BYTES)
        return frozenset(bytes([key]) for key in typed)

    with keys_of(keyboard, tty.setcbreak):
        yield pressed


def _as_lines(api: Api, compute: v1.Compute) -> int:
    cost: float | None = None
    ranks: dict[str, int] = {}
    state = compute.status.state

    def over() -> bool:
        nonlocal state
        state = api.send(calls.get_compute(compute.id)).status.state
        return state in OVER

    for seen in followed(api, compute=compute.id, over=over, may_end=_may_end):
        event = seen.event
        if isinstance(event, v1.MetricEvent) or (isinstance(event, v1.CostEvent) and event.cost == cost):
            continue
        cost = event.cost if isinstance(event, v1.CostEvent) else cost
        for line in render.event_text(event, ranks).split("\n"):
            output.say(output.clean(line))
        sys.stdout.flush()
    return FAILED if state == "failed" else OK


def _may_end(event: v1.Event) -> bool:
    return isinstance(event, v1.ComputeEvent) and event.state in OVER
