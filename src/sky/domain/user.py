"""Users: which roles there are, and the least one that each operation of every face asks for.

Decides: who may call what, as a table. Never: reads a token or a row. Follows: a compute has no owner, so the
control plane and what is sold belong to admins; a cluster and a request have one, and belong to users. What
stands in no line is for admins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

from msgspec import Struct

Role = Literal["viewer", "user", "admin"]
"""viewer: looks; user: also makes clusters and works on its own; admin: everything, of everybody."""
ROLES: Final[tuple[Role, ...]] = get_args(Role)
VIEWER: Final = "viewer"
USER: Final = "user"
ADMIN: Final = "admin"
NOBODY: Final = None
"""The least role of what is told to anybody, also without a token."""
NAME = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
NAME_EXPECTED = "1 to 64 letters, digits and ._@+-"
RESERVED: Final = frozenset({"me", "tokens"})
"""What no user is called, since it means something else in the same place."""

Source = Literal["owner", "daemon", "token", "proxy"]
"""How a caller was known: as the daemon's own user, by the daemon's token, by a user's, by a proxy."""


class Caller(Struct, frozen=True):
    """Who asks. ``token_id``: by which of its tokens it was known."""

    name: str
    role: Role
    source: Source
    token_id: str | None = None

    @property
    def admin(self) -> bool:
        """Whether everything is theirs to do."""
        return self.role == ADMIN

    @property
    def speaks_for_others(self) -> bool:
        """Whether it is believed when it says whom it asks for."""
        return self.source in ("owner", "daemon")


def lesser(one: Role, other: Role | None) -> Role:
    """The role that is allowed less; None limits nothing."""
    return one if other is None else ROLES[min(ROLES.index(one), ROLES.index(other))]


def suffices(role: Role, least: Role) -> bool:
    """Whether ``role`` may do what asks for ``least``."""
    return ROLES.index(role) >= ROLES.index(least)


# ── who may call what ───────────────────────────────────────────────────────────────────────────

METRICS_PATH: Final = "/metrics"
"""Numbers for monitoring; the operator's settings may let in others than admins."""

LOOKS: Final = (
    "status",
    "queue",
    "job_status",
    "check",
    "enabled_clouds",
    "cost_report",
    "optimize",
    "validate",
    "endpoints",
    "list_accelerators",
    "list_accelerator_counts",
    "storage_ls",
    "logs",
    "download_logs",
)
"""Requests that change nothing."""
ACTS: Final = ("launch", "exec", "start", "stop", "down", "autostop", "cancel", "storage_delete", "upload")
"""Requests that change what is the caller's own."""

NEEDS: Final[Mapping[str, Role | None]] = {
    **{f"POST /{name}": VIEWER for name in LOOKS},
    **{f"POST /{name}": USER for name in ACTS},
    "GET /enabled_clouds": VIEWER,
    "GET /api/health": NOBODY,
    "GET /api/get": VIEWER,
    "GET /api/stream": VIEWER,
    "GET /api/status": VIEWER,
    "GET /api/summary": VIEWER,
    "GET /api/clusters": VIEWER,
    "GET /api/clusters/{name}/jobs": VIEWER,
    "GET /api/costs": VIEWER,
    "GET /api/openapi.json": VIEWER,
    "POST /api/cancel": USER,
    "GET /api/server_logs": ADMIN,
    "GET /users/me": VIEWER,
    "GET /users/tokens": VIEWER,
    "POST /users/tokens": VIEWER,
    "POST /users/tokens/{token}/rotate": VIEWER,
    "DELETE /users/tokens/{token}": VIEWER,
    "GET /users": ADMIN,
    "POST /users": ADMIN,
    "GET /users/{name}": ADMIN,
    "PATCH /users/{name}": ADMIN,
    "DELETE /users/{name}": ADMIN,
    "GET /": NOBODY,
    "GET /dashboard": NOBODY,
    "GET /dashboard/{rest}": NOBODY,
    "GET /dashboard/...": NOBODY,
    "GET /docs": VIEWER,
    f"GET {METRICS_PATH}": ADMIN,
    "GET /v1/health/live": VIEWER,
    "GET /v1/openapi.json": VIEWER,
    "ANY /v1/...": ADMIN,
    "ANY /admin/...": ADMIN,
}
"""The least role for each operation: its method and path, or all that begins so. Of a token's verbs, whose
tokens they may touch is decided where they are carried out."""


def _pattern(path: str) -> re.Pattern[str]:
    if path.endswith("/..."):
        return re.compile(re.escape(path.removesuffix("/...")) + r"(/.*)?")
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))


_PATTERNS: Final[list[tuple[str, re.Pattern[str], Role | None]]] = [
    (method, _pattern(path), role)
    for line, role in NEEDS.items()
    for method, path in [line.split(" ")]
    if "{" in path or path.endswith("/...")
]


def least_role(method: str, path: str) -> Role | None:
    """The least role that may ask this of this path; None: anybody may."""
    path = "/" + "/".join(part for part in path.split("/") if part)
    exact = f"{method} {path}"
    if exact in NEEDS:
        return NEEDS[exact]
    for how, pattern, role in _PATTERNS:
        if how in (method, "ANY") and pattern.fullmatch(path):
            return role
    return ADMIN
