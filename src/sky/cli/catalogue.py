"""``sky admin catalogue``: the file of what is sold, for the operator.

Decides: how it is told whether a file is right, and which version holds. Never: loads server code here;
a file is checked by this installation's own server in a process of its own.
Follows: a file can be checked without a daemon and without a network, before it is put in its place.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.admin_accounts import app
from sky.cli.app import Output, below, command
from sky.cli.connection import reading
from sky.cli.errors import FAILED, USAGE, usage
from sky.client import calls_admin as calls

MODULE = "sky.server.catalogue"
CHECK_S = 60.0

catalogue = below(
    app,
    "catalogue",
    "Check the file of what is sold, show which version holds.",
    "sky admin catalogue check catalogue.yaml",
    "sky admin catalogue show",
)


@command(
    catalogue,
    "sky admin catalogue check catalogue.yaml",
    "sky admin catalogue check new.yaml && mv new.yaml catalogue.yaml",
    instead=("verify", "lint", "validate"),
)
def check(
    file: Annotated[Path, Parameter(help="The file to look at.")], /, *, output_: Output = "table"
) -> int:
    """Tell everything that is wrong with a file, by line; exit code 2 if anything is.

    Needs no daemon. A running one reads its file anew when that changes, and keeps the version before while
    the new one is wrong.
    """
    if not file.is_file():
        raise usage(f"there is no file {str(file)!r}", "name the YAML file of what is sold")
    output.progress("reading …")
    done = subprocess.run(
        [sys.executable, "-m", MODULE, str(file)],
        capture_output=True,
        timeout=CHECK_S,
        check=False,
        text=True,
    )
    output.clear_progress()
    said = done.stderr.splitlines()
    warnings = [line.removeprefix("warning: ") for line in said if line.startswith("warning: ")]
    errors = [line for line in said if not line.startswith("warning: ")]
    if output_ == "json":
        output.json({"ok": done.returncode == 0, "errors": errors, "warnings": warnings})
    else:
        for line in said:
            output.note(line)
        if done.returncode == 0:
            output.say(done.stdout.strip())
    return USAGE if done.returncode else 0


@command(catalogue, "sky admin catalogue show", "sky admin catalogue show -o json", instead=("get", "status"))
def show(*, output_: Output = "table") -> int:
    """Show which file the daemon sells from; exit code 1 while its newest version is wrong."""
    with reading() as api:
        found = api.send(calls.get_catalogue())
    if output_ == "json":
        output.json(found)
    else:
        rows: list[tuple[str, object]] = [
            ("file", found.file),
            ("read", render.ago(found.read_at)),
            ("skus", ", ".join(found.skus) or "none"),
            ("templates", ", ".join(found.templates) or "none"),
        ]
        output.pairs(rows)
        for line in found.warnings:
            output.note(f"warning: {line}")
        if found.error is not None:
            output.note("its newest version is wrong, and the one before holds:")
            output.note(found.error)
    return 0 if found.error is None else FAILED
