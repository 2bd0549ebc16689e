"""Paid jobs as they are asked for and as they go on: submit, cancel, hold more, end, settle.

Decides: what each writes, money and state together. Never: decides when (``plan/job``) or moves a machine.
Follows: a job without a hold does not exist; a hold without an end is never lost; an end is settled once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from sky.domain import account as a
from sky.domain import job as j
from sky.domain import ledger as l
from sky.domain.account import InUse, Limits, Violation
from sky.domain.budget import Budget
from sky.domain.catalogue import Place, Sku
from sky.domain.errors import SkyError
from sky.domain.job_errors import JobRefused
from sky.domain.money import hold_micro, seconds_begun, usd_text
from sky.kit import ids
from sky.store.rows import jobs, ledger
from sky.store.tx import Tx
from sky.verbs import budgets, computes, holds, job_steps, tasks
from sky.verbs.job_steps import JobRules

LOCAL, CONSOLE = j.LOCAL, j.CONSOLE


class Customer(Struct, frozen=True):
    """Who asks: ``owner`` scopes everything, ``account_id`` has the money where we keep it; ``budgets`` are
    what an operator lets it spend. None: what is kept of them cannot be read."""

    owner: str
    key_id: str
    backend: str
    account_id: str | None
    limits: Limits | None
    budgets: tuple[Budget, ...] | None = ()


class Wanted(Struct, frozen=True):
    """A job whose request was found right. ``spec`` and ``metadata`` are plain values."""

    sku: Sku
    places: tuple[Place, ...]
    spec: Mapping[str, Any]
    metadata: Mapping[str, str]
    max_runtime_seconds: int
    after: tuple[str, ...] = ()
    retry: Mapping[str, Any] | None = None

    @property
    def hold_micro(self) -> int:
        """What is held at submit."""
        return hold_micro(self.sku.price_micro, j.first_hold_seconds(self.max_runtime_seconds))

    @property
    def ceiling_micro(self) -> int:
        """The most it can cost."""
        return hold_micro(self.sku.price_micro, self.max_runtime_seconds)


def submit(tx: Tx, customer: Customer, wanted: Wanted, platform: Limits, job_id: str | None = None) -> str:
    """Hold the money and write the job, or refuse and write nothing; returns its id."""
    check_room(tx.connection, customer, wanted, platform, tx.now_us)
    job_id = job_id or ids.new("job")
    if customer.account_id is not None:
        _hold(tx, customer.account_id, job_id, 1, wanted)
    elif customer.backend == CONSOLE:
        holds.take(tx, customer.owner, job_id, wanted.hold_micro)
    sku = wanted.sku
    row = {
        "id": job_id,
        "owner": customer.owner,
        "key_id": customer.key_id,
        "backend": customer.backend,
        "state": j.QUEUED,
        "version": 1,
        "sku": sku.id,
        "tier": sku.tier,
        "gpu_count": sku.gpu_count,
        "interruptible": sku.interruptible,
        "price_micro": sku.price_micro,
        "machines": machines(sku, wanted.places),
        "spec": dict(wanted.spec),
        "labels": dict(wanted.metadata),
        "max_runtime_seconds": wanted.max_runtime_seconds,
        "holds": 1,
        "truncated": False,
        "after": list(wanted.after) or None,
        "retry": wanted.retry,
        "created_us": tx.now_us,
    }
    tx.add("jobs", [row])
    jobs.run_after(tx, job_id, wanted.after)
    jobs.note(
        tx, job_id, customer.owner, "job.queued", {"sku": sku.id, "hold_usd": usd_text(wanted.hold_micro)}
    )
    return job_id


def check_room(connection: Any, customer: Customer, wanted: Wanted, platform: Limits, now_us: int) -> None:
    """Refuse a job that is to run after what is not its owner's, or is more than may be under way or paid."""
    _check_after(connection, customer.owner, wanted.after)
    if customer.limits is None or customer.budgets is None:
        msg = "the limits of your account cannot be read; nothing was submitted: tell your seller"
        raise JobRefused("quota_check_failed", msg)
    # Everybody's jobs are counted only where that is limited: it costs by how many there are.
    limited = (platform.active_jobs, platform.queued_jobs, *platform.gpus.values())
    nothing = InUse(0, 0, {})
    in_all = jobs.in_use(connection) if any(limit is not None for limit in limited) else nothing
    used = jobs.in_use(connection, customer.owner)
    check_quotas(customer.limits, wanted, platform, used, in_all)
    owner, key_id = customer.owner, customer.key_id
    budgets.check(connection, customer.budgets, owner, key_id, wanted.ceiling_micro, now_us)


def _check_after(connection: Any, owner: str, after: Sequence[str]) -> None:
    known = jobs.states_of(connection, owner, after)
    for index, job_id in enumerate(after):
        if job_id not in known:
            where = f"after[{index}]"
            raise JobRefused("invalid_after", f"{where}: you have no job {job_id!r}", param=where)


def check_quotas(own: Limits, wanted: Wanted, platform: Limits, used: InUse, in_all: InUse) -> None:
    """Refuse a job that would exceed a limit, naming each one with what is left of it."""
    found = a.violations(
        own,
        used,
        platform,
        in_all,
        tier=wanted.sku.tier,
        gpu_count=wanted.sku.gpu_count,
    )
    if found:
        told = "; ".join(_told(violation) for violation in found)
        msg = (
            f"a job of sku {wanted.sku.id!r} is more than may be under way at once ({told}). "
            "Nothing was held: wait for a job to end, cancel one, or have the limit raised"
        )
        raise JobRefused("quota_exceeded", msg, param="sku", quotas=found)


def _told(v: Violation) -> str:
    name = v.limit.replace("_", " ") + (f" of {v.tier}" if v.tier else "")
    return f"{name}: {v.used} of {v.maximum} in use, {v.requested} asked for, {v.headroom} left"


def machines(sku: Sku, places: Sequence[Place]) -> list[dict[str, Any]]:
    """What the engine is asked for, one alternative per place and region, in order; ``narrow`` is what a
    place asks beyond a spec."""
    found: list[dict[str, Any]] = []
    for place in places:
        for region in place.regions or (None,):
            machine: dict[str, Any] = {
                "provider": {"kind": place.context or place.cloud},
                "cpus": sku.vcpus,
                "memory_gb": sku.memory_gb,
            }
            if sku.gpu_count:
                machine |= {"accelerator": sku.accelerator, "accelerator_count": sku.gpu_count}
            if region is not None:
                machine["region"] = region
            if place.instance_type is not None:
                machine["narrow"] = {"instance_type": place.instance_type}
            found.append(machine)
    return found


def _hold(tx: Tx, account_id: str, job_id: str, ordinal: int, wanted: Wanted) -> None:
    try:
        ledger.enter(tx, l.hold(account_id, job_id, ordinal, wanted.hold_micro))
    except l.BelowZero as short:
        raise short_of(wanted, short.balance_micro) from None


def short_of(wanted: Wanted, balance_micro: int | None) -> JobRefused:
    """The refusal of a job whose hold is more than the balance (None: nobody said what that is)."""
    has = "" if balance_micro is None else f" of {usd_text(balance_micro)} USD"
    msg = (
        f"the hold of {usd_text(wanted.hold_micro)} USD is more than the balance{has}; the whole job may "
        f"cost {usd_text(wanted.ceiling_micro)} USD. Nothing was held: top up, or choose "
        "a shorter max_runtime_seconds or a cheaper sku"
    )
    return JobRefused("insufficient_balance", msg)


def cancel(tx: Tx, row: Mapping[str, Any]) -> None:
    """End a job now, on its customer's word: metering stops at this moment; the machine goes later."""
    if row["state"] in j.TERMINAL:
        msg = f"job {row['id']} has ended already: it is {row['state']}"
        raise JobRefused("job_terminal", msg)
    ended = row["ended_us"]
    if row["started_us"] is not None and ended is None:
        ended = tx.now_us
    end(tx, row, j.JobCancelled(row["id"], tx.now_us, ended))


def provision(tx: Tx, row: Mapping[str, Any], rules: JobRules) -> None:
    """Ask for the job's machine. What the engine refuses to ask for ends the job, for free."""
    try:
        compute_id = job_steps.make_compute(tx, row, rules.rules)
    except SkyError as refused:
        tx.apply(j.JobProvisioning(row["id"], None))
        told = {"code": "placement_failed", "message": f"no machine can be asked for: {refused.message}"}
        end(tx, row, j.JobFailed(row["id"], tx.now_us, None, told))
        return
    tx.apply(j.JobProvisioning(row["id"], compute_id))
    jobs.note(tx, row["id"], row["owner"], "job.provisioning")


def prepare(tx: Tx, row: Mapping[str, Any], placement: Mapping[str, Any], rules: JobRules) -> None:
    """The machine is up: have image and inputs pulled. What it costs is its seller's business: that is kept,
    and is in no event."""
    shown = {name: placement[name] for name in ("cloud", "region", "instance_type")}
    _note_failover(tx, row, placement)
    seller = {
        "price_micro": placement["price_micro"],
        "passed_over": [entry["reason"] for entry in placement["passed_over"]],
    }
    tx.apply(j.JobPlaced(row["id"], shown | seller, job_steps.submit(tx, row, "prepare", rules)))
    jobs.note(tx, row["id"], row["owner"], "job.placed", shown)


def _note_failover(tx: Tx, row: Mapping[str, Any], placement: Mapping[str, Any]) -> None:
    """Tell a customer that a job did not get the place it would have had first, and why."""
    first: Mapping[str, Any] = row["machines"][0]
    cloud, region = first["provider"]["kind"], first.get("region")
    if cloud in placement["bought_from"] and region in (None, placement["bought_in"]):
        return
    reasons = dict.fromkeys(entry["plain"] for entry in placement["passed_over"] if entry["plain"])
    told = {
        "from": {"cloud": cloud, "region": region or ""},
        "to": {"cloud": placement["cloud"], "region": placement["region"]},
        "reason": "; ".join(reasons),
    }
    jobs.note(tx, row["id"], row["owner"], "job.failover", told)


def run(tx: Tx, row: Mapping[str, Any], rules: JobRules) -> None:
    """Image and inputs are there: have the command run."""
    tx.apply(j.JobLaunched(row["id"], job_steps.submit(tx, row, "run", rules)))


def started(tx: Tx, row: Mapping[str, Any], fact: j.JobRunning) -> None:
    """The command runs."""
    tx.apply(fact)
    jobs.note(tx, row["id"], row["owner"], "job.running")


def upload(tx: Tx, row: Mapping[str, Any], ended_us: int, exit_code: int | None, rules: JobRules) -> None:
    """The command is over: have its outputs uploaded."""
    tx.apply(j.JobRan(row["id"], ended_us, exit_code, job_steps.submit(tx, row, "upload", rules)))


def extend(tx: Tx, row: Mapping[str, Any], amount_micro: int) -> None:
    """Hold more for a job that runs on, or note that its balance cannot."""
    if row["backend"] == CONSOLE:
        holds.ask_for_more(tx, row, amount_micro)
        return
    account_id = account_of(row)
    ordinal = row["holds"] + 1
    try:
        ledger.enter(tx, l.hold(account_id, row["id"], ordinal, amount_micro))
    except l.BelowZero as short:
        first = row["exhausted_us"] is None
        tx.apply(j.JobExhausted(row["id"], tx.now_us))
        if first:
            data = money(tx, row, amount_micro) | {"balance_usd": usd_text(short.balance_micro)}
            jobs.note(tx, row["id"], row["owner"], "billing.balance_exhausted", data)
        return
    tx.apply(j.JobExtended(row["id"], ordinal))
    jobs.note(tx, row["id"], row["owner"], "billing.hold_extended", money(tx, row, amount_micro))


def stop(tx: Tx, row: Mapping[str, Any], error: Any) -> None:
    """Stop the command of a job; how it ended follows."""
    tx.apply(j.JobStopping(row["id"], error))
    if row["run_task"] is not None:
        tasks.cancel(tx, row["run_task"])


def retry(tx: Tx, row: Mapping[str, Any], ended_us: int | None, error: Mapping[str, Any]) -> None:
    """Begin a job again whose machine was lost. What it ran is kept, and counts once; its hold goes on."""
    ran_us = 0 if ended_us is None or row["started_us"] is None else ended_us - row["started_us"]
    tasks_now = [row[name] for name in ("prepare_task", "run_task") if row[name] is not None]
    run: dict[str, Any] = {name: row[name] for name in ("compute_id", "placement", "started_us")}
    past = [*(row["past"] or ()), {**run, "ended_us": ended_us, "tasks": tasks_now, "error": dict(error)}]
    used_us = (row["used_us"] or 0) + ran_us
    tx.apply(j.JobRetried(row["id"], past, used_us))
    if row["compute_id"] is not None:
        computes.delete(tx, row["compute_id"], None)
    told = {**j.customers(error), "retry": len(past), "of": j.policy_of(row["retry"]).most}
    seconds = {"used_seconds": seconds_begun(used_us)}
    jobs.note(tx, row["id"], row["owner"], "job.retried", told | seconds)


def end(tx: Tx, row: Mapping[str, Any], fact: j.Ended) -> None:
    """A job's end: its state, its events and, where we keep the money, its settlement, together."""
    if not tx.apply(fact):
        return
    meter = j.meter_of(row, fact.ended_us)
    settled = settle(tx, row, meter) if row["backend"] == LOCAL else None
    if row["backend"] == CONSOLE:
        tx.touch(holds.key_of(row["id"]))
    for waiting in jobs.waiting_for(tx.connection, row["id"]):
        tx.touch(f"jobs/{waiting}")
    _note_end(tx, row, fact, settled)


def settle(tx: Tx, row: Mapping[str, Any], meter: j.Meter) -> int:
    """Charge what a job used and return the rest of its hold; returns the charge in micro-dollars."""
    held = ledger.held_for(tx.connection, row["id"])
    charge = meter.cost_micro(tx.now_us, held)
    ledger.enter(tx, l.settle(account_of(row), row["id"], held, charge))
    tx.apply(j.JobSettled(row["id"], charge, tx.now_us))
    return charge


def tear_down(tx: Tx, row: Mapping[str, Any]) -> None:
    """Give the job's machine back."""
    computes.delete(tx, row["compute_id"], None)


def account_of(row: Mapping[str, Any]) -> str:
    """The account that pays for a job."""
    return str(row["owner"]).removeprefix("account:")


def money(tx: Tx, row: Mapping[str, Any], amount_micro: int) -> dict[str, str]:
    """What a billing event tells."""
    spendable, _ = ledger.balances(tx.connection, account_of(row))
    return {
        "amount_usd": usd_text(amount_micro),
        "held_usd": usd_text(ledger.held_for(tx.connection, row["id"])),
        "balance_usd": usd_text(spendable),
    }


def _note_end(tx: Tx, row: Mapping[str, Any], fact: j.Ended, settled_micro: int | None) -> None:
    told = j.customers(fact.error or {})
    if settled_micro is not None:
        told["settled_cost_usd"] = usd_text(settled_micro)
    match fact:
        case j.JobSucceeded():
            jobs.note(tx, row["id"], row["owner"], "job.succeeded", {"exit_code": 0, **told})
        case j.JobCancelled():
            jobs.note(tx, row["id"], row["owner"], "job.cancelled", told)
        case j.JobInterrupted():
            jobs.note(tx, row["id"], row["owner"], "job.preempted", told)
        case _:
            jobs.note(tx, row["id"], row["owner"], "job.failed", told)
