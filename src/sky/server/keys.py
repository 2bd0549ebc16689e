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

SECRET_BYTES_MIN = 32


class KeysError(Exception):
    """A secret file cannot be used; the message says which and what to do."""


def _kept(path: Path, make: bytes) -> bytes:
    """The content of a secret file, which is made with ``make`` when it is not there: whole or not at all."""
    try:
        content = path.read_bytes().strip()
        path.chmod(0o600)
    except FileNotFoundError:
        fresh = path.with_name(f"{path.name}.new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(make)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        return make
    if len(content) < SECRET_BYTES_MIN:
        raise KeysError(_damaged(path))
    return content


def _damaged(path: Path) -> str:
    return (
        f"{path} is damaged: put it back from a copy, or remove it to have a new one made, {_LOST[path.name]}"
    )


_LOST = {
    "token": "which clients that bring the old one must then be given",
    "secret": "which loses the stored credentials of providers and the nodes that run",
}


class Keys:
    """The secrets of one state folder."""

    def __init__(self, home: Path) -> None:
        """Read or make them. Raises KeysError, OSError."""
        self.token = _kept(home / "token", secrets.token_urlsafe(32).encode()).decode()
        self._secret = _kept(home / "secret", Fernet.generate_key())
        try:
            self._fernet = Fernet(self._secret)
        except ValueError as error:
            raise KeysError(_damaged(home / "secret")) from error

    def seal(self, credentials: Mapping[str, str]) -> bytes:
        """Credentials as they are kept on a provider's row."""
        return self._fernet.encrypt(msgspec.json.encode(dict(credentials)))

    def unseal(self, sealed: bytes) -> Mapping[str, str]:
        """Credentials as a provider needs them."""
        return msgspec.json.decode(self._fernet.decrypt(sealed), type=dict[str, str])

    def node_token(self, node_id: str) -> str:
        """What the agent of a node shows. The same for the same node, so that a purchase can be repeated."""
        return hmac.new(self._secret, b"node:" + node_id.encode(), hashlib.sha256).hexdigest()

    def job_token(self, job_id: str) -> str:
        """What the node of a job shows to upload its files. The same for the same job, and kept nowhere."""
        return hmac.new(self._secret, b"job:" + job_id.encode(), hashlib.sha256).hexdigest()

    def sign_address(self, content: bytes) -> str:
        """The signature of what an address of ours allows."""
        return hmac.new(self._secret, b"address:" + content, hashlib.sha256).hexdigest()

    def node_token_hash(self, node_id: str) -> str:
        """What the node's row keeps of its token."""
        return hashlib.sha256(self.node_token(node_id).encode()).hexdigest()
