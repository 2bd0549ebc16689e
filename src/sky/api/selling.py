"""What the paid-job face works with beside the parts of every face: what is sold, to whom, and how much at
once.

Decides: which parts it may use, and the settings of a seller. Never: builds one (``server`` does).
Follows: without a job store (``sells`` False) the catalogue is served, and nothing is sold.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Struct, field

from sky.domain.account import Limits
from sky.domain.artifact import Arrived, StoredFile
from sky.domain.catalogue import Catalogue
from sky.domain.job_errors import JobRefused
from sky.verbs.job_rules import Offering
from sky.verbs.jobs import Customer, Wanted
from sky.verbs.webhooks import Sealing

MIB = 1024**2


class KeyHolder(Struct, frozen=True):
    """Whoever a key let in. ``refused`` is why its account may not submit now: a code and a message."""

    customer: Customer
    scopes: frozenset[str]
    refused: tuple[str, str] | None = None


class Balance(Struct, frozen=True):
    """What a customer may spend, and what is held for its jobs, in micro-dollars."""

    available_micro: int
    held_micro: int


class Accounts(Protocol):
    """Where keys are known and balances kept: here, or at a console."""

    async def holder(self, key: str | None) -> KeyHolder:
        """Whose key that is. Raises JobRefused: ``missing_key``, ``invalid_key``, or that nobody can say."""
        ...

    def held(self, customer: Customer, wanted: Wanted) -> AbstractAsyncContextManager[str | None]:
        """Around the writing of a job: elsewhere its money is held first, and given back if none is written.
        Gives the id that the job must have; None: any, for its money is held as it is written."""
        ...

    async def balance(self, customer: Customer) -> Balance:
        """What a customer has. Raises JobRefused when nobody can say."""
        ...


class Storage(Protocol):
    """Where the files of jobs are kept: behind addresses that are good for one thing and a while.

    Each method raises JobRefused ``storage_unavailable`` while the storage does not serve.
    """

    async def upload_url(self, file: StoredFile, until_us: int) -> str:
        """Where that file may be PUT until then."""
        ...

    async def download_urls(self, files: Sequence[StoredFile], until_us: int) -> tuple[list[str], int]:
        """Where those files may be had, and until when: until then, or sooner."""
        ...

    async def has(self, file: StoredFile) -> bool:
        """Whether that file has come without our knowing, just as it was announced."""
        ...

    def arrivals(self, job_id: str, awaited: Sequence[StoredFile]) -> AsyncIterator[Arrived]:
        """Which of the files that a job may upload have come since, and what came otherwise; in parts."""
        ...

    async def seal(self, job_id: str, manifest: bytes) -> None:
        """Keep the list of a job's files, over the one before."""
        ...


class JobSettings(Struct, frozen=True):
    """What a seller may set. Rates are per key; ``platform`` limits count the jobs of all accounts."""

    build: str = "dev"
    submits_per_hour: int = 60
    reads_per_minute: int = 600
    limits: Limits = field(default_factory=lambda: Limits(2, 2, {}))
    platform: Limits = field(default_factory=lambda: Limits(None, None, {}))
    body_bytes_max: int = MIB
    log_bytes_max: int = 8 * MIB


def no_secrets() -> Sealing:
    """How a deployment keeps secrets that sells nothing: it has none."""
    return Sealing(lambda _: b"", lambda _: {})


class CatalogueState(Struct, frozen=True):
    """How it stands with the file of what is sold: when what holds now was read, what in it may be meant
    otherwise, and why its newest version does not hold (None: it does)."""

    file: str
    read_at: datetime | None
    warnings: tuple[str, ...]
    error: str | None


class Selling(Struct, frozen=True):
    """The parts of the paid-job face. ``offering`` gives the catalogue as it is now."""

    offering: Callable[[], Offering]
    accounts: Accounts
    settings: JobSettings = field(default_factory=JobSettings)
    sells: bool = True
    catalogue_state: Callable[[], CatalogueState] = lambda: CatalogueState("", None, (), None)
    storage: Storage | None = None
    token_of: Callable[[str], str] = str
    sealing: Sealing = field(default_factory=no_secrets)


class _Nobody:
    """Knows no key."""

    async def holder(self, key: str | None) -> KeyHolder:
        del key
        raise JobRefused("missing_key", "this deployment sells nothing, and knows no keys")

    def held(self, customer: Customer, wanted: Wanted) -> AbstractAsyncContextManager[str | None]:
        del customer, wanted
        return nullcontext()

    async def balance(self, customer: Customer) -> Balance:
        del customer
        return Balance(0, 0)


def nothing_sold() -> Selling:
    """The parts of a daemon that sells nothing and lists nothing."""
    nothing = Offering(Catalogue(), frozenset(), 1, artifacts=False, host_jobs=False)
    return Selling(lambda: nothing, _Nobody(), sells=False)


def limits_of(own: Any, usual: Limits) -> Limits | None:
    """An account's limits: its own where it has any, otherwise the deployment's. null: none. None: what is
    kept of its own cannot be read."""
    if not own:
        return usual
    try:
        kept = msgspec.convert(own, _Kept)
    except msgspec.ValidationError:
        return None
    return Limits(
        usual.active_jobs if kept.max_active_jobs is UNSET else kept.max_active_jobs,
        usual.queued_jobs if kept.max_queued_jobs is UNSET else kept.max_queued_jobs,
        {**usual.gpus, **kept.max_gpus},
    )


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of an account's limits."""

    max_active_jobs: int | msgspec.UnsetType | None = UNSET
    max_queued_jobs: int | msgspec.UnsetType | None = UNSET
    max_gpus: dict[str, int | None] = msgspec.field(default_factory=dict[str, int | None])
