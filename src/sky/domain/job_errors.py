"""Every refusal of the paid-job face: its class (``type``), its reason (``code``), and its status.

Decides: which code belongs to which type and status. Never: formats an answer (``api/jobs``).
Follows: a reason that is not in this table cannot be raised, so the published list of codes is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sky.domain.account import Violation

INVALID, AUTHENTICATION, PERMISSION = "invalid_request", "authentication_error", "permission_error"
BALANCE, QUOTA, NOT_FOUND, CONFLICT = "insufficient_balance", "quota_exceeded", "not_found", "conflict"
RATE, INTERNAL, NOT_IMPLEMENTED = "rate_limited", "internal_error", "not_implemented"
CONSOLE, UPSTREAM, STORAGE = "console_unavailable", "upstream_unavailable", "storage_unavailable"

CODES: Final[dict[str, tuple[str, int]]] = {
    **dict.fromkeys(
        (
            "malformed_body",
            "missing_sku",
            "unknown_sku",
            "sku_unavailable",
            "missing_max_runtime",
            "runtime_over_ceiling",
            "provider_not_offered",
            "unknown_template",
            "template_unavailable",
            "field_not_overridable",
            "missing_input",
            "unknown_input_mount",
            "duplicate_input_mount",
            "missing_image",
            "missing_command",
            "invalid_env",
            "reserved_env",
            "invalid_input_source",
            "invalid_mount",
            "invalid_metadata",
            "invalid_idempotency_key",
            "invalid_status",
            "invalid_limit",
            "invalid_cursor",
            "invalid_parameter",
            "invalid_path",
            "invalid_size",
            "invalid_sha256",
            "no_outputs",
            "invalid_url",
        ),
        (INVALID, 400),
    ),
    "method_not_allowed": (INVALID, 405),
    "unsupported_media_type": (INVALID, 415),
    "body_too_large": (INVALID, 413),
    "file_too_large": (INVALID, 413),
    "missing_key": (AUTHENTICATION, 401),
    "invalid_key": (AUTHENTICATION, 401),
    "invalid_upload_token": (AUTHENTICATION, 401),
    "account_disabled": (AUTHENTICATION, 403),
    "account_suspended": (AUTHENTICATION, 403),
    "scope_denied": (PERMISSION, 403),
    "compute_not_enabled": (PERMISSION, 403),
    "insufficient_balance": (BALANCE, 402),
    "quota_exceeded": (QUOTA, 403),
    "job_not_found": (NOT_FOUND, 404),
    "not_found": (NOT_FOUND, 404),
    "idempotency_conflict": (CONFLICT, 409),
    "job_terminal": (CONFLICT, 409),
    "upload_conflict": (CONFLICT, 409),
    "too_many_files": (CONFLICT, 409),
    "rate_limited": (RATE, 429),
    "placement_failed": (INTERNAL, 500),
    "template_resolution_failed": (INTERNAL, 500),
    "owner_unresolved": (INTERNAL, 500),
    "quota_check_failed": (INTERNAL, 500),
    "internal_error": (INTERNAL, 500),
    "not_implemented": (NOT_IMPLEMENTED, 501),
    "outputs_unsupported": (NOT_IMPLEMENTED, 501),
    "console_unavailable": (CONSOLE, 503),
    "upstream_unavailable": (UPSTREAM, 503),
    "logs_unavailable": (UPSTREAM, 503),
    "storage_unavailable": (STORAGE, 503),
}


class JobRefused(Exception):
    """A refusal of the paid-job face. ``param``: the field at fault as a dotted path; ``after_s``: how many
    seconds to wait before another try."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        quotas: Sequence[Violation] = (),
        after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.type, self.status = CODES[code]
        self.code = code
        self.message = message
        self.param = param
        self.quotas = tuple(quotas)
        self.after_s = after_s
