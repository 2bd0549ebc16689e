"""Every operation on paid jobs that a customer has, as values.

Decides: paths, parameters, headers and bodies below ``/compute/v1``. Never: opens a connection or waits.
Follows: a submit carries its Idempotency-Key from birth, so that sending it twice is one job; a cancel may be
sent twice, because a job ends once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from msgspec import UNSET, UnsetType

from sky.client.lists import names
from sky.client.request import IS_JSON as JSON
from sky.client.request import (
    TRANSFER_S,
    Call,
    Reply,
    as_content,
    as_nothing,
    encoder,
    getting,
    keyed,
    query_of,
)
from sky.client.request import as_json as read_as
from sky.wire import jobs as wire
from sky.wire import spending, webhooks

CURSOR = "log-cursor"


@dataclass(frozen=True, slots=True)
class LogPart:
    """Some of what a job printed, and the place behind it."""

    text: str
    cursor: int


def _at(*parts: str) -> str:
    return "/".join((wire.PATHS_FROM, *(quote(part, safe="") for part in parts)))


# ── what is sold ────────────────────────────────────────────────────────────────────────────────


def list_skus() -> Call[wire.SKUList]:
    """What is sold."""
    return getting(_at("skus"), wire.SKUList)


def openapi() -> Call[bytes]:
    """The served OpenAPI document, as JSON bytes."""
    return Call("GET", _at("openapi.json"), as_content)


def list_upstreams() -> Call[wire.UpstreamList]:
    """The clouds behind it."""
    return getting(_at("upstreams"), wire.UpstreamList)


def list_templates() -> Call[wire.TemplateList]:
    """Jobs that are written down already."""
    return getting(_at("templates"), wire.TemplateList)


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────


def submit_job(request: wire.SubmitJobRequest, key: str | None = None) -> Call[wire.Job]:
    """Submit a job, under this key or a fresh one."""
    body = encoder.encode(request)
    return Call("POST", _at("jobs"), read_as(wire.Job), (), keyed(key, JSON), body)


def estimate_job(request: wire.SubmitJobRequest) -> Call[spending.Estimate]:
    """What a job would hold and cost; nothing is written."""
    body = encoder.encode(request)
    return Call("POST", f"{_at('jobs')}:estimate", read_as(spending.Estimate), (), (JSON,), body)


def get_balance() -> Call[spending.Balance]:
    """What may be spent."""
    return getting(_at("balance"), spending.Balance)


def get_usage(by: str, since: str | None, until: str | None) -> Call[spending.Usage]:
    """What the jobs of a window of days cost."""
    return getting(_at("usage"), spending.Usage, query_of(by=by, since=since, until=until))


def get_job(job: str) -> Call[wire.Job]:
    """A job, as it is now."""
    return getting(_at("jobs", job), wire.Job)


def list_jobs(
    *, statuses: Sequence[str] = (), after: str | None = None, limit: int | None = None
) -> Call[wire.JobList]:
    """Some of your jobs, newest first."""
    query = (*(("status", status) for status in statuses), *query_of(after=after, limit=limit))
    return getting(_at("jobs"), wire.JobList, query)


def cancel_job(job: str) -> Call[wire.Job]:
    """End a job."""
    return Call("POST", _at("jobs", job, "cancel"), read_as(wire.Job), (), (), b"")


def list_events(job: str, *, after: str | None = None, limit: int | None = None) -> Call[wire.EventList]:
    """Some of what happened to a job, oldest first."""
    return getting(_at("jobs", job, "events"), wire.EventList, query_of(after=after, limit=limit))


def list_artifacts(job: str) -> Call[wire.ArtifactList]:
    """The files that a job wrote."""
    return getting(_at("jobs", job, "artifacts"), wire.ArtifactList)


def read_log(job: str, since: int = 0) -> Call[LogPart]:
    """What a job printed behind a place, as much as one answer holds."""

    def decode(reply: Reply) -> LogPart:
        cursor = reply.headers.get(CURSOR, "")
        return LogPart(reply.content.decode("utf-8", "replace"), int(cursor) if cursor.isdigit() else since)

    return Call("GET", _at("jobs", job, "logs"), decode, query_of(since=since))


def follow_log(job: str, since: int = 0) -> Call[None]:
    """What a job prints from a place on, as a stream that ends with the job."""
    return Call("GET", _at("jobs", job, "logs"), as_nothing, query_of(since=since, follow=True))


def get_file(url: str, beginning_at: int = 0) -> Call[bytes]:
    """A file at an address that was given for it, or what is behind its first bytes."""
    where = urlsplit(url)
    target = f"{where.path}?{where.query}" if where.query else where.path
    headers = (("Range", f"bytes={beginning_at}-"),) if beginning_at else ()
    return Call("GET", target, as_content, (), headers, timeout_s=TRANSFER_S)


# ── webhooks ────────────────────────────────────────────────────────────────────────────────────


def add_webhook(url: str, types: Sequence[str] | None = None) -> Call[webhooks.Webhook]:
    """Have events sent somewhere. Not sent twice: each would be an endpoint."""
    body = encoder.encode(webhooks.WebhookCreate(url=url, types=_types(types)))
    where = _at("webhook_endpoints")
    return Call("POST", where, read_as(webhooks.Webhook), (), (JSON,), body, repeatable=False)


def _types(given: Sequence[str] | str | None) -> tuple[str, ...] | UnsetType:
    found = names("types", given)
    return UNSET if found is None else found


def list_webhooks() -> Call[webhooks.WebhookList]:
    """All endpoints."""
    return getting(_at("webhook_endpoints"), webhooks.WebhookList)


def get_webhook(webhook: str) -> Call[webhooks.Webhook]:
    """One endpoint."""
    return getting(_at("webhook_endpoints", webhook), webhooks.Webhook)


def change_webhook(
    webhook: str,
    *,
    url: str | None = None,
    types: Sequence[str] | None = None,
    all_types: bool = False,
    enabled: bool | None = None,
) -> Call[webhooks.Webhook]:
    """Change an endpoint. Said twice, it is the same."""
    patch = webhooks.WebhookPatch(
        url=UNSET if url is None else url,
        types=None if all_types else _types(types),
        enabled=UNSET if enabled is None else enabled,
    )
    where = _at("webhook_endpoints", webhook)
    return Call("PATCH", where, read_as(webhooks.Webhook), (), (JSON,), encoder.encode(patch))


def remove_webhook(webhook: str) -> Call[webhooks.Deleted]:
    """Forget an endpoint. Not sent twice: the second would be told that there is none."""
    where = _at("webhook_endpoints", webhook)
    return Call("DELETE", where, read_as(webhooks.Deleted), repeatable=False)


def rotate_webhook(webhook: str) -> Call[webhooks.Webhook]:
    """Give an endpoint another secret. Not sent twice: the first old one would sign no more."""
    where = _at("webhook_endpoints", webhook, "rotate")
    return Call("POST", where, read_as(webhooks.Webhook), (), (), b"", repeatable=False)


def list_deliveries(
    webhook: str, *, after: str | None = None, limit: int | None = None
) -> Call[webhooks.DeliveryList]:
    """Some of what was sent to an endpoint, newest first."""
    query = query_of(after=after, limit=limit)
    return getting(_at("webhook_endpoints", webhook, "deliveries"), webhooks.DeliveryList, query)


def redeliver(webhook: str, delivery: str) -> Call[webhooks.Delivery]:
    """Send something once more. Not sent twice: each would be a message."""
    where = _at("webhook_endpoints", webhook, "deliveries", delivery, "redeliver")
    return Call("POST", where, read_as(webhooks.Delivery), (), (), b"", repeatable=False)
