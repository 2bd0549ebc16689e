"""Which versions of this interface may speak to each other, and who asks.

Decides: whether a caller's version will do. Never: changes what is answered for one.
Follows: a version that is no number is refused; one that is too old is told both versions and what to
upgrade.
"""

from __future__ import annotations

import os
import pwd
import re

from sky.api.operation import Ask
from sky.domain.errors import InvalidRequest
from sky.wire import requests as wire

_USER = re.compile(r"[A-Za-z0-9._@+-]{1,64}")


def user_of(ask: Ask) -> str:
    """Who asks, after checking the version that they speak. Raises InvalidRequest."""
    _check_version(ask)
    given = ask.header(wire.USER_HEADER.encode())
    if given is None:
        return _own_name(ask.unit.settings.owner_uid)
    if not _USER.fullmatch(given):
        expected = "1 to 64 letters, digits and ._@+-"
        msg = f"{wire.USER_HEADER} must be {expected}; it is {given[:80]!r}"
        raise InvalidRequest(
            msg, details={"field": wire.USER_HEADER, "value": given[:80], "expected": expected}
        )
    return given


def _check_version(ask: Ask) -> None:
    text = ask.header(wire.VERSION_HEADER.encode())
    if text is None:
        return
    if not re.fullmatch(r"[0-9]{1,6}", text):
        msg = f"{wire.VERSION_HEADER} must be a whole number; it is {text[:40]!r}"
        raise InvalidRequest(
            msg, details={"field": wire.VERSION_HEADER, "value": text[:40], "expected": "a whole number"}
        )
    if int(text) < wire.MIN_COMPATIBLE_API_VERSION:
        msg = (
            f"the client speaks version {text} of this interface, and this server {wire.API_VERSION}, or "
            f"{wire.MIN_COMPATIBLE_API_VERSION} at least; upgrade the client"
        )
        details = {
            "field": wire.VERSION_HEADER,
            "value": text,
            "expected": f"{wire.MIN_COMPATIBLE_API_VERSION} or more",
            "server": wire.API_VERSION,
        }
        raise InvalidRequest(msg, details=details)


def _own_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return os.environ.get("USER", str(uid))
