"""``sky template``: jobs that are written down already, to be submitted by their name.

Decides: which facts are shown. Never: asks for a key.
"""

from __future__ import annotations

from sky.cli import output
from sky.cli.app import Output, command, noun
from sky.cli.customer import looking
from sky.cli.output import Cell
from sky.wire import jobs as wire

app = noun("template")


@command(app, "sky template list", "sky template list -o json", name="list", instead=("ls", "get"))
def list_(*, output_: Output = "table") -> int:
    """List jobs that are written down already, also those that cannot be used now."""
    with looking() as jobs:
        templates = jobs.templates()
    if output_ == "json":
        output.json(templates)
    elif not templates:
        output.note("there are no templates here")
    else:
        headings = ("TEMPLATE", "SKU", "INPUTS", "MAY CHANGE", "TITLE")
        output.table(headings, map(_row, templates), flexible=("TITLE", "MAY CHANGE"))
    return 0


def _row(template: wire.Template) -> tuple[object, ...]:
    inputs = ", ".join(one.mount for one in template.inputs or ())
    free = ", ".join(name.removeprefix("spec.") for name in template.overridable or ())
    title: object = template.title
    if not template.available:
        title = Cell(f"{template.title} (unavailable: {template.unavailable_reason})", "dim")
    return template.id, template.sku, inputs, free, title
