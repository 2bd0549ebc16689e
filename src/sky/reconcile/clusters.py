"""Keeps clusters and their jobs going, one step a pass.

Decides: nothing; ``plan/cluster`` does. Never: calls out; machines and scripts are the engine's.
Follows: whoever waits for a cluster looks again after each of its passes.
"""

from __future__ import annotations

from typing import ClassVar

from sky.domain.lifecycle import Fact
from sky.plan import cluster as plan
from sky.reconcile.passes import Done, InnerLoop
from sky.store.rows import cluster_plans, clusters, requests, storages
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import cluster_power, cluster_steps
from sky.verbs import clusters as verbs


class Clusters(InnerLoop):
    """One pass: read a cluster with its compute and jobs, plan, write."""

    name: ClassVar[str] = "clusters"
    idle: ClassVar[str] = "there are no clusters"

    def look(self, tx: Tx, key_id: str) -> Done:
        found = cluster_plans.view(tx.connection, key_id)
        if found is None:
            return Done("there is no such cluster")
        row, view = found
        decision = plan.plan(view, tx.now_us)
        for action in decision.actions:
            _do(tx, row, action)
        if row["removed_us"] is not None:
            storages.remove_of_cluster(tx, key_id)
        for request_id in requests.open_of(tx.connection, key_id):
            tx.touch(f"requests/{request_id}")
        return Done(decision.why, decision.next_us)


def _do(tx: Tx, row: Row, action: plan.Action) -> None:
    match action:
        case plan.Bring(job_id):
            cluster_steps.bring(tx, row, _job(tx, job_id))
        case plan.SetUp(job_id):
            cluster_steps.set_up(tx, row, _job(tx, job_id))
        case plan.Run(job_id):
            cluster_steps.run(tx, row, _job(tx, job_id))
        case plan.StopTasks(job_id, error):
            verbs.cancel_job(tx, _job(tx, job_id), error)
        case plan.Stop():
            cluster_power.let_go(tx, row, "its cluster was idle for as long as it may, and was stopped")
        case plan.Want(count):
            cluster_power.want(tx, row["compute_id"], count)
        case plan.TakeDown():
            if row["removed_us"] is None:
                verbs.take_down(tx, row)
            else:
                verbs.give_back(tx, row)
        case Fact():
            tx.apply(action)


def _job(tx: Tx, job_id: str) -> Row:
    row = clusters.job_by_id(tx.connection, job_id)
    if row is None:
        msg = f"job {job_id} was there a moment ago"
        raise RuntimeError(msg)
    return row
