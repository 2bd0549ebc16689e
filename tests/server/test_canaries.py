"""Secrets that programs print: none is found again in what the daemon keeps or shows of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port

from sky.kit.masks import Masks
from sky.server.keys import Keys
from sky.server.wiring import hidden

TOKEN = "Tzq-9f83hKdPw-canary-one"
IN_ENVIRONMENT = "kP72-canary-two-xyzzy"
SHAPED = "hf_" + "Canary3" * 6
RUN_S = 60.0
PRINTS = """
import logging, sys

def prints(*backwards: str):
    for secret in (text[::-1] for text in backwards):
        print("plain", secret)
        sys.stdout.write("in two " + secret[:7]); sys.stdout.flush(); print(secret[7:])
        print("x" * (65_536 - 11), secret)
        logging.warning("logged %s", secret)
        print("to stderr", secret, file=sys.stderr)
    raise ValueError(f"failed with {backwards[0][::-1]}")
"""


def test_no_canary_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_TOKEN", TOKEN)
    monkeypatch.setenv("BACKUP_SECRET_ACCESS_KEY", IN_ENVIRONMENT)
    daemon = RunningDaemon(tmp_path, free_port())
    daemon.start()
    (tmp_path / "prints.py").write_text(PRINTS)
    own = (tmp_path / "token").read_text()
    canaries = (TOKEN, IN_ENVIRONMENT, SHAPED, own)
    try:
        command = [Path(sys.executable).with_name("sky"), "run", "--cpus", "1", "prints.py:prints"]
        done = subprocess.run(
            [*command, "--", *(text[::-1] for text in canaries)],
            env={"SKY_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert "plain ***\n" in done.stderr, done.stderr
        with httpx2.Client(base_url=daemon.url) as http:
            events = http.get("/v1/events", params={"follow": False, "after": 0}).text
            [task] = http.get("/v1/tasks").json()["items"]
    finally:
        daemon.stop()
    assert "failed with ***" in json.dumps(task)
    shown = events + json.dumps(task) + (tmp_path / "server.log").read_text()
    for canary in canaries:
        assert canary not in shown
        assert canary not in done.stderr.partition("Traceback")[0]
        # The last part of it, which the next piece of an over-long line begins with.
        assert canary[12:] not in shown


def test_credentials_are_known_once_they_are_sealed_or_opened(tmp_path: Path) -> None:
    keys, credential = Keys(tmp_path), "provider-canary-three"
    sealing, opening = Masks(), Masks()
    sealed = hidden(keys, sealing)[0]({"token": credential})
    assert sealing.hide(f"refused: {credential}") == "refused: ***"
    assert hidden(keys, opening)[1](sealed) == {"token": credential}
    assert opening.hide(f"refused: {credential}") == "refused: ***"
