"""The part of botocore that is used here (the package ships no types)."""

class Config:
    def __init__(
        self,
        *,
        connect_timeout: float = ...,
        read_timeout: float = ...,
        retries: dict[str, object] = ...,
        max_pool_connections: int = ...,
        user_agent_extra: str = ...,
    ) -> None: ...
