"""What AWS answers when it does not do a thing, in the three ways in which a provider may fail.

Decides: which of its codes mean that nothing was bought and never will be like that, and which pass. Never:
repeats a credential. Follows: a code that is not known here and came with a server's error, or with none at
all, is tried again; a client's error is a refusal, since AWS answers so only before it does anything.
"""

from __future__ import annotations

from typing import Final

from sky.providers.base import AgainLater, ProviderError, Refused, RefusedCode

MESSAGE_CHARS = 400
THROTTLED_AFTER_S = 5.0
LATER: Final = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "Unavailable",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "RequestTimeout",
        "IncorrectInstanceState",
        "IncorrectState",
        "PendingVerification",
        "IdempotentParameterMismatch",
        "IdempotentInstanceTerminated",
        "ConcurrentTagAccess",
        "InvalidInstanceID.NotFound",
    }
)
THROTTLED: Final = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "TooManyRequestsException",
        "EC2ThrottledException",
        "BandwidthLimitExceeded",
    }
)
_CODES: Final[dict[str, RefusedCode]] = {
    "VcpuLimitExceeded": "quota",
    "InstanceLimitExceeded": "quota",
    "MaxSpotInstanceCountExceeded": "quota",
    "VolumeLimitExceeded": "quota",
    "MaxIOPSLimitExceeded": "quota",
    "InstanceCreditLimitExceeded": "quota",
    "InsufficientInstanceCapacity": "capacity",
    "InsufficientHostCapacity": "capacity",
    "InsufficientCapacity": "capacity",
    "InsufficientFreeAddressesInSubnet": "capacity",
    "InsufficientAddressCapacity": "capacity",
    "SpotMaxPriceTooLow": "capacity",
    "Unsupported": "capability_mismatch",
    "UnsupportedOperation": "capability_mismatch",
    "UnsupportedHostConfiguration": "capability_mismatch",
    "AuthFailure": "unauthorized",
    "UnauthorizedOperation": "unauthorized",
    "AccessDenied": "unauthorized",
    "AccessDeniedException": "unauthorized",
    "InvalidClientTokenId": "unauthorized",
    "UnrecognizedClientException": "unauthorized",
    "SignatureDoesNotMatch": "unauthorized",
    "InvalidSignatureException": "unauthorized",
    "ExpiredToken": "unauthorized",
    "ExpiredTokenException": "unauthorized",
    "RequestExpired": "unauthorized",
    "MissingAuthenticationToken": "unauthorized",
    "OptInRequired": "unauthorized",
    "Blocked": "unauthorized",
}
_FIELDS: Final = (
    ("InvalidAMIID", "config.image"),
    ("ParameterNotFound", "config.image"),
    ("InvalidSubnet", "config.subnets"),
    ("VPCIdNotSpecified", "config.subnets"),
    ("DefaultVpcDoesNotExist", "config.subnets"),
    ("MissingInput", "config.subnets"),
    ("InvalidGroup", "config.security_groups"),
    ("InvalidSecurityGroup", "config.security_groups"),
    ("InvalidKeyPair", "config.key_name"),
)
_TELLING: Final = (
    ("iamInstanceProfile", "config.instance_profile"),
    ("IamInstanceProfile", "config.instance_profile"),
    ("smaller than snapshot", "config.disk_gb"),
)
_TO_DO: Final[dict[RefusedCode, str]] = {
    "quota": "; ask AWS for a higher quota in that region, or name other regions",
    "unauthorized": "; see docs/providers/aws.md for what the credentials must allow",
}


def failure(region: str, operation: str, code: str, message: str, status: int) -> ProviderError:
    """The failure that an answer of AWS means."""
    said = " ".join(message.split())
    if len(said) > MESSAGE_CHARS:
        said = said[:MESSAGE_CHARS] + "..."
    text = f"AWS, {region}, {operation}: {code}: {said}"
    if code in THROTTLED:
        return AgainLater(text, after_s=THROTTLED_AFTER_S)
    if code in LATER or code.startswith("Server."):
        return AgainLater(text)
    known = _CODES.get(code)
    if known is not None:
        return Refused(text + _TO_DO.get(known, ""), known)
    if not 400 <= status < 500:
        return AgainLater(text)
    return Refused(text, "invalid_request", field=_field(code, message))


def _field(code: str, message: str) -> str | None:
    for begin, field in _FIELDS:
        if code.startswith(begin):
            return field
    for word, field in _TELLING:
        if word in message:
            return field
    return None
