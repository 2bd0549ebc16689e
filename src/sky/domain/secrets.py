"""Finds credentials in places that are served back.

Decides: what looks like a secret, by the name of its key and by its shape. Never: stores or shows a value.
Follows: a definition that holds a credential is refused, and the message names the field, not the secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

_NAMES = re.compile(
    r"(?:^|[_\-.])(?:password|passwd|secret|token|api[_\-]?key|apikey|access[_\-]?key(?:[_\-]?id)?|"
    r"private[_\-]?key|credentials?|secret[_\-]?key|auth)(?:$|[_\-.])",
    re.IGNORECASE,
)
_SHAPES = (
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("a GitHub token", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}\b")),
    ("a GitLab token", re.compile(r"\bglpat-[A-Za-z0-9_\-]{20,}\b")),
    ("a Slack token", re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}\b")),
    ("a Hugging Face token", re.compile(r"\bhf_[A-Za-z0-9]{30,}\b")),
    ("an API secret key", re.compile(r"\bsk-[A-Za-z0-9_\-]{20,}\b")),
    ("a Google API key", re.compile(r"\bAIza[0-9A-Za-z_\-]{35}\b")),
    ("a JSON web token", re.compile(r"\beyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]+")),
    ("a password in an address", re.compile(r"\b[a-z][a-z0-9+.\-]*://[^/\s:@]*:[^/\s@]+@")),
)


def find(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """(field path, why) for everything in ``value`` that looks like a credential."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            path = f"{field}.{key}"
            if isinstance(inner, str) and inner and _NAMES.search(str(key)):
                yield path, f"its name {key!r} says that it is a credential"
            else:
                yield from find(inner, path)
    elif isinstance(value, str):
        for what, shape in _SHAPES:
            if shape.search(value):
                yield field, f"its value looks like {what}"
                return
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        for index, inner in enumerate(cast("Sequence[Any]", value)):
            yield from find(inner, f"{field}[{index}]")
