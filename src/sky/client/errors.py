"""Every error a caller of Skyfleet can see, as one tree.

Decides: which class stands for which answer, and that each says what was wrong and what to do about it.
Never: raised bare, or with an empty message.

    SkyError
    ├── ApiError                    the daemon answered, and said no: code, status, retryable, details
    │   ├── InvalidRequest          400, 405, 415, 422, 428: what was sent cannot be accepted as it is
    │   │   ├── CapabilityMismatch  422: what was asked for does not fit where it would run
    │   │   └── SecretInDefinition  422: a credential was put where it would be served back
    │   ├── NotFound                404: no such thing
    │   ├── Conflict                409: what is there already forbids it
    │   │   ├── RevisionConflict    412: somebody changed it in between
    │   │   ├── LeaseHeld           409: another process holds this compute
    │   │   ├── DuplicationNotAcknowledged  409: a retry may run twice what may have run
    │   │   ├── NameTaken           409: another compute or provider has this name
    │   │   └── CursorExpired       410: the events after this place are no longer kept
    │   ├── NotAccepting            409, 422: the compute is deleting, failed, or not connected
    │   ├── AccessDenied            401, 403
    │   ├── Unavailable             5xx, 503, 507: the daemon cannot now
    │   └── JobRefused              a seller of paid jobs said no: type, code, param, quotas, retry_after
    │       ├── JobNotFound         404: you have no such job (also NotFound)
    │       ├── InsufficientBalance 402: the balance does not cover what would be held
    │       ├── QuotaExceeded       403: quotas tell which limit, and what is left of it
    │       └── RateLimited         429: retry_after is in seconds
    ├── CallError                   a call ended without a result: task, and its last known error
    │   ├── TaskFailed              it raised, and what it raised cannot be raised here
    │   ├── TaskIndeterminate       contact was lost after it may have run
    │   ├── TaskCancelled           somebody cancelled it
    │   └── TaskTimedOut            it ran longer than its timeout (also a TimeoutError)
    ├── ComputeFailed               a compute cannot become ready, with the reason the daemon knows
    ├── JobFailed                   a paid job ended without success; job is how it ended
    ├── TransferFailed              a file of a job did not arrive as it was written
    ├── DaemonError
    │   ├── DaemonUnreachable       nobody answers at that address (also a ConnectionError)
    │   ├── DaemonStartFailed       the daemon was started here and did not come up
    │   └── DaemonStopFailed        the daemon was asked to end and has not
    ├── PackError                   a function, an argument or a result cannot be turned into bytes or back
    └── NotInCall, NotEntered       used at the wrong place (also RuntimeErrors)

What a called function raised is raised again as what it was; none of these classes stands in its way.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sky.wire.jobs import Job, QuotaViolation


class SkyError(Exception):
    """Anything Skyfleet raises."""


class ApiError(SkyError):
    """The daemon refused. Match on ``code``; try again only if ``retryable``. ``status`` is HTTP's.

    ``api_version``: which version of requests the server speaks, where its answer said so.
    """

    api_version: int | None = None

    def __init__(
        self,
        message: str,
        code: str = "internal",
        status: int = 500,
        retryable: bool = False,
        details: dict[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.retryable = retryable
        self.details: dict[str, Any] = details or {}
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.message, self.code, self.status, self.retryable, self.details, self.request_id)
        return type(self), given


class InvalidRequest(ApiError):
    """What was sent cannot be accepted as it is; ``details`` name the field and the rule."""


class CapabilityMismatch(InvalidRequest):
    """What was asked for does not fit the place where it would run."""


class SecretInDefinition(InvalidRequest):
    """A credential was put where it would be served back."""


class NotFound(ApiError):
    """There is no such thing."""


class Conflict(ApiError):
    """What is there already forbids it."""


class RevisionConflict(Conflict):
    """Somebody changed it since it was read."""


class LeaseHeld(Conflict):
    """Another process holds this compute."""


class NameTaken(Conflict):
    """The name belongs to another one."""


class DuplicationNotAcknowledged(Conflict):
    """What may have run already is run again only by who accepts that: ``acknowledge_duplication``."""


class CursorExpired(Conflict):
    """The events after this place are no longer kept."""


class NotAccepting(ApiError):
    """The compute takes no calls: it is being deleted, has failed, or has no node connected."""


class AccessDenied(ApiError):
    """No token, a wrong one, or one that may not do this."""


class Unavailable(ApiError):
    """The daemon cannot do it now."""


class JobRefused(ApiError):
    """A seller of paid jobs said no. ``type`` is the class of the refusal, ``code`` its reason, ``param`` the
    field at fault, ``quotas`` the limits that would be exceeded, ``retry_after`` seconds to wait."""

    def __init__(
        self,
        message: str,
        code: str = "internal_error",
        status: int = 500,
        *,
        kind: str = "internal_error",
        param: str | None = None,
        quotas: tuple[QuotaViolation, ...] = (),
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, code, status, status in (429, 503), None, request_id)
        self.type = kind
        self.param = param
        self.quotas = quotas
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        remade = partial(
            type(self),
            kind=self.type,
            param=self.param,
            quotas=self.quotas,
            retry_after=self.retry_after,
            request_id=self.request_id,
        )
        return remade, (self.message, self.code, self.status)


class JobNotFound(JobRefused, NotFound):
    """You have no such job."""


class InsufficientBalance(JobRefused):
    """The balance does not cover what would be held."""


class QuotaExceeded(JobRefused):
    """The job would exceed a limit of the account or of the deployment; ``quotas`` has them."""


class RateLimited(JobRefused):
    """The key asks more often than it may; try again after ``retry_after`` seconds."""


_BY_JOB_CODE: dict[str, type[JobRefused]] = {
    "job_not_found": JobNotFound,
    "insufficient_balance": InsufficientBalance,
    "quota_exceeded": QuotaExceeded,
    "rate_limited": RateLimited,
}


def job_refused_class(code: str) -> type[JobRefused]:
    """The class for a refusal of paid jobs."""
    return _BY_JOB_CODE.get(code, JobRefused)


_BY_CODE: dict[str, type[ApiError]] = {
    "not_found": NotFound,
    "revision_conflict": RevisionConflict,
    "lease_held": LeaseHeld,
    "duplication_not_acknowledged": DuplicationNotAcknowledged,
    "name_taken": NameTaken,
    "cursor_expired": CursorExpired,
    "compute_not_connected": NotAccepting,
    "compute_not_accepting": NotAccepting,
    "capability_mismatch": CapabilityMismatch,
    "secret_in_definition": SecretInDefinition,
    "unauthorized": AccessDenied,
    "forbidden": AccessDenied,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequest,
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    405: InvalidRequest,
    409: Conflict,
    410: CursorExpired,
    412: RevisionConflict,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
    428: InvalidRequest,
}


def api_error_class(code: str, status: int) -> type[ApiError]:
    """The class for an answer: by its code where one has a class of its own, else by its status."""
    by_status = Unavailable if status >= 500 else _BY_STATUS.get(status, ApiError)
    return _BY_CODE.get(code, by_status)


class CallError(SkyError):
    """A call ended without a result. ``task`` is its id; ``details`` what is known about the end."""

    def __init__(self, message: str, task: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.task = task
        self.details: dict[str, Any] = details or {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.task, self.details)


class TaskFailed(CallError):
    """The function raised something that cannot be raised here; the message says what it was."""


class TaskIndeterminate(CallError):
    """Contact was lost after the function may have run: it may have had its effects, or not."""


class TaskCancelled(CallError):
    """The call was cancelled."""


class TaskTimedOut(CallError, TimeoutError):
    """The function ran longer than its timeout and was stopped."""


class ComputeFailed(SkyError):
    """A compute did not become ready. ``compute`` is its id or name; the message carries the reason."""

    def __init__(self, message: str, compute: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.compute = compute
        self.details: dict[str, Any] = details or {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.compute, self.details)


class JobFailed(SkyError):
    """A paid job ended without success. ``job`` is how it ended: status, error, usage."""

    def __init__(self, message: str, job: Job) -> None:
        super().__init__(message)
        self.job = job

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.job)


class TransferFailed(SkyError):
    """A file of a job did not arrive as it was written, however often it was asked for."""


class DaemonError(SkyError):
    """Something about the daemon itself."""


class DaemonUnreachable(DaemonError, ConnectionError):
    """Nobody answers at the daemon's address."""


class DaemonStartFailed(DaemonError):
    """The daemon was started here and did not come up; the message ends with the tail of its log."""


class DaemonStopFailed(DaemonError):
    """The daemon was asked to end and is still there."""


class PackError(SkyError):
    """A value cannot be turned into bytes, or bytes cannot be turned into a value here."""


class NotInCall(SkyError, RuntimeError):
    """Something that only exists inside a running call was asked for outside one."""


class NotEntered(SkyError, RuntimeError):
    """A compute was used outside its ``with`` block."""


class RemoteTraceback(Exception):
    """Stands as the cause of a remote exception and shows the traceback it had where it happened."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "\n" + self.text.rstrip("\n")
