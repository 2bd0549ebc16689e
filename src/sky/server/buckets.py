"""The buckets that settings name: how each is reached, whether it serves, and whether it has what it should.

Decides: with what a bucket is tried, and when it is found to lack an object. Never: changes what is there: a
trial puts an object of its own, which it removes. Follows: a trial says which of the rights was missing, and
the key of an object that it could not remove.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sky.domain.artifact import JOBS, job_prefix
from sky.kit.clock import Clock
from sky.server.settings import Settings, SettingsError
from sky.store.blob_bucket import FOLDER
from sky.store.marked_bucket import MarkedBucket
from sky.store.s3 import NO_CREDENTIALS, Bucket, Line, Place, Unavailable
from sky.store.sigv4 import NoCredentialsError

REGION = "us-east-1"
TRIAL_BYTES = 64
RIGHTS = "s3:PutObject, s3:GetObject and s3:DeleteObject on its objects, and s3:ListBucket on it"


@dataclass(frozen=True, slots=True)
class Named:
    """A bucket by the setting that names it; ``prefix``: what its keys begin with for us."""

    setting: str
    where: tuple[str, str]
    prefix: str

    @property
    def url(self) -> str:
        """As a setting spells it."""
        return _url(self.where)


def _url(where: tuple[str, str]) -> str:
    return f"s3://{'/'.join(where).rstrip('/')}"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a bucket does not do, why, and what helps."""

    said: str
    mend: str


def named(chosen: Settings) -> Iterator[Named]:
    """The buckets of those settings."""
    if chosen.blob_bucket is not None:
        yield Named("blobs", chosen.blob_bucket, FOLDER)
    if chosen.bucket is not None:
        yield Named("artifacts", chosen.bucket, JOBS)


def bucket_of(chosen: Settings, setting: str, where: tuple[str, str], clock: Clock) -> Bucket:
    """The bucket that a setting names. Raises SettingsError."""
    from sky.store.s3_credentials import Chain

    chain = Chain(clock)
    try:
        region = chosen.artifacts_region or chain.region() or REGION
    except NoCredentialsError as error:
        msg = f"{setting}: s3://{where[0]} cannot be used: {error}"
        raise SettingsError(msg) from error
    place = Place(*where, region=region, endpoint=chosen.artifacts_endpoint)
    return Bucket(place, clock, chain.now)


def marked(bucket: Bucket, where: tuple[str, str]) -> MarkedBucket:
    """The same bucket, as something that carries the mark of who may remove from it."""
    return MarkedBucket(bucket, _url(where), (FOLDER, JOBS))


async def tried(bucket: Bucket, one: Named) -> Trouble | None:
    """Write, list, read and remove an object where ours are; None: all of that works."""
    content = secrets.token_bytes(TRIAL_BYTES)
    sha256 = hashlib.sha256(content).hexdigest()
    key = f"{FOLDER}{sha256}/trial" if one.prefix == FOLDER else f"{job_prefix('trial')}{sha256}"
    act = "written to"
    async with bucket.line() as line:
        try:
            with tempfile.TemporaryDirectory(prefix="sky-trial-") as folder:
                file = Path(folder) / "trial"
                file.write_bytes(content)
                await line.put_file(key, file, sha256, len(content))
            act = "listed"
            listed = await line.page(key, None)
            act = "read"
            read = await line.sha256(key)
            act = "removed from"
            await line.delete(key)
        except Unavailable as error:
            gone = await _removed(line, key)  # also what was written without an answer
            left = "" if gone or act == "written to" else f"; a trial was left at {key}"
            return Trouble(f"{one.url} cannot be {act}: {told(error)}{left}", _mend(error.word, one))
    if key not in listed.sizes or read != sha256:
        said = f"{one.url} took an object and does not {'list' if read == sha256 else 'give'} it as it was"
        return Trouble(said, "use a store that keeps what it has taken; this one would lose content")
    return None


async def _removed(line: Line, key: str) -> bool:
    try:
        await line.delete(key)
    except Unavailable:
        return False
    return True


def told(error: Unavailable) -> str:
    """Why a bucket does not serve, in full: for its operator."""
    return f"{error.why} ({error.cause})" if error.cause else error.why


async def lacking(line: Line, prefix: str, expected: Mapping[str, int]) -> list[str]:
    """Which of those keys, each with its size, the bucket does not have like that. Raises Unavailable."""
    left, after = dict(expected), None
    while left:
        page = await line.page(prefix, after)
        for key, size in page.sizes.items():
            if left.get(key) == size:
                del left[key]
        if page.after is None or page.after == after:
            break
        after = page.after
    return sorted(left)


_MENDS = {
    NO_CREDENTIALS: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile, for the daemon's user",
    "AccessDenied": f"give the credentials the rights {RIGHTS}",
    "InvalidAccessKeyId": "the store does not know the access key: set the right one, or a newer one",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key: set both anew",
    "RequestTimeTooSkewed": "set this computer's clock by NTP: timedatectl set-ntp true",
    "SlowDown": "wait, and ask the store's operator for a higher rate",
}


def _mend(word: str, one: Named) -> str:
    if word == "NoSuchBucket":
        return f"make the bucket {one.where[0]}, or name another one in SKY_{one.setting.upper()}"
    if word == "PermanentRedirect":
        return "name the bucket's region in SKY_ARTIFACTS_REGION"
    return _MENDS.get(word, "check the network, and SKY_ARTIFACTS_ENDPOINT where the store is not AWS")
