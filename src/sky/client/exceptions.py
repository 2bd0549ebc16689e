"""What requests fail with, as one tree under SkyError.

Decides: which class an error's name stands for, and what its users can read off it.
Never: raised bare, or with an empty message. Follows: an error that a server names and this release does not
know is still raised, as RequestFailed with that name.

    SkyError
    ├── RequestFailed                      a request failed: type, details, request_id
    │   ├── ClusterDoesNotExist            no cluster of that name (also a ValueError)
    │   ├── ClusterNotUpError              it is there, and not up: cluster_status, handle (also a ValueError)
    │   ├── ClusterNameTakenError          the name belongs to another one
    │   ├── ClusterOwnerIdentityMismatchError  it belongs to somebody else
    │   ├── ClusterSetUpError              its machines could not be made ready
    │   ├── ResourcesUnavailableError      no such machines can be had now: failover_history
    │   ├── ResourcesMismatchError         the cluster's machines are not what the task wants
    │   ├── CommandError                   a script ended with another code than 0: returncode, command
    │   ├── JobNotFoundError               the cluster has no such job
    │   ├── JobError                       a job failed
    │   ├── InvalidTaskError               a task cannot be run as it is (also a ValueError)
    │   │   └── InvalidTaskYAMLError       a task file is wrong: file, line, field
    │   ├── InvalidCloudError              there is no such cloud, or it cannot be used (also a ValueError)
    │   ├── CloudError                     a provider does not do what it was asked to do
    │   ├── InvalidArgument                a parameter cannot be what it is (also a ValueError)
    │   ├── PortNotOpenError               the cluster was launched without that port (also a ValueError)
    │   ├── NotSupportedError              what was asked for cannot be done there
    │   ├── NoCloudAccessError             no cloud can be used
    │   ├── PermissionDeniedError          the user may not do that
    │   ├── StorageError                   something about a storage: StorageSpecError, StorageNotFoundError
    │   ├── RequestCancelled               somebody cancelled the request
    │   ├── RequestNotFound                no request with that id (also a ValueError)
    │   └── RequestTimedOut                it took longer than it may (also a TimeoutError)
    ├── APINotSupportedError               client and server are too far apart, or the server too old for this
    ├── InvalidEndpointError               that is no address of a server (also a ValueError)
    ├── ApiServerConnectionError           nobody answers there (also DaemonUnreachable, ConnectionError)
    └── ApiServerAuthenticationError       no token, or one that is not known there (also AccessDenied)
"""

from __future__ import annotations

import enum
from typing import Any

from sky.client.errors import AccessDenied, DaemonUnreachable, SkyError


class JobExitCode(enum.IntEnum):
    """What following a job's log ends with, by how the job stands."""

    SUCCEEDED = 0
    FAILED = 100
    NOT_FINISHED = 101
    NOT_FOUND = 102
    CANCELLED = 103

    @classmethod
    def from_job_status(cls, status: str | None) -> JobExitCode:
        """The code for a job's status; None: there is no such job."""
        if status is None:
            return cls.NOT_FOUND
        if status in ("SUCCEEDED", "CANCELLED"):
            return cls[str(status)]
        return cls.FAILED if str(status).startswith("FAILED") else cls.NOT_FINISHED


def _remade(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    made = kind.__new__(kind, *args)
    made.args = args
    made.__dict__.update(state)
    return made


class _Kept(SkyError):
    """An error that is the same after pickling, whatever its constructor takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args, dict(self.__dict__))


class RequestFailed(_Kept):
    """A request failed. ``type`` is the error's name, ``details`` what else is known of it, ``request_id``
    the request (None: it was refused before it was one)."""

    def __init__(
        self, message: str = "", details: dict[str, Any] | None = None, *, kind: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details or {}
        self.type = kind or type(self).__name__
        self.request_id: str | None = None

    def __str__(self) -> str:
        return self.message if self.type == type(self).__name__ else f"{self.type}: {self.message}"

    @classmethod
    def told(cls, message: str, details: dict[str, Any]) -> RequestFailed:
        """The error as a server tells of it."""
        return cls(message, details)


class ClusterDoesNotExist(RequestFailed, ValueError):
    """There is no cluster of that name."""


class ClusterNotUpError(RequestFailed, ValueError):
    """The cluster is there, and not up."""

    def __init__(
        self,
        message: str = "",
        cluster_status: Any = None,
        handle: Any = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, details)
        self.cluster_status = cluster_status
        self.handle = handle

    @classmethod
    def told(cls, message: str, details: dict[str, Any]) -> RequestFailed:
        """The error as a server tells of it."""
        return cls(message, details.get("cluster_status"), details.get("handle"), details)


class ClusterNameTakenError(RequestFailed, ValueError):
    """The name belongs to another cluster."""


class ClusterOwnerIdentityMismatchError(RequestFailed):
    """The cluster belongs to somebody else."""


class ClusterSetUpError(RequestFailed):
    """The cluster's machines could not be made ready."""


class ResourcesUnavailableError(RequestFailed):
    """No such machines can be had now. ``failover_history`` tells what was tried."""

    def __init__(
        self,
        message: str = "",
        no_failover: bool = False,
        failover_history: list[Any] | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, details)
        self.no_failover = no_failover
        self.failover_history: list[Any] = failover_history or []

    @classmethod
    def told(cls, message: str, details: dict[str, Any]) -> RequestFailed:
        """The error as a server tells of it."""
        return cls(message, False, details.get("failover_history"), details)


class ResourcesMismatchError(RequestFailed):
    """The cluster's machines are not what the task wants."""


class CommandError(RequestFailed):
    """A script ended with another code than 0. ``returncode`` is None where it is not known."""

    def __init__(
        self,
        returncode: int | None,
        command: str = "",
        error_msg: str = "",
        detailed_reason: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        message = error_msg or f"the command {command!r} ended with {returncode}"
        super().__init__(message, details)
        self.returncode = returncode
        self.command = command
        self.error_msg = error_msg
        self.detailed_reason = detailed_reason

    @classmethod
    def told(cls, message: str, details: dict[str, Any]) -> RequestFailed:
        """The error as a server tells of it."""
        code, reason = details.get("returncode"), details.get("detailed_reason")
        return cls(code, details.get("command", ""), message, reason, details)


class JobNotFoundError(RequestFailed, ValueError):
    """The cluster has no such job."""


class JobError(RequestFailed):
    """A job failed."""


class InternalError(RequestFailed):
    """The server broke on the request, and its log says how."""


class InvalidTaskError(RequestFailed, ValueError):
    """A task cannot be run as it is."""


class InvalidTaskYAMLError(InvalidTaskError):
    """A task file is wrong; the message names file, line and field."""


class InvalidCloudError(RequestFailed, ValueError):
    """There is no such cloud, or it cannot be used."""


class CloudError(RequestFailed):
    """A provider does not do what it was asked to do, such as taking a machine back."""


class InvalidArgument(RequestFailed, ValueError):
    """A parameter cannot be what it is."""


class PortNotOpenError(RequestFailed, ValueError):
    """The cluster was launched without that port."""


class NotSupportedError(RequestFailed):
    """What was asked for cannot be done there."""


class NoCloudAccessError(RequestFailed):
    """No cloud can be used."""


class PermissionDeniedError(RequestFailed):
    """The user may not do that."""


class StorageError(RequestFailed):
    """Something about a storage."""


class StorageSpecError(StorageError, ValueError):
    """A storage cannot be what it was said to be."""


class StorageNotFoundError(StorageError, ValueError):
    """There is no storage of that name."""


class RequestCancelled(RequestFailed):
    """Somebody cancelled the request."""


class RequestNotFound(RequestFailed, ValueError):
    """There is no request with that id, or several begin so."""


class RequestTimedOut(RequestFailed, TimeoutError):
    """The request took longer than it may."""


class APINotSupportedError(_Kept):
    """Client and server are too far apart, or the server is too old for what was used."""


class InvalidEndpointError(_Kept, ValueError):
    """That is no address of a server."""


class ApiServerConnectionError(DaemonUnreachable):
    """Nobody answers at the endpoint. ``endpoint`` is its address."""

    def __init__(self, endpoint: str, reason: str = "") -> None:
        shown = f" ({reason})" if reason else ""
        super().__init__(
            f"no answer from the server at {endpoint}{shown}. `sky api info` tells which server is meant; "
            "`sky api start` starts one here, `sky api login -e URL` names another"
        )
        self.endpoint = endpoint
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.endpoint, self.reason)


class ApiServerAuthenticationError(AccessDenied):
    """The server at ``endpoint`` knows no such token, or was shown none."""

    def __init__(self, endpoint: str, reason: str = "") -> None:
        shown = f": {reason}" if reason else ""
        super().__init__(
            f"the server at {endpoint} did not let us in{shown}. `sky api login -e {endpoint} --token sky_…` "
            "stores another token",
            "unauthorized",
            401,
        )
        self.endpoint = endpoint
        self.reason = reason

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.endpoint, self.reason)


BY_NAME: dict[str, type[RequestFailed]] = {
    name: kind
    for name, kind in globals().items()
    if isinstance(kind, type) and issubclass(kind, RequestFailed) and name != "RequestFailed"
}
"""The errors of requests by the names that servers give them."""


def of_record(
    name: str, message: str, details: dict[str, Any], request_id: str | None
) -> RequestFailed | APINotSupportedError:
    """The error that a server tells of, as its own type; of a name that is not known, as RequestFailed."""
    if name == "APINotSupportedError":
        return APINotSupportedError(message)
    kind = BY_NAME.get(name)
    error = RequestFailed(message, details, kind=name) if kind is None else kind.told(message, details)
    error.request_id = request_id
    return error
