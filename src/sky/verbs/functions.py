"""Functions as they are registered: a name for content that is stored already.

Decides: what registering writes. Never: opens the content. Follows: registering again changes nothing.
"""

from __future__ import annotations

from sky.domain.errors import NotFound
from sky.store import blobs
from sky.store.rows import functions
from sky.store.tx import Tx
from sky.wire import v1


def register(tx: Tx, sha256: str, body: v1.FunctionCreate) -> bool:
    """Register stored content as a function; True when it was not one before."""
    size = blobs.use(tx, sha256)
    if size is None:
        msg = f"no blob {sha256} is stored; send the function itself as the body, or upload it first"
        raise NotFound(msg, details={"blob": sha256})
    row = {
        "sha256": sha256,
        "codec": body.codec,
        "name": body.name,
        "size_bytes": size,
        "created_us": tx.now_us,
    }
    return functions.add(tx, row)
