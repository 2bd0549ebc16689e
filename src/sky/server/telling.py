"""The daemon's settings, as an admin is shown them.

Decides: what of a value is not shown: tokens, and who logs in where in an address. Never: shows anything that
lets in. Follows: a setting that is added is shown by itself.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from sky.server.settings import Settings
from sky.wire import admin

LETS_IN = "token"
"""How the names of settings end that are shown as set or not set alone."""
_LOGIN = re.compile(r"(?<=://).*(?=@)|(?<=password=)[^&]+", re.DOTALL)


def told(settings: Settings) -> tuple[admin.Setting, ...]:
    """Every setting, in the order of its table."""
    return tuple(_setting(settings, field) for field in msgspec.structs.fields(Settings))


def _setting(settings: Settings, field: msgspec.structs.FieldInfo) -> admin.Setting:
    value: Any = getattr(settings, field.name)
    [about] = field.type.__metadata__
    return admin.Setting(
        name=field.name,
        variable=f"SKY_{field.name.upper()}",
        value=None if value is None else _shown(field.name, value),
        is_default=value == field.default,
        about=about.description,
    )


def _shown(name: str, value: Any) -> str:
    if name.endswith(LETS_IN):
        return "set"
    return str(value).lower() if isinstance(value, bool) else _LOGIN.sub("…", str(value))
