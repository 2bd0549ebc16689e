"""What an agent says, as it is written down.

Decides: which facts follow from news. Never: trusts it blindly: news about what is over, or about another
node's work, is kept as a note and moves nothing. Follows: each numbered report is written exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sky.domain import node as n
from sky.domain import task as t
from sky.domain.errors import Busy, Forbidden, NotFound
from sky.domain.task import Tries
from sky.kit import codec
from sky.kit.clock import SECOND_US, to_datetime
from sky.store import blobs, work
from sky.store.rows import computes, daemons, nodes, tasks
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import attempts
from sky.verbs.mailbox import total_of
from sky.wire import agent, v1

PING_SECONDS = 4.0
PINGS_A_LEASE = 4
"""At least so often an agent is heard within its lease, however short that is."""


def hello(tx: Tx, node_id: str, said: agent.Hello) -> agent.Welcome:
    """An agent has connected, for the first time or again."""
    node = _node(tx, node_id)
    state = node["state"]
    if state in n.ENDING | n.FINAL:
        msg = f"node {node_id} is {state}: it is given back, and its agent is to end"
        raise Forbidden(msg, details={"state": state})
    if state in (n.REQUESTED, n.PROVISIONING):
        msg = f"the purchase of node {node_id} is not written down yet; call again in a moment"
        raise Busy(msg, after_s=0.1)
    heard = node["heard"] if node["boot"] == said.boot else 0
    if state == n.CONNECTING:
        tx.apply(n.NodeConnected(node_id, said.boot, said.python, said.slots, said.window, tx.now_us))
    else:
        tx.apply(n.NodeReconnected(node_id, said.boot, said.slots, said.window, tx.now_us, heard))
    _accepted(tx, node_id, said.known)
    if said.error is not None:
        _broken(tx, node_id, said.error)
    elif said.ready and state in (n.CONNECTING, n.BOOTSTRAPPING):
        tx.apply(n.NodeReady(node_id, tx.now_us))
    spec = computes.spec_of(tx.connection, node["compute_id"])
    lease_s = float(spec["ttl"])
    return agent.Welcome(
        lease_seconds=lease_s,
        ping_seconds=min(PING_SECONDS, lease_s / PINGS_A_LEASE) if lease_s else PING_SECONDS,
        heard=heard,
        total=total_of(tx, node["compute_id"]),
        draining=state == n.DRAINING,
        daemons=daemons.addresses(tx.connection, tx.now_us),
    )


def _accepted(tx: Tx, node_id: str, known: Sequence[str]) -> None:
    """What was handed out and has arrived there."""
    if known:
        rows = tasks.at_node(tx, node_id, known)
        arrived = (key for key, row in rows.items() if row["state"] == t.DISPATCHING)
        tx.apply(*(t.ExecutionAccepted(key) for key in arrived))


def seen(tx: Tx, node_id: str, window: int) -> None:
    """An agent is still there."""
    node = nodes.news(tx.connection, node_id)
    if node is None:
        return
    nodes.seen(tx, node_id, window)
    if window > node["window"]:
        tx.touch(f"dispatch/{node['compute_id']}")


def silent(tx: Tx, node_id: str) -> None:
    """The connection of an agent ended: its node is looked at now rather than later."""
    tx.touch(f"nodes/{node_id}")


class Superseded(Exception):
    """What is reported comes from an agent that another one of its node has taken the place of.

    Its number belongs to another count, and would make the new agent's next reports look written. Nothing
    is lost: the new one has the journal, and tells what is in there.
    """


def record(tx: Tx, node_id: str, boot: str, report: agent.Report) -> None:
    """Write down a numbered report; one that was written already changes nothing. Raises ``Superseded``."""
    if report.number > _node_of(tx, node_id, boot)["heard"]:
        take(tx, node_id, report)
        close(tx, node_id, boot, report)


def close(tx: Tx, node_id: str, boot: str, report: agent.Report) -> None:
    """A report is written down as far as it can be: it need not be said again. Raises ``Superseded``."""
    node = _node_of(tx, node_id, boot)
    window = node["window"] if report.window is None else report.window
    if window > node["window"]:
        tx.touch(f"dispatch/{node['compute_id']}")
    nodes.heard(tx, node_id, report.number, window, worked=bool(report.outcomes))


def apart(report: agent.Report) -> Iterator[agent.Report]:
    """Each thing that a report tells as a report of its own, in the order in which they are written."""
    alone = agent.Report(number=report.number, ready=report.ready)
    if report.ready:
        yield alone
    if report.recall is not None:
        yield msgspec.structs.replace(alone, ready=False, recall=report.recall)
    for name in ("phases", "console", "started", "items", "outcomes"):
        for thing in getattr(report, name):
            yield msgspec.structs.replace(alone, ready=False, **{name: (thing,)})


def give_up(tx: Tx, node_id: str, report: agent.Report) -> None:
    """Nobody can write these outcomes down: what they are about is over, and how it went is not known."""
    rows = _executions(tx, node_id, report)
    live = [name for name, row in rows.items() if row["state"] not in t.DONE]
    message = f"node {node_id} told how it went in a way that cannot be written down; see the daemon's log"
    attempts.end_indeterminate(
        tx, [said.execution for said in report.outcomes if said.execution in live], message
    )


def take(tx: Tx, node_id: str, report: agent.Report) -> None:
    """Write down what a report tells, whatever its number."""
    node = _node(tx, node_id)
    _node_news(tx, node, report)
    rows = _executions(tx, node_id, report)
    _console(tx, node, report, rows)
    over = {said.execution for said in report.outcomes}
    begun = [
        s
        for s in report.started
        if s.execution in rows
        and s.execution not in over
        and rows[s.execution]["state"] in (t.DISPATCHING, t.ACCEPTED)
    ]
    starts = {s.execution: t.ExecutionStarted(s.execution, _ago(tx, s.ago_s)) for s in begun}
    tx.apply(*starts.values())
    _items(tx, report, rows)
    _outcomes(tx, report, rows)
    if report.outcomes and node["state"] == n.DRAINING:
        tx.touch(f"computes/{node['compute_id']}")


def _node_news(tx: Tx, node: Row, report: agent.Report) -> None:
    compute_id, node_id = node["compute_id"], node["id"]
    for phase in report.phases:
        payload = v1.PhaseEvent(
            compute=compute_id,
            node=node_id,
            phase=phase.phase,
            event=phase.event,
            at=to_datetime(tx.now_us),
            error=phase.error,
        )
        tx.emit("node.phase", payload, compute_id=compute_id, node_id=node_id)
        if phase.event == "failed":
            _broken(tx, node_id, phase.error or f"{phase.phase} failed")
    if report.ready and node["state"] == n.BOOTSTRAPPING:
        tx.apply(n.NodeReady(node_id, tx.now_us))
    if report.recall is not None:
        _recalled(tx, node_id, report.recall)


def _console(tx: Tx, node: Row, report: agent.Report, rows: Mapping[str, Row]) -> None:
    for lines in report.console:
        row = rows.get(lines.execution or "")
        task_id = None if row is None else row["task_id"]
        payload = v1.ConsoleEvent(
            compute=node["compute_id"],
            node=node["id"],
            content=lines.content.removesuffix("\n"),
            task=task_id,
            stream=lines.stream,
            rank=node["rank"],
        )
        tx.emit("node.console", payload, compute_id=node["compute_id"], node_id=node["id"], task_id=task_id)


def _items(tx: Tx, report: agent.Report, rows: Mapping[str, Row]) -> None:
    fresh = [
        i for i in report.items if i.execution in rows and rows[i.execution]["state"] in t.EXECUTION_LIVE
    ]
    if not fresh:
        return
    found: list[dict[str, Any]] = []
    inline: list[tuple[str, bytes]] = []
    for item in fresh:
        sha256 = item.value_sha256
        if item.value is not None:
            sha256 = codec.sha256_hex(item.value)
            inline.append((sha256, item.value))
        elif sha256 is not None:
            blobs.use(tx, sha256)
        found.append({"execution_id": item.execution, "index": item.index, "value_sha256": sha256})
    blobs.store_inline(tx, inline)
    tasks.add_items(tx, found)
    for task_id in {rows[i.execution]["task_id"] for i in fresh}:
        tx.signal(f"items/{task_id}")


def _outcomes(tx: Tx, report: agent.Report, rows: Mapping[str, Row]) -> None:
    inline: list[tuple[str, bytes]] = []
    endings: list[t.Ending] = []
    retries: list[tuple[str, str]] = []
    # An agent says an outcome once; should one be said twice in a report, the first counts.
    first = {said.execution: said for said in reversed(report.outcomes)}
    for said in reversed(first.values()):
        row = rows.get(said.execution)
        if row is None:
            continue
        if row["state"] in t.DONE:
            _late(tx, said)
            continue
        sha256 = said.result_sha256
        if said.result is not None:
            sha256 = codec.sha256_hex(said.result)
            inline.append((sha256, said.result))
        elif sha256 is not None:
            blobs.use(tx, sha256)
        endings.append(_ending(tx, said, row, sha256))
        if said.state == t.INDETERMINATE and _may_repeat(tx, row):
            retries.append((said.execution, "ambiguous"))
    blobs.store_inline(tx, inline)
    if endings:
        alone = {key: row["task_id"] for key, row in rows.items() if row["dispatch"] != "all"}
        attempts.end(tx, endings, retries, alone)


def _ending(tx: Tx, said: agent.Outcome, row: Row, sha256: str | None) -> t.Ending:
    finished, took_us = _ago(tx, said.ago_s), round(said.seconds * SECOND_US)
    started = row["started_us"] or finished - took_us
    if took_us:  # a report that was on its way for long, or said again, makes nothing last longer
        finished = min(finished, started + took_us)
    failed = said.state == t.FAILED
    error = None
    if said.error is not None:
        error = attempts.error_value(
            said.error.code,
            said.error.message,
            type=said.error.type,
            traceback=said.error.traceback,
            payload_sha256=sha256 if failed else None,
        )
    state = said.state
    if state == t.CANCELLED and row["cancel_requested_us"] is None and row["deadline_us"] is not None:
        state = t.TIMED_OUT  # nobody but its deadline has asked for its end
    return t.ENDINGS[state](
        said.execution,
        finished_us=finished,
        started_us=started,
        result_sha256=None if failed else sha256,
        error=error,
        console_lines=said.console_lines,
        items=said.items,
    )


def _may_repeat(tx: Tx, row: Row) -> bool:
    used = work.tries_used(tx.connection, [(row["task_id"], row["place"])])
    safe, ambiguous = used.get((row["task_id"], row["place"]), (0, 0))
    tries = Tries(row["safe_retries"], row["ambiguous_retries"], safe, ambiguous)
    return t.after_loss(row["state"], tries)[1]


def _late(tx: Tx, said: agent.Outcome) -> None:
    note = msgspec.to_builtins(said)
    note.pop("result", None)
    note["heard_us"] = tx.now_us
    tasks.note_late(tx, said.execution, note)


def _broken(tx: Tx, node_id: str, why: str) -> None:
    state = _node(tx, node_id)["state"]
    if state in n.COMING:
        message = f"node {node_id} could not be made ready: {why}"
        error = attempts.error_value("capability_mismatch", message)
        tx.apply(n.NodeBroken(node_id, tx.now_us, error))


def _recalled(tx: Tx, node_id: str, told: agent.Recall) -> None:
    """Its provider takes the machine back soon: it finishes what it can, and another takes its place."""
    node = _node(tx, node_id)
    message = f"node {node_id} is about to be taken back ({told.reason}): {told.message}"
    error = attempts.error_value("node_lost", message, retryable=True, reason=told.reason)
    if node["state"] == n.READY:
        tx.apply(n.NodeRecalled(node_id, tx.now_us, error))
        tx.touch(f"computes/{node['compute_id']}")
    elif node["state"] in n.WANTED and node["unwanted_us"] is None:
        tx.apply(n.NodeUnwanted(node_id, tx.now_us))
        tx.touch(f"computes/{node['compute_id']}")


def _executions(tx: Tx, node_id: str, report: agent.Report) -> Mapping[str, Row]:
    named = {
        *(x.execution for x in report.console if x.execution),
        *(x.execution for x in report.started),
        *(x.execution for x in report.items),
        *(x.execution for x in report.outcomes),
    }
    return tasks.at_node(tx, node_id, list(named)) if named else {}


def _node_of(tx: Tx, node_id: str, boot: str) -> Row:
    row = _node(tx, node_id)
    if row["boot"] != boot:
        raise Superseded(f"node {node_id} has another agent now")
    return row


def _node(tx: Tx, node_id: str) -> Row:
    row = nodes.news(tx.connection, node_id)
    if row is None:
        msg = f"there is no node {node_id}"
        raise NotFound(msg)
    return row


def _ago(tx: Tx, seconds: float) -> int:
    return tx.now_us - max(0, round(seconds * SECOND_US))
