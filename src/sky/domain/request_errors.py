"""What a request can fail with, by the names that the SDK raises.

Decides: which names there are. Never: words a message. Follows: a failure that is not named here cannot be
kept.
"""

from __future__ import annotations

from typing import Any, Final

KINDS: Final = frozenset(
    {
        "CloudError",
        "ClusterDoesNotExist",
        "ClusterNameTakenError",
        "ClusterNotUpError",
        "ClusterOwnerIdentityMismatchError",
        "CommandError",
        "InternalError",
        "InvalidArgument",
        "InvalidCloudError",
        "InvalidTaskError",
        "JobNotFoundError",
        "NotSupportedError",
        "PortNotOpenError",
        "RequestCancelled",
        "ResourcesMismatchError",
        "ResourcesUnavailableError",
        "StorageError",
        "StorageNotFoundError",
    }
)


class RequestFailure(Exception):
    """A request cannot have what it asks for."""

    def __init__(self, kind: str, message: str, **details: Any) -> None:
        if kind not in KINDS:
            msg = f"there is no failure {kind!r}"
            raise ValueError(msg)
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.details = details

    def record(self) -> dict[str, Any]:
        """As it is kept."""
        told: dict[str, Any] = {"type": self.kind, "message": self.message}
        return {**told, "details": self.details} if self.details else told
