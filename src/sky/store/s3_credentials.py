"""Finds the credentials of a bucket where AWS's own tools find theirs.

Decides: nothing: botocore walks its usual chain (environment, profile, container, instance) and renews what
expires. Never: keeps one in the database. Follows: loaded only when a bucket is configured, since botocore
comes with the extra ``s3`` and is slow to import.
"""

from __future__ import annotations

from botocore.credentials import RefreshableCredentials
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from sky.kit.clock import SECOND_US, Clock
from sky.store.sigv4 import Credentials, NoCredentialsError

ASKED_S_MAX = 3_600
"""How far ahead it is asked whether credentials expire."""


class Chain:
    """The usual chain of this process. Its methods wait for files and networks: call them in a thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._session = Session()

    def region(self) -> str | None:
        """The region that the environment or the profile names."""
        try:
            return self._session.get_config_variable("region")
        except BotoCoreError as error:
            raise NoCredentialsError(str(error)) from error

    def now(self) -> Credentials:
        """Credentials that are good now. Raises NoCredentialsError."""
        try:
            found = self._session.get_credentials()
            if found is None:
                msg = "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role"
                raise NoCredentialsError(msg)
            frozen = found.get_frozen_credentials()
        except (BotoCoreError, RuntimeError) as error:  # RuntimeError: renewed, and expired all the same
            raise NoCredentialsError(str(error)) from error
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token, self._until_us(found))

    def _until_us(self, found: object) -> int | None:
        """When credentials expire, to the second; None: not within the next hour, or never."""
        if not isinstance(found, RefreshableCredentials) or not found.refresh_needed(ASKED_S_MAX):
            return None
        good_s, over_s = 0, ASKED_S_MAX
        while over_s - good_s > 1:
            middle_s = (good_s + over_s) // 2
            if found.refresh_needed(middle_s):
                over_s = middle_s
            else:
                good_s = middle_s
        return self._clock.now_us() + good_s * SECOND_US
