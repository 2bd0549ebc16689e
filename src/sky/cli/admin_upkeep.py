"""``sky admin backup``, ``restore``, ``migrate``: all that the daemon of SKY_HOME keeps, copied and compared;
``gc``: what it need not keep; ``takeover``: what it keeps elsewhere is its own.

Decides: nothing; ``sky.server.upkeep`` copies, in a process of its own, and the daemon removes. Never: stops
a daemon, or overwrites anything. Follows: the exit code is that process's own.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

from cyclopts import Parameter

from sky.cli import asking, output
from sky.cli.admin_accounts import app
from sky.cli.app import Output, command
from sky.cli.connection import reading
from sky.client import calls_admin as calls
from sky.client import daemon

MODULE = "sky.server.upkeep"


@command(app, "sky admin backup /srv/sky-2026-11-30.tar", instead=("dump", "export"))
def backup(
    file: Annotated[str, Parameter(name="FILE", help="A tar file that is not there yet.")],
    /,
    *,
    output_: Output = "table",
) -> int:
    """Copy the database, the keys and all content into one file, while the daemon runs.

    What was copied is read again and compared. The file holds the keys: keep it as safe as those. What is in
    a bucket is not copied, and how much that is is told.
    """
    return _run("copying …", output_, "backup", file)


@command(app, "SKY_HOME=/srv/sky sky admin restore /srv/sky-2026-11-30.tar", instead=("load", "import"))
def restore(
    file: Annotated[str, Parameter(name="FILE", help="What `sky admin backup` has made.")],
    /,
    *,
    incomplete: Annotated[
        bool, Parameter(help="Also where a bucket lacks content, which is then not to be had.")
    ] = False,
    output_: Output = "table",
) -> int:
    """Put a backup back: into an empty state folder, and the database that SKY_DATABASE names.

    What it needs in buckets is looked for in those that SKY_BLOBS and SKY_ARTIFACTS name. Machines that were
    there when the backup was made are looked for again; those that are gone are told so.
    """
    return _run("putting back …", output_, "restore", *(("--incomplete",) if incomplete else ()), file)


@command(app, "sky admin migrate postgresql://sky@db.example/sky", instead=("move",))
def migrate(
    url: Annotated[str, Parameter(name="URL", help="An empty database to move to.")],
    /,
    *,
    output_: Output = "table",
) -> int:
    """Move everything into another database, such as a PostgreSQL, while no daemon runs.

    Every row is read again and compared. The old database stays as it is.
    """
    return _run("moving …", output_, "migrate", url)


@command(app, "sky admin takeover --dry-run", "sky admin takeover --yes", instead=("claim", "adopt"))
def takeover(
    *,
    dry_run: Annotated[bool, Parameter(help="Only tell whose what is.")] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=(), help="Do not ask.")] = False,
    output_: Output = "table",
) -> int:
    """Have this installation remove what nobody names in its folders and buckets, and no other one.

    For a deployment that was restored, moved or copied, once nothing else uses what it uses: the one that
    had it before removes nothing there from then on. It goes by the settings that its daemon has.
    """
    if not (dry_run or yes):
        shown = _run("looking …", "table", "takeover", "--dry-run")
        if shown:
            return shown
        asking.confirm("Take over what is another's?", "nothing was taken over")
    return _run("taking over …", output_, "takeover", *(("--dry-run",) if dry_run else ()))


@command(app, "sky admin gc --dry-run", "sky admin gc", instead=("clean", "prune", "collect"))
def gc(
    *,
    dry_run: Annotated[bool, Parameter(help="Only tell what would go.")] = False,
    output_: Output = "table",
) -> int:
    """Have removed now what is over for longer than the settings say, and what nothing names.

    The daemon does that by itself, every few hours; it goes bit by bit, while the daemon serves.
    """
    with reading() as api:
        told = api.send(calls.get_garbage() if dry_run else calls.collect_garbage())
    if output_ == "json":
        output.json(told)
        return 0
    rows = [(one.kind, one.count, one.bytes or None) for one in told.items if one.count]
    if not rows:
        output.note("nothing is to be removed")
        return 0
    output.table(("KIND", "COUNT", "BYTES"), rows)
    if told.begun:
        output.note("this is being removed; `sky admin gc --dry-run` shows what is left")
    return 0


def _run(doing: str, output_: str, *words: str) -> int:
    """Have it done, and show what it says of its way."""
    as_json = ("--json",) if output_ == "json" else ()
    command = [sys.executable, "-m", MODULE, "--home", str(daemon.home_dir()), *as_json, *words]
    with (
        output.waiting(doing),
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as running,
    ):
        for line in running.stderr or ():
            output.raw(line, sys.stderr)
    return running.returncode
