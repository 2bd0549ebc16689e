"""Bytes and values that the product itself understands: JSON in one canonical form, and hashes.

Decides: how a value becomes bytes that are compared or hashed. Never: touches user payloads.
Follows: two equal values always have equal bytes, whatever the order of their keys.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

SHA256_PATTERN = r"^[0-9a-f]{64}$"
_SHA256 = re.compile(SHA256_PATTERN)
_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="deterministic")


def dumps(value: Any) -> str:
    """JSON text in UTF-8 characters, keys in the order they were given."""
    return _encoder.encode(value).decode()


def canonical(value: Any) -> bytes:
    """JSON bytes with sorted keys: equal values give equal bytes."""
    return _canonical.encode(value)


def loads(text: str | bytes) -> Any:
    """Plain Python values from JSON text."""
    return msgspec.json.decode(text)


def sha256_hex(content: bytes | bytearray | memoryview) -> str:
    """The name of some content: its SHA-256 in 64 lower-case hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def is_sha256(text: str) -> bool:
    """Whether ``text`` is 64 lower-case hexadecimal digits."""
    return _SHA256.match(text) is not None
