"""The ledger's lines, as rows. Only ever added.

Decides: nothing; ``domain/ledger`` does. Never: changes or removes a line.
Follows: a movement is booked once, whole; of two that race for one place in an account's chain, one is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from sky.domain.ledger import PLATFORM, Entry, Last, Line, Movement, available, chained, held
from sky.store.prepared import inserted, prepared
from sky.store.schema_jobs import ledger
from sky.store.sql import total
from sky.store.tx import Tx

PAGE_LINES = 1_000


def enter(tx: Tx, movement: Movement) -> bool:
    """Book a movement; False when its reference was booked before. Raises ``BelowZero``."""
    booked = {"b_reference": movement.reference}
    if _BOOKED.scalar(tx.connection, booked) is not None:
        return False
    lines = [
        chained(movement, entry, last(tx.connection, entry.account), tx.now_us) for entry in movement.entries
    ]
    _ADD.run(tx.connection, *(_row(line, movement.note) for line in lines))
    return True


def booked(connection: sa.Connection, reference: str) -> frozenset[Entry]:
    """What was booked under a reference; empty when nothing was."""
    rows = _ENTRIES.all(connection, {"b_reference": reference})
    return frozenset(Entry(row["account"], row["amount_micro"]) for row in rows)


def last(connection: sa.Connection, account: str) -> Last:
    """Where the chain of a customer's account ends."""
    if account in PLATFORM:
        return Last()
    row = _LAST.first(connection, {"b_account": account})
    return Last() if row is None else Last(row["ordinal"], row["balance_micro"], row["digest"])


def balances(connection: sa.Connection, account_id: str) -> tuple[int, int]:
    """What a customer may spend, and what is held for its jobs, in micro-dollars."""
    return (
        last(connection, available(account_id)).balance_micro,
        last(connection, held(account_id)).balance_micro,
    )


def held_for(connection: sa.Connection, job_id: str) -> int:
    """What is held for a job now, in micro-dollars."""
    return _HELD.scalar(connection, {"b_job": job_id}) or 0


def promised(connection: sa.Connection, job_id: str) -> int:
    """All that was ever held for a job, in micro-dollars, whether or not it is resolved."""
    return _PROMISED.scalar(connection, {"b_job": job_id}) or 0


def lines(connection: sa.Connection, after_seq: int = 0, account: str | None = None) -> Iterator[Line]:
    """Every line after ``after_seq``, or those whose account begins with ``account``, in order."""
    while True:
        query = sa.select(ledger).where(ledger.c.seq > after_seq).order_by(ledger.c.seq).limit(PAGE_LINES)
        if account is not None:
            query = query.where(ledger.c.account.startswith(account, autoescape=True))
        page = [_line(row) for row in connection.execute(query).mappings()]
        yield from page
        if len(page) < PAGE_LINES:
            return
        after_seq = page[-1].seq


def _line(row: Any) -> Line:
    return Line(**{name: row[name] for name in Line.__struct_fields__})


def _row(line: Line, note: str | None) -> dict[str, Any]:
    values = {name: getattr(line, name) for name in Line.__struct_fields__ if name != "seq"}
    return {**values, "note": note}


_BOOKED = prepared(sa.select(ledger.c.seq).where(ledger.c.reference == sa.bindparam("b_reference")).limit(1))
_ENTRIES = prepared(
    sa.select(ledger.c.account, ledger.c.amount_micro).where(
        ledger.c.reference == sa.bindparam("b_reference")
    )
)
_LAST = prepared(
    sa.select(ledger.c.ordinal, ledger.c.balance_micro, ledger.c.digest)
    .where(ledger.c.account == sa.bindparam("b_account"), ledger.c.ordinal.is_not(None))
    .order_by(ledger.c.ordinal.desc())
    .limit(1)
)
_ADD = inserted(ledger, [column.name for column in ledger.columns if column.name != "seq"])
_OF_JOB_HELD = sa.and_(ledger.c.job_id == sa.bindparam("b_job"), ledger.c.account.endswith("/held"))
_HELD = prepared(sa.select(total(ledger.c.amount_micro)).where(_OF_JOB_HELD))
_PROMISED = prepared(sa.select(total(ledger.c.amount_micro)).where(_OF_JOB_HELD, ledger.c.amount_micro > 0))
