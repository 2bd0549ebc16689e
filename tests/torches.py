"""Where torch is for nodes of the tests: outside of .venv, where ``scripts/setup --tests`` has put it.

Decides: that a test which needs it is left out where it is not, and fails there if all tests are to run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TORCH = "2.13.0"


def torch_folder() -> Path:
    """The folder that nodes need on their path."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "skyfleet" / f"torch-{TORCH}-py{sys.version_info.major}{sys.version_info.minor}"
    if not folder.is_dir():
        missing = f"torch is not at {folder}: scripts/setup --tests puts it there"
        if os.environ.get("SKY_TESTS_ALL"):
            pytest.fail(missing)
        pytest.skip(missing)
    return folder
