"""Does what requests ask for: at once what can be done at once, step by step what takes its time.

Decides: which verb a request's name means. Never: runs anything of its own, or keeps a short request
waiting for a long one. Follows: a request that cannot have what it asks for fails with a named error; one
whose body breaks us fails too, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from sky.domain import request as r
from sky.domain.lifecycle import Fact
from sky.domain.provider import Rules
from sky.domain.request_errors import RequestFailure
from sky.plan import request as plan
from sky.reconcile.passes import Done, InnerLoop
from sky.store.rows import clusters, requests
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.store.views import clusters as views
from sky.verbs import clusters as verbs
from sky.wire import requests as wire

LONG = frozenset({"launch", "exec", "start", "stop", "down"})


class Requests(InnerLoop):
    """One pass: begin a request, or see how far it has come."""

    name: ClassVar[str] = "requests"

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._short: dict[str, Callable[[Tx, Row, Any], Any]] = {
            "status": _status,
            "queue": _queue,
            "job_status": _job_status,
            "cancel": _cancel,
            "autostop": _autostop,
            "check": self._check,
            "enabled_clouds": self._clouds,
            "cost_report": _costs,
        }

    def look(self, tx: Tx, key_id: str) -> Done:
        row = requests.find(tx.connection, key_id)
        if row is None or row["state"] in r.DONE:
            return Done("it is over")
        body = msgspec.convert(row["body"], wire.BODIES[row["name"]])
        if row["state"] != r.PENDING:
            return self._go_on(tx, row, body)
        try:
            return self._begin(tx, row, body)
        except RequestFailure as failed:
            requests.say(tx, row["id"], f"failed: {failed.message}")
            tx.apply(r.RequestFailed(row["id"], failed.record(), tx.now_us))
            return Done(f"it failed: {failed.message}")

    def _begin(self, tx: Tx, row: Row, body: Any) -> Done:
        short = self._short.get(row["name"])
        if short is not None:
            tx.apply(r.RequestSucceeded(row["id"], short(tx, row, body), tx.now_us))
            return Done("it was done at once")
        match body:
            case wire.LaunchBody() | wire.ExecBody() if body.dryrun:
                tx.apply(r.RequestSucceeded(row["id"], {"job_id": None, "handle": None}, tx.now_us))
                return Done("it was a dry run")
            case wire.LaunchBody():
                verbs.launch(tx, row, body, self._rules)
            case wire.ExecBody():
                verbs.execute(tx, row, body)
            case wire.ClusterBody() if row["name"] == "down":
                cluster = verbs.found(tx, body.cluster_name, row["owner"], all_users=body.all_users)
                tx.apply(r.RequestStarted(row["id"], tx.now_us, cluster["id"]))
                verbs.take_down(tx, cluster)
            case _:
                cluster = verbs.found(tx, body.cluster_name, row["owner"], all_users=body.all_users)
                msg = (
                    f"cluster {cluster['name']!r} is on machines that keep nothing when they are stopped; "
                    f"take it down with `sky down {cluster['name']}`"
                )
                raise RequestFailure("NotSupportedError", msg, cluster=cluster["name"])
        return Done("it was begun", tx.now_us)

    def _go_on(self, tx: Tx, row: Row, body: Any) -> Done:
        cluster = None if row["cluster_id"] is None else clusters.find(tx.connection, row["cluster_id"])
        decision = plan.plan(_view(tx, row, cluster, body), tx.now_us)
        for action in decision.actions:
            self._do(tx, row, cluster, action)
        return Done(decision.why, decision.next_us)

    def _do(self, tx: Tx, row: Row, cluster: Row | None, action: plan.Action) -> None:
        match action:
            case plan.Finish():
                result = _result(tx, row, cluster)
                tx.apply(r.RequestSucceeded(row["id"], result, tx.now_us))
            case plan.Relaunch() if cluster is not None:
                tx.apply(r.RequestResumed(row["id"]))
                verbs.relaunch(tx, cluster, self._rules)
            case plan.GiveUp(error):
                requests.say(tx, row["id"], f"failed: {error['message']}")
                tx.apply(r.RequestFailed(row["id"], error, tx.now_us))
                if cluster is not None and cluster["up_us"] is None:
                    verbs.take_down(tx, cluster)
            case Fact():
                tx.apply(action)
            case _:
                msg = f"request {row['id']} has no cluster, and was to be launched again"
                raise RuntimeError(msg)

    def _check(self, tx: Tx, row: Row, body: Any) -> Any:
        return self._clouds(tx, row, body)

    def _clouds(self, _tx: Tx, _row: Row, _body: Any) -> Any:
        return sorted(self._rules.kinds)


def _view(tx: Tx, row: Row, cluster: Row | None, body: Any) -> plan.RequestView:
    compute = None if cluster is None else clusters.compute(tx.connection, cluster["compute_id"])
    error = None if compute is None else compute["last_error"]
    job = None
    if cluster is not None and row["job_number"] is not None:
        job = clusters.job(tx.connection, cluster["id"], row["job_number"])
    return plan.RequestView(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        again_us=row["again_us"],
        retry=getattr(body, "retry_until_up", False),
        cluster_state=None if cluster is None else cluster["state"],
        compute_state=None if compute is None else compute["state"],
        compute_error=None if error is None else error["message"],
        job_number=row["job_number"],
        job_state=None if job is None else job["state"],
        job_error=None if job is None else job["error"],
    )


def _result(tx: Tx, row: Row, cluster: Row | None) -> Any:
    if row["name"] in ("launch", "exec", "start") and cluster is not None:
        handle = views.handle(tx.connection, cluster)
        return handle if row["name"] == "start" else {"job_id": row["job_number"], "handle": handle}
    return None


def _status(tx: Tx, row: Row, body: wire.StatusBody) -> Any:
    owner = None if body.all_users else row["owner"]
    return views.status(tx.connection, owner, body.cluster_names)


def _queue(tx: Tx, row: Row, body: wire.QueueBody) -> Any:
    cluster = verbs.found(tx, body.cluster_name, row["owner"], all_users=body.all_users)
    return views.queue(tx.connection, cluster, skip_finished=body.skip_finished)


def _job_status(tx: Tx, row: Row, body: wire.JobStatusBody) -> Any:
    cluster = verbs.found(tx, body.cluster_name, row["owner"])
    return views.job_states(tx.connection, cluster, body.job_ids)


def _cancel(tx: Tx, row: Row, body: wire.CancelBody) -> Any:
    return verbs.cancel_jobs(
        tx, verbs.found(tx, body.cluster_name, row["owner"], all_users=body.all_users), body
    )


def _autostop(tx: Tx, row: Row, body: wire.AutostopBody) -> Any:
    cluster = verbs.found(tx, body.cluster_name, row["owner"], all_users=body.all_users)
    verbs.autostop(tx, cluster, body.idle_minutes, down=body.down)


def _costs(tx: Tx, row: Row, _body: Any) -> Any:
    return views.costs(tx.connection, row["owner"])
