"""The part of botocore that is used here (the package ships no types)."""

class ReadOnlyCredentials:
    access_key: str
    secret_key: str
    token: str | None

class Credentials:
    def get_frozen_credentials(self) -> ReadOnlyCredentials: ...

class RefreshableCredentials(Credentials):
    def refresh_needed(self, refresh_in: float | None = None) -> bool: ...
