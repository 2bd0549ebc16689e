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
    if isinstance(body, dict):
        case.body = without_machines(body)


def without_machines(body: dict[str, Any]) -> dict[str, Any]:
    """The same body, for a compute that has no nodes as long as it has no work."""
    if isinstance(body.get("spec"), dict):
        return {**body, "spec": without_machines(body["spec"])}
    nodes = body.get("nodes")
    desired = nodes.get("desired") if isinstance(nodes, dict) else None
    if isinstance(desired, int | float) and 0 < desired <= 10_000:
        return {**body, "nodes": {**nodes, "desired": 0, "min": 0}}
    return body
