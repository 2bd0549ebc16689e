"""``sky compute view``: one compute as it is now, and as it changes.

Decides: what stands on the screen (state, price, nodes, the last tasks, the end of the console) and how often
it is drawn. Never: changes anything; Ctrl-C ends the view and nothing else.
Follows: piped, it is one plain line per event; either way it ends by itself when the compute is deleted.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sky.cli import output, render
from sky.cli.app import command, noun
from sky.cli.computes import Name
from sky.cli.connection import Api, reading
from sky.cli.watch import Feed
from sky.client import calls
from sky.client.events import Seen
from sky.wire import v1

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

app = noun("compute")

DRAW_S = 0.25
ASK_S = 1.0
"""How often the resources are read again while nothing happens."""
TASKS_SHOWN = 8
CONSOLE_LINES = 200
ROWS_BESIDE = 12
STYLES = {"good": "green", "busy": "yellow", "bad": "red", "dim": "dim"}


class Screen:
    """What is known of a compute, and how it is drawn."""

    def __init__(self, compute: v1.Compute) -> None:
        self.compute = compute
        self.nodes: tuple[v1.Node, ...] = ()
        self.tasks: tuple[v1.Task, ...] = ()
        self.console: deque[str] = deque(maxlen=CONSOLE_LINES)
        self.phases: dict[str, str] = {}
        self.cost = compute.status.cost

    def read(self, api: Api) -> None:
        """Ask for everything anew."""
        name = self.compute.id
        self.compute = api.send(calls.get_compute(name))
        self.nodes = api.send(calls.list_nodes(name)).items
        self.tasks = api.send(calls.list_tasks(compute=name, limit=TASKS_SHOWN)).items
        self.cost = max(self.cost, self.compute.status.cost)

    def hear(self, seen: Seen) -> None:
        """Take an event in."""
        match seen.event:
            case v1.ConsoleEvent(content=content, rank=rank):
                prefix = f"[{rank}] " if rank is not None else ""
                self.console.extend(prefix + output.clean(line) for line in content.splitlines())
            case v1.PhaseEvent(node=node, phase=phase, event=step):
                self.phases[node] = f"{phase} {step}"
            case v1.CostEvent(cost=cost):
                self.cost = cost
            case _:
                pass

    def draw(self, height: int) -> Group:
        """The whole screen."""
        from rich.console import Group
        from rich.text import Text

        compute, status = self.compute, self.compute.status
        head = Text.assemble(
            (render.title(compute), "bold"),
            "  ",
            _text(render.state(status.state)),
            f"  {render.nodes_text(compute)} nodes  {render.money(status.price_per_hour)}/h  ",
            f"{render.money(self.cost)} so far  {render.ago(compute.created_at)} old",
        )
        parts: list[RenderableType] = [head]
        if status.last_error is not None:
            parts.append(_text(render.error(status.last_error)))
        nodes = [
            (
                n.rank,
                n.id,
                render.state(n.state),
                self.phases.get(n.id) if n.state != "ready" else render.machine(n),
            )
            for n in self.nodes
        ]
        parts += [Text(), _table(("RANK", "NODE", "STATE", "MACHINE"), nodes)]
        tasks = [(t.id, render.state(t.state), render.ago(t.submitted_at), _took(t)) for t in self.tasks]
        if tasks:
            parts += [Text(), _table(("TASK", "STATE", "AGE", "TOOK"), tasks)]
        room = max(3, height - len(nodes) - len(tasks) - ROWS_BESIDE)
        lines = list(self.console)[-room:]
        if lines:
            parts += [
                Text(),
                Text("console", style="dim"),
                *(Text(one, no_wrap=True, overflow="ellipsis") for one in lines),
            ]
        return Group(*parts)


def _took(task: v1.Task) -> str | None:
    return render.between(task.submitted_at, task.finished_at)


def _text(value: object) -> Any:
    from rich.text import Text

    style = value.style if isinstance(value, output.Cell) else ""
    shown = "-" if value is None or value == "" else output.clean(str(value))
    return Text(shown, style=STYLES.get(style, ""), no_wrap=True, overflow="ellipsis")


def _table(headings: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(*(_text(value) for value in row))
    return table


@command(
    app, "sky compute view dev", "sky compute view dev | grep failed", instead=("watch", "top", "events")
)
def view(compute: Name, /) -> int:
    """Watch a compute: its nodes, tasks, cost and console. Ctrl-C ends the view and nothing else.

    Piped, it prints one line per event, from the beginning.
    """
    with reading() as api:
        found = api.send(calls.get_compute(compute))
        return _on_screen(api, found) if output.movable() else _as_lines(api, found)


def _on_screen(api: Api, compute: v1.Compute) -> int:
    from rich.live import Live

    from sky.cli.app import console

    screen = Screen(compute)
    with (
        Feed(api, compute=compute.id, after=0) as feed,
        Live(console=console(), screen=True, auto_refresh=False) as live,
    ):
        asked_s = drawn_s = 0.0
        changed = True
        while screen.compute.status.state != "deleted" or changed:
            now_s = time.monotonic()
            if now_s - asked_s >= ASK_S:
                screen.read(api)
                asked_s, changed = now_s, True
            if changed and now_s - drawn_s >= DRAW_S:
                live.update(screen.draw(live.console.height), refresh=True)
                drawn_s, changed = now_s, False
            seen = feed.next(DRAW_S)
            if seen is not None:
                screen.hear(seen)
                changed = True
    output.note(f"{render.title(screen.compute)} is {screen.compute.status.state}")
    return 0


def _as_lines(api: Api, compute: v1.Compute) -> int:
    gone = False
    with Feed(api, compute=compute.id, after=0) as feed:
        while True:
            seen = feed.next()
            if seen is None:
                if gone or api.send(calls.get_compute(compute.id)).status.state == "deleted":
                    return 0
                continue
            for line in render.event_text(seen.event).splitlines():
                output.say(f"{datetime.now().astimezone():%H:%M:%S} {output.clean(line)}")
            sys.stdout.flush()
            gone = isinstance(seen.event, v1.ComputeEvent) and seen.event.state == "deleted"
