"""``sky mcp``, as a program with a model uses it: messages on a pipe, against a daemon that runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.conftest import SKY

READING = {
    "status", "queue", "logs", "costs", "requests", "computes", "nodes", "tasks", "offers", "providers",
    "why", "jobs", "doctor",
}  # fmt: skip
WRITING = {"launch", "exec", "cancel", "down"}
STATELESS = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
NAMELESS = ["--all", "-a", "*", "", "a b", "../x", "x\n--all"]


class Client:
    """The other end of the pipe."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._number = 0

    def send(self, text: str) -> dict[str, Any]:
        """Write a line, read a line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        """The answer to one request, which has its number."""
        self._number += 1
        asked = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}}
        answer = self.send(json.dumps(asked))
        assert answer["id"] == self._number
        assert answer["jsonrpc"] == "2.0"
        return answer

    def call(self, name: str, **arguments: Any) -> tuple[str, bool]:
        """What a tool told, and whether that is a failure."""
        result = self.ask("tools/call", {"name": name, "arguments": arguments})["result"]
        return result["content"][0]["text"], result["isError"]


def served(sky: Any, *words: str) -> Iterator[Client]:
    process = subprocess.Popen(
        [SKY, "mcp", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=sky.environment,
        cwd=sky.folder,
    )
    with process:
        yield Client(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.fixture(scope="module")
def reading(on_daemon: Any) -> Iterator[Client]:
    yield from served(on_daemon)


@pytest.fixture(scope="module")
def writing(on_daemon: Any) -> Iterator[Client]:
    yield from served(on_daemon, "--allow-writes")


def test_a_client_that_shakes_hands_gets_a_revision_that_both_speak(reading: Client) -> None:
    for asked, spoken in (("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")):
        told = reading.ask("initialize", {"protocolVersion": asked, "capabilities": {}})["result"]
        assert told["protocolVersion"] == spoken
        assert "tools" in told["capabilities"]
    assert reading.ask("ping")["result"] == {}


def test_a_client_that_names_the_revision_each_time_needs_no_handshake(reading: Client) -> None:
    told = reading.ask("server/discover", STATELESS)["result"]
    assert told["supportedVersions"] == ["2026-07-28"]
    assert told["resultType"] == "complete"
    assert {"ttlMs", "cacheScope", "tools"} <= set(reading.ask("tools/list", STATELESS)["result"])
    other = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
    error = reading.ask("tools/list", other)["error"]
    assert error["code"] == -32022
    assert "2026-07-28" in error["data"]["supported"]


def test_it_only_reads_unless_it_is_told_otherwise(reading: Client, writing: Client) -> None:
    tools = reading.ask("tools/list")["result"]["tools"]
    assert {tool["name"] for tool in tools} == READING
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools)
    assert all(not tool["annotations"]["destructiveHint"] for tool in tools)
    more = {tool["name"]: tool["annotations"] for tool in writing.ask("tools/list")["result"]["tools"]}
    assert set(more) == READING | WRITING
    assert not any(more[name]["readOnlyHint"] for name in WRITING)
    assert {name for name in more if more[name]["destructiveHint"]} == {"exec", "cancel", "down"}
    refused = reading.ask("tools/call", {"name": "down", "arguments": {"cluster": "x"}})
    assert refused["error"]["code"] == -32602


def test_a_tool_tells_what_the_command_prints(reading: Client, on_daemon: Any) -> None:
    text, failed = reading.call("providers")
    assert not failed
    assert [one["name"] for one in json.loads(text)["items"]] == [
        one["name"] for one in on_daemon.json_of("provider", "list")["items"]
    ]
    text, failed = reading.call("nodes", compute="nowhere")
    assert failed
    assert "nowhere" in text


@pytest.mark.parametrize("name", NAMELESS)
def test_what_is_destroyed_has_a_name(writing: Client, name: str) -> None:
    text, failed = writing.call("down", cluster=name)
    assert failed
    assert text.startswith("cluster: ")


def test_what_cannot_be_asked_is_told_with_what_can(reading: Client) -> None:
    assert reading.call("logs") == ("cluster is missing: Name of a cluster.", True)
    assert "'lines'" not in reading.call("logs", cluster="x", lines=0)[0]
    assert "out of range" in reading.call("logs", cluster="x", lines=10**6)[0]
    assert "no integer" in reading.call("computes", limit=True)[0]
    assert "known: cluster" in reading.call("status", clster="x")[0]


def test_a_call_that_no_process_can_have_is_answered(writing: Client) -> None:
    told, failed = writing.call("exec", cluster="no-such", command="echo \0")
    assert (failed, "cannot be started" in told) == (True, True), told


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", -32700),
        ("[]", -32600),
        ('{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"resources/list"}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":7}}', -32602),
        ("x" * 2_000_000, -32700),
    ],
    ids=range(7),
)
def test_a_wrong_message_ends_nothing(reading: Client, line: str, code: int) -> None:
    assert reading.send(line)["error"]["code"] == code
    assert reading.ask("ping")["result"] == {}


def test_no_daemon_is_started(sky: Any) -> None:
    for client in served(sky):
        text, failed = client.call("status")
        assert failed
        assert "sky server start" in text
    assert not sky.home.exists()
