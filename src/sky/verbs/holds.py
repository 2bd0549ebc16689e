"""Holds that a console keeps: the orders to it, and what its answers mean for a job.

Decides: what is noted before an order and after its answer. Never: speaks to a console (``reconcile/holds``
and the face do, with no transaction open). Follows: the ledger mirrors what the console said, so that it adds
up here as it does there; a job is written only for a hold that nobody has given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sky.domain import job as j
from sky.domain import ledger as l
from sky.domain.job_errors import JobRefused
from sky.domain.money import usd_text
from sky.kit import ids
from sky.store.rows import holds, jobs, ledger
from sky.store.tx import Tx

PREFIX = "console:"


def key_of(job_id: str) -> str:
    """The key of the loop that tells the console of a job's hold."""
    return f"holds/{job_id}"


def order(tx: Tx, owner: str, amount_micro: int) -> str:
    """Note a hold that is about to be ordered; returns the id that its job will have."""
    job_id = ids.new("job")
    holds.add(tx, job_id, 1, owner, amount_micro)
    tx.touch(key_of(job_id))
    return job_id


def give_up(tx: Tx, job_id: str) -> None:
    """A hold for which no job was written is not to stand, whether or not it was placed."""
    if jobs.find(tx.connection, job_id) is None and holds.leave(tx, job_id):
        tx.touch(key_of(job_id))


def forget(tx: Tx, job_id: str) -> None:
    """The console holds nothing under this name."""
    holds.remove(tx, job_id)


def take(tx: Tx, owner: str, job_id: str, amount_micro: int) -> None:
    """The console has placed the hold and its job is written in this transaction. Raises JobRefused."""
    if not holds.take(tx, job_id):
        msg = "the console took too long to hold the money; it is returned, and nothing was submitted"
        raise JobRefused("console_unavailable", msg)
    ledger.enter(tx, l.hold(owner, job_id, 1, amount_micro, elsewhere=True))


def ask_for_more(tx: Tx, row: Mapping[str, Any], amount_micro: int) -> None:
    """Note an extension that is about to be ordered, unless one is."""
    if holds.find(tx.connection, row["id"]) is None:
        holds.add(tx, row["id"], row["holds"] + 1, row["owner"], amount_micro)
        tx.touch(key_of(row["id"]))


def extended(tx: Tx, job_id: str, ordinal: int, amount_micro: int) -> None:
    """The console holds more."""
    row = _forgotten(tx, job_id)
    ledger.enter(tx, l.hold(row["owner"], job_id, ordinal, amount_micro, elsewhere=True))
    if row["state"] == j.RUNNING:
        tx.apply(j.JobExtended(job_id, ordinal))
        jobs.note(tx, job_id, row["owner"], "billing.hold_extended", _told(tx, job_id, amount_micro))


def refused(tx: Tx, job_id: str, amount_micro: int, balance_usd: str | None) -> None:
    """The console holds no more than before."""
    row = _forgotten(tx, job_id)
    if row["state"] != j.RUNNING:
        return
    tx.apply(j.JobExhausted(job_id, tx.now_us))
    if row["exhausted_us"] is None:
        balance = {} if balance_usd is None else {"balance_usd": balance_usd}
        told = _told(tx, job_id, amount_micro) | balance
        jobs.note(tx, job_id, row["owner"], "billing.balance_exhausted", told)


def settled(tx: Tx, job_id: str, charge_micro: int) -> None:
    """The console has charged that much and returned the rest."""
    row = _forgotten(tx, job_id)
    held_micro = ledger.held_for(tx.connection, job_id)
    ledger.enter(tx, l.settle(row["owner"], job_id, held_micro, charge_micro, elsewhere=True))
    tx.apply(j.JobSettled(job_id, charge_micro, tx.now_us))


def _forgotten(tx: Tx, job_id: str) -> Mapping[str, Any]:
    holds.remove(tx, job_id)
    row = jobs.find(tx.connection, job_id)
    if row is None:
        msg = f"the console was asked about {job_id}, and there is no such job"
        raise RuntimeError(msg)
    return row


def _told(tx: Tx, job_id: str, amount_micro: int) -> dict[str, str]:
    held_micro = ledger.held_for(tx.connection, job_id)
    return {"amount_usd": usd_text(amount_micro), "held_usd": usd_text(held_micro)}
