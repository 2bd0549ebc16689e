"""The part of joblib that is used here (the package ships no types)."""

from contextlib import AbstractContextManager
from typing import Any

from joblib.parallel import ParallelBackendBase

def parallel_config(
    backend: str | ParallelBackendBase | None = None, *, n_jobs: int | None = None
) -> AbstractContextManager[dict[str, Any]]: ...
