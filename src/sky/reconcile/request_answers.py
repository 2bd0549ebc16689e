"""What short requests are answered with: those that are done in one transaction, and those that read
(``verbs/request_reads``), where they were not told at once.

Decides: which view or verb each of them means. Never: starts anything that takes its time.
Follows: who asks for something that is not there is told by a named error; one that must have providers
looked at first waits for that, and for nothing else (``NotYet``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sky.domain.provider import Rules
from sky.reconcile import optimizing
from sky.store.rows import clusters, nodes
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import accelerators, cluster_power, infras, request_reads, storages
from sky.verbs import clusters as verbs
from sky.wire import requests as wire

Answer = Callable[[Tx, Row, Any, Rules], Any]


def answer(tx: Tx, row: Row, body: Any, rules: Rules) -> Any:
    """What a short request is answered with, as JSON. Raises RequestFailure, NotYet."""
    return msgspec.to_builtins(SHORT[row["name"]](tx, row, body, rules))


def _status(tx: Tx, row: Row, body: wire.StatusBody, _rules: Rules) -> Any:
    owner = None if body.all_users else row["owner"]
    if body.refresh == "FORCE":
        shown = clusters.live(tx.connection, owner, body.cluster_names, verbs.CLUSTERS_MAX)
        sellers = nodes.sellers(tx.connection, [one["compute_id"] for one in shown])
        keys = [f"sweep/{one}" for one in sellers]
        optimizing.wait_for(tx, row, keys, "a look at the machines", optimizing.UNTOLD_AGAIN_US)
    return request_reads.READS["status"](tx.connection, row["owner"], body, tx.now_us)


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


def _optimize(tx: Tx, row: Row, body: wire.OptimizeBody, rules: Rules) -> Any:
    return optimizing.optimize(tx, row, body, rules)


def _validate(tx: Tx, row: Row, body: wire.ValidateBody, rules: Rules) -> Any:
    optimizing.validate(tx, row, body, rules)


def _accelerators(tx: Tx, _row: Row, body: wire.AcceleratorsBody, rules: Rules) -> Any:
    return accelerators.listing(tx, body, rules)


def _accelerator_counts(tx: Tx, _row: Row, body: wire.AcceleratorsBody, rules: Rules) -> Any:
    return accelerators.counts(tx, body, rules)


def _storage_delete(tx: Tx, row: Row, body: wire.StorageDeleteBody, _rules: Rules) -> Any:
    storages.delete(tx, row["owner"], body.name)


def _read(name: str) -> Answer:
    """What a request that only reads is told, where it was not told before it was written down."""
    read = request_reads.READS[name]
    return lambda tx, row, body, _rules: read(tx.connection, row["owner"], body, tx.now_us)


SHORT: dict[str, Answer] = {
    **{name: _read(name) for name in request_reads.READS},
    "status": _status,
    "cancel": _cancel,
    "autostop": _autostop,
    "check": _check,
    "enabled_clouds": _enabled_clouds,
    "optimize": _optimize,
    "validate": _validate,
    "list_accelerators": _accelerators,
    "list_accelerator_counts": _accelerator_counts,
    "storage_delete": _storage_delete,
}
