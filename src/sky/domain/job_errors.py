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
            "invalid_after",
            "invalid_retry",
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
    "budget_exceeded": (QUOTA, 403),
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

MEANINGS: Final[dict[str, str]] = {
    "malformed_body": "The body is no JSON of this shape.",
    "missing_sku": "Neither a sku nor a template was named.",
    "unknown_sku": "The catalogue has no such sku.",
    "sku_unavailable": "The sku is listed and not sold.",
    "missing_max_runtime": "The longest runtime was not said, or is not above 0.",
    "runtime_over_ceiling": "The runtime is longer than this deployment allows.",
    "provider_not_offered": "The sku is not sold on that cloud.",
    "unknown_template": "There is no such template.",
    "template_unavailable": "The template cannot be used now; the message has the reason.",
    "field_not_overridable": "The template does not let a submit change that field.",
    "missing_input": "The template reads a folder that the submit gives no file for.",
    "unknown_input_mount": "The template reads no such folder.",
    "duplicate_input_mount": "A folder of the template was given two files.",
    "missing_image": "No image was named, or it stands for the machine itself and that is not allowed.",
    "missing_command": "No command was given.",
    "invalid_env": "The name of a variable is no identifier.",
    "reserved_env": "The name of a variable is one of ours.",
    "invalid_input_source": "An input is no https address that ends in a file's name.",
    "invalid_mount": "A folder is not absolute, not plain, or not to be written over.",
    "invalid_metadata": "There are more than 16 pairs.",
    "invalid_after": "A job to run after is none of yours, or too many are named.",
    "invalid_retry": "How often, or after what, a job is begun again is not as it can be.",
    "invalid_idempotency_key": "The key has no characters, or more than 255.",
    "invalid_status": "There is no such status.",
    "invalid_limit": "The size of a page is out of range.",
    "invalid_cursor": "The place to go on from is not in this list.",
    "invalid_parameter": "The query has something that is not known here, or that cannot be read.",
    "invalid_path": "A file is not below one of the job's outputs.",
    "invalid_size": "The length of a file is not what was announced, or no number.",
    "invalid_sha256": "The hash of a file is not what was announced, or no hash.",
    "no_outputs": "The job declared no outputs.",
    "invalid_url": "A webhook cannot go to that address.",
    "method_not_allowed": "The path does not take that method.",
    "body_too_large": "The body is larger than is read here.",
    "file_too_large": "The file is larger than is kept.",
    "missing_key": "No key was sent, or one of another shape.",
    "invalid_key": "The key is not known, was revoked, or has expired.",
    "invalid_upload_token": "The token or address is not good for that, or no longer.",
    "account_disabled": "The account was switched off where it is kept.",
    "account_suspended": "The account is suspended or closed.",
    "scope_denied": "The key may read only.",
    "compute_not_enabled": "The account may not submit jobs yet.",
    "insufficient_balance": "The balance does not cover what would be held.",
    "quota_exceeded": "The job would exceed limits; `quotas` names each.",
    "budget_exceeded": "The job could cost more than is left of a day's or month's budget.",
    "job_not_found": "You have no such job.",
    "not_found": "There is no such thing or path.",
    "idempotency_conflict": "The key was used for another body within a day.",
    "job_terminal": "The job has ended.",
    "upload_conflict": "The file was stored before; a file is written once.",
    "too_many_files": "The job has as many files as are kept.",
    "rate_limited": "The key asks more often than it may; `Retry-After` says when again.",
    "placement_failed": "A place could not be found for a reason of ours.",
    "template_resolution_failed": "A template could not be read for a reason of ours.",
    "owner_unresolved": "The account of the key is gone.",
    "quota_check_failed": "The limits could not be looked at.",
    "internal_error": "The service failed; its log has the reason under the request's id.",
    "not_implemented": "This deployment keeps no jobs, or no files.",
    "outputs_unsupported": "This deployment keeps no files of jobs.",
    "console_unavailable": "The console, which has the accounts, does not answer.",
    "upstream_unavailable": "No cloud that the sku is sold on can be used here.",
    "logs_unavailable": "The log cannot be read now.",
    "storage_unavailable": "The place where files are kept cannot be used now.",
}
"""What each code says, for the page that lists them."""


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
