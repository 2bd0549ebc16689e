"""The secrets of a state folder: the daemon's token, and the key that seals credentials.

Decides: how they are made and kept (files of mode 0600, made once). Never: logs or serves one.
Follows: the database alone opens nothing; a node's token can be made again from its id.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec
from cryptography.fernet import Fernet


def _kept(path: Path, make: bytes) -> bytes:
    """The content of a secret file, which is made with ``make`` when it is not there."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_bytes().strip()
    with os.fdopen(descriptor, "wb") as file:
        file.write(make)
        file.flush()
        os.fsync(file.fileno())
    return make


class Keys:
    """The secrets of one state folder."""

    def __init__(self, home: Path) -> None:
        self.token = _kept(home / "token", secrets.token_urlsafe(32).encode()).decode()
        self._secret = _kept(home / "secret", Fernet.generate_key())
        self._fernet = Fernet(self._secret)

    def seal(self, credentials: Mapping[str, str]) -> bytes:
        """Credentials as they are kept on a provider's row."""
        return self._fernet.encrypt(msgspec.json.encode(dict(credentials)))

    def unseal(self, sealed: bytes) -> Mapping[str, str]:
        """Credentials as a provider needs them."""
        return msgspec.json.decode(self._fernet.decrypt(sealed), type=dict[str, str])

    def node_token(self, node_id: str) -> str:
        """What the agent of a node shows. The same for the same node, so that a purchase can be repeated."""
        return hmac.new(self._secret, b"node:" + node_id.encode(), hashlib.sha256).hexdigest()

    def node_token_hash(self, node_id: str) -> str:
        """What the node's row keeps of its token."""
        return hashlib.sha256(self.node_token(node_id).encode()).hexdigest()
