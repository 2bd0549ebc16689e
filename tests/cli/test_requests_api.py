"""The server by commands: requests listed, followed, cancelled; logging in and out; another user's clusters.

Decides: what is said about requests that are under way and that have ended, and to whom.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.conftest import Sky
from tests.test_docs import ROOT, blocks

pytestmark = pytest.mark.real


def test_who_logs_in_speaks_to_that_server_until_they_log_out(live: Sky, daemon: Any) -> None:
    kept = live.folder / "home"
    other = Sky(kept, live.folder)
    assert other("api", "login", "-e", f"{daemon.url}/").check().out == f"logged in to {daemon.url}\n"
    assert (kept / "login.json").stat().st_mode & 0o777 == 0o600
    told = json.loads(other("api", "info", "-o", "json").check().out)
    assert (told["endpoint"], told["status"]) == (daemon.url, "healthy")
    assert other("api", "logout").check().out == f"logged out of {daemon.url}\n"
    other("api", "info").check(5)
    assert live("dashboard", "--print-url").check().out == f"{daemon.url}/dashboard\n"


def test_what_is_anothers_is_ended_only_when_that_is_said(
    on_daemon: Sky, eventually: Callable[..., None]
) -> None:
    user, name = f"ada-{secrets.token_hex(3)}", f"hers-{secrets.token_hex(3)}"
    made, token = on_daemon.together(
        [["user", "create", user], ["token", "create", "laptop", "--user", user, "-o", "json"]]
    )
    made.check()
    secret = token.check().json()["token"]
    on_daemon("launch", "-c", name, "--async", "true", SKY_TOKEN=secret).check()
    eventually(lambda: name in on_daemon("status", "-u").check().out, "there is the cluster")
    mine, all_, refused, ended = on_daemon.together(
        [["status"], ["status", "-u"], ["down", name, "-y"], ["down", name, "-y", "-u"]]
    )
    assert name not in mine.check().out
    assert re.search(rf"(?m)^{name} +{user} ", all_.check().out)
    assert refused.check(4).err.startswith("error: cluster_owner_identity_mismatch: ")
    assert ended.check().out == f"{name} is gone\n"


def test_the_five_commands_of_the_readme_do_what_it_shows(on_daemon: Sky) -> None:
    [text] = blocks(ROOT / "README.md", "yaml")
    [block] = (one for one in blocks(ROOT / "README.md", "console") if "$ sky launch" in one)
    (on_daemon.folder / "task.yaml").write_text(text)
    typed = re.findall(r"(?m)^\$ sky (.*)$", block)
    assert len(typed) == 5
    promised = [part.splitlines()[1:] for part in block.split("$ sky ")[1:]]
    commands = [[word.strip("'") for word in line.split()] for line in typed]
    for command, lines, ended in zip(commands, promised, on_daemon.together(commands), strict=True):
        shown = sorted(ended.check().out.splitlines())
        if lines:
            assert shown == sorted(lines), command
        else:
            assert any("words" in line for line in shown), command
