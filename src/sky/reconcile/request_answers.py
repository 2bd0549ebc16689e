"""What short requests are answered with: those that read, and those that are done in one transaction.

Decides: which view or verb each of them means. Never: starts anything that takes its time.
Follows: who asks for something that is not there is told by a named error; one that must have providers
looked at first waits for that, and for nothing else (``NotYet``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sky.domain.cluster import UP
from sky.domain.provider import Rules
from sky.domain.request_errors import RequestFailure
from sky.reconcile import optimizing
from sky.store.rows import clusters, nodes
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.store.views import cluster_costs, cluster_ports
from sky.store.views import clusters as views
from sky.verbs import accelerators, cluster_power, infras, storages
from sky.verbs import clusters as verbs
from sky.wire import requests as wire

Answer = Callable[[Tx, Row, Any, Rules], Any]


def answer(tx: Tx, row: Row, body: Any, rules: Rules) -> Any:
    """What a short request is answered with, as JSON. Raises RequestFailure, NotYet."""
    return msgspec.to_builtins(SHORT[row["name"]](tx, row, body, rules))


def _status(tx: Tx, row: Row, body: wire.StatusBody, _rules: Rules) -> Any:
    owner = None if body.all_users else row["owner"]
    if body.refresh == "FORCE":
        shown = [
            one
            for one in clusters.live(tx.connection, owner, verbs.CLUSTERS_MAX)
            if body.cluster_names is None or one["name"] in body.cluster_names
        ]
        sellers = nodes.sellers(tx.connection, [one["compute_id"] for one in shown])
        keys = [f"sweep/{one}" for one in sellers]
        optimizing.wait_for(tx, row, keys, "a look at the machines", optimizing.UNTOLD_AGAIN_US)
    return views.status(tx.connection, owner, body.cluster_names, tx.now_us)


def _queue(tx: Tx, row: Row, body: wire.QueueBody, _rules: Rules) -> Any:
    cluster = verbs.found(tx, body.cluster_name, row["owner"], all_users=body.all_users)
    return views.queue(tx.connection, cluster, skip_finished=body.skip_finished)


def _job_status(tx: Tx, row: Row, body: wire.JobStatusBody, _rules: Rules) -> Any:
    cluster = verbs.found(tx, body.cluster_name, row["owner"])
    return views.job_states(tx.connection, cluster, body.job_ids)


def _cancel(tx: Tx, row: Row, body: wire.CancelBody, _rules: Rules) -> Any:
    cluster = verbs.found(tx, body.cluster_name, row["owner"], all_users=body.all_users)
    return verbs.cancel_jobs(tx, cluster, body)


def _autostop(tx: Tx, row: Row, body: wire.AutostopBody, rules: Rules) -> Any:
    cluster = verbs.found(tx, body.cluster_name, row["owner"], all_users=body.all_users)
    cluster_power.autostop(tx, cluster, body.idle_minutes, rules, down=body.down, wait=body.wait_for)


def _check(tx: Tx, row: Row, body: wire.CheckBody, rules: Rules) -> Any:
    asked = infras.meant(tx, body.infra_list, rules)
    optimizing.wait_for(tx, row, [f"offers/{one}" for one in asked], "the providers")
    return infras.checked(tx, body.infra_list, rules, verbose=body.verbose)


def _enabled_clouds(tx: Tx, _row: Row, body: wire.EnabledCloudsBody, _rules: Rules) -> Any:
    return infras.enabled(tx, expand=body.expand)


def _cost_report(tx: Tx, row: Row, body: wire.CostReportBody, _rules: Rules) -> Any:
    return cluster_costs.report(tx.connection, row["owner"], body.days, tx.now_us)


def _optimize(tx: Tx, row: Row, body: wire.OptimizeBody, rules: Rules) -> Any:
    return optimizing.optimize(tx, row, body, rules)


def _validate(tx: Tx, row: Row, body: wire.ValidateBody, rules: Rules) -> Any:
    optimizing.validate(tx, row, body, rules)


def _endpoints(tx: Tx, row: Row, body: wire.EndpointsBody, _rules: Rules) -> Any:
    cluster = verbs.found(tx, body.cluster_name, row["owner"])
    name = cluster["name"]
    if cluster["state"] != UP:
        msg = f"cluster {name!r} is {cluster['state']}; its ports can be reached once it is UP"
        raise RequestFailure("ClusterNotUpError", msg, cluster=name, cluster_status=cluster["state"])
    there = cluster_ports.endpoints(tx.connection, cluster)
    if body.port is None:
        return there
    if body.port not in there:
        has = f"it has {', '.join(there)}" if there else "it has none"
        msg = f"cluster {name!r} was not asked to open port {body.port}; {has}: name it in resources.ports"
        raise RequestFailure("PortNotOpenError", msg, cluster=name, port=body.port)
    return {body.port: there[body.port]}


def _accelerators(tx: Tx, _row: Row, body: wire.AcceleratorsBody, rules: Rules) -> Any:
    return accelerators.listing(tx, body, rules)


def _accelerator_counts(tx: Tx, _row: Row, body: wire.AcceleratorsBody, rules: Rules) -> Any:
    return accelerators.counts(tx, body, rules)


def _storage_ls(tx: Tx, row: Row, _body: wire.StorageLsBody, _rules: Rules) -> Any:
    return storages.listed(tx, row["owner"])


def _storage_delete(tx: Tx, row: Row, body: wire.StorageDeleteBody, _rules: Rules) -> Any:
    storages.delete(tx, row["owner"], body.name)


SHORT: dict[str, Answer] = {
    "status": _status,
    "queue": _queue,
    "job_status": _job_status,
    "cancel": _cancel,
    "autostop": _autostop,
    "check": _check,
    "enabled_clouds": _enabled_clouds,
    "cost_report": _cost_report,
    "optimize": _optimize,
    "validate": _validate,
    "endpoints": _endpoints,
    "list_accelerators": _accelerators,
    "list_accelerator_counts": _accelerator_counts,
    "storage_ls": _storage_ls,
    "storage_delete": _storage_delete,
}
