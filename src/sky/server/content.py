"""Where large content and the files of paid jobs are kept: in the state folder, in a bucket, or nowhere.

Decides: which part serves which setting. Never: looks at a file.
Follows: what only a bucket needs is loaded only where one is configured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sky.api.jobs.files import SignedFiles
from sky.api.selling import Storage
from sky.kit.clock import Clock
from sky.reconcile.retention import DAY_US, Keeper, Terms
from sky.server.keys import Keys
from sky.server.setting_rules import NO_ARTIFACTS
from sky.server.settings import Settings
from sky.store.artifact_folder import ArtifactFolder
from sky.store.blobs import Blobs
from sky.store.db import Database
from sky.store.marks import MarkedFolder
from sky.store.tenure import Owner, Tenure, Tenured


@dataclass(frozen=True, slots=True)
class Kept:
    """The storage as the face shows it, and as the loop that removes old files knows it."""

    shown: Storage | None
    keeper: Keeper | None
    tenure: Tenure | None = None
    """Who may remove there."""


def storage_of(chosen: Settings, clock: Clock, keys: Keys, base_url: Callable[[], str], mine: Owner) -> Kept:
    """The storage that those settings describe, for the installation ``mine``. Raises SettingsError."""
    if not chosen.jobs or chosen.artifacts == NO_ARTIFACTS:
        return Kept(None, None)
    if chosen.bucket is not None:
        return _in_bucket(chosen, chosen.bucket, clock, mine)
    where = chosen.shared / "artifacts"
    folder = ArtifactFolder(where, full_sync=chosen.full_sync, shared=_is_shared(chosen, where))
    folder.prepare()
    tenure = Tenure(MarkedFolder(where), clock, mine)
    return Kept(SignedFiles(folder, keys.sign_address, base_url), Tenured(folder, tenure), tenure)


def _is_shared(chosen: Settings, folder: Path) -> bool:
    """Whether other processes may be writing into a folder: also where it is elsewhere, behind a link."""
    return chosen.shared_folder is not None or folder.is_symlink()


def terms_of(chosen: Settings) -> Terms:
    """How long what jobs left is kept."""
    return Terms(chosen.artifact_days * DAY_US, chosen.job_log_days * DAY_US)


def blobs_of(chosen: Settings, clock: Clock, db: Database, mine: Owner) -> tuple[Blobs, dict[str, Tenure]]:
    """The content of a database, where those settings want it, and who may remove it.

    Raises SettingsError.
    """
    where = chosen.shared / "blobs"
    tenures = {"blobs": Tenure(MarkedFolder(where), clock, mine)}
    bucket = None
    if chosen.blob_bucket is not None:
        from sky.server import buckets
        from sky.store.blob_bucket import BlobBucket

        own = buckets.bucket_of(chosen, "blobs", chosen.blob_bucket, clock)
        bucket = BlobBucket(own)
        tenures["blob-bucket"] = Tenure(buckets.marked(own, chosen.blob_bucket), clock, mine)
    blobs = Blobs(
        db,
        where,
        full_sync=chosen.full_sync,
        shared=_is_shared(chosen, where),
        bucket=bucket,
        tenures=(tenures["blobs"], tenures.get("blob-bucket")),
    )
    return blobs, tenures


def _in_bucket(chosen: Settings, where: tuple[str, str], clock: Clock, mine: Owner) -> Kept:
    from sky.server import buckets
    from sky.store.artifact_bucket import ArtifactBucket

    own = buckets.bucket_of(chosen, "artifacts", where, clock)
    bucket, tenure = ArtifactBucket(own), Tenure(buckets.marked(own, where), clock, mine)
    return Kept(bucket, Tenured(bucket, tenure), tenure)
