"""Submitting and cancelling a job.

Decides: the order in which a submit is judged. Never: keeps anything of a submit that is refused.
Follows: a key that was used for the same body within a day gets the first job again, whatever changed
meanwhile.
"""

from __future__ import annotations

from typing import Any

import msgspec
from litestar.response.base import ASGIResponse

from sky.api.jobs import show
from sky.api.jobs.keys import refusal_of
from sky.api.jobs.route import PREFIX, JobAsk, reply, route
from sky.api.selling import KeyHolder
from sky.domain.errors import IdempotencyConflict
from sky.domain.job_errors import JobRefused
from sky.kit import codec
from sky.store.rows import accounts, jobs, ledger
from sky.store.tx import Tx
from sky.verbs import job_rules
from sky.verbs import jobs as verbs
from sky.verbs.job_rules import Offering
from sky.verbs.jobs import Wanted
from sky.wire import jobs as wire

TAG = "jobs"
REMEMBERED_US = 24 * 3600 * 1_000_000
REQUEST_CODES = (
    "malformed_body",
    "body_too_large",
    "missing_sku",
    "unknown_sku",
    "sku_unavailable",
    "missing_max_runtime",
    "runtime_over_ceiling",
    "provider_not_offered",
    "unknown_template",
    "template_unavailable",
    "field_not_overridable",
    "missing_input",
    "unknown_input_mount",
    "duplicate_input_mount",
    "missing_image",
    "missing_command",
    "invalid_env",
    "reserved_env",
    "invalid_input_source",
    "invalid_mount",
    "invalid_metadata",
    "invalid_after",
    "invalid_retry",
    "invalid_idempotency_key",
)
ESTIMATE_CODES = (
    *REQUEST_CODES[:-1],
    "insufficient_balance",
    "compute_not_enabled",
    "quota_exceeded",
    "budget_exceeded",
    "template_resolution_failed",
    "quota_check_failed",
    "outputs_unsupported",
    "upstream_unavailable",
)


@route(
    "POST",
    f"{PREFIX}/jobs",
    tag=TAG,
    answers=wire.Job,
    statuses=(200, 201),
    body=wire.SubmitJobRequest,
    keyed=True,
    codes=(
        *REQUEST_CODES,
        "insufficient_balance",
        "compute_not_enabled",
        "quota_exceeded",
        "budget_exceeded",
        "idempotency_conflict",
        "placement_failed",
        "template_resolution_failed",
        "quota_check_failed",
        "outputs_unsupported",
        "upstream_unavailable",
    ),
)
async def submit_job(ask: JobAsk) -> ASGIResponse:
    """Submit a job

    The money for its first two hours is held, the job is written down, and a machine is asked for; a refusal
    leaves nothing behind. What is wrong is told one thing at a time, in a fixed order: the body; the
    template; the sku; the runtime; what runs; where; the account; its limits; its balance. With an
    Idempotency-Key the same body is answered with the first job for 24 hours (200), and another body is
    refused.
    """
    holder = await ask.customer(submits=True)
    request: wire.SubmitJobRequest = await ask.body(wire.SubmitJobRequest)
    if not ask.selling.sells:
        job_rules.requested(request, ask.selling.offering())
        ask.need_store("submitting of jobs")
    key = _key(ask.header(b"idempotency-key"), holder)
    fingerprint = codec.sha256_hex(codec.canonical(msgspec.to_builtins(request)))
    judged = _judged(request, ask.selling.offering())
    if isinstance(judged, JobRefused) or holder.customer.backend == verbs.CONSOLE:
        replay = await _replay(ask, key, fingerprint, judged)
        if replay is not None:
            return reply(replay, 200)
    if isinstance(judged, JobRefused):
        raise judged
    wanted, platform = judged, ask.selling.settings.platform
    if holder.customer.backend == verbs.CONSOLE:
        # Said before the console is asked for money; whether it is still so is found when the job is written.
        now_us = ask.unit.clock.now_us()
        await ask.unit.db.read(lambda c: verbs.check_room(c, holder.customer, wanted, platform, now_us))
    async with ask.selling.accounts.held(holder.customer, wanted) as job_id:
        job, replayed = await ask.unit.db.write(
            lambda tx: _submit(tx, ask, holder, wanted, key, fingerprint, job_id)
        )
    return reply(job, 200 if replayed else 201, location=f"{PREFIX}/jobs/{job.id}")


@route(
    "POST",
    f"{PREFIX}/jobs/{{id}}/cancel",
    tag=TAG,
    answers=wire.Job,
    statuses=(202,),
    codes=("job_not_found", "job_terminal"),
)
async def cancel_job(ask: JobAsk) -> ASGIResponse:
    """End a job

    Metering stops now, and what is not used of its hold returns; its machine is given back afterwards.
    """
    holder = await ask.customer(counted=False)
    ask.need_store("cancelling of jobs")

    def verb(tx: Tx) -> wire.Job:
        row = found(tx.connection, ask.path["id"], holder)
        verbs.cancel(tx, row)
        return _shown(tx, row["id"])

    return reply(await ask.unit.db.write(verb), 202)


def found(connection: Any, job_id: str, holder: KeyHolder) -> Any:
    """The row of an owner's job. Raises JobRefused: another owner's looks like none."""
    row = jobs.find(connection, job_id, holder.customer.owner)
    if row is None:
        raise JobRefused("job_not_found", f"you have no job {job_id[:40]!r}")
    return row


def _key(given: str | None, holder: KeyHolder) -> str | None:
    """Under which name a submit is remembered: keys are each owner's own."""
    if given is None:
        return None
    if not 0 < len(given) <= wire.KEY_CHARS_MAX:
        msg = f"Idempotency-Key has 1 to {wire.KEY_CHARS_MAX} characters; it has {len(given)}"
        raise JobRefused("invalid_idempotency_key", msg, param="Idempotency-Key")
    return f"submitJob:{holder.customer.owner}:{codec.sha256_hex(given.encode())}"


def _judged(request: wire.SubmitJobRequest, offering: Offering) -> Wanted | JobRefused:
    """The job that a request asks for, or what is wrong with it."""
    try:
        return job_rules.launchable(*job_rules.requested(request, offering), offering)
    except JobRefused as refused:
        return refused


async def _replay(
    ask: JobAsk, key: str | None, fingerprint: str, judged: Wanted | JobRefused
) -> wire.Job | None:
    """The job that was submitted under this key; None: there is none. Raises JobRefused: what is wrong with
    the request is told before that its key was used for another one."""
    if key is None:
        return None

    def verb(tx: Tx) -> wire.Job | None:
        job_id = tx.remembered(key, fingerprint, kept_us=REMEMBERED_US)
        return None if job_id is None else _shown(tx, job_id)

    try:
        return await ask.unit.db.write(verb)
    except IdempotencyConflict as error:
        if isinstance(judged, JobRefused):
            raise judged from None
        raise JobRefused("idempotency_conflict", error.message) from None


def _submit(
    tx: Tx,
    ask: JobAsk,
    holder: KeyHolder,
    wanted: Wanted,
    key: str | None,
    fingerprint: str,
    job_id: str | None,
) -> tuple[wire.Job, bool]:
    def make() -> str:
        may_submit(tx.connection, holder)
        return verbs.submit(tx, holder.customer, wanted, ask.selling.settings.platform, job_id)

    try:
        made, replayed = tx.once(key, fingerprint, make, kept_us=REMEMBERED_US)
    except IdempotencyConflict as error:
        raise JobRefused("idempotency_conflict", error.message) from None
    return _shown(tx, made), replayed


def may_submit(connection: Any, holder: KeyHolder) -> None:
    """Refuse a customer whose account may not submit now."""
    refused = holder.refused
    if holder.customer.account_id is not None:
        account = accounts.find(connection, holder.customer.account_id)
        if account is None:
            raise JobRefused("owner_unresolved", "the account of this key is gone; nothing was submitted")
        refused = refusal_of(account["state"], enabled=account["enabled"])
    if refused is not None:
        raise JobRefused(refused[0], refused[1])


def _shown(tx: Tx, job_id: str) -> wire.Job:
    row = jobs.find(tx.connection, job_id)
    if row is None:
        msg = f"job {job_id} was written in this transaction and is not there"
        raise RuntimeError(msg)
    return show.job(row, ledger.promised(tx.connection, job_id), tx.now_us)


ROUTES = (submit_job, cancel_job)
