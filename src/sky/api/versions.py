"""Which versions of the requests' interface may speak to each other.

Decides: whether a caller's version will do, and on which answers ours stands. Never: changes what is answered
for one. Follows: a version that is no number is refused; one that is too old is told both versions and what
to upgrade, before anything of its request is read.
"""

from __future__ import annotations

import re

from sky.domain.errors import InvalidRequest
from sky.wire import requests as wire

VERSION = wire.VERSION_HEADER.encode()
HEALTH_PATH = "/api/health"
"""Where any version may ask, so that it can learn which ones will do."""
OTHER_FACES = frozenset({"v1", "admin", "agent", "compute", "healthz", "docs"})
"""First parts of paths that have nothing to do with these versions."""
TOO_OLD = "APINotSupportedError"
_NUMBER = re.compile(rb"[0-9]{1,6}")


def speaks(path: str) -> bool:
    """Whether a path is of the interface that has these versions."""
    return path.split("/", 2)[1:2] != [""] and path.split("/", 2)[1] not in OTHER_FACES


def headers(version: int, release: str) -> list[tuple[bytes, bytes]]:
    """What stands on each answer of the interface."""
    return [
        (VERSION, str(version).encode()),
        (wire.RELEASE_HEADER.encode(), release.encode()),
    ]


def refusal(path: str, given: bytes | None, ours: int, least: int) -> InvalidRequest | None:
    """Why a caller of that version cannot be served; None: it can, or did not say."""
    if given is None:
        return None
    if not _NUMBER.fullmatch(given):
        shown, expected = given[:40].decode("latin-1"), "a whole number"
        msg = f"{wire.VERSION_HEADER} must be {expected}; it is {shown!r}"
        return InvalidRequest(
            msg, details={"field": wire.VERSION_HEADER, "value": shown, "expected": expected}
        )
    theirs = int(given)
    if theirs >= least or path == HEALTH_PATH:
        return None
    msg = (
        f"the client speaks version {theirs} of this interface, and this server {ours}, or {least} at least; "
        "upgrade the client: pip install --upgrade skyfleet"
    )
    details = {
        "type": TOO_OLD,
        "field": wire.VERSION_HEADER,
        "value": str(theirs),
        "expected": f"{least} or more",
        "client": theirs,
        "server": ours,
        "least": least,
    }
    return InvalidRequest(msg, details=details)
