"""``sky`` as somebody runs it whose test is about something else than its start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli import warm

SKY = Path(sys.executable).with_name("sky")


def sky(
    *words: str, environment: Mapping[str, str], stdin: str = "", timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a command with pipes and wait for its end. Raises TimeoutError."""
    code, out, err = warm.loaded(SKY).run(words, stdin, dict(environment), Path.cwd(), timeout_s)
    return subprocess.CompletedProcess([str(SKY), *words], code, out, err)
