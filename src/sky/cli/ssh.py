"""``sky ssh``: a terminal on a node of a cluster.

Decides: that a cluster which is not up has no terminal. Never: opens one itself; ``sessions`` does, on the
compute behind the cluster. Follows: it ends with the exit code of what ran there.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sky.cli import render_requests
from sky.cli.app import noun, only
from sky.cli.errors import REFUSED, CliError
from sky.cli.scripted import one_cluster
from sky.cli.sessions import shell
from sky.wire.scripts import WORKDIR, home_of

LOGIN = "exec bash -l"


@only("ssh", "sky ssh dev", "sky ssh dev --node 1", "sky ssh dev htop")
def ssh(
    cluster: Annotated[str, Parameter(help="Name of the cluster.")],
    program: Annotated[str | None, Parameter(name="COMMAND", help="Instead of a login shell.")] = None,
    /,
    *,
    node: Annotated[str, Parameter(metavar="RANK", help="Which node.")] = "0",
) -> int:
    """Open a terminal on a node of a cluster that is up, where its jobs run: in their home and folder."""
    record = one_cluster(cluster)
    state = render_requests.word(record["status"])
    if state != "UP":
        message = f"cluster {cluster!r} is {state}; a terminal is opened on one that is UP"
        hint = f"`sky start {cluster}` brings it up" if state == "STOPPED" else "`sky status` shows its state"
        raise CliError("cluster_not_up", message, hint, REFUSED)
    home = home_of(record["cluster_id"])
    there = f'mkdir -p {home}/{WORKDIR} && cd {home} && export HOME="$PWD" && cd {WORKDIR} || exit'
    return shell(record["handle"]["compute_id"], f"{there}; {program or LOGIN}", node=node)


app = noun("ssh")
