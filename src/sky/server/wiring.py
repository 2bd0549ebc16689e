"""Puts a daemon together from its parts.

Decides: which concrete part serves which need. Never: holds a rule of the product.
Follows: a test can build the same daemon over other parts (a fake cloud, a manual clock).
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sky.api.masking import Masking
from sky.api.unit import ApiSettings, Services
from sky.console.bridge import Bridge
from sky.domain.keeping import DAY_US, USUAL, Keeping
from sky.domain.offer import Offer
from sky.domain.provider import Abilities, KindInfo, Rules
from sky.domain.snapshots import NodeCase
from sky.domain.task import CANCEL_CONFIRM_US
from sky.kit.clock import SECOND_US, Clock
from sky.kit.masks import Masks
from sky.kit.signals import Signals
from sky.kit.version import VERSION
from sky.providers.base import AgentSetup, Context, Kind, Refused
from sky.providers.local.provider import LocalProvider
from sky.providers.registry import Registry, check_config
from sky.reconcile import wakes
from sky.reconcile.attempts import Attempts
from sky.reconcile.clusters import Clusters
from sky.reconcile.collect import Collect
from sky.reconcile.computes import Computes
from sky.reconcile.disks import Disks
from sky.reconcile.dispatch import Dispatch
from sky.reconcile.forget import Forget
from sky.reconcile.holds import Holds
from sky.reconcile.jobs import Jobs
from sky.reconcile.nodes import Nodes
from sky.reconcile.offers import Offers
from sky.reconcile.passes import InnerLoop, OuterLoop
from sky.reconcile.pool import ProviderPool, RowPool
from sky.reconcile.requests import Requests
from sky.reconcile.retention import Keeper, Retention, Terms
from sky.reconcile.runner import Runner
from sky.reconcile.storage import PLACES, StorageMarks
from sky.reconcile.sweep import Sweep
from sky.reconcile.watch import Watch
from sky.reconcile.webhooks import Webhooks
from sky.server.content import blobs_of, storage_of, terms_of
from sky.server.keys import Keys
from sky.server.listing import Listing
from sky.server.selling import bridge_of, sealing_of, selling_of
from sky.server.settings import Settings
from sky.server.telling import told
from sky.store.blobs import Blobs
from sky.store.commits import Committed
from sky.store.db import Database
from sky.store.events import Hub
from sky.store.neighbours import Neighbours
from sky.store.reserve import Reserve
from sky.store.rows import providers
from sky.store.tenure import OwnerOf, Tenure
from sky.store.tx import Tx
from sky.store.views.garbage import KINDS
from sky.verbs.job_steps import JobRules
from sky.verbs.spec_rules import ensure_default
from sky.verbs.webhooks import Sealing
from sky.wire.requests import API_VERSION, MIN_COMPATIBLE_API_VERSION

TICK_STALE_S = 15.0
"""A daemon whose loops have not ticked for this long is not ready."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon's parts, put together and not yet running."""

    db: Database
    runner: Runner
    services: Services
    keys: Keys
    listing: Listing
    holder: str


def build(settings: Settings, clock: Clock, registry: Registry, base_url: Callable[[], str]) -> Daemon:
    """The daemon that ``settings`` describe."""
    keys = Keys(settings.shared)
    holder = holder_of(settings.home)
    db = _database(settings, clock, holder)
    mine = OwnerOf(db)
    blobs, tenures = blobs_of(settings, clock, db, mine)
    context = Context(settings.shared, deployment_of(keys), clock, base_url)
    masks = Masks([keys.token])
    masks.add_named(os.environ)
    masks.add([settings.console_token or "", settings.metrics_token or ""])
    seal, unseal = hidden(keys, masks)
    pool = RowPool(db, registry, context, unseal)
    url_file = str(settings.home / "daemon.json")

    def agent_for(node_id: str, case: NodeCase) -> AgentSetup:
        return agent_setup(node_id, case, keys, base_url(), url_file)

    rules = rules_of(registry, seal, round(settings.cancel_confirm_seconds * SECOND_US))
    jobs = JobRules(
        rules,
        keys.job_token,
        host_jobs=settings.allow_host_jobs,
        private_inputs=settings.allow_private_inputs,
    )
    bridge = bridge_of(settings)
    listing = Listing(settings.catalogue, {kind.kind for kind in registry.kinds()}, clock, settings.templates)
    storage = storage_of(settings, clock, keys, base_url, mine)
    if storage.tenure is not None:
        tenures["artifacts"] = storage.tenure
    runner = make_runner(
        db,
        clock,
        pool,
        keys.node_token_hash,
        agent_for,
        holder=holder,
        shared=settings.shares_database,
        jobs=jobs,
        sealing=sealing_of(settings, keys),
        bridge=bridge,
        kept=(storage.keeper, terms_of(settings)),
        events_kept_us=kept_us(settings),
        keeping=keeping_of(settings),
        blobs=blobs,
        tenures=tenures,
        confirm_us=rules.cancel_confirm_us,
    )
    signals, hub = Signals(), Hub()
    connect_listeners(db, runner, signals, hub)
    services = Services(
        db=db,
        blobs=blobs,
        signals=signals,
        hub=hub,
        clock=clock,
        rules=rules,
        selling=selling_of(settings, db, clock, keys, storage.shown, bridge, listing),
        settings=faces_of(settings, keys, base_url),
        ready={"database": lambda: answers(db), "loops": lambda: ticks(runner, clock)},
        dependencies={"database": lambda: answers(db)},
        started_us=clock.now_us(),
        masking=Masking(masks, keys.node_token),
        counted=runner.families,
        loops=runner.idle(),
        keeping=keeping_of(settings),
    )
    return Daemon(db, runner, services, keys, listing, holder)


def _database(settings: Settings, clock: Clock, holder: str) -> Database:
    url = settings.database_url
    return Database(
        url,
        clock,
        wakes.keys,
        full_sync=settings.full_sync,
        neighbours=Neighbours(url, holder) if settings.shares_database else None,
        reserve=Reserve.of(url),
    )


def hidden(
    keys: Keys, masks: Masks
) -> tuple[Callable[[Mapping[str, str]], bytes], Callable[[bytes], Mapping[str, str]]]:
    """Sealing and unsealing of credentials that are kept out of every log from then on."""

    def seal(credentials: Mapping[str, str]) -> bytes:
        masks.add(credentials.values())
        return keys.seal(credentials)

    def unseal(sealed: bytes) -> Mapping[str, str]:
        credentials = keys.unseal(sealed)
        masks.add(credentials.values())
        return credentials

    return seal, unseal


def make_runner(
    db: Database,
    clock: Clock,
    pool: ProviderPool,
    token_hash: Callable[[str], str],
    agent_for: Callable[[str, NodeCase], AgentSetup],
    *,
    holder: str = "embedded",
    hints: bool = True,
    shared: bool = False,
    jobs: JobRules | None = None,
    sealing: Sealing | None = None,
    bridge: Bridge | None = None,
    kept: tuple[Keeper | None, Terms] = (None, Terms()),
    events_kept_us: int | None = None,
    keeping: Keeping = USUAL,
    blobs: Blobs | None = None,
    tenures: Mapping[str, Tenure] | None = None,
    confirm_us: int = CANCEL_CONFIRM_US,
) -> Runner:
    """All loops, over one database; those of paid jobs only where there are ``jobs``.

    ``holder`` names this daemon among those that share the database.
    """
    loops: list[InnerLoop | OuterLoop] = [
        Computes(token_hash),
        Dispatch(),
        Attempts(confirm_us),
        Watch(),
        Nodes(db, clock, pool, agent_for),
        Offers(pool, clock),
        Sweep(db, clock, pool),
        Disks(db, clock, pool),
        Forget(events_kept_us, keeping.requests_us),
        Collect(db, clock, keeping, blobs),
        StorageMarks(clock, tenures or {}),
    ]
    if jobs is not None:
        loops += [Jobs(jobs), Retention(db, clock, *kept), Clusters(), Requests(jobs.rules)]
    if sealing is not None:
        loops.append(Webhooks(db, clock, sealing))
    if bridge is not None:
        loops.append(Holds(db, clock, bridge))
    runner = Runner(db, clock, loops, holder=holder, hints=hints, shared=shared)
    if hints:
        db.follow(frozenset({Dispatch.name, Requests.name}), runner.follow)
    return runner


def connect_listeners(db: Database, runner: Runner, signals: Signals, hub: Hub) -> None:
    """After a commit: wake loops, knock on waiters, hand events to readers."""

    def on_commit(committed: Committed) -> None:
        for key in committed.keys:
            if key.startswith("~"):
                signals.fire(key[1:])
        if committed.anything:
            signals.fire_all()
        hub.on_commit(committed)
        runner.wake(committed.keys)

    db.listen(on_commit)


def agent_setup(node_id: str, case: NodeCase, keys: Keys, url: str, url_file: str | None) -> AgentSetup:
    """What the agent of a node is told at its start."""
    offer = case.node.offer
    spec: dict[str, Any] = {
        "image": case.image,
        "worker": case.worker,
        "plugins": list(case.plugins),
        "accelerators": _accelerators(offer),
        "cpus": 1 if offer is None else offer.cpus,
        "memory_gb": _memory(case),
        "compute": case.node.compute_id,
        "rank": case.node.rank,
    }
    return AgentSetup(url=url, token=keys.node_token(node_id), url_file=url_file, spec=spec)


def _accelerators(offer: Offer | None) -> list[str]:
    """The names of a machine's accelerators, one for each."""
    if offer is None or offer.accelerator is None:
        return []
    return [offer.accelerator] * max(1, offer.accelerator_count)


def _memory(case: NodeCase) -> float | None:
    """The memory limit of a node's workers: only where the spec asked for an amount."""
    asked = [a.memory_gb for a in case.wanted.alternatives if a.memory_gb is not None]
    return max(asked) if asked and case.node.offer is not None else None


def rules_of(
    registry: Registry, seal: Callable[[Mapping[str, str]], bytes], confirm_us: int = CANCEL_CONFIRM_US
) -> Rules:
    """What verbs must know of the kinds of this build."""
    return Rules(
        kinds={kind.kind: _info(kind) for kind in registry.kinds()}, seal=seal, cancel_confirm_us=confirm_us
    )


def _info(kind: Kind) -> KindInfo:
    can = kind.capabilities

    def wrong(config: Mapping[str, Any]) -> str | None:
        try:
            check_config(kind, config)
        except Refused as error:
            return error.message
        return None

    return KindInfo(
        kind=kind.kind,
        credential_fields=kind.credential_fields,
        offers_ttl_seconds=kind.offers_ttl_seconds,
        abilities=Abilities(
            volumes=can.volumes,
            apt=can.apt,
            base_image=can.base_image,
            cluster=can.clustering,
            includes=can.includes,
            apt_setting=can.apt_setting,
            keeps_disks=can.keeps_disks,
            disk_setting=can.disk_setting,
            spot_keeps_disks=can.spot_keeps_disks,
            open_ports=can.open_ports,
        ),
        check_config=wrong,
    )


def holder_of(home: Path) -> str:
    """The name of the daemon of a folder, in its claims.

    No two daemons have one at a time, since a folder is locked by one; and the next one in that folder finds
    the claims of one that was killed, rather than waiting for their end.
    """
    return hashlib.sha256(f"{socket.gethostname()}\0{home.resolve()}".encode()).hexdigest()[:16]


def kept_us(settings: Settings) -> int | None:
    """For how long events can be replayed; None: for ever."""
    seconds = settings.events_kept_seconds
    return None if seconds is None else seconds * SECOND_US


def keeping_of(settings: Settings) -> Keeping:
    """For how long is kept what is over, or what nothing names."""
    return Keeping(
        ended_us=settings.ended_days * DAY_US,
        calls_us=None if settings.call_days is None else settings.call_days * DAY_US,
        requests_us=settings.request_days * DAY_US,
        deliveries_us=settings.delivery_days * DAY_US,
        unnamed_us=settings.unnamed_days * DAY_US,
    )


def faces_of(settings: Settings, keys: Keys, base_url: Callable[[], str]) -> ApiSettings:
    """What the faces are told of the settings."""
    least = settings.api_version_min
    return ApiSettings(
        hosts=settings.hosts,
        token=keys.token,
        blob_bytes_max=settings.blob_bytes_max,
        body_bytes_max=settings.body_bytes_max,
        release=VERSION,
        client_release=settings.client_release,
        base_url=base_url,
        spool=settings.home / "spool",
        behind_proxy=settings.behind_proxy,
        proxies=settings.networks,
        default_role=settings.default_role,
        api_version=settings.api_version or API_VERSION,
        api_version_min=MIN_COMPATIBLE_API_VERSION if least is None else least,
        log_file=settings.home / "server.log",
        metrics_open=settings.metrics_open,
        metrics_token=settings.metrics_token,
        told=told(settings),
    )


def deployment_of(keys: Keys) -> str:
    """A name for this deployment that is the same at every start and tells nothing."""
    return keys.node_token_hash("deployment")[:16]


def look_around(tx: Tx, rules: Rules) -> None:
    """At a start: this computer is a provider, and what every provider has is looked at, since machines may
    have ended meanwhile; so is what may be forgotten."""
    ensure_default(tx, LocalProvider.kind, rules)
    marks = (f"{StorageMarks.name}/{place}" for place in PLACES)
    for key in (*marks, f"{Forget.name}/old", *(f"{Collect.name}/{kind}" for kind in KINDS)):
        tx.touch(key)
    for provider_id in providers.ids(tx.connection):
        tx.touch(f"sweep/{provider_id}")


async def answers(db: Database) -> bool:
    """Whether the database answers."""
    return await db.read(lambda c: c.exec_driver_sql("SELECT 1").scalar()) == 1


async def ticks(runner: Runner, clock: Clock) -> bool:
    """Whether the loops run."""
    return runner.ticked_s is not None and clock.monotonic_s() - runner.ticked_s < TICK_STALE_S
