"""What an operator asks of the accounts of a seller, and is shown.

Decides: every field and limit of these shapes. Never: shows a key again. Follows: money is a decimal string
in USD with six places at most; a payment has an id of its own elsewhere, under which it counts once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from sky.wire.jobs import AccountState, JobStatus, Scope
from sky.wire.v1.base import Answer, Name, Request
from sky.wire.webhooks import DeliveryState

Amount = Annotated[str, Meta(pattern=r"^[0-9]{1,9}(\.[0-9]{1,6})?$", description="USD, such as 12.50.")]
Reference = Annotated[str, Meta(min_length=1, max_length=120, pattern=r"^[!-~]+$")]
Note = Annotated[str, Meta(max_length=256)]
AccountChange = Literal["enable", "disable", "suspend", "resume", "close"]
LIMIT_MAX = 1_000_000
Limit = Annotated[int, Meta(ge=0, le=LIMIT_MAX)]


class AccountCreate(Request, frozen=True):
    """An account to make. ``enabled``: whether it may submit jobs at once."""

    name: Name
    enabled: bool = True


Limits = dict[
    Literal["max_active_jobs", "max_queued_jobs", "max_gpus"],
    Limit | dict[Literal["hyperscaler", "neocloud", "marketplace"], Limit | None] | None,
]
"""What may be under way at once; null: no limit; left out: the deployment's. GPUs are by tier."""


class Budget(Request, frozen=True):
    """The most that may be spent in a day and in a month (in UTC); null: as much as there is. The whole of a
    job counts when it is submitted, and what it was charged when it is over."""

    day_usd: Amount | None = None
    month_usd: Amount | None = None


class AccountPatch(Request, frozen=True):
    """What is to change of an account: its state, its limits, its budget."""

    change: AccountChange | None = None
    limits: Limits | None = None
    budget: Budget | None = None


class PaymentCreate(Request, frozen=True):
    """Money that was paid in, or with ``gift`` given. ``payment`` is its id elsewhere: told twice, it
    counts once."""

    amount_usd: Amount
    payment: Reference
    gift: bool = False
    note: Note | None = None


class RefundCreate(Request, frozen=True):
    """A payment, or with ``gift`` a gift, that is taken off the balance again: all of it, or so much.
    ``reason`` is told in the account's statement."""

    payment: Reference
    reason: Annotated[str, Meta(min_length=1, max_length=256)]
    amount_usd: Amount | None = None
    gift: bool = False


class Account(Answer, frozen=True):
    """A customer's account. ``available_usd`` may be spent, ``held_usd`` is promised to jobs."""

    id: str
    name: str
    state: AccountState
    enabled: bool
    available_usd: str
    held_usd: str
    limits: Limits
    created_at: datetime
    budget: Budget = Budget()


class AccountPage(Answer, frozen=True):
    """Some accounts, newest first."""

    items: tuple[Account, ...]
    next_cursor: str | None = None


class KeyCreate(Request, frozen=True):
    """A key to make for an account. ``jobs`` includes ``read``."""

    name: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=2)] = ("jobs",)
    expires_in_seconds: Annotated[int, Meta(ge=1, le=315_360_000)] | None = None
    budget: Budget | None = None


class KeyPatch(Request, frozen=True):
    """What is to change of a key."""

    budget: Budget


class Key(Answer, frozen=True):
    """A key of an account: all that is kept of it. ``key`` itself is shown once, when it is made."""

    id: str
    account: str
    name: str
    hint: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    key: str | None = None
    budget: Budget = Budget()


class KeyPage(Answer, frozen=True):
    """The keys of an account, oldest first."""

    items: tuple[Key, ...]


class Entry(Answer, frozen=True):
    """A line of a statement: what an account of the ledger got (or, below zero, gave), and what it had
    then."""

    seq: int
    at: datetime
    kind: Literal["top_up", "credit", "refund", "hold", "settle"]
    account: str
    amount_usd: str
    balance_usd: str
    reference: str
    job: str | None = None
    note: str | None = None


class Statement(Answer, frozen=True):
    """Some lines of an account's ledger, oldest first."""

    items: tuple[Entry, ...]
    next_cursor: str | None = None


class SoldPlacement(Answer, frozen=True):
    """Where a job runs, what its machine costs whoever sells it, and what came before it in the order and
    was not to be had."""

    cloud: str
    region: str
    instance_type: str
    cost_usd_per_hour: str | None
    passed_over: tuple[str, ...]


class SoldJob(Answer, frozen=True):
    """A job that somebody bought. ``charged_usd`` null: it is not settled yet. ``error``: why it did not
    succeed. ``placement`` null: it has no machine yet, or never had one."""

    id: str
    owner: str
    account: str | None
    sku: str
    status: JobStatus
    price_usd_per_hour: str
    charged_usd: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    compute_id: str | None
    error: str | None
    placement: SoldPlacement | None = None


class SoldJobPage(Answer, frozen=True):
    """Some jobs of all who buy, newest first."""

    items: tuple[SoldJob, ...]
    next_cursor: str | None = None


class Webhook(Answer, frozen=True):
    """Where an account has events sent. ``types`` null: all. ``disabled_reason``: why nothing is sent now,
    where it was not the customer who said so; ``pending`` and ``failed`` count its messages that are kept."""

    id: str
    url: str
    types: tuple[str, ...] | None
    enabled: bool
    disabled_reason: str | None
    created_at: datetime
    pending: int
    failed: int


class WebhookPage(Answer, frozen=True):
    """The webhooks of an account, oldest first."""

    items: tuple[Webhook, ...]


class WebhookSwitch(Request, frozen=True):
    """Whether anything is to be sent there."""

    enabled: bool


class Delivery(Answer, frozen=True):
    """An event on its way to a webhook. ``last_error``: why the last try failed; ``next_at`` null: it is not
    tried again by itself."""

    id: str
    event: str
    job: str
    state: DeliveryState
    attempts: int
    last_status: int | None
    last_error: str | None
    created_at: datetime
    tried_at: datetime | None
    next_at: datetime | None


class DeliveryPage(Answer, frozen=True):
    """What was sent to a webhook, newest first."""

    items: tuple[Delivery, ...]
    next_cursor: str | None = None


class Finding(Answer, frozen=True):
    """Something in the ledger that does not add up. ``seq`` 0: no line in particular."""

    seq: int
    what: str


class Audit(Answer, frozen=True):
    """The result of adding everything up."""

    lines: int
    ok: bool
    findings: tuple[Finding, ...]


class CatalogueStatus(Answer, frozen=True):
    """How it stands with the file of what is sold. ``error``: why its newest version does not hold; null: it
    does. ``read_at``: when what holds now was read."""

    file: str
    read_at: datetime | None
    skus: tuple[str, ...]
    templates: tuple[str, ...]
    warnings: tuple[str, ...]
    error: str | None = None


class Setting(Answer, frozen=True):
    """A setting of the daemon. ``value`` null: it is not set; of one that lets in, only whether it is."""

    name: str
    variable: str
    value: str | None
    is_default: bool
    about: str


class SettingList(Answer, frozen=True):
    """Every setting, in the order of its table."""

    items: tuple[Setting, ...]


class Garbage(Answer, frozen=True):
    """What may be removed of one kind. ``bytes``: of content, where that is what goes."""

    kind: str
    count: int
    bytes: int


class GarbageReport(Answer, frozen=True):
    """What may be removed now. ``begun``: whether that has begun."""

    items: tuple[Garbage, ...]
    begun: bool = False
