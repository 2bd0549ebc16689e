"""Where large content and the files of paid jobs are kept: in the state folder, in a bucket, or nowhere.

Decides: which part serves which setting. Never: looks at a file.
Follows: what only a bucket needs is loaded only where one is configured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Kept:
    """The storage as the face shows it, and as the loop that removes old files knows it."""

    shown: Storage | None
    keeper: Keeper | None


def storage_of(chosen: Settings, clock: Clock, keys: Keys, base_url: Callable[[], str]) -> Kept:
    """The storage that those settings describe. Raises SettingsError."""
    if not chosen.jobs or chosen.artifacts == NO_ARTIFACTS:
        return Kept(None, None)
    if chosen.bucket is not None:
        return _in_bucket(chosen, chosen.bucket, clock)
    folder = ArtifactFolder(
        chosen.shared / "artifacts", full_sync=chosen.full_sync, shared=chosen.shared_folder is not None
    )
    folder.prepare()
    return Kept(SignedFiles(folder, keys.sign_address, base_url), folder)


def terms_of(chosen: Settings) -> Terms:
    """How long what jobs left is kept."""
    return Terms(chosen.artifact_days * DAY_US, chosen.job_log_days * DAY_US)


def blobs_of(chosen: Settings, clock: Clock, db: Database) -> Blobs:
    """The content of a database, where those settings want it. Raises SettingsError."""
    shared = chosen.shared_folder is not None
    bucket = None
    if chosen.blob_bucket is not None:
        from sky.server import buckets
        from sky.store.blob_bucket import BlobBucket

        bucket = BlobBucket(buckets.bucket_of(chosen, "blobs", chosen.blob_bucket, clock))
    return Blobs(db, chosen.shared / "blobs", full_sync=chosen.full_sync, shared=shared, bucket=bucket)


def _in_bucket(chosen: Settings, where: tuple[str, str], clock: Clock) -> Kept:
    from sky.server import buckets
    from sky.store.artifact_bucket import ArtifactBucket

    bucket = ArtifactBucket(buckets.bucket_of(chosen, "artifacts", where, clock))
    return Kept(bucket, bucket)
