"""Secrets that programs print: none is found again in what the daemon keeps or shows of it."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.databases import IN_A_FILE
from tests.folders import contents

from sky.kit.masks import Masks
from sky.server.keys import Keys
from sky.server.wiring import hidden

TOKEN = "Tzq-9f83hKdPw-canary-one"
IN_ENVIRONMENT = "kP72-canary-two-xyzzy"
SHAPED = "hf_" + "Canary3" * 6
RUN_S = 120.0
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
        with httpx2.Client(base_url=daemon.url, timeout=RUN_S, trust_env=False) as http:
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


WEBHOOK = "https://hooks.example.com/x"
SCRIPT = 'echo "plain $DEEP"; echo "to stderr $DEEP" >&2; sleep 600'


NAMES = ("metrics", "bucket", "registry", "daemon", "provider", "git", "task")
SETTINGS = {"SKY_ALLOW_HOST_JOBS": "true"}
SHOWN = (
    "/v1/events?follow=false&after=0",
    "/v1/tasks",
    "/v1/functions",
    "/v1/providers",
    "/v1/loops",
    "/v1/computes",
    "/api/status?all_status=true",
    "/api/summary",
    "/api/server_logs?follow=false",
    "/users",
    "/users/tokens",
    "/admin/v1/accounts/acme/keys",
    "/admin/v1/settings",
    "/metrics",
)
AT_REST = {"task"}
"""What is in the database by design, and so in a backup: docs/threat-model.md says why."""
NO_SECRET_FILES = {"token", "secret"}


class Doors:
    """A daemon with a secret in each door that takes one; ``hidden`` are those that may be found nowhere."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.hidden = {name: f"{name}-{secrets.token_hex(10)}Z9" for name in NAMES}
        self.daemon = RunningDaemon(home, free_port(), {**SETTINGS, **self._environment()}, executed=True)

    def _environment(self) -> dict[str, str]:
        return {
            "SKY_METRICS_TOKEN": self.hidden["metrics"],
            "AWS_SECRET_ACCESS_KEY": self.hidden["bucket"],
            "REGISTRY_PASSWORD": self.hidden["registry"],
            "SKY_TOKEN": self.hidden["daemon"],
        }

    def go_in(self, http: httpx2.Client) -> dict[str, Any]:
        """Bring them in; returns what was made."""
        made: dict[str, Any] = {}
        provider = {
            "kind": "aws",
            "name": "cloud",
            "credentials": {"access_key_id": "AKIAEXAMPLE", "secret_access_key": self.hidden["provider"]},
        }
        made["provider"] = http.post("/v1/providers", json=provider)
        refused = {"pip": [f"git+https://me:{self.hidden['git']}@git.example.com/x"]}
        spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 0}, "image": refused}
        made["refused"] = http.post("/v1/computes", json={"spec": spec})
        made["user"] = http.post("/users", json={"name": "ada", "role": "user"})
        made["token"] = http.post("/users/tokens", json={"name": "main", "user": "ada"})
        made["account"] = http.post("/admin/v1/accounts", json={"name": "acme"})
        http.post("/admin/v1/accounts/acme/payments", json={"amount_usd": "10", "payment": "p"})
        made["key"] = http.post("/admin/v1/accounts/acme/keys", json={})
        self.hidden["user"], self.hidden["key"] = made["token"].json()["token"], made["key"].json()["key"]
        key = {"authorization": f"Bearer {self.hidden['key']}"}
        body = {"url": WEBHOOK}
        made["webhook"] = http.post("/compute/v1/webhook_endpoints", json=body, headers=key)
        self.hidden["webhook"] = made["webhook"].json()["secret"]
        task = {"secrets": {"DEEP": self.hidden["task"]}, "machines": [{"infra": "local"}], "run": SCRIPT}
        made["launch"] = http.post("/launch", json={"cluster_name": "deep", "task": task})
        return made


def command_lines() -> str:
    """What every process of this computer shows of itself to everybody."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((folder / "cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def at_rest(home: Path) -> bytes:
    """All that the daemon keeps, but the files that are secrets by themselves."""
    return b"\n".join(
        content
        for path, content in contents(home)
        if path.name not in NO_SECRET_FILES and "nodes" not in path.parts
    )


@IN_A_FILE
def test_what_goes_in_by_every_door_comes_out_by_none(tmp_path: Path) -> None:
    doors = Doors(tmp_path)
    doors.daemon.start()
    try:
        with httpx2.Client(base_url=doors.daemon.url, timeout=RUN_S, trust_env=False) as http:
            made = doors.go_in(http)
            assert made["refused"].status_code == 400, made["refused"].text
            assert {made[name].status_code for name in ("provider", "token", "key", "webhook")} == {201}
            deadline_s = time.monotonic() + RUN_S
            params: dict[str, Any] = {"follow": False, "after": 0}
            while "plain ***" not in (told := http.get("/v1/events", params=params).text):
                assert time.monotonic() < deadline_s, told[-2000:]
                time.sleep(0.1)
            answers = [http.get(path) for path in SHOWN]
            assert {answer.status_code for answer in answers} == {200}, [
                (a.url, a.status_code) for a in answers
            ]
        shown = "\n".join(answer.text for answer in answers) + made["refused"].text + made["launch"].text
        shown += command_lines() + (tmp_path / "server.log").read_text()
        kept = at_rest(tmp_path)
        out = tmp_path.with_name("backup.tar")
        command = [sys.executable, "-m", "sky.server.upkeep", "--home", str(tmp_path)]
        done = subprocess.run([*command, "backup", out], capture_output=True, timeout=RUN_S, check=False)
        assert done.returncode == 0, done.stderr
        with tarfile.open(out) as archive:
            files = [one for one in archive if one.isfile() and one.name not in NO_SECRET_FILES]
            kept += b"".join(archive.extractfile(one).read() for one in files)  # each is a plain file
    finally:
        doors.daemon.stop()
    assert [name for name, value in doors.hidden.items() if value in shown] == []
    found = {name for name, value in doors.hidden.items() if value.encode() in kept}
    assert found == AT_REST
