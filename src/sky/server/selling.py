"""Puts the parts of a seller together: what is sold, to whom, within which limits.

Decides: which part serves which setting. Never: holds a rule of the product.
Follows: without a job store nothing is sold, and the catalogue is served all the same.
"""

from __future__ import annotations

from sky.api.jobs.console import ConsoleKeys
from sky.api.jobs.keys import LocalKeys, ShapeOnly
from sky.api.selling import Accounts, JobSettings, Selling, Storage
from sky.console.bridge import Bridge
from sky.domain.account import TIERS, Limits
from sky.kit.clock import Clock
from sky.server.engines import LocalEngine
from sky.server.keys import Keys
from sky.server.listing import Listing
from sky.server.setting_rules import NO_ARTIFACTS
from sky.server.settings import Settings
from sky.store.db import Database
from sky.verbs.job_rules import Offering
from sky.verbs.webhooks import Sealing


def selling_of(
    chosen: Settings,
    db: Database,
    clock: Clock,
    keys: Keys,
    storage: Storage | None,
    bridge: Bridge,
    listing: Listing,
) -> Selling:
    """What a daemon with these settings sells."""
    rates = JobSettings(
        submits_per_hour=chosen.job_submits_per_hour,
        reads_per_minute=chosen.job_reads_per_minute,
        limits=Limits(
            chosen.account_jobs_max,
            chosen.account_jobs_max,
            dict.fromkeys(TIERS, chosen.account_gpus_max),
        ),
        platform=Limits(chosen.platform_jobs_max, None, {"all": chosen.platform_gpus_max}),
    )
    engine = LocalEngine(clock)
    if chosen.jobs:
        engine.look_soon()
    return Selling(
        offering=lambda: _offering(chosen, listing, engine),
        catalogue_state=listing.state,
        accounts=_accounts(chosen, db, clock, rates, bridge),
        settings=rates,
        sells=chosen.jobs,
        storage=storage,
        token_of=keys.job_token,
        sealing=sealing_of(chosen, keys),
    )


def bridge_of(chosen: Settings) -> Bridge:
    """The way to the console, if there is one."""
    return Bridge(chosen.console_url, chosen.console_token, chosen.console_timeout_seconds)


def _accounts(chosen: Settings, db: Database, clock: Clock, rates: JobSettings, bridge: Bridge) -> Accounts:
    if not chosen.jobs:
        return ShapeOnly()
    if chosen.accounts_backend == "console":
        return ConsoleKeys(bridge, db, clock, lambda: rates.limits, chosen.console_cache_seconds)
    return LocalKeys(db, clock, lambda: rates.limits)


def sealing_of(chosen: Settings, keys: Keys) -> Sealing:
    """How secrets of webhooks are kept."""
    return Sealing(keys.seal, keys.unseal, loopback=chosen.webhook_loopback)


def _offering(chosen: Settings, listing: Listing, engine: LocalEngine) -> Offering:
    named = frozenset(name.strip() for name in chosen.upstreams.split(",") if name.strip())
    catalogue = listing.listed.catalogue
    return Offering(
        catalogue=catalogue,
        enabled=named & catalogue.placeable(listing.kinds),
        ceiling_seconds=chosen.job_ceiling_seconds,
        artifacts=chosen.jobs and chosen.artifacts != NO_ARTIFACTS,
        host_jobs=chosen.allow_host_jobs,
        unusable=engine.unusable() if chosen.jobs else {},
    )
