"""The part of botocore that is used here (the package ships no types)."""

from typing import Any

from botocore.config import Config
from botocore.credentials import Credentials

class Session:
    def __init__(self, *, profile: str | None = None) -> None: ...
    def get_credentials(self) -> Credentials | None: ...
    def get_config_variable(self, logical_name: str) -> str | None: ...
    def create_client(
        self,
        service_name: str,
        *,
        region_name: str,
        endpoint_url: str | None = None,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        aws_session_token: str | None = None,
        config: Config | None = None,
    ) -> Any: ...
