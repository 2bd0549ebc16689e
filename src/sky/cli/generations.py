"""``sky compute generations`` and ``rollback``: the definitions a compute has had, and the way back to one.

Decides: how a definition is told from the one before it, and which one is meant by going back.
Never: changes a definition; going back makes a new one with the content of the old.
Follows: what the daemon refuses for the sake of running calls is done with ``--force`` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, cast

import msgspec
from cyclopts import Parameter

from sky.cli import compute_price, output, render
from sky.cli.app import DryRun, Output, Wait, command
from sky.cli.computes import READY_S, Name, app, show_look
from sky.cli.connection import Api, creating, reading
from sky.cli.errors import FAILED, CliError, usage
from sky.cli.watch import compute_until
from sky.client import calls
from sky.wire import v1

HEADINGS = ("NUMBER", "APPLIED", "NODES", "AGE", "CHANGED")


@command(
    app,
    "sky compute generations dev",
    "sky compute generations dev -o json",
    instead=("history", "revisions", "versions"),
)
def generations(compute: Name, /, *, output_: Output = "table") -> int:
    """List the definitions a compute has had, newest first, and what each changed."""
    with reading() as api:
        found = api.send(calls.list_generations(compute))
    if output_ == "json":
        output.json(found)
    else:
        output.table(HEADINGS, _rows(found.items), flexible=("CHANGED",))
    return 0


@command(
    app,
    "sky compute rollback dev",
    "sky compute rollback dev 3 --wait",
    instead=("undo", "revert"),
)
def rollback(
    compute: Name,
    number: Annotated[int | None, Parameter(help="Which; else the last other one.")] = None,
    /,
    *,
    force: Annotated[
        bool,
        Parameter(negative=(), help="Though calls run: of those nobody will know how they ended."),
    ] = False,
    dry_run: DryRun = False,
    wait: Wait = True,
    timeout: Annotated[float, Parameter(help="Seconds to wait until it is applied.")] = READY_S,
    output_: Output = "table",
) -> int:
    """Go back to an earlier definition. Nodes that were made as it says stay; the others are replaced.

    The price per hour is told before machines are bought.
    """
    with creating() as api:
        found = api.send(calls.get_compute(compute))
        source = _before(api, found) if number is None else number
        meant = api.send(calls.get_generation(compute, source))
        compute_price.tell(api, meant.spec)
        if dry_run:
            return _only_meant(found, meant, output_)
        create = v1.GenerationCreate(source=source, force=force)
        made = api.send(calls.create_generation(found.id, create, found.revision))
        output.note(f"{render.title(found)}: generation {made.number} is what {source} was")
        if wait:
            made = _applied(api, found.id, made, timeout)
    if output_ == "json":
        output.json(made)
    else:
        output.say(str(made.number))
    return 0


def _only_meant(compute: v1.Compute, meant: v1.Generation, output_: str) -> int:
    if output_ == "json":
        output.json(meant)
    else:
        changed = ", ".join(_differing(compute.spec, meant.spec)) or "nothing"
        output.say(f"{render.title(compute)} would be as in generation {meant.number}: {changed} changes")
    output.note("this was a dry run: nothing was changed")
    return 0


def _before(api: Api, compute: v1.Compute) -> int:
    """The generation that going back means, when no number says which."""
    found = {one.number: one for one in api.send(calls.list_generations(compute.id)).items}
    now = found[compute.generation]
    others = [one for one in found.values() if one.hash != now.hash]
    if not others:
        what = render.title(compute)
        raise usage(f"{what} has had no other definition", f"`sky compute generations {what}` lists them")
    # One that could not be applied has left another in force.
    return max(others, key=lambda one: (one.applied, one.number)).number


def _applied(api: Api, compute: str, made: v1.Generation, timeout_s: float) -> v1.Generation:
    last, done = compute_until(
        api,
        compute,
        lambda c: c.status.observed_generation >= made.number or c.generation > made.number,
        timeout_s=timeout_s,
        shown=show_look,
    )
    output.clear_progress()
    if not done:
        why = last.status.last_error
        message = f"generation {made.number} is not applied after {timeout_s:g} s"
        hint = f"it goes on: `sky why {compute}` tells what it waits for"
        raise CliError("timed_out", f"{message}{': ' + why.message if why else ''}", hint, FAILED)
    return api.send(calls.get_generation(compute, made.number))


def _rows(items: Sequence[v1.Generation]) -> Iterator[tuple[object, ...]]:
    for place, one in enumerate(items):
        older = items[place + 1] if place + 1 < len(items) else None
        changed = "" if older is None else ", ".join(_differing(older.spec, one.spec)) or "nothing"
        nodes = one.spec.nodes
        size = nodes.desired if nodes.max is None else f"{nodes.min or 0}:{nodes.max}"
        yield one.number, "yes" if one.applied else "no", size, render.ago(one.created_at), changed


def _differing(one: v1.ComputeSpec, other: v1.ComputeSpec) -> list[str]:
    """The fields in which two definitions differ, to the second level."""
    before, after = (cast("dict[str, Any]", msgspec.to_builtins(spec)) for spec in (one, other))
    names: list[str] = []
    for name, value in after.items():
        had = before.get(name)
        if isinstance(value, dict) and isinstance(had, dict):
            fields, old = cast("dict[str, Any]", value), cast("dict[str, Any]", had)
            names += [f"{name}.{key}" for key in fields if fields[key] != old.get(key)]
        elif value != had:
            names.append(name)
    return names
