"""Every refusal there is, as one drawn tree.

    SkyError
    ├── NotFound                    404  nothing has that id, name or hash
    ├── InvalidRequest              400  a field, header or parameter is wrong
    │   ├── HashMismatch            400  content does not hash to its name
    │   ├── PreconditionRequired    428  If-Match is missing
    │   ├── MethodNotAllowed        405  the path exists, the method does not
    │   ├── UnsupportedMediaType    415  the body is of a type the route does not take
    │   └── PayloadTooLarge         413  the body is over its limit
    ├── Conflict
    │   ├── RevisionConflict        412  If-Match is stale
    │   ├── IdempotencyConflict     409  a key was used for another request
    │   ├── LeaseHeld               409  another process holds the compute
    │   ├── NameTaken               409  a live one has that name
    │   ├── ComputeNotConnected     409  no node can be reached
    │   ├── ReleasePending          409  machines of it are still being given back
    │   ├── ProviderInUse           409  computes still need the provider
    │   ├── TaskFailed              409  there is no result: the task failed
    │   ├── TaskIndeterminate       409  there is no result: nobody knows
    │   ├── TaskNotRetryable        409  it is not over yet, or it succeeded
    │   └── DuplicationNotAcknowledged 409
    ├── Unprocessable
    │   ├── ComputeNotAccepting     422  it is deleting, deleted or failed
    │   ├── ComputeNotResizable     422  its nodes are at work together, in that number
    │   ├── UnsupportedProvider     422  no such kind of provider
    │   ├── UnsupportedPlugin       422  no such plugin
    │   ├── SecretInDefinition      422  a credential where it would be served back
    │   └── CapabilityMismatch      422  the provider cannot do that
    ├── CursorExpired               410  those events are no longer kept
    ├── Unauthorized                401  no token, or a wrong one
    ├── Forbidden                   403  a foreign Host or Origin, or not yours
    ├── StorageFull                 507  the disk is full; nothing was written
    ├── Busy                        503  too much at once; try again
    └── Internal                    500  a bug of ours; the log has it under the request id

Decides: code, status and whether trying again can help. Never: formats an answer (``api/errors``).
A message says what was wrong, with which value, and what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar


class SkyError(Exception):
    """A refusal. ``details`` are machine-readable facts about it; ``after_s`` is when to try again."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, details: dict[str, Any] | None = None, after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.after_s = after_s


class NotFound(SkyError):
    """Nothing has that id, name or hash."""

    code, status = "not_found", 404


class InvalidRequest(SkyError):
    """A field, header or parameter is wrong; ``details`` has ``field``, ``value`` and ``expected``."""

    code, status = "invalid_request", 400


class HashMismatch(InvalidRequest):
    """Uploaded content does not hash to the name it was given."""

    code = "hash_mismatch"


class PreconditionRequired(InvalidRequest):
    """If-Match is missing where a change must name the revision it expects."""

    code, status = "precondition_required", 428


class MethodNotAllowed(InvalidRequest):
    """The path exists, but not with this method."""

    code, status = "method_not_allowed", 405


class UnsupportedMediaType(InvalidRequest):
    """The body is of a type that the route does not take."""

    code, status = "unsupported_media_type", 415


class PayloadTooLarge(InvalidRequest):
    """The body is over its limit."""

    code, status = "payload_too_large", 413


class Conflict(SkyError):
    """The request cannot be done in the state things are in."""

    status = 409


class RevisionConflict(Conflict):
    """If-Match named a revision that is no longer the current one."""

    code, status, retryable = "revision_conflict", 412, True


class IdempotencyConflict(Conflict):
    """The key was used before, for another request."""

    code = "idempotency_conflict"


class LeaseHeld(Conflict):
    """Another process holds the compute."""

    code, retryable = "lease_held", True


class NameTaken(Conflict):
    """A live row has that name."""

    code = "name_taken"


class ComputeNotConnected(Conflict):
    """No node of the compute can be reached now."""

    code, retryable = "compute_not_connected", True


class ReleasePending(Conflict):
    """Machines are still being given back."""

    code, retryable = "release_pending", True


class ProviderInUse(Conflict):
    """Live computes or machines still need the provider."""

    code = "provider_in_use"


class TaskFailed(Conflict):
    """The task has no result: it failed, was cancelled, or timed out."""

    code = "task_failed"


class TaskIndeterminate(Conflict):
    """The task has no result: contact was lost after its code may have run."""

    code = "task_indeterminate"


class TaskNotRetryable(Conflict):
    """The task is not over yet, or it succeeded: there is nothing to try again."""

    code = "task_not_retryable"


class DuplicationNotAcknowledged(Conflict):
    """Retrying an indeterminate task may run it twice, and that was not accepted."""

    code = "duplication_not_acknowledged"


class Unprocessable(SkyError):
    """The request is well formed, and cannot be meant."""

    status = 422


class ComputeNotAccepting(Unprocessable):
    """The compute is deleting, deleted or failed."""

    code = "compute_not_accepting"


class ComputeNotResizable(Unprocessable):
    """Its nodes are at work together, as many as began it; or a cluster has it, and says how many."""

    code = "compute_not_resizable"


class UnsupportedProvider(Unprocessable):
    """No provider of that kind or name is known."""

    code = "unsupported_provider"


class UnsupportedPlugin(Unprocessable):
    """No plugin of that kind is known."""

    code = "unsupported_plugin"


class SecretInDefinition(Unprocessable):
    """A credential was put where the API would serve it back."""

    code = "secret_in_definition"


class CapabilityMismatch(Unprocessable):
    """The provider, or the node, cannot do what was asked."""

    code = "capability_mismatch"


class CursorExpired(SkyError):
    """The events after that cursor are no longer kept."""

    code, status = "cursor_expired", 410


class Unauthorized(SkyError):
    """No token, or one that is not known."""

    code, status = "unauthorized", 401


class Forbidden(SkyError):
    """The request came under a foreign Host or Origin, or the caller may not do that."""

    code, status = "forbidden", 403


class StorageFull(SkyError):
    """The disk is full. Nothing was written; reads and deletions still work."""

    code, status, retryable = "storage_full", 507, True


class Busy(SkyError):
    """Too much at once. ``after_s`` says when to try again."""

    code, status, retryable = "busy", 503, True


class Internal(SkyError):
    """A bug of ours. The log has the details under the request id."""

    code, status = "internal", 500
