"""``sky openapi``: the document that describes the HTTP interface.

Decides: where it comes from: the daemon that runs, else this installation's own server code in a process of
its own. Never: loads server code here. Follows: the document can be had without a daemon.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from sky.cli import output
from sky.cli.app import noun, only
from sky.cli.errors import FAILED, CliError
from sky.client import calls, calls_jobs, daemon
from sky.client.errors import DaemonUnreachable

DOCUMENTS = {"v1": calls.openapi, "requests": calls.requests_openapi, "jobs": calls_jobs.openapi}
MODULE = "sky.server.openapi"
GENERATE_S = 60.0
FETCH_PATIENCE_S = 2.0


@only("openapi", "sky openapi v1", "sky openapi jobs > openapi.json", "sky openapi v1 --offline")
def openapi(
    face: Annotated[
        Literal["v1", "requests", "jobs"],
        Parameter(help="Which interface: the daemon's, that of requests, or that of paid jobs."),
    ] = "v1",
    /,
    *,
    offline: Annotated[
        bool, Parameter(negative=(), help="From this installation, also when a daemon runs.")
    ] = False,
) -> int:
    """Print the OpenAPI document of the HTTP interface as JSON."""
    content = (None if offline else _served(face)) or _generated(face)
    sys.stdout.flush()
    sys.stdout.buffer.write(content.rstrip(b"\n") + b"\n")
    sys.stdout.buffer.flush()
    return 0


def _served(face: str) -> bytes | None:
    """What the daemon serves; None when none answers."""
    try:
        http = daemon.connect(start_if_absent=False)
        try:
            return http.send(DOCUMENTS[face](), patience_s=FETCH_PATIENCE_S)
        finally:
            http.close()
    except DaemonUnreachable:
        return None


def _generated(face: str) -> bytes:
    output.progress("generating the document …")
    done = subprocess.run(
        [sys.executable, "-m", MODULE, face], capture_output=True, timeout=GENERATE_S, check=False
    )
    output.clear_progress()
    if done.returncode != 0:
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise CliError(
            "internal", f"the document cannot be generated: {told[-1] if told else ''}", None, FAILED
        )
    return done.stdout


app = noun("openapi")
