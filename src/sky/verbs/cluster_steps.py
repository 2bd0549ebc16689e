"""Hands the steps of a cluster's job to the engine: bring files, set up, run; one task per node and thing.

Decides: what each task is, and what a script finds in its environment. Never: runs anything.
Follows: the nodes of a job are the ranks from 0; its scripts begin on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sky.domain import cluster_job as j
from sky.kit import codec
from sky.store import blobs
from sky.store.rows import clusters, requests
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import functions, tasks
from sky.verbs.clusters import owner_key
from sky.wire import scripts, v1
from sky.wire.steps import CODEC

BRING_SECONDS_MAX = 7_200
REPEATS_MAX = 3
NOTHING = b"{}"


def bring(tx: Tx, cluster: Row, job: Row) -> None:
    """Have a job's files brought to each of its nodes."""
    started = [
        _submit(
            tx,
            cluster,
            scripts.Bring(
                cluster=cluster["id"],
                target=file["target"],
                digest=file["sha256"],
                clear=file.get("clear", False),
                single=file.get("single", False),
            ),
            rank,
            args_sha256=file["sha256"],
            seconds=BRING_SECONDS_MAX,
            repeats=REPEATS_MAX,
        )
        for file in job["body"]["files"]
        for rank in range(job["num_nodes"])
    ]
    tx.apply(j.JobSettingUp(job["id"], {"bring": started}))


def set_up(tx: Tx, cluster: Row, job: Row) -> None:
    """Have a job's setup run on each of its nodes."""
    begun = dict(job["setup_tasks"] or {})
    begun["setup"] = _scripts(tx, cluster, job, "setup", job["body"]["setup"])
    fact = j.JobSettingUp if job["state"] == j.INIT else j.JobSetupRuns
    tx.apply(fact(job["id"], begun))
    follow = f"`sky logs {cluster['name']} {job['number']}` follows what it prints"
    for request_id in requests.waiting_for(tx.connection, cluster["id"], job["number"]):
        requests.say(tx, request_id, f"the setup of job {job['number']} runs: {follow}")


def run(tx: Tx, cluster: Row, job: Row) -> None:
    """Have a job's script run on each of its nodes."""
    text = job["body"].get("run") or ""
    tx.apply(j.JobLaunched(job["id"], _scripts(tx, cluster, job, "run", text), tx.now_us))


def _scripts(tx: Tx, cluster: Row, job: Row, kind: Any, text: str) -> list[str]:
    nodes = clusters.ready_nodes(tx.connection, cluster["compute_id"])
    addresses = [str(node["address"] or "127.0.0.1") for node in nodes[: job["num_nodes"]]]
    return [
        _submit(
            tx,
            cluster,
            scripts.Script(
                cluster=cluster["id"],
                job=job["number"],
                kind=kind,
                text=text,
                env=_environment(cluster, job, rank, addresses),
            ),
            rank,
        )
        for rank in range(job["num_nodes"])
    ]


def _environment(cluster: Row, job: Row, rank: int, addresses: Sequence[str]) -> dict[str, str]:
    """What a script finds: the task's own variables, and where it is."""
    told = {
        "NODE_RANK": str(rank),
        "NODE_IPS": "\n".join(addresses),
        "NUM_NODES": str(job["num_nodes"]),
        "NUM_GPUS_PER_NODE": str(job["gpus"]),
        "TASK_ID": f"sky-{job['submitted_us']}_{cluster['name']}_{job['number']}",
        "CLUSTER_INFO": codec.dumps({"cluster_name": cluster["name"], "cloud": "", "region": "", "zone": ""}),
    }
    body: dict[str, Any] = job["body"]
    own: dict[str, str] = {**body.get("envs", {}), **body.get("secrets", {})}
    placed = {f"{prefix}{name}": value for prefix in ("SKYPILOT_", "SKY_") for name, value in told.items()}
    return {**own, **placed}


def _submit(
    tx: Tx,
    cluster: Row,
    step: scripts.Step,
    rank: int,
    *,
    args_sha256: str | None = None,
    seconds: int | None = None,
    repeats: int = 0,
) -> str:
    content = scripts.function_content(step)
    sha256 = codec.sha256_hex(content)
    blobs.store_inline(tx, [(sha256, content)])
    name = "files" if isinstance(step, scripts.Bring) else step.kind
    functions.register(tx, sha256, v1.FunctionCreate(codec=CODEC, name=name))
    if args_sha256 is None:
        args_sha256 = codec.sha256_hex(NOTHING)
        blobs.store_inline(tx, [(args_sha256, NOTHING)])
    body = v1.TaskCreate(
        compute=cluster["compute_id"],
        function=sha256,
        args_sha256=args_sha256,
        rank=rank,
        retry=v1.RetryPolicy(safe_retries=REPEATS_MAX, ambiguous_retries=repeats),
        timeout_seconds=seconds,
    )
    return tasks.submit(tx, body, owner=owner_key(cluster["id"]))
