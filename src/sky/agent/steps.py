"""The steps of a paid job, done in a worker: pull, run, upload.

Decides: which step a function names, and that a step answers in JSON. Never: raises for what the customer
must be told: that is part of the answer. Follows: a step is a call like any other, so it is cancelled,
timed and logged like one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from sky.agent import job_container, job_host, job_inputs, job_upload, scripts
from sky.agent.job_node import JobNode, mounts
from sky.agent.payload import Packed
from sky.wire import steps as wire
from sky.wire.scripts import step_of
from sky.wire.steps import HOST_IMAGE, Failed, Order, Outcome

STEP_BYTES_MAX = 16 * 1024**2
"""The longest content that names a step: a script with its environment."""


class Step:
    """A step, by its name, as the thing to be called."""

    def __init__(self, content: bytes) -> None:
        """Raises TypeError for content that names no step."""
        self._script = step_of(content)
        name = wire.named(content) or ""
        if self._script is None and name not in _STEPS:
            raise TypeError(f"there is no step {name[:40]!r}; this agent is older than its daemon")
        self._do = _STEPS.get(name, prepare)

    def __call__(self, *_: Any) -> Any:
        raise TypeError("a step is run with the arguments as they arrived")

    def run(self, content: bytes | None, path: str | None, node: JobNode) -> Packed:
        """Do it; returns its answer as a payload."""
        if self._script is not None:
            return Packed(wire.packed(scripts.do(self._script, content, path, node)))
        given = content if content is not None else Path(path or "").read_bytes()
        answer = wire.packed(self._do(msgspec.json.decode(given, type=Order), node))
        return Packed(answer)


def step_in(path: Path) -> Step | None:
    """The step that the content of a function names; None when it is a function that was pickled."""
    with path.open("rb") as file:
        if file.read(len(wire.MAGIC)) != wire.MAGIC:
            return None
        return Step(wire.MAGIC + file.read(STEP_BYTES_MAX))


def prepare(order: Order, node: JobNode) -> Outcome:
    """Have image and inputs here. Done again, it begins anew."""
    on_host = order.image == HOST_IMAGE
    if on_host and not order.host_allowed:
        return Outcome(
            failed=Failed("image_unavailable", "this machine runs no commands outside of containers")
        )
    failed = None if on_host else job_container.prepare(order, node)
    if failed is not None:
        return Outcome(failed=failed)
    folder = node.folder(order)
    shutil.rmtree(folder, ignore_errors=True)
    node.home(order).mkdir(parents=True, mode=0o700)
    for mount in mounts(order):
        node.mounted(order, mount).mkdir(parents=True)
    for mount in order.outputs:
        node.mounted(order, mount).mkdir(parents=True, exist_ok=True)
    return Outcome(failed=job_inputs.fetch(order, node))


def run(order: Order, node: JobNode) -> Outcome:
    """Run the command to its end, or as long as it may."""
    outcome = job_host.run(order, node) if order.image == HOST_IMAGE else job_container.run(order, node)
    if not order.outputs:
        shutil.rmtree(node.folder(order), ignore_errors=True)
    return outcome


def upload(order: Order, node: JobNode) -> Outcome:
    """Upload what the command left in its output folders. What was uploaded is left, so that it may be done
    again; the node's end takes it away."""
    return job_upload.upload(order, node)


_STEPS: dict[str, Callable[[Order, JobNode], Outcome]] = {
    "prepare": prepare,
    "run": run,
    "upload": upload,
}
