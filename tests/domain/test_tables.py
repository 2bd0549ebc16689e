"""Every fact in every state of every noun, through the one door and onto a real file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
import sqlalchemy as sa
from tests.store.support import ROWS, empty, inline

from sky.domain import account, cluster, cluster_job, compute, job, node, request, task
from sky.domain.lifecycle import Fact, IllegalMoveError, advance, states
from sky.store import schema
from sky.store.db import Database
from sky.store.tx import NOUNS, Noun, Tx
from sky.wire import jobs, requests, v1

BIRTH = {
    "computes": "requested",
    "nodes": "requested",
    "tasks": "queued",
    "executions": "created",
    "accounts": "active",
    "jobs": "queued",
    "requests": "PENDING",
    "clusters": "INIT",
    "cluster_jobs": "INIT",
}
TOLD = {
    "computes": compute.STATES,
    "nodes": node.STATES,
    "tasks": task.TASK_STATES,
    "executions": task.EXECUTION_STATES,
    "accounts": account.STATES,
    "jobs": job.STATES,
    "requests": request.STATES,
    "clusters": cluster.STATES,
    "cluster_jobs": cluster_job.STATES,
}
ON_THE_WIRE = {
    "computes": v1.ComputeState,
    "nodes": v1.NodeState,
    "tasks": v1.TaskState,
    "executions": v1.ExecutionState,
    "accounts": jobs.AccountState,
    "jobs": jobs.JobStatus,
    "requests": requests.RequestStatus,
    "cluster_jobs": requests.JobState,
}
FINAL = {
    "computes": {compute.DELETED},
    "nodes": set(node.FINAL),
    "tasks": {task.SUCCEEDED},
    "executions": set(task.DONE),
    "accounts": {account.CLOSED},
    "jobs": set(job.TERMINAL),
    "requests": set(request.DONE),
    "clusters": {cluster.DOWN},
    "cluster_jobs": set(cluster_job.DONE),
}
SAMPLES: dict[str, Any] = {
    "offer": {"id": "ofr_1"},
    "spec": {"nodes": {"desired": 2}},
    "last_error": {"code": "busy", "message": "m", "retryable": True},
    "error": None,
    "binding": {},
    "passed_over": [],
    "result_sha256": "b" * 64,
    "provider_id": "prv_1",
    "provider_kind": "fake",
    "market": "spot",
    "billing_unit": "second",
    "accelerator": None,
    "machine": "m-1",
    "address": None,
    "boot": "b",
    "python": "3.11",
    "lease_owner": "somebody",
    "node_id": "nod_1",
    "enabled": True,
    "cluster_id": "clu_1",
    "autostop_down": True,
    "autostop_wait": "jobs",
    "last_use": "t",
    "compute_id": "cmp_1",
    "prepare_task": "tsk_1",
    "run_task": "tsk_2",
    "upload_task": "tsk_3",
}
CASES = [(noun, kind) for noun in NOUNS for kind in noun.moves]


def fact_of(kind: type[Fact], key: str) -> Fact:
    """A fact with something in every field."""
    values = {name: SAMPLES.get(name, 7) for name in kind.__struct_fields__ if name != "id"}
    return kind(key, **values)


class Onlooker:
    """Another connection to the same file, which sees what was really written."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)
        self._connection = self._engine.connect()

    def row(self, noun: Noun, key: str) -> dict[str, Any]:
        """The row as it is on the disk."""
        query = sa.select(noun.table).where(noun.table.c.id == key)
        with self._connection.begin():
            return dict(self._connection.execute(query).mappings().one())

    def writes(self) -> int:
        """A number that changes whenever anybody else has written anything to the file."""
        with self._connection.begin():
            return self._connection.exec_driver_sql("PRAGMA data_version").scalar_one()

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    db = inline(empty(tmp_path_factory.mktemp("tables") / "sky.db"))
    yield db
    db.close()


@pytest.fixture(scope="module")
def onlooker(database: Database) -> Iterator[Onlooker]:
    one = Onlooker(database.url)
    yield one
    one.close()


async def put_row(db: Database, noun: Noun, key: str, state: str) -> None:
    """One row in a state, as if it had come there; ranks and names are kept apart."""
    row = ROWS[noun.name](key, state=state)
    if noun.name == "nodes":
        row["compute_id"] = f"cmp_of_{key}"
    await db.write(lambda tx: tx.connection.execute(sa.insert(noun.table), row))


async def apply(db: Database, fact: Fact) -> tuple[int, Tx]:
    """Apply one fact in a transaction of its own; returns what it moved, and the transaction."""
    seen: list[Tx] = []

    def verb(tx: Tx) -> int:
        seen.append(tx)
        return tx.apply(fact)

    return await db.write(verb), seen[0]


@pytest.mark.parametrize(("noun", "kind"), CASES, ids=[f"{k.__name__}-of-{n.name}" for n, k in CASES])
async def test_a_fact_moves_repeats_or_is_refused(
    database: Database, onlooker: Onlooker, noun: Noun, kind: type[Fact]
) -> None:
    for state in sorted(states(noun.moves)):
        await is_as_the_table_says(database, onlooker, noun, kind, state)


async def is_as_the_table_says(
    database: Database, onlooker: Onlooker, noun: Noun, kind: type[Fact], state: str
) -> None:
    """The fact moves a row in this state, or is a repeat, or is refused."""
    move = noun.moves[kind]
    key = f"{kind.__name__}-{state}"[:40]
    await put_row(database, noun, key, state)
    fact, before = fact_of(kind, key), onlooker.row(noun, key)
    if move.target == state or state not in move.sources:
        writes = onlooker.writes()
        if move.target == state:
            moved, tx = await apply(database, fact)
            assert (moved, tx.events, tx.keys) == (0, [], []), f"{key}: a repeat is not told"
        else:
            with pytest.raises(IllegalMoveError, match=key):
                await apply(database, fact)
        assert onlooker.writes() == writes, f"{key}: nothing was written"
        return
    moved, tx = await apply(database, fact)
    after = onlooker.row(noun, key)
    assert moved == 1, key
    assert after["state"] == (move.target or state), key
    assert after["version"] == before["version"] + 1, key
    if "revision" in after:
        # Only an intent moves what clients compare.
        assert after["revision"] == before["revision"] + int(kind.intent), key
    for name in kind.__struct_fields__:
        assert after[name] == getattr(fact, name), key
    assert [event.name for event in tx.events] == ([move.event] if move.event else []), key
    assert tx.keys == [f"~knock/{key}", f"looked/{key}"]


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.name)
def test_every_state_can_be_reached_from_birth(noun: Noun) -> None:
    reached, new = {BIRTH[noun.name]}, {BIRTH[noun.name]}
    while new:
        new = {m.target for m in noun.moves.values() if m.target and m.sources & reached} - reached
        reached |= new
    assert reached == states(noun.moves)


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.name)
def test_what_is_over_stays_over(noun: Noun) -> None:
    left = {
        state: sorted(
            kind.__name__
            for kind, move in noun.moves.items()
            if state in move.sources and kind is not job.JobSettled  # the books are closed after the end
        )
        for state in FINAL[noun.name]
    }
    assert not any(left.values()), left


def test_an_ended_task_is_left_only_by_a_persons_retry() -> None:
    ways_out = {
        (state, kind)
        for kind, move in task.TASK_MOVES.items()
        for state in task.DONE
        if state in move.sources
    }
    assert ways_out == {(state, task.TaskRetried) for state in task.DONE - {task.SUCCEEDED}}


def test_a_failed_compute_is_left_only_by_deletion() -> None:
    ways_out = {
        kind
        for kind, move in compute.MOVES.items()
        if compute.FAILED in move.sources and move.target not in (None, compute.FAILED)
    }
    assert ways_out == {compute.ComputeDeleting}


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.name)
def test_every_state_is_told_and_is_the_wires(noun: Noun) -> None:
    told = TOLD[noun.name]
    assert set(told) == states(noun.moves)
    if noun.name in ON_THE_WIRE:  # a cluster is shown in fewer words than it has states
        assert set(told) == set(get_args(ON_THE_WIRE[noun.name]))
    assert all(text.endswith(".") and len(text.split()) >= 3 for text in told.values())
    assert all(kind.__doc__ and kind.__doc__.strip().endswith(".") for kind in noun.moves)


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.name)
def test_every_event_of_a_state_is_named_after_it(noun: Noun) -> None:
    singular = noun.name.removesuffix("s")
    for kind, move in noun.moves.items():
        if move.event is None:
            continue
        assert move.event.startswith(f"{singular}."), kind
        if move.target is not None and kind is not task.TaskStarted:
            assert move.event == f"{singular}.{move.target}"


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.name)
def test_a_fact_sets_columns_that_exist_and_never_the_guarded_ones(noun: Noun) -> None:
    for kind in noun.moves:
        fields = set(kind.__struct_fields__)
        assert fields <= set(noun.table.c.keys()), kind
        assert not fields & {"seq", "state", "version", "revision", "created_us"}, kind


def test_states_fit_their_columns() -> None:
    for noun in NOUNS:
        longest = max(map(len, states(noun.moves)))
        assert longest <= noun.table.c.state.type.length
    names = [m.event for noun in NOUNS for m in noun.moves.values() if m.event]
    assert max(map(len, names)) <= schema.events.c.name.type.length


def test_advancing_is_the_table() -> None:
    fact = node.NodeReady("nod_1", 1)
    assert advance(node.MOVES, node.BOOTSTRAPPING, fact) == node.READY
    assert advance(node.MOVES, node.READY, fact) is None
    assert advance(node.MOVES, node.PROVISIONING, node.NodeNoted("nod_1", None)) == node.PROVISIONING
    with pytest.raises(IllegalMoveError, match="NodeReady cannot happen to nod_1 in state 'deleted'"):
        advance(node.MOVES, node.DELETED, fact)
