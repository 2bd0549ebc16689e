"""The frame of the command: pages, versions, mistyped words, plainness, and what is loaded for them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

NOUNS = {
    "run": [],
    "compute": [
        "create", "list", "get", "view", "run", "resize", "delete", "exec", "ls", "upload", "download", "rm",
        "shell", "forward", "generations", "rollback",
    ],
    "task": ["list", "get", "retry", "cancel", "result"],
    "log": [],
    "launch": [],
    "exec": [],
    "status": [],
    "start": [],
    "stop": [],
    "down": [],
    "autostop": [],
    "queue": [],
    "logs": [],
    "cancel": [],
    "ssh": [],
    "cost-report": [],
    "check": [],
    "gpus": ["list"],
    "show-gpus": [],
    "storage": ["ls", "delete"],
    "api": ["start", "stop", "info", "login", "logout", "status", "logs", "cancel"],
    "dashboard": [],
    "why": [],
    "offers": [],
    "provider": ["list", "add", "update", "remove", "kinds"],
    "job": ["submit", "list", "get", "logs", "events", "cancel", "wait", "artifacts", "download"],
    "sku": ["list"],
    "template": ["list"],
    "upstream": ["list"],
    "admin": ["account", "key", "ledger"],
    "console": [],
    "server": ["start", "stop", "status", "logs"],
    "config": ["show", "validate"],
    "doctor": [],
    "mcp": [],
    "openapi": [],
    "completion": ["install", "show"],
}  # fmt: skip
BELOW = {
    ("admin", "account"): [
        "create", "list", "get", "topup", "credit", "refund", "enable", "disable", "suspend", "resume",
        "close", "limit", "statement",
    ],
    ("admin", "key"): ["create", "list", "revoke"],
    ("admin", "ledger"): ["verify"],
}  # fmt: skip
COMMANDS = [
    *((noun, command) for noun, commands in NOUNS.items() for command in commands),
    *((*words, command) for words, commands in BELOW.items() for command in commands),
    *((noun,) for noun, commands in NOUNS.items() if not commands),
]
HEAVY = ("rich.live", "rich", "cyclopts", "httpx2", "litestar", "sqlalchemy", "msgspec", "asyncio")


@pytest.mark.parametrize("words", [["--help"], [], ["--version"], ["-h"]], ids=" ".join)
def test_help_loads_next_to_nothing(words: list[str]) -> None:
    code = "import sys; from sky.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "sky.cli.main" in loaded
    assert not loaded.intersection(HEAVY)


def test_help_names_every_noun_and_exit_code(sky: Any) -> None:
    page = sky("--help").check().out
    assert sky().check().out == page
    for noun in NOUNS:
        assert re.search(rf"^  {noun} ", page, re.MULTILINE)
    assert re.search(r"^  5 +no daemon answers", page, re.MULTILINE)
    assert max(map(len, page.splitlines())) <= 80


def test_version(sky: Any) -> None:
    assert re.fullmatch(r"sky \d+\.\d+\.\d+\n", sky("--version").check().out)


@pytest.mark.parametrize("noun", NOUNS)
def test_page_of_a_noun_lists_its_commands(ended_together: Any, noun: str) -> None:
    page = ended_together[noun, "--help"].check().out
    assert page.startswith(f"Usage: sky {noun}")
    for command in NOUNS[noun]:
        assert re.search(rf"^  {command} ", page, re.MULTILINE)
    assert ended_together["help", noun].check().out == page


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_a_page_with_examples(ended_together: Any, words: tuple[str, ...]) -> None:
    page = ended_together[*words, "--help"].check().out
    assert f"Usage: sky {' '.join(words)}" in page
    assert re.search(rf"^  \$ .*sky {' '.join(words)}", page, re.MULTILINE)
    assert max(map(len, page.splitlines())) <= 80


USAGE = [
    (["cmpute", "list"], "there is no command 'cmpute'", "did you mean `sky compute`?"),
    (["jobs"], "there is no command 'jobs'", "`sky job` is for paid jobs"),
    (["shell", "dev"], "there is no command 'shell'", "did you mean `sky ssh`?"),
    (["attach", "dev"], "there is no command 'attach'", "did you mean `sky compute shell`?"),
    (["nodes"], "there is no command 'nodes'", "did you mean `sky compute get`?"),
    (["result", "tsk_1"], "there is no command 'result'", "did you mean `sky task result`?"),
    (["--verson"], "there is no option '--verson'", "`sky --help`"),
    (["compute", "lst"], 'unknown command "lst"', "did you mean `list`?"),
    (["compute", "ps"], 'unknown command "ps"', "did you mean `list`?"),
    (["compute", "create", "--node", "2"], "unknown option: --node", "did you mean --nodes?"),
    (["compute", "create", "--nodes", "-1"], "--nodes: expected `int` >= 0, got -1", None),
    (["compute", "create", "--nodes", "99999"], "--nodes: expected `int` <= 10000, got 99999", None),
    (["compute", "create", "--nodes", "many"], "'many' is not a number of nodes", "a range such as 1:4"),
    (["compute", "create", "--nodes", "4:1"], "4:1 begins above its end", "1:4"),
    (["compute", "create", "--cpus", "0"], "--cpus: expected `int` >= 1, got 0", None),
    (["compute", "create", "--cpus", "two"], 'unable to convert "two" into int', "--help"),
    (["compute", "create", "--ttl", "soon"], "ttl 'soon' is not a time", "10m"),
    (["compute", "create", "--env", "NAME"], "--env 'NAME' sets nothing", "NAME=VALUE"),
    (["compute", "create", "a", "--name", "b"], "two names were given", "give one"),
    (["compute", "create", "--allocation", "sport"], "choose from", "did you mean `spot`?"),
    (["compute", "create", "--accelerator", "A100:x"], "no count behind its colon", "A100:4"),
    (["compute", "create", "--spec", "nowhere.json"], "nowhere.json cannot be read", None),
    (["compute", "list", "--state", "redy"], 'invalid value "redy" for --state', "did you mean `ready`?"),
    (["compute", "list", "--limit", "0"], "--limit 0 is out of range", "1 to"),
    (["compute", "list", "-o", "yaml"], 'invalid value "yaml" for -o', "--help"),
    (["compute", "get"], "COMPUTE is missing", "`sky compute get --help`"),
    (["compute", "get", "a", "b"], "'b' is one word too many", "`sky compute get --help`"),
    (["compute", "get", "a", "b", "c"], "'b', 'c' are 2 words too many", "`sky compute get --help`"),
    (["compute", "exec", "dev"], "no command was given", "sky compute exec"),
    (["compute", "forward", "dev", "http"], "'http' is not a port", "8080:80"),
    (["compute", "upload", "dev", "nowhere"], "there is no file nowhere", None),
    (["task", "list", "--state", "done"], 'invalid value "done" for --state', "--help"),
    (["task", "result", "tsk_1", "--wait", "-1"], "--wait", None),
    (["provider", "add", "x"], "--kind is missing", "--help"),
    (["provider", "add", "x", "--kind", "ssh"], "no hosts were given", "--hosts hosts.yaml"),
    (["provider", "add", "x", "--kind", "k", "--credential", "s3cret"], "needs NAME=VALUE", None),
    (["server", "start", "--port", "70000"], "--port 70000 is not a port", "65535"),
    (["server", "start", "--timeout", "0"], "--timeout 0 leaves no time", None),
    (["server", "logs", "--lines", "-3"], "--lines", None),
    (["server", "start", "--catalogue", "nowhere.yaml"], "there is no file nowhere.yaml", None),
    (["job", "sumbit"], 'unknown command "sumbit"', "did you mean `submit`?"),
    (["job", "list"], "no key was given", "SKY_API_KEY"),
    (["job", "list", "--key-file", "nowhere"], "nowhere cannot be read", None),
    (["job", "list", "--status", "done"], 'invalid value "done" for --status', "--help"),
    (["job", "list", "--key", "s3cret"], "unknown option: --key", "--key-file"),
    (["job", "submit", "--output", "out"], "'out' is neither a folder nor a format", "/out"),
    (["admin", "acount"], 'unknown command "acount"', "did you mean `account`?"),
    (["admin", "account", "topup", "a", "5"], "--payment is missing", "--help"),
    (["admin", "account", "topup", "a", "-5", "--payment", "p"], "-5", None),
    (["admin", "account", "topup", "a", "1e3", "--payment", "p"], "'1e3' is no amount", "12.50"),
    (["admin", "account", "close", "a"], "closing a is final", "--yes"),
    (["admin", "account", "limit", "a"], "no limit was given", "--jobs"),
    (["admin", "key", "create", "a", "--scope", "all"], 'invalid value "all" for --scope', None),
    (["openapi", "v7"], 'invalid value "v7"', "--help"),
    (["run"], "no file was given", "FILE.py"),
    (["run", "train"], "'train' is no Python file", "FILE.py"),
    (["run", "nowhere.py"], "there is no file nowhere.py", "FILE.py"),
    (["config", "validate", "nowhere.toml"], "there is no file nowhere.toml", None),
    (["completion", "show", "--shell", "tcsh"], 'invalid value "tcsh"', None),
]


@pytest.mark.parametrize(("words", "said", "hint"), USAGE, ids=[" ".join(case[0]) for case in USAGE])
def test_what_cannot_be_meant_is_refused(
    ended_together: Any, words: list[str], said: str, hint: str | None
) -> None:
    ended = ended_together[tuple(words)].check(2)
    assert not ended.out
    first, *rest = ended.err.splitlines()
    assert re.match("error: (usage|missing_key): ", first)
    assert said.lower() in first.lower()
    assert len(rest) <= 1
    if hint is not None:
        assert rest
        assert rest[0].startswith("hint: ")
        assert hint in rest[0]
    assert "s3cret" not in ended.err


READING = [
    ["compute", "list"], ["compute", "get", "dev"], ["compute", "delete", "dev", "--yes"],
    ["compute", "resize", "dev", "2"], ["compute", "view", "dev"], ["compute", "exec", "dev", "ls"],
    ["compute", "ls", "dev"], ["compute", "rm", "dev", "x"], ["compute", "download", "dev", "x"],
    ["compute", "shell", "dev"], ["compute", "forward", "dev", "80"], ["task", "list"],
    ["task", "get", "tsk_1"], ["task", "cancel", "tsk_1"], ["task", "retry", "tsk_1"],
    ["task", "result", "tsk_1"], ["log"], ["log", "dev", "-f"], ["why", "dev"], ["offers"],
    ["provider", "list"], ["provider", "kinds"], ["provider", "remove", "x"], ["sku", "list"],
    ["template", "list"], ["upstream", "list"], ["admin", "account", "list"], ["admin", "ledger", "verify"],
]  # fmt: skip


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_starts_no_daemon(ended_together: Any, words: list[str]) -> None:
    ended = ended_together[tuple(words)].check(5)
    assert ended.err.startswith("error: daemon_unreachable: no daemon runs for ")
    assert "`sky server start`" in ended.err


JSON_ERRORS = [
    (["compute", "get", "nobody", "-o", "json"], 5, "daemon_unreachable"),
    (["compute", "get", "--output=json"], 2, "usage"),
    (["compute", "gte", "--output", "json"], 2, "usage"),
    (["nothing-of-the-kind", "-o", "json"], 2, "usage"),
    (["task", "list", "--limit", "0", "-o", "json"], 2, "usage"),
]
TOGETHER = [
    *((*words, "--help") for words in COMMANDS),
    *((noun, "--help") for noun, commands in NOUNS.items() if commands),
    *(("help", noun) for noun in NOUNS),
    *(tuple(words) for words, _, _ in USAGE),
    *map(tuple, READING),
    *(tuple(words) for words, _, _ in JSON_ERRORS),
    ("compute", "exec", "dev", "--", "x", "-o", "json"),
]


def test_a_named_daemon_that_is_gone_is_not_replaced(sky: Any) -> None:
    ended = sky("compute", "create", "x", SKY_URL="http://127.0.0.1:9").check(5)
    assert "http://127.0.0.1:9" in ended.err
    assert not sky.home.exists()


def test_what_nobody_foresaw_is_one_line_too(sky: Any) -> None:
    # A state folder that is a file: not a mistake that any command looks for.
    sky.home.write_text("not a folder")
    ended = sky("compute", "create", "x")
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err


def test_debug_shows_the_way(sky: Any) -> None:
    assert "Traceback" in sky("compute", "list", SKY_DEBUG="1").err


def test_nothing_is_coloured_in_a_pipe(sky: Any) -> None:
    for words in (
        ["--help"],
        ["compute", "--help"],
        ["compute", "lst"],
        ["server", "status"],
        ["config", "show"],
    ):
        ended = sky(*words, FORCE_COLOR="1")
        assert "\x1b" not in ended.out + ended.err


def test_colours_on_a_terminal_and_not_with_no_color(sky: Any) -> None:
    for words in (["--help"], ["compute", "--help"], ["compute", "lst"]):
        with sky.terminal(*words) as plain:
            assert "\x1b[" in plain.end().out
        with sky.terminal(*words, NO_COLOR="1") as plain:
            assert "\x1b[" not in plain.end().out


def test_a_reader_that_leaves_is_no_error(sky: Any) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", "from sky.cli.main import main; raise SystemExit(main(['--help']))"]
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=sky.environment
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_completion_of_every_noun_and_command(sky: Any) -> None:
    script = sky("completion", "show", "--shell", "bash").check().out
    for noun, commands in NOUNS.items():
        assert noun in script
        for command in commands:
            assert command in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=60)


@pytest.mark.parametrize(("words", "code", "name"), JSON_ERRORS, ids=lambda value: str(value)[:30])
def test_an_error_is_json_where_json_was_asked_for(
    ended_together: Any, words: list[str], code: int, name: str
) -> None:
    ended = ended_together[tuple(words)].check(code)
    assert ended.out == ""
    [line] = ended.err.splitlines()
    told = json.loads(line)
    assert set(told) == {"code", "message", "hint"}
    assert told["code"] == name
    assert told["message"]
    assert "error:" not in line


def test_what_follows_two_dashes_is_not_looked_at(ended_together: Any) -> None:
    ended = ended_together["compute", "exec", "dev", "--", "x", "-o", "json"].check(5)
    assert ended.err.startswith("error: daemon_unreachable: ")
