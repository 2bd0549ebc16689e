"""``sky why``: what the loops last decided about something, and what came before.

Decides: which keys, resources and events belong to the thing that was named. Never: guesses a reason; it
shows what the daemon wrote down. Follows: the answer has three parts: how it is, what was decided (and when
it is looked at again), and the last events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.app import Output, noun, only
from sky.cli.connection import Api, reading
from sky.cli.scripted import result
from sky.cli.watch import recorded
from sky.client import calls, calls_admin, calls_machines, sdk
from sky.client.errors import NotFound
from sky.client.events import Seen
from sky.wire import admin, v1

EVENTS_SHOWN = 10
SEARCHED_COMPUTES_MAX = 500
REASONS_SHOWN = 5


class _Subject(NamedTuple):
    """The thing that was named: its facts, the keys of its loops, and whose events are its own."""

    resource: Any
    pairs: list[tuple[str, object]]
    keys: list[str]
    compute: str | None = None
    task: str | None = None
    nodes: tuple[v1.Node, ...] | None = None


@only("why", "sky why dev", "sky why tsk_01…", "sky why nod_01… -o json")
def why(
    of: Annotated[
        str, Parameter(help="A compute, cluster or provider (name or id), a node, a task, a paid job.")
    ],
    /,
    *,
    events: Annotated[int, Parameter(help="How many of the last events.")] = EVENTS_SHOWN,
    output_: Output = "table",
) -> int:
    """Tell what was last decided about something, and why: its state, its errors, its last events."""
    with reading() as api:
        subject = _subject(api, of)
        decisions = [d for key in subject.keys for d in api.send(calls.loops(key)).items]
        latest = _latest(api, subject, max(0, events))
    if output_ == "json":
        told = [{"seq": seen.seq, "name": seen.name, **output.plain(seen.event)} for seen, _ in latest]
        nodes = {} if subject.nodes is None else {"nodes": subject.nodes}
        output.json({"resource": subject.resource, **nodes, "decisions": decisions, "events": told})
        return 0
    output.pairs(subject.pairs)
    output.say()
    _tell_decisions(decisions, subject.resource.id)
    if latest:
        output.say()
        output.say(output.styled("last events", "title"))
        for _, text in latest:
            output.say(f"  {output.clean(text)}")
    return 0


def _whose(one: v1.Decision, own: str) -> str:
    """The loop, and the id it looked at when that is not the thing that was asked about."""
    key = one.key.rpartition("/")[2]
    return one.loop if key == own else f"{one.loop} {key}"


def _tell_decisions(decisions: Iterable[v1.Decision], own: str) -> None:
    output.say(output.styled("decisions", "title"))
    any_ = False
    for one in decisions:
        any_ = True
        ago = render.ago(one.decided_at)
        again = f"; looked at again in {_until(one)}" if one.next_at else "; settled"
        tries = f", failed {one.failures} times in a row" if one.failures else ""
        decided = f"{one.decision}, {ago} ago" if ago else one.decision
        output.say(f"  {_whose(one, own)}: {output.clean(decided)}{again}{tries}")
        if one.error:
            output.say("    " + output.styled(output.clean(one.error), "bad"))
    if not any_:
        output.say("  none: no loop has anything to do with it now")


def _until(one: v1.Decision) -> str:
    from datetime import UTC, datetime

    return render.span((one.next_at - datetime.now(UTC)).total_seconds()) if one.next_at else "-"


# ── what was named ──────────────────────────────────────────────────────────────────────────────


def _subject(api: Api, of: str) -> _Subject:
    match render.looks_like_id(of):
        case "tsk":
            return _task(api, of)
        case "nod":
            return _node(api, of)
        case "prv":
            return _provider(api.send(calls_machines.get_provider(of)))
        case "job":
            return _job(api, of)
        case _:
            return _compute_or_provider(api, of)


def _compute_or_provider(api: Api, of: str) -> _Subject:
    try:
        return _compute(api, api.send(calls.get_compute(of)))
    except NotFound as missing:
        try:
            return _provider(api.send(calls_machines.get_provider(of)))
        except NotFound:
            return _cluster(api, of, missing)


def _cluster(api: Api, of: str, missing: NotFound) -> _Subject:
    """The compute of a cluster. Raises ``missing`` where there is no such cluster either."""
    records = list(result(sdk.status([of]), "looking for the cluster"))
    if not records:
        raise missing
    handle: Mapping[str, Any] = records[0]["handle"]
    found = _compute(api, api.send(calls.get_compute(handle["compute_id"])))
    return found._replace(pairs=[("cluster", of), *found.pairs])


def _compute(api: Api, compute: v1.Compute) -> _Subject:
    nodes = api.send(calls.list_nodes(compute.id)).items
    pairs = list(render.compute_pairs(compute))
    for node in nodes:
        pairs.append((f"rank {node.rank}", _node_text(node)))
        pairs += _choice(node)
    return _Subject(compute, pairs, [compute.id, *(n.id for n in nodes)], compute=compute.id, nodes=nodes)


def _node_text(node: v1.Node) -> str:
    text = f"{node.id} {node.state}"
    return f"{text}: {render.error(node.last_error)}" if node.last_error else text


def _choice(node: v1.Node) -> list[tuple[str, object]]:
    """What is bought for a node, and why that and nothing else."""
    told = node.provider_binding
    pairs: list[tuple[str, object]] = []
    if node.price_per_hour is not None:
        where = f" in {told['region']}" if told.get("region") else ""
        price = f"{node.price_per_hour:g} USD an hour, {(node.market or '').replace('_', ' ')}"
        pairs.append(("  is", f"{told.get('kind')}/{told.get('instance_type')}{where}, {price}"))
    reasons: list[str] = told.get("passed_over") or []
    pairs += [("  is not", reason) for reason in reasons[:REASONS_SHOWN]]
    if len(reasons) > REASONS_SHOWN:
        pairs.append(("  is not", f"{len(reasons) - REASONS_SHOWN} more; -o json has all"))
    return pairs


def _task(api: Api, of: str) -> _Subject:
    task = api.send(calls.get_task(of))
    pairs = list(render.task_pairs(task, _function_name(api, task.function)))
    for one in task.executions:
        text = f"{one.state} on {one.node_id or 'no node yet'}"
        error = f": {render.error(one.error)}" if one.error else ""
        pairs.append((f"try {one.ordinal}", f"{text}{error}"))
    keys = [task.id, *(one.id for one in task.executions), task.compute_id]
    return _Subject(task, pairs, keys, task=task.id)


def _function_name(api: Api, sha256: str) -> str | None:
    return api.send(calls.get_function(sha256)).name


def _node(api: Api, of: str) -> _Subject:
    for searched, compute in enumerate(api.computes()):
        if searched >= SEARCHED_COMPUTES_MAX:
            break
        for node in api.send(calls.list_nodes(compute.id, include_terminal=True)).items:
            if node.id == of:
                pairs: list[tuple[str, object]] = [
                    ("id", node.id),
                    ("state", render.state(node.state)),
                    ("compute", f"{render.title(compute)}, rank {node.rank}"),
                    ("machine", node.machine),
                    *_choice(node),
                    ("launched", render.when(node.launched_at)),
                ]
                if node.last_error:
                    pairs.append(("last error", render.error(node.last_error)))
                return _Subject(node, pairs, [node.id, compute.id], compute=compute.id)
    hint = {"hint": "`sky compute get NAME` lists the nodes of a compute"}
    raise NotFound(f"there is no node {of}", "not_found", 404, details=hint)


def _provider(provider: v1.Provider) -> _Subject:
    pairs: list[tuple[str, object]] = [
        ("id", provider.id),
        ("name", provider.name),
        ("kind", provider.kind),
        ("offers", f"{provider.offers_count}, read {render.when(provider.offers_fetched_at) or 'never'}"),
    ]
    if provider.last_error:
        pairs.append(("last error", render.error(provider.last_error)))
    return _Subject(provider, pairs, [provider.id, provider.name])


def _job(api: Api, of: str) -> _Subject:
    """A paid job, for whoever sells it: where it is and what that costs, with the compute that it runs on."""
    found = api.send(calls_admin.sold_job(of)).items
    if not found:
        hint = {"hint": "`sky dashboard` shows all that were bought, to whoever sells"}
        raise NotFound(f"there is no paid job {of}", "not_found", 404, details=hint)
    job = found[0]
    pairs: list[tuple[str, object]] = [
        ("job", of),
        ("job state", job.status),
        ("sold as", f"{job.sku}, {job.price_usd_per_hour} USD an hour"),
        *_placed(job.placement),
    ]
    if job.error:
        pairs.append(("job error", job.error))
    own = _Subject(job, pairs, [of])
    if job.compute_id is None:
        return own
    try:
        compute = _compute(api, api.send(calls.get_compute(job.compute_id)))
    except NotFound:  # it is over for so long that the engine has forgotten its machine
        return own
    return compute._replace(resource=job, pairs=[*pairs, *compute.pairs], keys=[of, *compute.keys])


def _placed(placement: admin.SoldPlacement | None) -> list[tuple[str, object]]:
    if placement is None:
        return []
    cost = placement.cost_usd_per_hour
    price = "" if cost is None else f", costs {cost} USD an hour"
    text = f"{placement.cloud}/{placement.instance_type} in {placement.region}{price}"
    return [("ran on", text), *(("  not on", reason) for reason in placement.passed_over[:REASONS_SHOWN])]


def _latest(api: Api, subject: _Subject, many: int) -> list[tuple[Seen, str]]:
    """The last events that are about states, each with its sentence; what programs wrote is in the log."""
    if not many or (subject.compute is None and subject.task is None):
        return []
    kept: deque[tuple[Seen, str]] = deque(maxlen=many)
    ranks: dict[str, int] = {}
    node = subject.resource.id if isinstance(subject.resource, v1.Node) else None
    for seen in recorded(api, compute=subject.compute, task=subject.task):
        about = getattr(seen.event, "node", None)
        text = render.event_text(seen.event, ranks)
        if not isinstance(seen.event, v1.ConsoleEvent | v1.CostEvent | v1.MetricEvent) and (
            node is None or about == node
        ):
            kept.append((seen, text))
    return list(kept)


app = noun("why")
