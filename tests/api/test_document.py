"""The served document: what it must have, what it may not lose, and that the daemon keeps to it.

Decides: that the interface changes only on purpose. The golden document is written anew by
``SKY_UPDATE_GOLDEN=1 python -m pytest tests/api/test_document.py``; look at the difference before you commit.
Never: compares prose by hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from sky.api.app import openapi_document
from sky.domain import errors

TESTS = Path(__file__).parents[1]
GOLDEN = TESTS / "golden" / "v1.openapi.json"
CONTRACT = TESTS / "contract" / "control-plane.openapi.json"
CHECK = TESTS / "contract" / "contract.py"
FUZZ_SECONDS = 400


def test_the_document_has_everything_that_the_contract_names(tmp_path: Path) -> None:
    served = tmp_path / "served.json"
    served.write_text(json.dumps(openapi_document()))
    done = subprocess.run(
        [sys.executable, str(CHECK), str(CONTRACT), str(served)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("0 differences")


def test_the_document_is_the_golden_one() -> None:
    now = json.dumps(openapi_document(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if os.environ.get("SKY_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(now)
    assert GOLDEN.read_text() == now, "the interface has changed; see the head of this file"


def test_the_daemon_serves_the_document(api: Any) -> None:
    assert api("GET", "/v1/openapi.json").json == openapi_document()


def test_every_operation_says_what_it_does_and_how_it_refuses() -> None:
    known = {
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.SkyError)
    }
    names: list[str] = []
    for path, item in openapi_document()["paths"].items():
        for method, operation in item.items():
            names.append(operation["operationId"])
            assert operation["summary"], (method, path)
            assert operation["tags"], (method, path)
            for status, said in operation["responses"].items():
                assert said["description"], (method, path, status)
                if status >= "400":
                    assert said["content"]["application/json"]["schema"]["$ref"].endswith("/Error")
                    assert set(said["x-error-codes"]) <= known
    assert len(names) == len(set(names))


def test_the_page_is_readable_and_loads_nothing(api: Any) -> None:
    page = api("GET", "/docs")
    text = page.content.decode()
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.search(r"<script|<link|<img|<iframe|https?://|@import|url\(", text)
    for path in openapi_document()["paths"]:
        assert path in text
    for name in openapi_document()["components"]["schemas"]:
        assert f'id="shape-{name.lower()}"' in text
    targets = set(re.findall(r'href="#([^"]+)"', text))
    assert targets <= set(re.findall(r'id="([^"]+)"', text))


def shortened(text: str) -> str:
    """A report whose longest lines are cut."""
    return "\n".join(line[:300] for line in text.splitlines() if line.strip())[-8000:]


@pytest.fixture
def alone(daemon: Any, tmp_path: Path) -> Iterator[str]:
    """The address of a daemon that nothing else uses: random requests change whatever they find."""
    home = tmp_path / "home"
    home.mkdir()
    own = type(daemon)(home, free_port())
    own.start()
    yield own.url
    own.stop()


@pytest.mark.timeout(FUZZ_SECONDS + 30)
def test_the_daemon_keeps_to_the_document(alone: str, tmp_path: Path) -> None:
    here = Path(__file__).parent
    command = [
        str(Path(sys.executable).parent / "schemathesis"),
        f"--config-file={here / 'schemathesis.toml'}",
        "run",
        f"{alone}/v1/openapi.json",
        "--phases=coverage,fuzzing",
        "--exclude-path=/v1/events",  # never ends; tests/api/test_events.py reads it
        "--exclude-method=HEAD",
        "--max-examples=3",
        "--seed=1",
        "--workers=1",
        "--request-timeout=60",
        "--continue-on-failure",
        "--warnings=off",
        "--no-color",
    ]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": str(here)}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=FUZZ_SECONDS,
        check=False,
    )
    assert done.returncode == 0, shortened(done.stdout) + done.stderr[-2000:]
    assert "No issues found" in done.stdout
