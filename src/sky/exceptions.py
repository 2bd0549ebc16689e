"""What requests fail with, under the name that programs know it by: ``sky.exceptions``.

Decides: nothing; the tree is drawn and explained in ``sky.client.exceptions``. Never: has a class of its own.
Follows: ``import sky.exceptions`` and ``from sky import exceptions`` give the same.
"""

from __future__ import annotations

from sky.client.errors import SkyError
from sky.client.exceptions import (
    APINotSupportedError,
    ApiServerAuthenticationError,
    ApiServerConnectionError,
    ClusterDoesNotExist,
    ClusterNameTakenError,
    ClusterNotUpError,
    ClusterOwnerIdentityMismatchError,
    ClusterSetUpError,
    CommandError,
    InvalidArgument,
    InvalidCloudError,
    InvalidEndpointError,
    InvalidTaskError,
    InvalidTaskYAMLError,
    JobError,
    JobExitCode,
    JobNotFoundError,
    NoCloudAccessError,
    NotSupportedError,
    PermissionDeniedError,
    RequestCancelled,
    RequestFailed,
    RequestNotFound,
    RequestTimedOut,
    ResourcesMismatchError,
    ResourcesUnavailableError,
    StorageError,
    StorageNotFoundError,
    StorageSpecError,
)

__all__ = [
    "APINotSupportedError",
    "ApiServerAuthenticationError",
    "ApiServerConnectionError",
    "ClusterDoesNotExist",
    "ClusterNameTakenError",
    "ClusterNotUpError",
    "ClusterOwnerIdentityMismatchError",
    "ClusterSetUpError",
    "CommandError",
    "InvalidArgument",
    "InvalidCloudError",
    "InvalidEndpointError",
    "InvalidTaskError",
    "InvalidTaskYAMLError",
    "JobError",
    "JobExitCode",
    "JobNotFoundError",
    "NoCloudAccessError",
    "NotSupportedError",
    "PermissionDeniedError",
    "RequestCancelled",
    "RequestFailed",
    "RequestNotFound",
    "RequestTimedOut",
    "ResourcesMismatchError",
    "ResourcesUnavailableError",
    "SkyError",
    "StorageError",
    "StorageNotFoundError",
    "StorageSpecError",
]
