"""What a backup's database names that is not in its file: objects in buckets.

Decides: what of that is told when a backup is made, and looked for before one is put back. Never: copies an
object; the bucket keeps those. Follows: a backup says where its objects were; one that is put back may name
another bucket, as long as what it needs is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sky.domain.artifact import JOBS
from sky.kit.clock import SystemClock
from sky.server import buckets
from sky.server.archive import BUCKETS
from sky.server.settings import Settings
from sky.store.blob_bucket import FOLDER
from sky.store.placed import placed
from sky.store.s3 import Unavailable

SHOWN_MAX = 3


class Places(msgspec.Struct, frozen=True):
    """Where the objects of a backup were when it was made, as settings spell it."""

    blobs: str | None = None
    artifacts: str | None = None


class LackingError(Exception):
    """A backup cannot be put back whole; the message says what is lacking and what to do."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Objects that one setting says the place of: ``prefix`` is what their keys begin with."""

    setting: str
    what: str
    expected: dict[str, int]
    prefix: str
    there: str | None
    """Where they are said to be; None: nobody said."""


def of_settings(chosen: Settings) -> Places:
    """The buckets that those settings name."""
    return Places(chosen.blobs, None if chosen.bucket is None else chosen.artifacts)


def told(copy: str, places: Places) -> Iterator[str]:
    """A line for each bucket with what the database at ``copy`` names in it."""
    for one in _parts(copy, places):
        where = one.there or f"the bucket of SKY_{one.setting.upper()}"
        size = sum(one.expected.values())
        yield (
            f"not in it: {len(one.expected)} {one.what} ({size} bytes) in {where}; have that bucket keep "
            "what is removed there for as long as you keep this file"
        )


def look_for(copy: str, places: Places, chosen: Settings) -> None:
    """See that all that the database at ``copy`` names is in the buckets of those settings.

    Raises LackingError with all that is not, and SettingsError where a bucket cannot be used at all.
    """
    said = [what for one in _parts(copy, places) if (what := _lacks(one, chosen)) is not None]
    if said:
        raise LackingError("; ".join(said))


def _parts(copy: str, places: Places) -> list[_Part]:
    there = placed(copy)
    content = {FOLDER + name: size for name, size in there.content.items()}
    parts = [_Part("blobs", "pieces of large content", content, FOLDER, places.blobs)]
    if places.artifacts is not None:  # otherwise they are in the folder, and in the file
        parts.append(_Part("artifacts", "files of paid jobs", there.files, JOBS, places.artifacts))
    return [one for one in parts if one.expected]


def _lacks(one: _Part, chosen: Settings) -> str | None:
    """What is lacking of a part, and what to do."""
    named: str | None = getattr(of_settings(chosen), one.setting)
    if named is None:
        variable = f"SKY_{one.setting.upper()}"
        where = f"in {one.there}" if one.there else "in a bucket"
        hint = f"set {variable}={one.there or 's3://bucket/prefix'}"
        return f"{len(one.expected)} {one.what} of this backup are {where}; {hint}"
    try:
        left = _lacking(one, chosen)
    except Unavailable as error:
        return (
            f"{named} cannot be looked at, and has {len(one.expected)} {one.what} of this backup: "
            f"{buckets.told(error)}; `sky doctor` tells what to do"
        )
    if not left:
        return None
    some = ", ".join(left[:SHOWN_MAX]) + (", …" if len(left) > SHOWN_MAX else "")
    return (
        f"{len(left)} of {len(one.expected)} {one.what} are not in {named}, or not in their size: {some}; "
        "restore these objects there, or name a bucket that has them"
    )


def _lacking(one: _Part, chosen: Settings) -> list[str]:
    [bucket] = [
        buckets.bucket_of(chosen, it.setting, it.where, SystemClock())
        for it in buckets.named(chosen)
        if it.setting == one.setting
    ]

    async def look() -> list[str]:
        async with bucket.line() as line:
            return await buckets.lacking(line, one.prefix, one.expected)

    return asyncio.run(look())


def read(folder: Path) -> Places:
    """What a backup says; one of a release that did not say it, nothing."""
    try:
        return msgspec.json.decode((folder / BUCKETS).read_bytes(), type=Places)
    except FileNotFoundError:
        return Places()
    except msgspec.DecodeError as error:
        raise LackingError(f"{BUCKETS} of this backup cannot be read: {error}") from error
