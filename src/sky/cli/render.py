"""How the nouns look to people: columns, states with a colour, money, times, sizes.

Decides: which facts of a noun are shown, and in which words. Never: asks the daemon, or writes.
Follows: a row of any list fits 80 columns with ids whole, and the same fact looks the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sky.cli.output import Cell
from sky.wire import v1
from sky.wire.error import Error

GOOD = frozenset({"ready", "succeeded", "ok", "running", "started", "present", "delivered"})
BAD = frozenset(
    {"failed", "degraded", "lost", "timed_out", "indeterminate", "unreachable", "deletion_failed"}
)
DIM = frozenset({"deleted", "cancelled"})
STEPS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
HASH_CHARS = 12


def state(name: str) -> Cell:
    """A state in its colour."""
    style = "good" if name in GOOD else "bad" if name in BAD else "dim" if name in DIM else "busy"
    return Cell(name, style)


def money(usd: float | None) -> str | None:
    """US dollars; small amounts keep the digits that matter."""
    if usd is None:
        return None
    if usd == 0 or abs(usd) >= 0.1:
        return f"${usd:,.2f}"
    return f"${usd:.4f}"


def span(seconds: float) -> str:
    """A length of time in its largest unit, with one decimal below ten seconds."""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    for length, unit in STEPS:
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return "0s"


def ago(moment: datetime | None) -> str | None:
    """How long ago a moment was."""
    if moment is None:
        return None
    seconds = (datetime.now(UTC) - moment).total_seconds()
    return span(seconds) if seconds >= 10 else f"{max(0, int(seconds))}s"


def when(moment: datetime | None) -> str | None:
    """A moment as local time to the second, and how long ago."""
    if moment is None:
        return None
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S} ({ago(moment)} ago)"


def between(begin: datetime | None, end: datetime | None) -> str | None:
    """The time from one moment to another."""
    return span((end - begin).total_seconds()) if begin and end else None


def error(found: Error | None) -> Cell | None:
    """An error as ``cause: message``."""
    return Cell(f"{cause(found.code, found.details)}: {found.message}", "bad") if found else None


def cause(code: str, details: Mapping[str, Any] | None) -> str:
    """What an error is called. Some causes go by a broader code; then they are in the details."""
    return str((details or {}).get("cause") or code)


# ── computes and nodes ──────────────────────────────────────────────────────────────────────────

COMPUTE_HEADINGS = ("ID", "NAME", "STATE", "NODES", "$/H", "AGE")


def title(compute: v1.Compute) -> str:
    """What a person calls a compute."""
    return compute.name or compute.id


def nodes_text(compute: v1.Compute) -> str:
    """Ready nodes of wanted ones; a range that scales itself shows its ends."""
    wanted = compute.spec.nodes
    text = f"{compute.status.nodes_ready}/{wanted.desired}"
    if wanted.min is not None and wanted.max is not None and wanted.min != wanted.max:
        text += f" ({wanted.min}:{wanted.max})"
    return text


def compute_row(compute: v1.Compute) -> tuple[object, ...]:
    """One line of ``sky compute list``."""
    status = compute.status
    return (
        compute.id,
        compute.name,
        state(status.state),
        nodes_text(compute),
        money(status.price_per_hour),
        ago(compute.created_at),
    )


def compute_pairs(compute: v1.Compute) -> Iterable[tuple[str, object]]:
    """The facts of one compute."""
    status, spec = compute.status, compute.spec
    yield "id", compute.id
    if compute.name:
        yield "name", compute.name
    yield "state", state(status.state)
    yield "nodes", f"{nodes_text(compute)} ready"
    yield "wanted", " or ".join(machine_text(one) for one in spec.specs)
    if spec.image.pip:
        yield "packages", ", ".join(spec.image.pip)
    yield "price", f"{money(status.price_per_hour)} per hour, {money(status.cost)} so far"
    yield "generation", _generation(compute)
    if compute.lease.owner:
        yield "held by", f"{compute.lease.owner} until {when(compute.lease.expires_at)}"
    yield "created", when(compute.created_at)
    if status.last_error:
        yield "last error", error(status.last_error)


def _generation(compute: v1.Compute) -> str:
    drift = compute.status.drift
    text = f"{compute.generation}, revision {compute.revision}"
    return f"{text}, differs in {', '.join(drift)}" if drift else text


def machine_text(spec: v1.Spec) -> str:
    """One alternative of a definition in a few words."""
    parts = [spec.provider.kind]
    if spec.accelerator:
        parts.append(f"{spec.accelerator}:{spec.accelerator_count}")
    parts += [f"{spec.cpus} cpus"] if spec.cpus else []
    parts += [f"{spec.memory_gb} GB"] if spec.memory_gb else []
    parts += [f"in {spec.region}"] if spec.region else []
    return " ".join(parts)


NODE_HEADINGS = ("RANK", "NODE", "STATE", "MACHINE", "$/H", "AGE")


def machine(node: v1.Node) -> str | None:
    """Its provider's name for it, where that is another than ours."""
    return node.machine if node.machine != node.id else None


def node_row(node: v1.Node) -> tuple[object, ...]:
    """One line about a node."""
    return (
        node.rank,
        node.id,
        state(node.state),
        machine(node),
        money(node.price_per_hour),
        ago(node.created_at),
    )


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────

TASK_HEADINGS = ("ID", "STATE", "COMPUTE", "FUNCTION", "AGE", "TOOK")


def function_text(sha256: str, names: Mapping[str, str]) -> str:
    """A function by its name where it has one, else by the beginning of its hash."""
    return names.get(sha256) or sha256[:HASH_CHARS]


def task_row(task: v1.Task, computes: Mapping[str, str], functions: Mapping[str, str]) -> tuple[object, ...]:
    """One line of ``sky task list``."""
    return (
        task.id,
        state(task.state),
        computes.get(task.compute_id, task.compute_id),
        function_text(task.function, functions),
        ago(task.submitted_at),
        between(task.submitted_at, task.finished_at),
    )


def task_pairs(task: v1.Task, function: str | None = None) -> Iterable[tuple[str, object]]:
    """The facts of one task."""
    yield "id", task.id
    yield "state", state(task.state)
    yield "compute", task.compute_id
    yield "function", f"{function} ({task.function[:HASH_CHARS]}…)" if function else task.function
    if task.dispatch != "one":
        yield "dispatch", task.dispatch
    yield "submitted", when(task.submitted_at)
    if task.finished_at:
        yield "finished", f"{when(task.finished_at)}, took {between(task.submitted_at, task.finished_at)}"
    if task.deadline_at and not task.finished_at:
        yield "deadline", task.deadline_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if task.correlation_id:
        yield "correlation", task.correlation_id
    failed = next((e.error for e in reversed(task.executions) if e.error), None)
    if failed and task.state not in ("succeeded", "queued", "running"):
        yield "error", error(failed)


EXECUTION_HEADINGS = ("TRY", "RANK", "STATE", "NODE", "STARTED", "TOOK")


def execution_row(execution: v1.Execution) -> tuple[object, ...]:
    """One line about an attempt of a task."""
    return (
        execution.ordinal,
        execution.rank,
        state(execution.state),
        execution.node_id,
        ago(execution.started_at),
        between(execution.started_at, execution.finished_at),
    )


# ── providers and offers ────────────────────────────────────────────────────────────────────────

PROVIDER_HEADINGS = ("NAME", "KIND", "OFFERS", "READ", "ERROR")


def provider_row(provider: v1.Provider) -> tuple[object, ...]:
    """One line of ``sky provider list``."""
    return (
        provider.name,
        provider.kind,
        provider.offers_count,
        ago(provider.offers_fetched_at),
        error(provider.last_error),
    )


OFFER_HEADINGS = ("PROVIDER", "TYPE", "CPUS", "MEM", "ACCELERATOR", "REGION", "SPOT", "$/H")


def offer_row(offer: v1.Offer) -> tuple[object, ...]:
    """One line of ``sky offers``."""
    has = f"{offer.accelerator}:{offer.accelerator_count}" if offer.accelerator else None
    return (
        offer.provider_name,
        offer.instance_type,
        offer.cpus,
        f"{offer.memory_gb:g}G",
        has,
        offer.region,
        money(offer.spot_price),
        money(offer.on_demand_price if offer.on_demand_price is not None else offer.price),
    )


# ── events ──────────────────────────────────────────────────────────────────────────────────────


def event_text(event: v1.Event, ranks: dict[str, int] | None = None) -> str:
    """One event as a sentence. ``ranks`` learns which rank a node has, and names it so from then on."""
    known = {} if ranks is None else ranks
    if isinstance(event, v1.NodeEvent) and event.rank is not None:
        known[event.node] = event.rank
    match event:
        case v1.ComputeEvent(state=name, error=why):
            text = f"compute {name}"
        case v1.ComputeAbandoned():
            text, why = "compute abandoned: nobody holds it any more", None
        case v1.CostEvent(cost=cost, nodes=nodes):
            text, why = f"cost {money(cost)} with {nodes} nodes", None
        case v1.NodeEvent(state=name, rank=rank, error=why):
            text = f"node {known.get(event.node, event.node) if rank is None else rank} {name}"
        case v1.ConsoleEvent(content=content):
            text, why = content, None
        case v1.PhaseEvent(phase=phase, event=step, node=node, error=why):
            text = f"node {known.get(node, node)}: {phase} {step}"
        case v1.MetricEvent(name=name, value=value, node=node):
            text, why = f"node {known.get(node, node)}: {name} {value:g}", None
        case v1.TaskEvent(task=task, now=name, error=why):
            text = f"task {task} {name}"
    return f"{text}: {why}" if why else text


def looks_like_id(text: str) -> str | None:
    """The noun whose id ``text`` has the shape of; None for a name."""
    found = re.match(r"(cmp|nod|tsk|exe|prv|ofr|job)_", text)
    return found[1] if found else None
