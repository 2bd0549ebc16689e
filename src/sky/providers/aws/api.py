"""Calls to AWS: botocore in threads of their own, each bounded in time, each failure translated.

Decides: with which credentials, for how long, and in which threads a region is asked. Never: repeats a
call, or lets a region that does not answer keep the threads of another. Follows: what comes back is the
answer as AWS documents it, or a ProviderError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from threading import Lock
from typing import Any, Final, NamedTuple

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.session import Session

from sky.providers.aws.config import AwsConfig
from sky.providers.aws.failure import failure
from sky.providers.base import AgainLater, ProviderError, Refused

CONNECT_S = 3.0
READ_S = 10.0
CALL_S = 15.0
THREADS_A_REGION = 4
CLIENTS_MAX = 256
PAGES_MAX = 50
_making = Lock()
_UNUSABLE: Final = (NoCredentialsError, PartialCredentialsError, ProfileNotFound, CredentialRetrievalError)


class Access(NamedTuple):
    """Whose account; without keys, whatever AWS's own tools would use here."""

    access_key_id: str | None
    secret_access_key: str | None
    session_token: str | None
    profile: str | None
    endpoint_url: str | None


class Api:
    """One account. Raises ProviderError."""

    def __init__(self, config: AwsConfig, credentials: Mapping[str, str]) -> None:
        self._access = Access(
            credentials.get("access_key_id") or None,
            credentials.get("secret_access_key") or None,
            credentials.get("session_token") or None,
            config.profile,
            config.endpoint_url,
        )
        if (self._access.access_key_id is None) != (self._access.secret_access_key is None):
            field = "secret_access_key" if self._access.access_key_id else "access_key_id"
            msg = f"credentials: {field} is missing; give both of the pair, or neither"
            raise Refused(msg, "unauthorized", field=f"credentials.{field}")

    async def call(self, region: str, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """One operation, by its name in Python."""
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(_threads(region), self._call, region, service, operation, parameters)
        try:
            return await asyncio.wait_for(work, CALL_S)
        except TimeoutError:
            raise AgainLater(f"AWS, {region}, {operation}: no answer within {CALL_S:.0f} s") from None

    async def pages(
        self, region: str, service: str, operation: str, key: str, **parameters: Any
    ) -> list[dict[str, Any]]:
        """All that a listing has under ``key``, page by page."""
        found: list[dict[str, Any]] = []
        for _ in range(PAGES_MAX):
            answer = await self.call(region, service, operation, **parameters)
            found += answer.get(key) or []
            if not answer.get("NextToken"):
                return found
            parameters["NextToken"] = answer["NextToken"]
        raise AgainLater(f"AWS, {region}, {operation}: more than {PAGES_MAX} pages")

    def _call(self, region: str, service: str, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        try:
            with _making:
                client = _client(self._access, region, service)
            return getattr(client, operation)(**parameters)
        except ClientError as error:
            raise self._translated(region, operation, error) from None
        except _UNUSABLE as error:
            msg = f"AWS, {region}: {error}; add access_key_id and secret_access_key to the provider"
            raise Refused(msg, "unauthorized") from None
        except BotoCoreError as error:
            raise AgainLater(f"AWS, {region}, {operation}: {self._masked(str(error))}") from None

    def _translated(self, region: str, operation: str, error: ClientError) -> ProviderError:
        said = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        message = self._masked(str(said.get("Message", "")))
        return failure(region, operation, str(said.get("Code", "")), message, int(status))

    def _masked(self, text: str) -> str:
        for secret in self._access[:3]:
            if secret:
                text = text.replace(secret, "***")
        return text


@cache
def _threads(region: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS_A_REGION, f"aws-{region}")


@lru_cache(CLIENTS_MAX)
def _session(profile: str | None) -> Session:
    return Session(profile=profile)


@lru_cache(CLIENTS_MAX)
def _client(access: Access, region: str, service: str) -> Any:
    """Made once: that takes longer than most calls. It is safe to use from several threads."""
    return _session(access.profile).create_client(
        service,
        region_name=region,
        endpoint_url=access.endpoint_url,
        aws_access_key_id=access.access_key_id,
        aws_secret_access_key=access.secret_access_key,
        aws_session_token=access.session_token,
        config=Config(
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            retries={"total_max_attempts": 1, "mode": "standard"},
            max_pool_connections=THREADS_A_REGION,
            user_agent_extra="skyfleet",
        ),
    )
