"""What the loops know of their keys: which are due, who is at one, and what was last decided.

Decides: claims (one pass at a time per key, across daemons, by one conditional update), when a key is due
again, and how long what was decided about things that are over is kept. Never: what a pass does.
Follows: a key that was touched while its pass ran stays due.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from sky.domain import compute as c
from sky.domain import node as n
from sky.kit.clock import SECOND_US
from sky.store.prepared import Prepared, prepared
from sky.store.schema import computes, nodes, passes
from sky.store.sql import ByBytes, insert_ignore
from sky.store.tx import Tx

DUE_KEYS_MAX = 1_000
OVER_KEPT_US = 24 * 3600 * SECOND_US
"""How long it is kept what was decided about a node or a compute that is over."""
SETTLED_KEPT_US = 7 * OVER_KEPT_US
"""How long it is kept about anything else that nobody has to look at."""
FORGOTTEN_MAX = 1_000
"""Notes that are dropped at once."""


@dataclass(frozen=True, slots=True)
class PassRow:
    """The notes of one key."""

    key: str
    version: int
    due_us: int | None
    decision: str | None
    decided_us: int | None
    failures: int
    error: str | None


def due(connection: sa.Connection, now_us: int, limit: int = DUE_KEYS_MAX) -> tuple[str, ...]:
    """Keys whose time has come, longest waiting first. Costs by what is due, never by what exists."""
    rows = _DUE.all(connection, {"b_now": now_us, "b_limit": limit})
    return tuple(row["key"] for row in rows)


def overdue(connection: sa.Connection, now_us: int, limit: int = DUE_KEYS_MAX) -> list[tuple[str, int]]:
    """Keys whose time has come, with when it came, longest waiting first."""
    query = sa.select(passes.c.key, passes.c.due_us).where(passes.c.due_us <= now_us)
    return [(key, due_us) for key, due_us in connection.execute(query.order_by(passes.c.due_us).limit(limit))]


def claim(tx: Tx, key: str, holder: str, until_us: int) -> bool:
    """Hold ``key`` until a moment, unless another holder has it."""
    asked = {"b_key": key, "b_holder": holder, "b_until": until_us, "b_now": tx.now_us}
    return _CLAIM.run(tx.connection, asked) == 1


def begin(tx: Tx, key: str) -> None:
    """Make a key due now, unless it is due at some moment already."""
    if _BEGIN.run(tx.connection, {"b_key": key, "b_now": tx.now_us}):
        tx.touch(key)


def begun(tx: Tx, key: str) -> None:
    """Have notes about a key that is new, so that its loop can take it up in this very transaction."""
    _BEGUN.run(tx.connection, {"key": key, "version": 1, "failures": 0})


def release(tx: Tx, holder: str) -> None:
    """Let go of every key of a holder that ends."""
    tx.connection.execute(
        sa.update(passes).where(passes.c.holder == holder).values(holder=None, held_until_us=None)
    )


def version(connection: sa.Connection, key: str) -> int:
    """The version of a key's notes, to be named when its pass ends."""
    return _VERSION.scalar(connection, {"b_key": key}) or 0


def finish(tx: Tx, key: str, seen: int, *, due_us: int | None, decision: str) -> bool:
    """Note what a pass decided. False: the key was touched meanwhile, and stays due."""
    said = {"b_key": key, "b_seen": seen, "b_due": due_us, "b_decision": decision, "b_now": tx.now_us}
    return _FINISH.run(tx.connection, said) == 1


def note(tx: Tx, key: str, *, due_us: int | None, decision: str) -> bool:
    """Note what a pass decided whose key nobody can have touched. False: the key has no notes yet."""
    return (
        _NOTE.run(tx.connection, {"b_key": key, "b_due": due_us, "b_decision": decision, "b_now": tx.now_us})
        == 1
    )


def fail(tx: Tx, key: str, *, due_us: int, failures: int, error: str) -> None:
    """Note that a pass raised: the key is quarantined until ``due_us``, everything else goes on."""
    said = {"b_due": due_us, "b_failures": failures, "b_error": error, "b_now": tx.now_us}
    _FAIL.run(tx.connection, {"b_key": key, **said})


def forget(tx: Tx) -> int:
    """Drop notes about what is over for long, or has been settled for much longer; returns how many."""
    settled = sa.and_(
        passes.c.due_us.is_(None),
        sa.func.coalesce(passes.c.held_until_us, 0) < tx.now_us,
        passes.c.decided_us < tx.now_us - OVER_KEPT_US,
    )
    over: list[sa.ColumnElement[bool]] = []
    others: list[sa.ColumnElement[bool]] = [passes.c.decided_us < tx.now_us - SETTLED_KEPT_US]
    for loop, alive in _ALIVE.items():
        mine = passes.c.key.startswith(f"{loop}/")
        over.append(sa.and_(mine, ~sa.exists().where(alive(sa.func.substr(passes.c.key, len(loop) + 2)))))
        others.append(~mine)
    old = sa.or_(*over, sa.and_(*others))
    found = tx.connection.execute(sa.select(passes.c.key).where(settled, old).limit(FORGOTTEN_MAX)).all()
    keys = [key for (key,) in found]
    if keys:
        tx.connection.execute(sa.delete(passes).where(passes.c.key.in_(keys)))
    return len(keys)


def row(connection: sa.Connection, key: str) -> PassRow | None:
    """The notes of one key."""
    found = _ROW.first(connection, {"b_key": key})
    return None if found is None else PassRow(**found)


def rows(
    connection: sa.Connection, *, key_prefix: str = "", about: str = "", limit: int = 500
) -> Sequence[PassRow]:
    """Notes of keys that begin with ``key_prefix`` or are about the id ``about``, latest decision first."""
    query = sa.select(*_NOTES)
    if key_prefix:
        query = query.where(passes.c.key.startswith(key_prefix, autoescape=True))
    if about:
        query = query.where(passes.c.key.endswith("/" + about, autoescape=True))
    ordered = query.order_by(passes.c.decided_us.desc().nulls_last(), ByBytes(passes.c.key)).limit(limit)
    return [PassRow(*found) for found in connection.execute(ordered)]


def _is_node(key: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    return sa.and_(nodes.c.id == key, nodes.c.state.not_in(sorted(n.FINAL)))


def _is_compute(key: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    return sa.and_(computes.c.id == key, computes.c.state != c.DELETED)


_ALIVE = {"nodes": _is_node, "computes": _is_compute, "dispatch": _is_compute, "attempts": _is_compute}
"""By loop: whether what its keys are about is not over."""
_DUE = prepared(
    sa.select(passes.c.key)
    .where(passes.c.due_us <= sa.bindparam("b_now"))
    .order_by(passes.c.due_us)
    .limit(sa.bindparam("b_limit"))
)
_NOTES = [passes.c[field.name] for field in dataclasses.fields(PassRow)]
_ROW = prepared(sa.select(*_NOTES).where(passes.c.key == sa.bindparam("b_key")))
_VERSION = prepared(sa.select(passes.c.version).where(passes.c.key == sa.bindparam("b_key")))
_CLAIM = prepared(
    sa.update(passes)
    .where(
        passes.c.key == sa.bindparam("b_key"),
        sa.or_(
            passes.c.holder.is_(None),
            passes.c.holder == sa.bindparam("b_holder"),
            passes.c.held_until_us.is_(None),
            passes.c.held_until_us < sa.bindparam("b_now"),
        ),
    )
    .values(holder=sa.bindparam("b_holder"), held_until_us=sa.bindparam("b_until"))
)
_BEGUN = Prepared(lambda dialect, _: insert_ignore(dialect, passes, ["key", "version", "failures"]))
_BEGIN = prepared(
    sa.update(passes)
    .where(passes.c.key == sa.bindparam("b_key"), passes.c.due_us.is_(None))
    .values(due_us=sa.bindparam("b_now"))
)
_NOTED = (
    sa.update(passes)
    .where(passes.c.key == sa.bindparam("b_key"))
    .values(
        due_us=sa.bindparam("b_due"),
        decision=sa.bindparam("b_decision"),
        decided_us=sa.bindparam("b_now"),
        failures=0,
        error=None,
    )
)
_FAIL = prepared(
    sa.update(passes)
    .where(passes.c.key == sa.bindparam("b_key"))
    .values(
        due_us=sa.bindparam("b_due"),
        failures=sa.bindparam("b_failures"),
        error=sa.bindparam("b_error"),
        decided_us=sa.bindparam("b_now"),
    )
)
_NOTE = prepared(_NOTED)
_FINISH = prepared(_NOTED.where(passes.c.version == sa.bindparam("b_seen")))
