"""``sky compute``: create, list, show, resize and delete computes. Their nodes are reached by ``machines``.

Decides: what is said before something is bought and after it is there, when a person is asked, and what a
wait ends with. Never: computes a price or a state; both come from the daemon.
Follows: the id stands alone on standard output, so a script can keep it; all else is on standard error.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
from cyclopts import Parameter

from sky.cli import compute_price, definition, output, render, toml
from sky.cli.app import DryRun, Output, Wait, Yes, command, noun
from sky.cli.asking import confirm
from sky.cli.connection import Api, creating, reading
from sky.cli.errors import FAILED, CliError, usage
from sky.cli.watch import compute_until
from sky.client import calls
from sky.client.events import Seen
from sky.client.progress import installing
from sky.wire import v1

app = noun("compute")

Name = Annotated[str, Parameter(help="Name or id of the compute.")]
LIST_ITEMS = 50
LIST_ITEMS_MAX = 100_000
READY_S = 900.0
GONE_S = 300.0


# ── create ──────────────────────────────────────────────────────────────────────────────────────


@command(
    app,
    "sky compute create dev --nodes 2 --cpus 1 --pip numpy",
    "sky compute create --provider local --nodes 1:4 --ttl 10m",
    "sky compute create --spec compute.json --no-wait -o json",
    "sky compute create dev          # as [compute.dev] of sky.toml says",
    instead=("new", "launch", "up", "add"),
)
def create(
    name: Annotated[str | None, Parameter(help="Its name; also looked up in sky.toml.")] = None,
    /,
    *,
    options: Annotated[definition.Options, Parameter(name="*")] = definition.NOTHING_SAID,
    name_: Annotated[str | None, Parameter(name="--name", help="The same as NAME.")] = None,
    spec: Annotated[Path | None, Parameter(metavar="FILE", help="Definition as JSON.")] = None,
    dry_run: Annotated[bool, Parameter(negative=(), help="Only check it and tell its price.")] = False,
    wait: Wait = True,
    timeout: Annotated[float, Parameter(help="Seconds to wait until it is ready.")] = READY_S,
    output_: Output = "table",
) -> int:
    """Create a compute, print its id, and wait until it is ready.

    The price per hour is told before anything is bought. Options go over what a file says.
    """
    if name and name_ and name != name_:
        raise usage(f"two names were given, {name!r} and {name_!r}", "give one")
    said = definition.from_options(options)
    wanted, full, base = _definition(name or name_, said, spec)
    checked = definition.checked(full, said)
    with creating() as api:
        if not dry_run:
            api.provide(wanted.provider.kind for wanted in checked.specs)
        compute_price.tell(api, checked)
        if dry_run:
            return _only_checked(wanted, checked, output_)
        checked = _with_files(api, checked, base)
        compute = api.send(calls.create_compute(v1.ComputeCreate(spec=checked, name=wanted)))
        if output_ == "table":
            output.say(compute.id)
            sys.stdout.flush()
        failed = None
        if wait:
            compute, failed = _until_ready(api, compute, timeout)
        if output_ == "json":
            output.json(compute)
        if failed:
            raise failed
    return 0


def _only_checked(name: str | None, spec: v1.ComputeSpec, format_: str) -> int:
    if format_ == "json":
        output.json(v1.ComputeCreate(spec=spec, name=name))
    output.note("this was a dry run: nothing was created")
    return 0


def _definition(
    name: str | None, said: dict[str, Any], file: Path | None
) -> tuple[str | None, dict[str, Any], Path]:
    """The name and the full definition that the command line, a file or ``sky.toml`` gives.

    And where its relative paths begin: beside the file that names them, or here.
    """
    here = Path.cwd()
    if file is not None:
        base, named = definition.read_spec(file)
        if name is None and named is not None:
            name = str(named)
        folder = here if "includes" in said else file.absolute().parent
        if not said:
            return name, base, folder
        return name, definition.expand(definition.merged(base, said)), folder
    base = (toml.compute(name) or {}) if name else {}
    place = toml.find() if base and "includes" not in said else None
    folder = here if place is None else place.parent
    return name, definition.expand(definition.merged(base, said)), folder


def _with_files(api: Api, spec: v1.ComputeSpec, base: Path) -> v1.ComputeSpec:
    """The definition with its included files stored, and named."""
    image = spec.image
    if not image.includes or image.includes_sha256 is not None:
        return spec
    from sky.client import flows, includes

    output.progress("sends the included files …")
    sha256 = flows.run(api.http, includes.store(image.includes, image.excludes, base))
    output.clear_progress()
    return msgspec.structs.replace(spec, image=msgspec.structs.replace(image, includes_sha256=sha256))


def _until_ready(api: Api, compute: v1.Compute, timeout_s: float) -> tuple[v1.Compute, CliError | None]:
    """Wait until it is ready; the last look at it, and why it did not come to that."""
    ended = ("ready", "failed", "deleting", "deleted")
    what = render.title(compute)
    try:
        last, done = compute_until(
            api,
            compute.id,
            lambda c: c.status.state in ended,
            timeout_s=timeout_s,
            shown=show_look,
            said=_show_installing,
        )
    except KeyboardInterrupt:
        output.note(f"{what} goes on being created; `sky compute delete {what} --yes` ends that")
        raise
    output.clear_progress()
    if last.status.state == "ready":
        output.note(f"{what} is ready: {last.status.nodes_ready} of {last.spec.nodes.desired} nodes")
        return last, None
    why = last.status.last_error
    reason = f": {why.code}: {why.message}" if why else ""
    if done:
        message = f"{what} is {last.status.state}{reason}"
        return last, CliError("compute_failed", message, f"`sky why {what}` tells what was tried", FAILED)
    message = f"{what} is still {last.status.state} after {timeout_s:g} s{reason}"
    hint = f"it goes on: `sky why {what}` tells what it waits for"
    return last, CliError("timed_out", message, hint, FAILED)


def _show_installing(event: v1.ConsoleEvent) -> None:
    for line in installing(event):
        output.note(line)


def show_look(compute: v1.Compute, seen: Seen | None) -> None:
    status = compute.status
    text = f"{render.title(compute)}: {status.state}, {render.nodes_text(compute)} nodes ready"
    if seen is not None and isinstance(seen.event, v1.PhaseEvent):
        text += f"; {seen.event.phase} {seen.event.event}"
    elif seen is not None and not isinstance(seen.event, v1.ComputeEvent):
        text += f"; {render.event_text(seen.event)}"
    elif status.last_error is not None:
        text += f"; {status.last_error.message}"
    output.progress(text)


# ── list, get ───────────────────────────────────────────────────────────────────────────────────


@command(
    app,
    "sky compute list",
    "sky compute list --all",
    "sky compute list --state ready -o json",
    name="list",
    instead=("ps", "status"),
)
def list_(
    *,
    state: Annotated[v1.ComputeState | None, Parameter(help="Only those in this state.")] = None,
    all_: Annotated[
        bool, Parameter(name=["--all", "-a"], negative=(), help="Those that are deleted, too.")
    ] = False,
    limit: Annotated[int, Parameter(help="How many at most.")] = LIST_ITEMS,
    output_: Output = "table",
) -> int:
    """List computes, newest first."""
    check_limit(limit)
    with reading() as api:
        found = api.computes(state)
        if all_ and state is None:
            # The deleted ones are a list of their own; both come newest first.
            found = heapq.merge(found, api.computes("deleted"), key=lambda c: c.created_at, reverse=True)
        computes = list(itertools.islice(found, limit + 1))
    shown = tuple(computes[:limit])
    if output_ == "json":
        output.json(v1.ComputePage(items=shown))
    elif not shown:
        output.note("no computes; `sky compute create` makes one")
    else:
        output.table(render.COMPUTE_HEADINGS, map(render.compute_row, shown), flexible=("NAME", "ID"))
    tell_more(len(computes) > limit, limit)
    return 0


def check_limit(limit: int) -> None:
    """Refuse a limit nobody can mean."""
    if not 1 <= limit <= LIST_ITEMS_MAX:
        raise usage(f"--limit {limit} is out of range", f"give a number from 1 to {LIST_ITEMS_MAX}")


def tell_more(more: bool, limit: int) -> None:
    """Say that a list was cut."""
    if more:
        output.note(f"there are more than {limit}; --limit shows more")


@command(
    app, "sky compute get dev", "sky compute get dev -o json", instead=("show", "describe", "info", "inspect")
)
def get(compute: Name, /, *, output_: Output = "table") -> int:
    """Show one compute and its nodes."""
    with reading() as api:
        found = api.send(calls.get_compute(compute))
        if output_ == "json":
            output.json(found)
            return 0
        nodes = api.send(calls.list_nodes(found.id)).items
    output.pairs(render.compute_pairs(found))
    if nodes:
        output.say()
        flexible = ("MACHINE", "NODE")
        output.table(render.NODE_HEADINGS, map(render.node_row, nodes), flexible=flexible)
        for node in nodes:
            if node.last_error:
                output.say(f"rank {node.rank}: {render.error(node.last_error)}")
    return 0


# ── resize, delete ──────────────────────────────────────────────────────────────────────────────


@command(
    app,
    "sky compute resize dev 4",
    "sky compute resize dev 1:8",
    "sky compute resize dev 8 --dry-run",
    "sky compute resize dev 0 --wait",
    instead=("scale", "update"),
)
def resize(
    compute: Name,
    nodes: Annotated[str, Parameter(help="How many: N, or MIN:MAX to let it scale itself.")],
    /,
    *,
    dry_run: DryRun = False,
    wait: Annotated[bool, Parameter(help="Wait until as many are ready.")] = False,
    timeout: Annotated[float, Parameter(help="Seconds to wait.")] = READY_S,
    output_: Output = "table",
) -> int:
    """Change how many nodes a compute should have. The price per hour is told before more are bought."""
    bounds = definition.node_bounds(nodes)
    with reading() as api:
        before = api.send(calls.get_compute(compute))
        compute_price.tell(api, msgspec.structs.replace(before.spec, nodes=bounds))
        if dry_run:
            return _only_resized(before, bounds, output_)
        changed = api.send(calls.resize_compute(compute, bounds, None))
        if wait:
            changed, done = compute_until(
                api,
                changed.id,
                lambda c: c.status.nodes_ready == c.status.nodes_total == c.spec.nodes.desired,
                timeout_s=timeout,
                shown=show_look,
            )
            output.clear_progress()
            if not done:
                hint = f"it goes on: `sky why {compute}` tells what it waits for"
                message = f"{compute} has {render.nodes_text(changed)} nodes after {timeout:g} s"
                raise CliError("timed_out", message, hint, FAILED)
    if output_ == "json":
        output.json(changed)
    else:
        output.table(render.COMPUTE_HEADINGS, [render.compute_row(changed)], flexible=("NAME", "ID"))
    return 0


def _only_resized(compute: v1.Compute, bounds: v1.NodeBounds, format_: str) -> int:
    if format_ == "json":
        output.json(bounds)
    else:
        now = compute.spec.nodes.desired
        output.say(f"{render.title(compute)} would have {bounds.desired} nodes instead of {now}")
    output.note("this was a dry run: nothing was changed")
    return 0


@command(
    app,
    "sky compute delete dev",
    "sky compute delete dev --yes --no-wait",
    instead=("destroy", "down", "terminate", "stop", "kill"),
)
def delete(
    compute: Name,
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    wait: Wait = True,
    timeout: Annotated[float, Parameter(help="Seconds to wait until it is gone.")] = GONE_S,
    output_: Output = "table",
) -> int:
    """Delete a compute: its calls are cancelled, its machines given back."""
    with reading() as api:
        found = api.send(calls.get_compute(compute))
        what = render.title(found)
        if dry_run:
            return _only_tell(found, output_)
        if found.status.state != "deleted":
            if not yes:
                confirm(
                    f"Delete {what} ({found.status.nodes_total} nodes, {found.status.state})?",
                    "nothing was deleted",
                )
            found = api.send(calls.delete_compute(found.id, None))
        if wait:
            found = _until_gone(api, found, timeout)
    if output_ == "json":
        output.json(found)
    else:
        cost = f" and has cost {render.money(found.status.cost)}" if found.status.cost else ""
        output.note(f"{what} is {found.status.state}{cost}")
    return 0


def _only_tell(found: v1.Compute, format_: str) -> int:
    if format_ == "json":
        output.json(found)
    else:
        output.say(f"{render.title(found)} ({found.status.nodes_total} nodes) would be deleted")
    return 0


def _until_gone(api: Api, compute: v1.Compute, timeout_s: float) -> v1.Compute:
    what = render.title(compute)
    try:
        last, done = compute_until(
            api, compute.id, lambda c: c.status.state == "deleted", timeout_s=timeout_s, shown=show_look
        )
    except KeyboardInterrupt:
        output.note(f"{what} goes on being deleted")
        raise
    output.clear_progress()
    if not done:
        why = last.status.last_error
        message = (
            f"{what} is still {last.status.state} after {timeout_s:g} s{': ' + why.message if why else ''}"
        )
        hint = f"it goes on trying, and costs until it succeeds: `sky why {what}`"
        raise CliError("timed_out", message, hint, FAILED)
    return last


STATES: tuple[str, ...] = get_args(v1.ComputeState)
