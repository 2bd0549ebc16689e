"""``sky storage``: sets of files that the server keeps, by their names.

Decides: what is shown of one, and that its deletion is asked about. Never: reads what is in one.
Follows: no storages is an answer, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import Parameter

from sky.cli import output, render_requests
from sky.cli.app import DryRun, Output, Yes, command, noun
from sky.cli.asking import confirm
from sky.cli.errors import MISSING, CliError, usage
from sky.cli.nouns import near
from sky.cli.scripted import Act, Later, act_on, begin, listed, plain, result
from sky.client import sdk

app = noun("storage")

HEADINGS = ("NAME", "SIZE", "USER", "CREATED", "LAST USED", "IN USE")
UNITS = ("B", "KB", "MB", "GB", "TB")


@command(app, "sky storage ls", "sky storage ls -o json", name="ls", instead=("list",))
def ls(*, output_: Output = "table") -> int:
    """List storages, newest first."""
    begin()
    records: list[Any] = list(result(sdk.storage_ls(), "looking"))
    if output_ == "json":
        output.json(plain(records))
    elif not records:
        output.note("no storages; a task's `file_mounts` with a `name` makes one")
    else:
        output.table(HEADINGS, map(_row, records), flexible=("NAME",))
    return 0


def _row(record: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        record["name"],
        _size(record["size_bytes"]),
        record.get("owner"),
        render_requests.ago(record.get("created_at")),
        render_requests.ago(record.get("last_used_at")),
        "yes" if record.get("in_use") else "no",
    )


def _size(count: float) -> str:
    for unit in UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {UNITS[-1]}"


@command(
    app,
    "sky storage delete data",
    "sky storage delete data results --yes",
    "sky storage delete --all",
    instead=("rm", "remove"),
)
def delete(
    *names: Annotated[str, Parameter(name="NAME", help="Names of storages.")],
    all_: Annotated[bool, Parameter(name=["--all", "-a"], negative=(), help="All of yours.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    later: Later = False,
    output_: Output = "table",
) -> int:
    """Delete storages and what is in them."""
    if bool(names) == all_:
        said = "names and --all were both given" if all_ else "no storage was named"
        raise usage(said, "`sky storage delete NAME`, or `sky storage delete --all`")
    begin()
    known = [str(record["name"]) for record in result(sdk.storage_ls(), "looking")]
    wanted = known if all_ else [name for name in dict.fromkeys(names) if name in known]
    unknown = [] if all_ else [_no_storage(name, known) for name in names if name not in known]
    if not wanted and not unknown:
        output.note("no storages")
        return 0
    if dry_run:
        if unknown:
            raise unknown[0]
        if output_ == "json":
            output.json([{"name": name} for name in wanted])
        else:
            output.say(f"{listed(wanted)} would be deleted")
        output.note("this was a dry run: nothing was deleted")
        return 0
    if wanted and not yes:
        confirm(f"Delete {listed(wanted)} and what is in there?", "nothing was deleted")
    act = Act(sdk.storage_delete, "deleting", lambda name, _: f"{name} is deleted")
    return act_on(wanted, unknown, act, later, output_)


def _no_storage(name: str, known: list[str]) -> CliError:
    meant = near(name, known)
    hint = f"did you mean `{meant[0]}`?" if meant else "`sky storage ls` lists those there are"
    return CliError("storage_not_found", f"there is no storage {name!r}", hint, MISSING)
