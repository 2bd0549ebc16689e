"""What holds for every command, looked at over the whole tree of commands.

Decides: which commands buy and which destroy; a new command is one of them, or in neither list.
Never: runs one. Follows: a program can read every list, say yes beforehand, and ask what would happen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Sky

from sky.cli.app import tree
from sky.cli.nouns import NOUNS

SOURCE = Path(__file__).parents[2] / "src" / "sky"
LISTING = {
    "list",
    "ls",
    "get",
    "show",
    "me",
    "kinds",
    "status",
    "info",
    "queue",
    "events",
    "balance",
    "usage",
}
LISTING_ALONE = {"cost-report", "check", "show-gpus", "why", "offers", "doctor"}
FOR_A_SHELL = "completion show"
"""Prints a script, which is what its reader reads."""
DESTROYING = {
    "stop", "down", "cancel", "compute delete", "storage delete", "api cancel", "admin account close",
    "admin account refund", "admin key revoke", "provider remove", "token revoke", "user delete",
}  # fmt: skip
BUYING = {"launch", "exec", "start", "compute create", "compute resize", "job submit"}
DRY = BUYING | {
    "stop", "down", "cancel", "compute delete", "compute rollback", "storage delete", "provider remove",
    "admin account close", "admin account refund", "admin key revoke", "admin gc", "api cancel",
    "token revoke", "user delete",
}  # fmt: skip


def leaves(app: Any, words: tuple[str, ...]) -> Iterator[tuple[str, set[str]]]:
    """Every command below an application, with its options."""
    below = [name for name in app if not name.startswith("-")]
    for name in below:
        yield from leaves(app[name], (*words, name))
    if not below or app.default_command is not None:
        options = {name for one in app.assemble_argument_collection() for name in one.names}
        yield " ".join(words), options


COMMANDS = dict(leaves(tree(*NOUNS), ()))


def test_the_whole_tree_is_looked_at() -> None:
    assert {words.split()[0] for words in COMMANDS} == set(NOUNS)
    assert set(COMMANDS) >= DESTROYING | DRY | LISTING_ALONE
    assert len(COMMANDS) > len(NOUNS) * 2


@pytest.mark.parametrize(
    "words",
    [
        words
        for words in COMMANDS
        if (words.split()[-1] in LISTING or words in LISTING_ALONE) and words != FOR_A_SHELL
    ],
)
def test_what_lists_or_shows_does_so_for_programs_too(words: str) -> None:
    assert {"--output", "-o"} <= COMMANDS[words]


@pytest.mark.parametrize("words", sorted(DESTROYING))
def test_what_destroys_can_be_told_yes(words: str) -> None:
    assert {"--yes", "-y"} <= COMMANDS[words]


@pytest.mark.parametrize("words", sorted(DRY))
def test_what_buys_or_destroys_can_be_tried_without_doing_it(words: str) -> None:
    assert "--dry-run" in COMMANDS[words]


def test_a_command_that_is_named_anywhere_exists() -> None:
    named = {
        (found[1], path.name)
        for path in SOURCE.rglob("*.py")
        for found in re.finditer(r"`sky ([a-z][^`|\n]*)`", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 200
    wrong: list[tuple[str, str]] = []
    for line, where in sorted(named):
        before = re.match(r"(?:[a-z-]+ ?)*", line)
        words = before[0].split() if before else []
        known = [" ".join(words[:count]) for count in range(len(words), 0, -1)]
        command = next((name for name in known if name in COMMANDS), None)
        options = set(re.findall(r" (--[a-z-]+)", line)) - {"--help"}
        if command is None:
            # A word that has commands below it, or one of those that stands for what was typed.
            if "{" not in line and not any(name.startswith(f"{' '.join(words)} ") for name in COMMANDS):
                wrong.append((line, where))
        elif command != "run" and not options <= COMMANDS[command]:
            wrong.append((line, where))
    assert not wrong


def test_an_option_has_one_meaning() -> None:
    short = {"-o": "--output", "-y": "--yes", "-u": "--all-users"}
    wrong = [
        (words, sign)
        for words, options in COMMANDS.items()
        for sign, long in short.items()
        if sign in options and long not in options
    ]
    assert not wrong


def test_trying_it_deletes_nothing(on_daemon: Any, dev: str) -> None:
    told = on_daemon("compute", "delete", dev, "--yes", "--dry-run").check()
    assert told.out == f"{dev} (2 nodes) would be deleted\n"
    assert on_daemon.json_of("compute", "get", dev)["status"]["state"] == "ready"
    nowhere = ("down", "stop", "cancel", "storage delete", "provider remove", "admin account close")
    for words in ([*one.split(), "nowhere"] for one in nowhere):
        assert "nowhere" in on_daemon(*words, "--yes", "--dry-run").check(3).err
    on_daemon.together([["user", "create", "tried"], ["token", "create", "of-tried", "--user", "tried"]])
    user, token, nobody, requests, unknown = on_daemon.together(
        [
            ["user", "delete", "tried", "--dry-run"],
            ["token", "revoke", "of-tried", "--dry-run"],
            ["user", "delete", "nowhere", "--dry-run"],
            ["api", "cancel", "--all", "--dry-run", "-o", "json"],
            ["api", "cancel", "0123456789", "--dry-run"],
        ]
    )
    assert user.check().out.startswith("name  tried\n")
    assert token.check(3).out == "", "a name means one of one's own"
    assert "nowhere" in nobody.check(3).err
    assert isinstance(requests.check().json()["request_ids"], list)
    assert "0123456789" in unknown.check(3).err
    [kept] = on_daemon.json_of("token", "list", "--user", "tried")["items"]
    by_id = on_daemon("token", "revoke", kept["id"], "--dry-run").check()
    assert by_id.out == f"of-tried of tried ({kept['hint']}…) would be revoked\n"
    assert on_daemon.json_of("token", "list", "--user", "tried")["items"] == [kept]
    on_daemon("user", "delete", "tried", "--yes").check()
    used = on_daemon.json_of("compute", "get", dev)["spec"]["specs"][0]["provider"]["kind"]
    assert "is in use by " in on_daemon("provider", "remove", used, "--dry-run").check(4).err


def test_trying_it_buys_nothing(on_daemon: Any, dev: str) -> None:
    before = on_daemon.json_of("compute", "list", "--all")["items"]
    wanted = ["--provider", "local", "--nodes", "3"]
    told = on_daemon("compute", "create", "tried", *wanted, "--dry-run").check()
    assert (told.out, "price: " in told.err, "nothing was created" in told.err) == ("", True, True)
    checked = on_daemon.json_of("compute", "create", "tried", *wanted, "--dry-run")
    assert (checked["name"], checked["spec"]["nodes"]["desired"]) == ("tried", 3)
    assert "NODES" in on_daemon("compute", "resize", dev, "many", "--dry-run").check(2).err
    resized = on_daemon("compute", "resize", dev, "5", "--dry-run").check()
    assert resized.out == f"{dev} would have 5 nodes instead of 2\n"
    assert "price: " in resized.err
    assert "nowhere" in on_daemon("start", "nowhere", "--dry-run").check(3).err
    assert [(one["id"], one["spec"]) for one in on_daemon.json_of("compute", "list", "--all")["items"]] == [
        (one["id"], one["spec"]) for one in before
    ]


def test_trying_it_adds_no_provider(own_daemon: Any, tmp_path: Path) -> None:
    own = Sky(own_daemon.home, tmp_path, SKY_URL=own_daemon.url)
    for provider in own.json_of("provider", "list")["items"]:
        tried = own("provider", "remove", provider["id"], "--dry-run").check()
        assert tried.out == f"{provider['name']} (kind {provider['kind']}) would be removed\n"
        own("provider", "remove", provider["id"], "--yes").check()
    own("compute", "create", "tried", "--provider", "local", "--nodes", "1", "--dry-run").check()
    assert own.json_of("provider", "list")["items"] == []
