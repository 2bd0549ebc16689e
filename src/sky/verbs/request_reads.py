"""What requests are answered with that only read: on any snapshot, and by whoever has one.

Decides: which requests those are, and what each is told. Never: writes, or begins anything.
Follows: their records are built where nobody waits for the writer, and are written down once they are told;
whoever names what is not there is told by a named error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from sky.domain.cluster import UP
from sky.domain.request_errors import RequestFailure
from sky.store.sql import Snapshot
from sky.store.views import cluster_costs, cluster_ports
from sky.store.views import clusters as views
from sky.verbs import storages
from sky.verbs.clusters import seen
from sky.wire import requests as wire

Read = Callable[[Snapshot, str, Any, int], Any]
"""From a snapshot, who asks, the body and the time."""


class Told(Struct, frozen=True):
    """The end of a request: its result, or why it has none."""

    result: msgspec.Raw | None = None
    failure: RequestFailure | None = None


def only_reads(name: str, body: wire.Body) -> bool:
    """Whether a request can be answered from a snapshot. One for which providers are to be looked at first
    cannot."""
    return name in READS and not (isinstance(body, wire.StatusBody) and body.refresh == "FORCE")


def tell(connection: Snapshot, name: str, user: str, body: wire.Body, now_us: int) -> Told:
    """How a request ends that only reads."""
    try:
        result = READS[name](connection, user, body, now_us)
    except RequestFailure as failed:
        return Told(failure=failed)
    return Told(result=msgspec.Raw(msgspec.json.encode(result)))


def _status(connection: Snapshot, user: str, body: wire.StatusBody, now_us: int) -> Any:
    return views.status(connection, None if body.all_users else user, body.cluster_names, now_us)


def _queue(connection: Snapshot, user: str, body: wire.QueueBody, _now_us: int) -> Any:
    cluster = seen(connection, body.cluster_name, user, all_users=body.all_users)
    return views.queue(connection, cluster, skip_finished=body.skip_finished)


def _job_status(connection: Snapshot, user: str, body: wire.JobStatusBody, _now_us: int) -> Any:
    return views.job_states(connection, seen(connection, body.cluster_name, user), body.job_ids)


def _cost_report(connection: Snapshot, user: str, body: wire.CostReportBody, now_us: int) -> Any:
    return cluster_costs.report(connection, user, body.days, now_us)


def _endpoints(connection: Snapshot, user: str, body: wire.EndpointsBody, _now_us: int) -> Any:
    cluster = seen(connection, body.cluster_name, user)
    name = cluster["name"]
    if cluster["state"] != UP:
        msg = f"cluster {name!r} is {cluster['state']}; its ports can be reached once it is UP"
        raise RequestFailure("ClusterNotUpError", msg, cluster=name, cluster_status=cluster["state"])
    there = cluster_ports.endpoints(connection, cluster)
    if body.port is None:
        return there
    if body.port not in there:
        has = f"it has {', '.join(there)}" if there else "it has none"
        msg = f"cluster {name!r} was not asked to open port {body.port}; {has}: name it in resources.ports"
        raise RequestFailure("PortNotOpenError", msg, cluster=name, port=body.port)
    return {body.port: there[body.port]}


def _storage_ls(connection: Snapshot, user: str, _body: wire.StorageLsBody, _now_us: int) -> Any:
    return storages.listed(connection, user)


READS: dict[str, Read] = {
    "status": _status,
    "queue": _queue,
    "job_status": _job_status,
    "cost_report": _cost_report,
    "endpoints": _endpoints,
    "storage_ls": _storage_ls,
}
