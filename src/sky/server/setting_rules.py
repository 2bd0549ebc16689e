"""What must hold among the settings, beyond the type of each.

Decides: which of them do not go together. Never: reads one from anywhere (``settings`` does).
Follows: each complaint names the setting, its value and what would be right.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sky.server.said import SettingsError

if TYPE_CHECKING:
    from sky.server.settings import Settings

_ENDPOINT = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?/?")
_NAME = re.compile(r"(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
NO_ARTIFACTS = "none"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def check(settings: Settings) -> None:
    """Raises SettingsError where something does not hold."""
    _check_address(settings)
    if settings.port is not None and not 0 <= settings.port <= 65_535:
        msg = f"port: {settings.port} is not a port; expected 0 to 65535"
        raise SettingsError(msg)
    if settings.console_url is not None and not _safe(settings.console_url):
        msg = f"console_url: {settings.console_url!r} is neither https nor http on a loopback address"
        raise SettingsError(msg)
    if settings.jobs and settings.accounts_backend == "console" and settings.console_url is None:
        msg = (
            "accounts_backend: 'console' needs the console's address; set SKY_CONSOLE_URL (and "
            "SKY_CONSOLE_TOKEN), or set SKY_ACCOUNTS_BACKEND=local; see docs/console.md"
        )
        raise SettingsError(msg)
    _check_artifacts(settings)


def _check_address(settings: Settings) -> None:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        missing, given = ("tls_key", "tls_cert") if settings.tls_key is None else ("tls_cert", "tls_key")
        msg = f"{missing}: is missing; {given} is {getattr(settings, given)}, and both are needed for TLS"
        raise SettingsError(msg)
    if settings.host not in LOOPBACK and settings.tls_cert is None and not settings.behind_proxy:
        msg = (
            f"host: {settings.host!r} is not a loopback address, so tokens would go over the network for "
            "anybody to read; give --tls-cert and --tls-key, or --behind-proxy where a reverse proxy does TLS"
        )
        raise SettingsError(msg)
    try:
        networks = settings.networks
    except ValueError as error:
        msg = f"proxies: {settings.proxies!r} is not a list of addresses or networks: {error}"
        raise SettingsError(msg) from error
    if settings.behind_proxy and not networks:
        msg = "proxies: is empty, so that no proxy would be believed; give the address that yours has"
        raise SettingsError(msg)
    for name in settings.hosts:
        if not _NAME.fullmatch(name):
            msg = f"names: {name!r} is not a name such as sky.example.com or sky.example.com:8443"
            raise SettingsError(msg)


def _check_artifacts(settings: Settings) -> None:
    if settings.artifacts != NO_ARTIFACTS:
        _check_bucket("artifacts", settings.artifacts, settings.bucket, f" nor {NO_ARTIFACTS}")
    _check_bucket("blobs", settings.blobs, settings.blob_bucket)
    if settings.artifacts_endpoint is not None and not _ENDPOINT.fullmatch(settings.artifacts_endpoint):
        msg = f"artifacts_endpoint: {settings.artifacts_endpoint!r} is not https://host or http://host:port"
        raise SettingsError(msg)
    region = settings.artifacts_region
    if region is not None and not re.fullmatch(r"[a-z0-9-]{1,64}", region):
        msg = f"artifacts_region: {region!r} is not the name of a region"
        raise SettingsError(msg)


def _check_bucket(name: str, said: str | None, bucket: tuple[str, str] | None, others: str = "") -> None:
    prefix = (bucket or ("", ""))[1].rstrip("/")
    strange = prefix and any(part in ("", ".", "..") for part in prefix.split("/"))
    if strange or (said is not None and bucket is None):
        msg = f"{name}: {said!r} is neither s3://bucket nor s3://bucket/prefix{others}"
        raise SettingsError(msg)
    if bucket is not None and find_spec("botocore") is None:
        msg = f"{name}: {said} needs the extra s3; install it with `pip install 'skyfleet[s3]'`"
        raise SettingsError(msg)


def _safe(url: str) -> bool:
    """Whether keys may be sent there: over TLS, or without leaving this computer."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if not parts.hostname or parts.username or parts.query or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
