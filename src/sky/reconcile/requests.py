"""Does what requests ask for: at once what can be done at once, step by step what takes its time.

Decides: which verb a request's name means. Never: runs anything of its own, or keeps a short request
waiting for a long one. Follows: a request that cannot have what it asks for fails with a named error; one
whose body breaks us fails too, and nothing else does.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from sky.domain import compute as c
from sky.domain import request as r
from sky.domain.lifecycle import Fact
from sky.domain.provider import Rules
from sky.domain.request_errors import RequestFailure
from sky.kit.clock import SECOND_US
from sky.plan import request as plan
from sky.reconcile import optimizing, request_answers
from sky.reconcile.optimizing import NotYet
from sky.reconcile.passes import Done, InnerLoop
from sky.store.rows import clusters, requests
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.store.views import clusters as views
from sky.verbs import cluster_power
from sky.verbs import clusters as verbs
from sky.wire import requests as wire

IN_ORDER = frozenset({"launch", "exec", "start", "stop", "down", "autostop"})
"""What is asked about a cluster is begun in the order in which it was asked."""
BROKEN_AFTER = 3
BEGUN_BROKEN_AFTER = 10
"""How often a pass may break in a row before its request fails: one that has begun nothing, one that has."""
WHY_CHARS_MAX = 200


class Requests(InnerLoop):
    """One pass: begin a request, or see how far it has come."""

    name: ClassVar[str] = "requests"
    idle: ClassVar[str] = "no request is open"

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def look(self, tx: Tx, key_id: str) -> Done:
        row = requests.find(tx.connection, key_id)
        if row is None or row["state"] in r.DONE:
            return Done("it is over")
        body = msgspec.convert(row["body"], wire.BODIES[row["name"]])
        if row["state"] != r.PENDING:
            return self._go_on(tx, row, body)
        try:
            _in_order(tx, row)
            done = self._begin(tx, row, body)
        except NotYet as waits:
            return Done(waits.why, waits.until_us)
        except RequestFailure as failed:
            requests.say(tx, row["id"], f"failed: {failed.message}")
            tx.apply(r.RequestFailed(row["id"], failed.record(), tx.now_us))
            done = Done(f"it failed: {failed.message}")
        if row["name"] == "launch" and row["cluster_name"] is not None:
            for other in requests.unbegun(tx.connection, row["cluster_name"]):
                tx.touch(f"requests/{other['id']}")
        return done

    def broken(self, tx: Tx, key_id: str, failures: int, why: str) -> None:
        row = requests.find(tx.connection, key_id)
        if row is None or row["state"] in r.DONE:
            return
        pending = row["state"] == r.PENDING
        if failures < (BROKEN_AFTER if pending else BEGUN_BROKEN_AFTER):
            return
        left = "nothing was begun" if pending else "what was begun goes on: `sky status` shows it"
        msg = f"the server failed on this request ({why[:WHY_CHARS_MAX]}), and its log tells where; {left}"
        requests.say(tx, key_id, f"failed: {msg}")
        failed = RequestFailure("InternalError", msg)
        tx.apply(r.RequestFailed(key_id, failed.record(), tx.now_us))

    def _begin(self, tx: Tx, row: Row, body: Any) -> Done:
        if row["name"] in request_answers.SHORT:
            result = request_answers.answer(tx, row, body, self._rules)
            tx.apply(r.RequestSucceeded(row["id"], result, tx.now_us))
            return Done("it was done at once")
        match body:
            case wire.LaunchBody():
                asked = optimizing.for_launch(tx, row, body, self._rules)
                if body.dryrun:
                    return _dry(tx, row)
                verbs.launch(tx, row, body, self._rules, asked)
            case wire.ExecBody():
                optimizing.for_exec(tx, row, body)
                if body.dryrun:
                    return _dry(tx, row)
                verbs.execute(tx, row, body, self._rules)
            case wire.StartBody():
                cluster = verbs.found(tx, body.cluster_name, row["owner"], all_users=body.all_users)
                cluster_power.begin_start(tx, row, cluster, body, self._rules)
            case _:
                cluster = verbs.found(tx, body.cluster_name, row["owner"], all_users=body.all_users)
                self._begin_end(tx, row, cluster, body)
        return Done("it was begun", tx.now_us)

    def _begin_end(self, tx: Tx, row: Row, cluster: Row, body: wire.ClusterBody) -> None:
        """Begin a stop or a down, unless jobs are waited for; what cannot be done is refused right away."""
        if row["name"] == "stop":
            cluster_power.check_stoppable(tx, cluster, self._rules)
        tx.apply(r.RequestStarted(row["id"], tx.now_us, cluster["id"]))
        if body.graceful:
            requests.say(tx, row["id"], f"waits for the jobs that run on cluster {cluster['name']!r}")
            tx.apply(r.RequestWaiting(row["id"], tx.now_us))
        else:
            self._end(tx, row, cluster)

    def _end(self, tx: Tx, row: Row, cluster: Row) -> None:
        if row["name"] == "stop":
            cluster_power.stop(tx, cluster, self._rules)
        else:
            verbs.take_down(tx, cluster)

    def _go_on(self, tx: Tx, row: Row, body: Any) -> Done:
        cluster = None if row["cluster_id"] is None else clusters.find(tx.connection, row["cluster_id"])
        decision = plan.plan(_view(tx, row, cluster, body), tx.now_us)
        for action in decision.actions:
            self._do(tx, row, cluster, action)
        return Done(decision.why, decision.next_us)

    def _do(self, tx: Tx, row: Row, cluster: Row | None, action: plan.Action) -> None:
        match action:
            case plan.Finish():
                _tell_what_is_left(tx, row, cluster)
                result = _result(tx, row, cluster)
                tx.apply(r.RequestSucceeded(row["id"], result, tx.now_us))
            case plan.Relaunch() if cluster is not None:
                tx.apply(r.RequestResumed(row["id"]))
                verbs.relaunch(tx, cluster, self._rules)
            case plan.Start() if cluster is not None:
                tx.apply(r.RequestResumed(row["id"]))
                requests.say(tx, row["id"], f"starting cluster {cluster['name']!r}")
                cluster_power.start(tx, cluster)
            case plan.End() if cluster is not None:
                tx.apply(r.RequestResumed(row["id"]))
                self._end_or_fail(tx, row, cluster)
            case plan.GiveUp(error):
                requests.say(tx, row["id"], f"failed: {error['message']}")
                tx.apply(r.RequestFailed(row["id"], error, tx.now_us))
                if cluster is not None:
                    verbs.undo_launch(tx, row, cluster)
            case Fact():
                tx.apply(action)
            case _:
                msg = f"request {row['id']} has no cluster, and was to be launched again"
                raise RuntimeError(msg)

    def _end_or_fail(self, tx: Tx, row: Row, cluster: Row) -> None:
        """The end that was waited for; meanwhile it may have become impossible."""
        try:
            self._end(tx, row, cluster)
        except RequestFailure as failed:
            requests.say(tx, row["id"], f"failed: {failed.message}")
            tx.apply(r.RequestFailed(row["id"], failed.record(), tx.now_us))


def _in_order(tx: Tx, row: Row) -> None:
    """What is asked about a cluster waits for launches of it that were asked for before and are yet to begin.

    Raises NotYet.
    """
    if row["cluster_name"] is None or row["name"] not in IN_ORDER:
        return
    for other in requests.unbegun(tx.connection, row["cluster_name"]):
        if other["name"] == "launch" and other["seq"] < row["seq"]:
            raise NotYet(f"waits for launch {other['id']} to begin", tx.now_us + SECOND_US)


def _dry(tx: Tx, row: Row) -> Done:
    """A dry run ends where something would be bought, or begin."""
    requests.say(tx, row["id"], "nothing was done: it was a dry run")
    tx.apply(r.RequestSucceeded(row["id"], {"job_id": None, "handle": None}, tx.now_us))
    return Done("it was a dry run")


def _view(tx: Tx, row: Row, cluster: Row | None, body: Any) -> plan.RequestView:
    compute = None if cluster is None else clusters.compute(tx.connection, cluster["compute_id"])
    error = None if compute is None else compute["last_error"]
    job = None
    if cluster is not None and row["job_number"] is not None:
        job = clusters.job(tx.connection, cluster["id"], row["job_number"])
    view = plan.RequestView(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        started_us=row["started_us"] or row["created_us"],
        again_us=row["again_us"],
        retry=getattr(body, "retry_until_up", False),
        cluster_state=None if cluster is None else cluster["state"],
        compute_state=None if compute is None else compute["state"],
        compute_error=None if error is None else error["message"],
        job_number=row["job_number"],
        job_state=None if job is None else job["state"],
        job_error=None if job is None else job["error"],
    )
    if cluster is None:
        return view
    if isinstance(body, wire.ClusterBody):
        return _end_view(tx, cluster, body, view)
    if view.compute_state == c.DEGRADED:
        return replace(view, buying=clusters.buying(tx.connection, cluster["compute_id"]))
    return view


def _end_view(tx: Tx, cluster: Row, body: wire.ClusterBody, view: plan.RequestView) -> plan.RequestView:
    seconds = body.graceful_timeout
    forever = plan.NO_TIME if seconds is None else seconds * SECOND_US
    return replace(
        view,
        purge=body.purge,
        graceful_us=forever if body.graceful else None,
        jobs_running=clusters.at_work(tx.connection, cluster["id"], view.started_us) if body.graceful else 0,
        refused=clusters.refusal(tx.connection, cluster["compute_id"]),
    )


def _tell_what_is_left(tx: Tx, row: Row, cluster: Row | None) -> None:
    """A purge waits for nobody, so it says what its provider has not given its word on."""
    if cluster is None or not row["body"].get("purge"):
        return
    left = clusters.node_states(tx.connection, cluster["compute_id"])
    if left:
        why = clusters.refusal(tx.connection, cluster["compute_id"])
        what = f"{len(left)} machines of compute {cluster['compute_id']} may still be there and cost"
        told = f"{what}: {why}" if why else what
        requests.say(tx, row["id"], f"{told}; they are given back in the background")


def _result(tx: Tx, row: Row, cluster: Row | None) -> Any:
    if row["name"] in ("launch", "exec", "start") and cluster is not None:
        handle = views.handle(tx.connection, cluster)
        return handle if row["name"] == "start" else {"job_id": row["job_number"], "handle": handle}
    return None
