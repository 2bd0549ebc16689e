"""What SkyPilot says when it does not do a thing, in the three ways in which a provider may fail.

Decides: which of its errors mean that there is nothing to be had like that, and which pass. Never: shows the
colours that SkyPilot writes for terminals. Follows: a message begins with where it was said and ends with
what to do; an error that is not known here is a refusal only where it came from a launch that has ended.
"""

from __future__ import annotations

import re
from typing import Final

from sky.providers.base import AgainLater, ProviderError, Refused, RefusedCode
from sky.providers.skypilot.shape import Item

MESSAGE_CHARS = 1_200
LATER_S = 10.0
CANCELLED = "RequestCancelled"
LATER: Final = frozenset(
    {
        CANCELLED,
        "RequestInterruptedError",
        "ServerTemporarilyUnavailableError",
        "ExecutionRetryableError",
        "ExecutionPausedError",
        "ExecutionPoolFullError",
        "ConcurrentWorkerExhaustedError",
        "KubeAPIUnreachableError",
        "ClusterStatusFetchingError",
        "FetchClusterInfoError",
        "NetworkError",
        "SkyletUnavailableError",
        "ApiServerConnectionError",
        "ConnectionError",
        "TimeoutError",
        "OSError",
    }
)
_CODES: Final[dict[str, RefusedCode]] = {
    "NoCloudAccessError": "unauthorized",
    "InvalidCloudCredentials": "unauthorized",
    "CloudUserIdentityError": "unauthorized",
    "ClusterOwnerIdentityMismatchError": "unauthorized",
    "PermissionDeniedError": "unauthorized",
    "NoWorkspaceAccessError": "unauthorized",
    "ApiServerAuthenticationError": "unauthorized",
    "ResourcesMismatchError": "capability_mismatch",
    "NotSupportedError": "capability_mismatch",
    "ProvisionUnsupportedError": "capability_mismatch",
    "KubernetesValidationError": "invalid_request",
    "InvalidCloudConfigs": "invalid_request",
    "InvalidSkyPilotConfigError": "invalid_request",
    "InvalidClusterNameError": "invalid_request",
    "UserRequestRejectedByPolicy": "invalid_request",
    "WorkspaceAmbiguousError": "invalid_request",
    "ValueError": "invalid_request",
    "ResourcesUnavailableError": "capacity",
    "CommandError": "capacity",
    "ClusterSetUpError": "capacity",
    "ClusterNotUpError": "capacity",
}
_SAID: Final[tuple[tuple[re.Pattern[str], RefusedCode], ...]] = (
    (
        re.compile(r"invalid cloud credentials|credentials? (has|have|is|are) (expired|not)", re.IGNORECASE),
        "unauthorized",
    ),
    (re.compile(r"invalid cloud config", re.IGNORECASE), "invalid_request"),
    (re.compile(r"quota|limit ?exceeded|vcpulimit", re.IGNORECASE), "quota"),
    (
        re.compile(r"no launchable resource|no resource satisfying|catalog does not contain", re.IGNORECASE),
        "capability_mismatch",
    ),
)
"""What tells one cause from another in an error that SkyPilot has one type for."""
_TO_DO: Final[dict[RefusedCode, str]] = {
    "unauthorized": "; set the cloud's credentials up where SkyPilot's server runs, and see what 'sky check' "
    "of SkyPilot says there",
    "quota": "; ask the cloud for a higher quota, or leave config.infra to SkyPilot",
    "capability_mismatch": "; ask for another size or accelerator, or widen config.infra",
    "invalid_request": "; see docs/providers/skypilot.md",
}
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SPACES: Final = re.compile(r"\s+")


def clean(text: object, chars_max: int = MESSAGE_CHARS) -> str:
    """One line without colours."""
    said = _SPACES.sub(" ", _COLOURS.sub("", str(text))).strip()
    return said if len(said) <= chars_max else said[:chars_max] + "..."


def failure(where: str, error: Item, log: str = "", *, launch: bool = False) -> ProviderError:
    """The failure that the error of a request means. ``log``: what the request has written last."""
    kind, said = str(error.get("type") or "an error"), clean(error.get("message") or "")
    ending = f" (its log ends: {log})" if log and log not in said else ""
    text = f"{where}: {kind}: {said}{ending}"
    if kind in LATER:
        return AgainLater(text, LATER_S)
    code: RefusedCode | None = _CODES.get(kind)
    if code == "capacity":
        code = _told_apart(said)
    if code is None:
        # A type that a later patch release has, or a cloud's own.
        return Refused(text, "capacity") if launch else AgainLater(text, LATER_S)
    return Refused(text.rstrip(".") + _TO_DO.get(code, ""), code)


def _told_apart(said: str) -> RefusedCode:
    for pattern, code in _SAID:
        if pattern.search(said):
            return code
    return "capacity"
