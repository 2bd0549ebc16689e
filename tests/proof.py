"""Figures of the tests that are experiments: what ``scripts/prove`` writes into docs/proof.md.

Decides: where a figure goes, and that it is kept under the name of the test that saw it. Never: whether a
test passes; without ``SKY_PROOF_OUT`` nothing is written.
Follows: a figure is a number that the test has counted or measured itself, and its name says the unit.
"""

from __future__ import annotations

import json
import os

OUT = os.environ.get("SKY_PROOF_OUT")
DEEP = OUT is not None
"""Whether a test may take as long as its experiment says, and not only as long as every run can bear."""


def record(**figures: float) -> None:
    """Keep what the test that runs now has seen."""
    if OUT is None:
        return
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
    line = json.dumps({"test": test, "figures": figures}) + "\n"
    descriptor = os.open(OUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
