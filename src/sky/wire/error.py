"""The one error object every face answers with.

Decides: its fields and the closed set of codes. Never: which condition gets which code (``domain/errors``).
Follows: a client matches on ``code`` and never has to read prose.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

PublishedCode = Literal[
    "not_found",
    "revision_conflict",
    "idempotency_conflict",
    "lease_held",
    "name_taken",
    "compute_not_connected",
    "compute_not_accepting",
    "compute_not_resizable",
    "unsupported_provider",
    "unsupported_plugin",
    "secret_in_definition",
    "hash_mismatch",
    "task_failed",
    "task_indeterminate",
    "duplication_not_acknowledged",
    "capability_mismatch",
    "release_pending",
]
"""Codes that every reader of the interface knows. What answers carry inside is told with these alone."""
ErrorCode = Literal[
    PublishedCode,
    "invalid_request",
    "precondition_required",
    "method_not_allowed",
    "unsupported_media_type",
    "cursor_expired",
    "unauthorized",
    "forbidden",
    "payload_too_large",
    "storage_full",
    "busy",
    "task_not_retryable",
    "provider_in_use",
    "internal",
]
PUBLISHED_CODES: frozenset[str] = frozenset(get_args(PublishedCode))
CODES: frozenset[str] = frozenset(get_args(ErrorCode))


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong: match on ``code``, show ``message``, and try again only if ``retryable``."""

    code: ErrorCode
    message: str
    retryable: bool
    request_id: str | None = None
    details: dict[str, Any] | None = None
