"""A file that a job wrote, and its name in a bucket.

Decides: the key of each file, of a job's manifest, and of all that is a job's. Never: reads or stores one.
Follows: a key names its path and its content, so two files never share one, nobody can put other bytes
where a file is, and a path cannot lead out of its job.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct

JOBS = "jobs/"
MANIFEST = "_manifest.json"
NEVER_CAME = "it was announced, and never arrived"
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/")
SEGMENT_BYTES_MAX = 200
NAME_BYTES_MAX = 700
"""Stores take keys of 1,024 bytes, some of them parts of 255: longer paths are known by their hash."""


class StoredFile(Struct, frozen=True):
    """A file of a job, as it is or is to be."""

    job_id: str
    path: str
    size: int
    sha256: str


class Arrived(Struct, frozen=True):
    """Files that are there as they were announced, and those that are not, each with why."""

    good: tuple[StoredFile, ...]
    left_out: tuple[tuple[str, str], ...]


def job_prefix(job_id: str) -> str:
    """What every key of a job begins with."""
    return f"{JOBS}{job_id}/"


def manifest_key(job_id: str) -> str:
    """Where the list of a job's files is."""
    return job_prefix(job_id) + MANIFEST


def key_of(file: StoredFile) -> str:
    """Where a file is: its path, in characters that mean nothing anywhere, and its hash behind it.

    >>> key_of(StoredFile("job_1", "/out/a b.txt", 3, "ab" * 32))[:32]
    'jobs/job_1/files/out/a=20b.txt/a'
    """
    return f"{job_prefix(file.job_id)}{_name(file.path)}/{file.sha256}"


def _name(path: str) -> str:
    raw = path.encode().removeprefix(b"/")
    parts = "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in raw).split("/")
    # Names of nothing but dots, and empty ones, mean a folder to some stores and clients.
    safe = [part.replace(".", "=2E") if not part.strip(".") else part for part in parts]
    name = "/".join(safe)
    if "" in safe or len(name) > NAME_BYTES_MAX or max(map(len, safe)) > SEGMENT_BYTES_MAX:
        return f"long/{hashlib.sha256(path.encode()).hexdigest()}"
    return f"files/{name}"
