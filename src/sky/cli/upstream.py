"""``sky upstream``: the clouds behind what is sold, and whether they can be used now.

Decides: which facts are shown. Never: asks for a key.
"""

from __future__ import annotations

from sky.cli import output
from sky.cli.app import Output, command, noun
from sky.cli.customer import looking
from sky.cli.output import Cell

app = noun("upstream")


@command(app, "sky upstream list", "sky upstream list -o json", name="list", instead=("ls", "get"))
def list_(*, output_: Output = "table") -> int:
    """List the clouds behind what is sold."""
    with looking() as jobs:
        upstreams = jobs.upstreams()
    if output_ == "json":
        output.json(upstreams)
        return 0
    rows = [
        (one.cloud, Cell("yes", "good") if one.enabled else Cell("no", "dim"), ", ".join(one.skus))
        for one in upstreams
    ]
    output.table(("CLOUD", "USABLE", "SKUS"), rows, flexible=("SKUS",))
    return 0
