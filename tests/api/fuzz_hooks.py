"""What random requests must not do to the computer that the tests run on.

Decides: that none of them waits for a minute, buys a thousand machines, or is longer than a server reads.
Never: makes a wrong one right, or a right one wrong.
"""

from __future__ import annotations

from typing import Any

import schemathesis

LINE_CHARS = 4_000
COMMAND_CHARS_MAX = 16_384


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Change what would take long into what is as valid and does not."""
    del context, kwargs
    query, body = case.query, case.body
    if isinstance(query, dict):
        wait = query.get("wait")
        if str(wait).isdigit() and 0 < int(wait) <= 60:
            query["wait"] = 0
        command = query.get("command")
        if isinstance(command, str) and len(command) > LINE_CHARS:
            fits = len(command) <= COMMAND_CHARS_MAX
            query["command"] = command[:LINE_CHARS] if fits else "x" * (COMMAND_CHARS_MAX + 1)
    spec = body.get("spec") if isinstance(body, dict) else None
    nodes = spec.get("nodes") if isinstance(spec, dict) else None
    desired = nodes.get("desired") if isinstance(nodes, dict) else None
    if isinstance(desired, int) and 0 < desired <= 10_000:
        case.body = {**body, "spec": {**spec, "nodes": {**nodes, "desired": 0, "min": 0}}}
