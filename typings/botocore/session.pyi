"""The part of botocore that is used here (the package ships no types)."""

from botocore.credentials import Credentials

class Session:
    def get_credentials(self) -> Credentials | None: ...
    def get_config_variable(self, logical_name: str) -> str | None: ...
