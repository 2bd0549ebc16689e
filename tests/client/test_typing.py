"""Holds ``typing_cases.py`` against pyright: what must be known is, and what is wrong is an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).with_name("typing_cases.py")
MARK = "# wrong"


def test_the_sdk_is_typed_end_to_end() -> None:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    found = {
        one["range"]["start"]["line"] + 1: one["message"]
        for one in json.loads(done.stdout)["generalDiagnostics"]
        if one["severity"] == "error"
    }
    wrong = {n for n, line in enumerate(CASES.read_text().splitlines(), 1) if line.endswith(MARK)}
    assert {line: text for line, text in found.items() if line not in wrong} == {}
    assert wrong - set(found) == set()
    assert len(wrong) > 10
