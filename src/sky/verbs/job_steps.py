"""Hands the steps of a paid job to the engine, as tasks on the job's own compute.

Decides: what a job's compute and tasks ask for. Never: runs anything.
Follows: a job owns a compute and tasks like any other, so whatever holds for calls holds for paid commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from sky.domain.job import seconds_left
from sky.domain.provider import Rules
from sky.kit import codec
from sky.store import blobs
from sky.store.tx import Tx
from sky.verbs import computes, functions, tasks
from sky.wire import steps, v1

PREPARE_SECONDS_MAX = 3_600
"""How long pulling an image and its inputs may take."""
UPLOAD_SECONDS_MAX = 7_200
RUN_SLACK_SECONDS = 300
"""How much longer than its command a run may take before the engine ends it: the node is first to do so."""
LEASE_SLACK_SECONDS = 3_600
"""How much longer than a job may run its node works on although no daemon can be reached."""
REPEATS_MAX = 3
"""How often pulling and uploading, which may be done twice, are tried again."""


class JobRules(Struct, frozen=True):
    """What a deployment lets jobs do. ``token_of`` is the upload token of a job; ``private_inputs``: inputs
    may come from addresses that are not public."""

    rules: Rules
    token_of: Callable[[str], str]
    host_jobs: bool
    private_inputs: bool = False


def owner_key(job_id: str) -> str:
    """The key under which a job's compute and tasks wake its loop."""
    return f"jobs/{job_id}"


def left_of(job: Mapping[str, Any]) -> int:
    """For how long a job may still run, in seconds."""
    return seconds_left(job["max_runtime_seconds"], job["used_us"] or 0)


def make_compute(tx: Tx, job: Mapping[str, Any], rules: Rules) -> str:
    """Ask for the compute of a job; returns its id. Its places are tried in the catalogue's order."""
    asked: list[dict[str, Any]] = [dict(machine) for machine in job["machines"]]
    narrow: list[dict[str, Any]] = [machine.pop("narrow", None) or {} for machine in asked]
    machines = tuple(msgspec.convert(machine, v1.Spec) for machine in asked)
    spec = v1.ComputeSpec(
        specs=machines,
        nodes=v1.NodeBounds(desired=1),
        selection="first",
        allocation="spot" if job["interruptible"] else "on_demand",
        worker=v1.Worker(concurrency=1),
        ttl=job["max_runtime_seconds"] + LEASE_SLACK_SECONDS,
    )
    return computes.create(tx, v1.ComputeCreate(spec=spec), rules, owner=owner_key(job["id"]), narrow=narrow)


def submit(tx: Tx, job: Mapping[str, Any], name: steps.StepName, rules: JobRules) -> str:
    """Have a step done on the job's compute; returns its task's id."""
    content = steps.function_content(name)
    sha256 = codec.sha256_hex(content)
    arguments = steps.packed(order_of(job, rules))
    args_sha256 = codec.sha256_hex(arguments)
    blobs.store_inline(tx, [(sha256, content), (args_sha256, arguments)])
    functions.register(tx, sha256, v1.FunctionCreate(codec=steps.CODEC, name=f"job.{name}"))
    repeatable = name != "run"
    seconds = {"prepare": PREPARE_SECONDS_MAX, "upload": UPLOAD_SECONDS_MAX}.get(
        name, left_of(job) + steps.STOP_GRACE_SECONDS + RUN_SLACK_SECONDS
    )
    body = v1.TaskCreate(
        compute=job["compute_id"],
        function=sha256,
        args_sha256=args_sha256,
        retry=v1.RetryPolicy(safe_retries=REPEATS_MAX, ambiguous_retries=REPEATS_MAX if repeatable else 0),
        timeout_seconds=seconds,
    )
    return tasks.submit(tx, body, owner=owner_key(job["id"]))


def order_of(job: Mapping[str, Any], rules: JobRules) -> steps.Order:
    """What a job's node must know of it."""
    spec: Mapping[str, Any] = job["spec"]
    machine: Mapping[str, Any] = job["machines"][0]
    return steps.Order(
        job=job["id"],
        image=spec["image"],
        command=tuple(spec["command"]),
        env=dict(spec.get("env") or {}),
        inputs=tuple(steps.Input(x["source"], x["mount"]) for x in spec.get("inputs") or ()),
        outputs=tuple(x["mount"] for x in spec.get("outputs") or ()),
        max_runtime_seconds=left_of(job),
        cpus=machine.get("cpus") or 1,
        memory_gb=machine.get("memory_gb") or 1,
        gpu_count=job["gpu_count"],
        upload_token=rules.token_of(job["id"]),
        host_allowed=rules.host_jobs,
        private_inputs=rules.private_inputs,
    )
