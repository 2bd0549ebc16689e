"""A node that has run thousands of calls holds nothing of them but what its journal is to remember.

Decides: how one looks into an agent from outside: a module that its interpreter loads at the start, which
counts on a signal. Never: looks at the process's size, which depends on much else.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from sky.agent.journal import TOLD_KEPT

CALLS_EACH = 1_500
BATCH = 100
LEFT_MAX = 10
"""How many entries a collection of an idle agent has at most: slots, workers, functions, tasks."""
HOLDERS = ("Blobs", "Connection", "Crew", "Executor", "Journal", "Outcomes", "Reporter", "Stopping", "Worker")
OBJECTS_MAX = 300
"""By how much the number of objects varies from look to look: messages on their way, timers."""

LOOK = """
import json, os, signal, sys

def look(*_):
    import gc
    from pathlib import Path
    gc.collect()
    found, sizes = gc.get_objects(), {}
    for each in found:
        kind = type(each)
        if not str(getattr(kind, "__module__", "")).startswith("sky.agent."):
            continue
        names = getattr(each, "__dict__", None)
        for name, value in list(names.items()) if isinstance(names, dict) else ():
            if hasattr(type(value), "__len__"):
                place = kind.__name__ + "." + name
                sizes[place] = max(sizes.get(place, 0), len(value))
    told = {
        "objects": len(found),
        "executions": sum(type(each).__name__ in ("Execution", "WorkItem", "_Ended") for each in found),
        "sizes": sizes,
    }
    part = Path(os.environ["SKY_AGENT_HOME"], "look.part")
    part.write_text(json.dumps(told))
    part.replace(part.with_name("look.json"))

if sys.orig_argv[-1] == "sky.agent":
    signal.signal(signal.SIGUSR1, look)
"""


def _look(node: Any, until: Any) -> dict[str, Any]:
    seen = node.home / "look.json"
    seen.unlink(missing_ok=True)
    node.signal(signal.SIGUSR1)
    until(seen.exists, "a look into the agent")
    return json.loads(seen.read_text())


def _run(node: Any, until: Any, calls: int) -> None:
    """Calls with deadlines, some of which fail, print or are cancelled, in batches."""

    def call(number: int) -> int:
        if number % 50 == 0:
            print("a line")
        if number % 50 == 1:
            raise ValueError(number)
        return number

    function = node.function(call)
    for _ in range(calls // BATCH):
        items = [node.item(function, number, timeout_s=600.0) for number in range(BATCH)]
        executions = node.send_all(items)
        node.cancel(executions[-1])
        for execution in executions:
            node.outcome(execution)
    node.cancel(executions[0], "exe_that_nobody_ever_saw")
    node.outcome("exe_that_nobody_ever_saw")
    told = node.daemon.reports[-1].number
    node.value(call, 2)
    until(lambda: node.daemon.reports[-1].number > told, "the last report")


def _idle(node: Any, until: Any) -> dict[str, Any]:
    """What is there once nothing is on its way: what was told has been heard too."""

    def idle() -> dict[str, Any] | None:
        found = _look(node, until)
        return None if found["executions"] or found["sizes"]["Journal._open"] else found

    return until(idle, "an agent that holds no execution")


def test_an_agent_keeps_nothing_of_calls_that_have_ended(node_of: Any, until: Any, tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(LOOK)
    node = node_of()
    node.extra["PYTHONPATH"] = os.pathsep.join(
        [str(hook), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    )
    node.start()
    _run(node, until, CALLS_EACH)
    before = _idle(node, until)
    _run(node, until, CALLS_EACH)
    after = _idle(node, until)
    # Deadlines are cleared away when their number is large or their time has come.
    remembered = {"Journal._told": TOLD_KEPT, "Journal._told_before": TOLD_KEPT, "Stopping._deadlines": 1_001}
    held = {place: size for place, size in after["sizes"].items() if place.split(".")[0] in HOLDERS}
    assert {"Executor._held", "Reporter._queue", "Outcomes._batch", "Worker.outstanding"} <= held.keys()
    assert {place: size for place, size in held.items() if size > remembered.get(place, LEFT_MAX)} == {}
    assert after["objects"] < before["objects"] + OBJECTS_MAX
    assert after["sizes"]["Journal._told"] >= 2 * CALLS_EACH, "these calls were looked at"
