"""The files that go along with an image, as content that a client stores and an agent unpacks.

Decides: the shape and its limits. ``image.includes_sha256`` names a list of parts, each of them content of
its own: a gzipped tar of some of the files. It may name one gzipped tar itself, for clients that have only
``tar``. Never: packs or unpacks.
Follows: a client stores only the parts that are not stored yet, so only what changed travels.
"""

from __future__ import annotations

import msgspec

GZIP = b"\x1f\x8b"
"""What a gzipped tar begins with, and a list does not."""
BYTES_MAX = 1024**3
"""The most that all files may amount to, unpacked."""
FILES_MAX = 100_000
PARTS_MAX = 100_000
LIST_BYTES_MAX = 16 * 1024**2
LEVELS_MAX = 64
PATH_BYTES_MAX = 1024


class Parts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list, as JSON: the hash of each part, in order."""

    parts: tuple[str, ...]
