"""The served document of paid jobs: what it must have, and what it may not lose.

Decides: that the interface changes only on purpose. The golden document is written anew by
``SKY_UPDATE_GOLDEN=1 python -m pytest tests/jobs/test_document.py``; look at the difference then.
Never: compares prose by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.jobs.shop import ROOT, Shop

from sky.api.jobs.face import openapi_document
from sky.domain.job_errors import CODES, MEANINGS

TESTS = Path(__file__).parents[1]
GOLDEN = TESTS / "golden" / "jobs.openapi.json"
CONTRACT = TESTS / "contract" / "jobs.openapi.json"
CHECK = TESTS / "contract" / "contract.py"


def test_the_document_has_everything_that_the_contract_names(tmp_path: Path) -> None:
    served = tmp_path / "served.json"
    served.write_text(json.dumps(openapi_document()))
    done = subprocess.run(
        [sys.executable, str(CHECK), str(CONTRACT), str(served)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("0 differences over 14 operations of 13 paths")


def test_the_document_is_the_golden_one() -> None:
    now = json.dumps(openapi_document(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if os.environ.get("SKY_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(now)
    assert GOLDEN.read_text() == now, "the interface has changed; see the head of this file"


def test_the_daemon_serves_the_document_to_anybody(shop: Shop) -> None:
    assert shop.http.get(f"{ROOT}/openapi.json").json() == openapi_document()


def test_every_operation_says_what_it_does_and_how_it_refuses() -> None:
    names: list[str] = []
    for path, item in openapi_document()["paths"].items():
        for method, operation in item.items():
            names.append(operation["operationId"])
            assert operation["summary"], (method, path)
            assert operation["tags"], (method, path)
            for status, said in operation["responses"].items():
                assert said["description"], (method, path, status)
                if status >= "400":
                    assert said["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorEnvelope")
                    assert {CODES[code][1] for code in said["x-error-codes"]} == {int(status)}
    assert len(names) == len(set(names))


def test_every_code_has_a_meaning() -> None:
    assert MEANINGS.keys() == CODES.keys()
