"""What ``sky compute view`` shows: everything that is known of one compute, in as many lines as there are.

Decides: which parts there are, their order, and what each gets of a terminal that is too small for all.
Never: asks the daemon for anything but what it shows, or changes anything.
Follows: a part that does not fit says how much of it is missing; ids give way before states and gauges do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sky.cli import output, render
from sky.cli.connection import Api
from sky.client import calls
from sky.client.events import Seen
from sky.wire import v1

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

TASKS_READ = 100
EVENTS_KEPT = 50
EVENTS_SHOWN = 6
CONSOLE_LINES = 200
FUNCTIONS_READ = 500
BAR_CELLS = 8
NARROW_COLUMNS = 90
"""Below this, gauges are numbers without bars."""
UNDER_WAY = frozenset({"started", "cancel_requested"})
HIGH, FULL = 70.0, 90.0
STYLES = {"good": "cyan", "busy": "yellow", "bad": "bold red", "dim": "dim"}


class Screen:
    """What is known of a compute, and how it is drawn."""

    def __init__(self, compute: v1.Compute) -> None:
        self.compute = compute
        self.nodes: tuple[v1.Node, ...] = ()
        self.running: tuple[v1.Task, ...] = ()
        self.queued = 0
        self.console: deque[str] = deque(maxlen=CONSOLE_LINES)
        self.events: deque[str] = deque(maxlen=EVENTS_KEPT)
        self.phases: dict[str, str] = {}
        self.gauges: dict[str, dict[str, float]] = {}
        self.cost = compute.status.cost
        self.away = False
        self._functions: dict[str, str] = {}

    def read(self, api: Api) -> None:
        """Ask for everything anew."""
        name = self.compute.id
        self.compute = api.send(calls.get_compute(name))
        self.nodes = api.send(calls.list_nodes(name)).items
        self.running = api.send(calls.list_tasks(compute=name, limit=TASKS_READ, state="running")).items
        queued = api.send(calls.list_tasks(compute=name, limit=TASKS_READ, state="queued"))
        self.queued = len(queued.items)
        self.cost = max(self.cost, self.compute.status.cost)
        for node in self.nodes:
            self.gauges.setdefault(node.id, {}).update(node.metrics)
        if any(task.function not in self._functions for task in self.running):
            found = api.send(calls.list_functions(limit=FUNCTIONS_READ)).items
            self._functions = {f.sha256: f.name or "" for f in found}

    def hear(self, seen: Seen) -> None:
        """Take an event in."""
        event = seen.event
        match event:
            case v1.ConsoleEvent(content=content, rank=rank):
                prefix = f"[{rank}] " if rank is not None else ""
                self.console.extend(prefix + _last_of(line) for line in content.split("\n"))
            case v1.MetricEvent(node=node, name=name, value=value):
                self.gauges.setdefault(node, {})[name] = value
            case v1.CostEvent(cost=cost):
                self.cost = cost
            case v1.PhaseEvent(node=node, phase=phase, event=step):
                self.phases[node] = f"{phase} {step}"
            case _:
                self.events.append(output.clean(render.event_text(event)))

    # ── drawing ─────────────────────────────────────────────────────────────────────────────────

    def draw(self, width: int, height: int) -> Group:
        """The whole screen, in at most ``height`` lines."""
        from rich.console import Group
        from rich.text import Text

        head = self._head()
        left = max(0, height - len(head) - 1)
        parts: list[RenderableType] = [*head]
        # Whoever comes first has the first choice, and leaves something for the others.
        for rows, table, share in (
            (len(self.nodes), self._nodes, 0.5),
            (len(self.running), self._tasks, 0.5),
        ):
            room = max(1, int(left * share) - 2)
            if rows and left >= 3:
                shown = min(rows, room)
                more = rows - shown
                parts += [Text(), table(shown, width)]
                parts += [Text(f"… {more} more", style="dim")] if more else []
                left -= shown + 2 + bool(more)
        for title, lines, most in (
            ("events", self.events, EVENTS_SHOWN),
            ("console", self.console, CONSOLE_LINES),
        ):
            room = min(most, left - 2, len(lines))
            if room > 0:
                parts += [Text(), Text(title, style="dim"), *map(_line, list(lines)[-room:])]
                left -= room + 2
        parts += [Text()] * max(0, left)
        foot = "the daemon does not answer; trying again …  " if self.away else ""
        parts.append(Text.assemble((foot, "red"), ("q quits", "dim"), no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _head(self) -> list[Text]:
        from rich.text import Text

        compute, status = self.compute, self.compute.status
        queued = f"{self.queued}{'+' if self.queued >= TASKS_READ else ''}"
        lines = [
            Text.assemble(
                (output.clean(render.title(compute)), "bold"),
                "  ",
                _text(render.state(status.state)),
                f"  {render.nodes_text(compute)} nodes",
                f"  {render.money(status.price_per_hour)}/h  {render.money(self.cost)} so far",
                f"  {render.ago(compute.created_at)} old",
                no_wrap=True,
                overflow="ellipsis",
            ),
            _line(f"{len(self.running)} running, {queued} queued"),
        ]
        if status.last_error is not None:
            lines.append(_text(render.error(status.last_error)))
        return lines

    def _nodes(self, shown: int, width: int) -> RenderableType:
        gpus = any(name.startswith("gpu_") for gauges in self.gauges.values() for name in gauges)
        bars = width >= NARROW_COLUMNS
        rows: list[tuple[object, ...]] = []
        for node in self.nodes[:shown]:
            gauges = self.gauges.get(node.id, {}) if node.state in ("ready", "draining") else {}
            runs = sum(e.node_id == node.id for e in self._under_way())
            rows.append(
                (
                    node.rank,
                    render.state(node.state),
                    _gauge(gauges.get("cpu_percent"), bars=bars),
                    _gauge(_share(gauges, "memory"), bars=bars),
                    _gauge(_share(gauges, "disk"), bars=False),
                    *((_gauge(_gpu(gauges), bars=bars),) if gpus else ()),
                    runs or None,
                    node.id if node.state == "ready" else self.phases.get(node.id, node.id),
                )
            )
        accelerators = ("GPU",) if gpus else ()
        return _table(("RANK", "STATE", "CPU", "MEMORY", "DISK", *accelerators, "RUNS", "NODE"), rows)

    def _under_way(self) -> Iterable[v1.Execution]:
        return (e for task in self.running for e in task.executions if e.state in UNDER_WAY)

    def _tasks(self, shown: int, _width: int) -> RenderableType:
        rows: list[tuple[object, ...]] = []
        for task in self.running[:shown]:
            ranks = sorted({e.rank for e in task.executions if e.state in UNDER_WAY})
            started = min((e.started_at for e in task.executions if e.started_at), default=None)
            name = render.function_text(task.function, self._functions)
            rows.append((name, ",".join(map(str, ranks)), render.ago(started), task.id))
        return _table(("FUNCTION", "RANK", "FOR", "TASK"), rows)


def _last_of(line: str) -> str:
    """What a terminal would show of a line that was written over and over."""
    return output.clean(line.rstrip("\r").rpartition("\r")[2])


def _share(gauges: Mapping[str, float], name: str) -> float | None:
    used, total = gauges.get(f"{name}_used_bytes"), gauges.get(f"{name}_total_bytes")
    return 100.0 * used / total if used is not None and total else None


def _gpu(gauges: Mapping[str, float]) -> float | None:
    """The mean over a node's accelerators."""
    found = [value for name, value in gauges.items() if name.startswith("gpu_") and name.endswith("_percent")]
    return sum(found) / len(found) if found else None


def _gauge(percent: float | None, *, bars: bool) -> output.Cell | None:
    if percent is None:
        return None
    level = "bad" if percent >= FULL else "busy" if percent >= HIGH else "good"
    number = f"{min(percent, 999):3.0f}%"
    if not bars:
        return output.Cell(number, level)
    full = max(0, min(BAR_CELLS, round(percent * BAR_CELLS / 100)))
    return output.Cell("█" * full + "░" * (BAR_CELLS - full) + number, level)


def _line(text: str) -> Text:
    from rich.text import Text

    return Text(text, no_wrap=True, overflow="ellipsis")


def _text(value: object) -> Any:
    from rich.text import Text

    style = value.style if isinstance(value, output.Cell) else ""
    shown = "-" if value is None or value == "" else output.clean(str(value))
    return Text(shown, style=STYLES.get(style, ""), no_wrap=True, overflow="ellipsis")


def _table(headings: Sequence[str], rows: Iterable[tuple[object, ...]]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(
            heading, no_wrap=True, ratio=None, min_width=len(heading) if heading != "NODE" else 4
        )
    for row in rows:
        table.add_row(*(_text(value) for value in row))
    return table
