"""Snapshots for the tests of plans, and what carrying a plan out makes of them.

Decides: usual values, and how actions change a snapshot (by the tables, as the loops do).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from sky.domain import compute as c
from sky.domain import node as n
from sky.domain.compute import Alternative, Bounds, Wanted
from sky.domain.lifecycle import Fact, advance
from sky.domain.offer import Offer
from sky.domain.snapshots import ComputeView, NodeCase, NodeView, Source
from sky.plan.compute import AskForNode

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND
LONG_AGO = NOW - 86_400 * SECOND


def alternative(**more: Any) -> Alternative:
    values: dict[str, Any] = {
        "provider": "fake",
        "accelerator": None,
        "accelerator_count": 1,
        "cpus": None,
        "memory_gb": None,
        "disk_gb": None,
        "region": None,
        "architecture": None,
        "max_hourly_micro": None,
    }
    return Alternative(**{**values, **more})


def wanted(*alternatives: Alternative, **more: Any) -> Wanted:
    values: dict[str, Any] = {
        "alternatives": alternatives or (alternative(),),
        "selection": "cheapest",
        "allocation": "spot_if_available",
        "provision_timeout_us": 300 * SECOND,
        "idle_timeout_us": 30 * SECOND,
        "cooldown_us": 0,
        "concurrency": None,
    }
    return Wanted(**{**values, **more})


def offer(name: str = "small", **more: Any) -> Offer:
    values: dict[str, Any] = {
        "id": f"ofr_{name}",
        "provider_id": "prv_1",
        "provider_name": "cloud",
        "kind": "fake",
        "instance_type": name,
        "cpus": 2,
        "memory_gb": 4.0,
        "on_demand_micro": 1_000_000,
    }
    return Offer(**{**values, **more})


def source(**more: Any) -> Source:
    values: dict[str, Any] = {"id": "prv_1", "name": "cloud", "kind": "fake", "fresh": True, "error": None}
    return Source(**{**values, **more})


def node(key: str = "nod_1", **more: Any) -> NodeView:
    state = more.get("state", n.READY)
    past = {n.REQUESTED, n.PROVISIONING}
    values: dict[str, Any] = {
        "id": key,
        "compute_id": "cmp_1",
        "rank": 0,
        "generation": 1,
        "state": state,
        "provider_id": None if state == n.REQUESTED else "prv_1",
        "market": None if state == n.REQUESTED else "on_demand",
        "offer": None if state == n.REQUESTED else offer(),
        "machine": None if state in past else "m-1",
        "passed_over": (),
        "last_error": None,
        "slots": 2 if state in n.SERVING else 0,
        "window": 2 if state in n.SERVING else 0,
        "active": 0,
        "created_us": NOW - 100 * SECOND,
        "launch_deadline_us": NOW + 200 * SECOND,
        "connect_deadline_us": NOW + 200 * SECOND,
        "launched_us": None if state in past else NOW - 90 * SECOND,
        "ready_us": NOW - 80 * SECOND if state in n.SERVING else None,
        "last_seen_us": NOW - SECOND if state in n.SERVING else None,
        "deleting_us": NOW - SECOND if state == n.DELETING else None,
        "fenced_us": NOW - SECOND if state == n.LOST else None,
    }
    return NodeView(**{**values, **more})


def compute(*nodes: NodeView, **more: Any) -> ComputeView:
    values: dict[str, Any] = {
        "id": "cmp_1",
        "state": c.READY,
        "generation": 1,
        "observed_generation": 1,
        "wanted": wanted(),
        "bounds": Bounds(1, 1, 1),
        "desired": "running",
        "target_nodes": 1,
        "scaled_us": None,
        "ready_us": NOW - 70 * SECOND,
        "last_error": None,
        "lease_owner": None,
        "lease_expires_us": None,
        "delete_on_exit": False,
        "created_us": NOW - 200 * SECOND,
        "waiting": 0,
        "running": 0,
        "ranks_waited_for": 0,
        "ranks_at_work": 0,
        "idle_since_us": NOW - 10 * SECOND,
        "nodes": nodes,
        "listening_us": LONG_AGO,
    }
    return ComputeView(**{**values, **more})


def case(one: NodeView, *offers: Offer, **more: Any) -> NodeCase:
    values: dict[str, Any] = {
        "node": one,
        "wanted": wanted(),
        "accepting": True,
        "ttl_us": 600 * SECOND,
        "bootstrap_timeout_us": 900 * SECOND,
        "connect_timeout_us": 240 * SECOND,
        "offers": offers,
        "image": {},
        "worker": {},
        "sources": (source(),),
        "listening_us": LONG_AGO,
    }
    return NodeCase(**{**values, **more})


def carried_out(view: ComputeView, actions: Iterable[object]) -> ComputeView:
    """The snapshot after ``actions``, each of which has to be legal."""
    for number, action in enumerate(actions):
        if isinstance(action, AskForNode):
            fresh = node(
                f"nod_new_{len(view.nodes)}_{number}",
                state=n.REQUESTED,
                rank=action.rank,
                generation=action.generation,
                created_us=NOW,
            )
            view = replace(view, nodes=(*view.nodes, fresh))
        elif type(action) in c.MOVES:
            view = _moved(view, c.MOVES, action)
        else:
            view = replace(
                view, nodes=tuple(_moved(x, n.MOVES, action) if x.id == action.id else x for x in view.nodes)
            )
    return view


def _moved(row: Any, moves: Any, fact: Fact) -> Any:
    state = advance(moves, row.state, fact)
    if state is None:
        return row
    named = set(row.__struct_fields__)
    said = {name: getattr(fact, name) for name in fact.__struct_fields__ if name in named}
    return replace(row, **{**said, "state": state})


ERRORS = st.sampled_from(
    [
        None,
        {"code": "provider_refused", "message": "no quota", "retryable": True},
        {"code": "capability_mismatch", "message": "its environment broke", "retryable": True},
        {"code": "node_lost", "message": "preempted", "retryable": True},
    ]
)
MOMENTS = st.integers(-7_200, 7_200).map(lambda seconds: NOW + seconds * SECOND)


@st.composite
def node_views(draw: st.DrawFn, key: str, rank: int, generation: int, states: Iterable[str]) -> NodeView:
    """A node in one of ``states``, with anything that may be true of it there."""
    state = draw(st.sampled_from(sorted(states)))
    was_ready = state in n.SERVING or (state in n.ENDING and draw(st.booleans()))
    return node(
        key,
        state=state,
        rank=rank,
        generation=generation,
        active=draw(st.integers(0, 3)) if state in n.SERVING else 0,
        created_us=draw(MOMENTS),
        ready_us=draw(MOMENTS) if was_ready else None,
        last_error=draw(ERRORS),
        unwanted_us=draw(st.none() | st.none() | MOMENTS),
        worked_us=draw(st.none() | MOMENTS),
        assigned_us=draw(st.none() | MOMENTS),
        fenced_us=draw(MOMENTS)
        if state == n.LOST
        else draw(st.none() | MOMENTS)
        if state == n.DELETING
        else None,
    )


@st.composite
def compute_views(draw: st.DrawFn) -> ComputeView:
    """A compute with nodes as the rows allow them: at most one that is wanted for each rank."""
    generation = draw(st.integers(1, 3))
    high = draw(st.integers(0, 5))
    low = draw(st.integers(0, high)) if draw(st.booleans()) else high
    nodes: list[NodeView] = []
    for rank in range(draw(st.integers(0, 6))):
        of = draw(st.integers(1, generation))
        if draw(st.booleans()):
            nodes.append(draw(node_views(f"nod_w{rank}", rank, of, n.WANTED)))
        for number in range(draw(st.integers(0, 2))):
            of = draw(st.integers(1, generation))
            nodes.append(draw(node_views(f"nod_e{rank}{number}", rank, of, n.ENDING | n.FINAL)))
    nodes = [
        x for x in nodes if x.state not in n.FINAL or (x.ready_us is None and x.generation == generation)
    ]
    at_nodes = sum(x.active for x in nodes)
    return compute(
        *draw(st.permutations(nodes)),
        state=draw(st.sampled_from(sorted(c.ACCEPTING))),
        generation=generation,
        observed_generation=draw(st.integers(0, generation)),
        bounds=Bounds(draw(st.integers(low, high)), low, high),
        target_nodes=draw(st.integers(low, high)),
        scaled_us=draw(st.none() | MOMENTS),
        ready_us=draw(st.none() | MOMENTS),
        last_error=draw(ERRORS),
        waiting=draw(st.integers(0, 20)),
        running=at_nodes,
        ranks_waited_for=draw(st.integers(0, 3)),
        ranks_at_work=draw(st.integers(0, 3)),
        idle_since_us=draw(MOMENTS),
        wanted=wanted(
            idle_timeout_us=draw(st.integers(0, 600)) * SECOND,
            cooldown_us=draw(st.integers(0, 60)) * SECOND,
        ),
    )
