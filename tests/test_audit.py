"""The list of what the product is made of, and that silence of the advisories is not taken for good news."""

from __future__ import annotations

import datetime
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "audit"
TODAY = datetime.date(2026, 11, 30)


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("audit", str(SCRIPT))
    spec = importlib.util.spec_from_loader("audit", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_bill_names_all_that_is_locked_and_is_the_same_each_time() -> None:
    twice = [
        subprocess.run([sys.executable, SCRIPT, "--sbom", "-"], capture_output=True, check=True).stdout
        for _ in "ab"
    ]
    assert twice[0] == twice[1]
    said = json.loads(twice[0])
    assert (said["bomFormat"], said["specVersion"]) == ("CycloneDX", "1.6")
    named = {part["name"]: part for part in said["components"]}
    lines = (ROOT / "requirements" / "all.txt").read_text().splitlines()
    pinned = [line.split()[0].split("==") for line in lines if "==" in line and line[:1].isalnum()]
    assert {name: named[name]["version"] for name, _ in pinned} == dict(pinned)
    assert len(named) == len(pinned)
    hashes = [one for part in named.values() for one in part["properties"] if one["name"].endswith("sha256")]
    assert len(hashes) == sum("--hash=sha256:" in line for line in lines)
    assert named["litestar"]["scope"] == "required"
    assert named["psycopg"]["scope"] == "optional"


def weak(**more: Any) -> dict[str, Any]:
    known = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.0"]}
    return {"dependencies": [{"name": "a", "version": "1.0", "vulns": [known], **more}]}


def test_what_is_known_what_is_allowed_and_what_was_not_asked_are_told_apart(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.judged("run", {"dependencies": [{"name": "a", "version": "1.0", "vulns": []}]}, TODAY) == 0
    assert audit.judged("run", weak(), TODAY) == 1
    assert "a 1.0: PYSEC-1; mended in 2.0" in capsys.readouterr().out
    skipped = {"dependencies": [{"name": "a", "skip_reason": "not there"}]}
    assert audit.judged("run", skipped, TODAY) == 3
    assert audit.judged("run", "no connection", TODAY) == 3
    assert "not asked" in capsys.readouterr().out
    monkeypatch.setitem(audit.ALLOWED, "CVE-1", ("2026-12-01", "not reached"))
    assert audit.judged("run", weak(), TODAY) == 0
    assert audit.judged("run", weak(), TODAY + datetime.timedelta(days=2)) == 1


def test_where_nothing_can_be_installed_it_says_that_nobody_was_asked(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(audit, "TOOLS", tmp_path / "tools")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["audit"])
    assert audit.main() == 3
    assert "not asked: pip-audit could not be installed" in capsys.readouterr().out
