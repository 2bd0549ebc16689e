"""``sky compute`` against a real daemon with nodes of this computer: piped, as scripts use it."""

from __future__ import annotations

import json
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from tests.conftest import RunningDaemon

pytestmark = pytest.mark.real


def test_create_prints_the_id_alone(live: Any) -> None:
    ended = live("compute", "create", "--cpus", "1", "--name", "one").check()
    found = live("compute", "get", "one", "-o", "json").check().json()
    assert ended.out == f"{found['id']}\n"
    assert found["status"]["state"] == "ready"
    price, ready = ended.err.splitlines()
    assert price.startswith("price: $0.00 per hour: 1 × $0.00 (local ")
    assert ready == "one is ready: 1 of 1 nodes"
    assert "\x1b" not in ended.err
    deleted = live("compute", "delete", "one", "--yes", "-o", "json").check().json()
    assert deleted["status"]["state"] == "deleted"
    assert found["id"] in live("compute", "list", "--all").check().out
    assert found["id"] not in live("compute", "list").check().out


def test_a_provider_that_never_answers_holds_up_no_other(
    live: Any, daemon: RunningDaemon, eventually: Callable[..., None]
) -> None:
    spec = {"specs": [{"provider": {"kind": kind}, "cpus": 1} for kind in ("skypilot", "local")]}
    spec |= {"selection": "first", "nodes": {"desired": 1}}
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,  # accepts, since the kernel does, and never speaks
        httpx2.Client(base_url=daemon.url, trust_env=False, timeout=30) as http,
    ):
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        live("provider", "add", "silent", "--kind", "skypilot", "--config", f"endpoint={url}").check()
        answer = http.post("/v1/computes", json={"name": "patient", "spec": spec})
        assert answer.status_code == 201, answer.text
        reason = "silent: its offers are not known: no answer for more than 10 s"
        eventually(lambda: reason in live("why", "patient").out, "the other one's offer is taken")

        def binding() -> str | None:
            [node] = live("why", "patient", "-o", "json").check().json()["nodes"]
            return (node["provider_binding"] or {}).get("kind")

        eventually(binding, "its node is bought")
        assert binding() == "local"
        live("compute", "delete", "patient", "--yes").check()
        live("provider", "remove", "silent", "--yes").check()


def test_what_is_asked_for_is_what_is_created(live: Any) -> None:
    words = "compute create spec --nodes 0:2 --cpus 1 --ttl 2h --env A=b=c --executor thread --concurrency 3"
    created = live(*words.split(), "--no-wait", "-o", "json").check().json()
    live("compute", "delete", "spec", "--yes", "--no-wait").check()
    spec = created["spec"]
    assert spec["nodes"] == {"desired": 0, "min": 0, "max": 2}
    assert spec["ttl"] == 7200
    assert spec["image"]["env"] == {"A": "b=c"}
    assert (spec["worker"]["executor"], spec["worker"]["concurrency"]) == ("thread", 3)
    assert spec["specs"][0] | {"cpus": 1, "provider": {"kind": "local"}} == spec["specs"][0]


def test_a_file_and_options_over_it(live: Any) -> None:
    spec = {
        "specs": [{"provider": {"kind": "local"}, "cpus": 1}],
        "nodes": {"desired": 0, "min": 0, "max": 1},
    }
    (live.folder / "spec.json").write_text(json.dumps({"spec": spec, "name": "filed"}))
    words = ["compute", "create", "--spec", "spec.json", "--env", "A=1", "--no-wait", "-o", "json"]
    created = live(*words).check().json()
    live("compute", "delete", "filed", "--yes", "--no-wait").check()
    assert created["name"] == "filed"
    assert created["spec"]["nodes"]["desired"] == 0
    assert created["spec"]["image"]["env"] == {"A": "1"}


def test_a_table_of_sky_toml(live: Any) -> None:
    (live.folder / "sky.toml").write_text("[compute.tabled]\nnodes = [0, 1]\ncpus = 1\nttl = '5m'\n")
    created = live("compute", "create", "tabled", "--no-wait", "-o", "json").check().json()
    live("compute", "delete", "tabled", "--yes", "--no-wait").check()
    assert created["spec"]["ttl"] == 300
    assert created["spec"]["specs"][0]["cpus"] == 1


REFUSED = [
    (["compute", "create", "--provider", "locl", "--no-wait"], 4, "unsupported_provider"),
    (["compute", "create", "--env", "AWS_SECRET_ACCESS_KEY=abcdef", "--no-wait"], 4, "secret_in_definition"),
    (["compute", "create", "a/b", "--no-wait"], 2, "invalid_request"),
    (["compute", "get", "nowhere-at-all"], 3, "not_found"),
    (["compute", "delete", "nowhere-at-all", "--yes"], 3, "not_found"),
    (["compute", "resize", "nowhere-at-all", "2"], 3, "not_found"),
    (["compute", "exec", "nowhere-at-all", "ls"], 3, "not_found"),
    (["compute", "view", "nowhere-at-all"], 3, "not_found"),
    (["compute", "shell", "nowhere-at-all"], 3, "not_found"),
    (["compute", "forward", "nowhere-at-all", "80"], 3, "not_found"),
    (["task", "get", "tsk_0"], 3, "not_found"),
    (["task", "result", "tsk_0"], 3, "not_found"),
    (["task", "cancel", "tsk_0"], 3, "not_found"),
    (["task", "list", "--compute", "nowhere-at-all"], 3, "not_found"),
    (["log", "nowhere-at-all"], 3, "not_found"),
    (["why", "nowhere-at-all"], 3, "not_found"),
    (["why", "nod_0"], 3, "not_found"),
    (["provider", "remove", "nowhere-at-all"], 3, "not_found"),
    (["provider", "add", "x", "--kind", "nothing"], 4, "unsupported_provider"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "said"), REFUSED, ids=[" ".join(case[0]) for case in REFUSED])
def test_refusals_have_their_codes(live: Any, words: list[str], code: int, said: str) -> None:
    ended = live(*words).check(code)
    assert not ended.out
    first, *rest = ended.err.splitlines()[-2:]
    line = first if first.startswith("error: ") else rest[0]
    assert line.startswith(f"error: {said}: ")


def test_a_script_must_say_yes(on_daemon: Any, dev: str) -> None:
    ended = on_daemon("compute", "delete", dev).check(4)
    assert ended.err.startswith("error: not_confirmed: ")
    assert "hint: add --yes" in ended.err
    assert on_daemon("compute", "get", dev, "-o", "json").json()["status"]["state"] == "ready"


def test_a_taken_name_is_refused(on_daemon: Any, dev: str) -> None:
    ended = on_daemon("compute", "create", dev, "--no-wait").check(4)
    assert "error: name_taken: " in ended.err


def test_near_names(on_daemon: Any, dev: str) -> None:
    assert f"hint: did you mean `{dev}`?" in on_daemon("compute", "get", dev[:-1]).check(3).err


def test_lists_and_facts(on_daemon: Any, dev: str) -> None:
    page = on_daemon("compute", "list", "-o", "json").check().json()
    found = next(item for item in page["items"] if item["name"] == dev)
    row = next(line for line in on_daemon("compute", "list").check().out.splitlines() if dev in line)
    assert row.split()[:4] == [found["id"], dev, "ready", "2/2"]
    facts = on_daemon("compute", "get", dev).check().out
    assert found["id"] in facts
    assert facts.count("nod_") >= 2
    first = on_daemon("compute", "list", "--limit", "1", "-o", "json").check().json()
    assert len(first["items"]) == 1


def test_commands_on_nodes(on_daemon: Any, dev: str) -> None:
    assert on_daemon("compute", "exec", dev, "--node", "1", "--", "echo", "-n", "a  b").check().out == "a  b"
    both = on_daemon("compute", "exec", dev, "echo out; echo err >&2").check()
    assert both.out == "[rank 0] out\n[rank 1] out\n"
    assert both.err == "[rank 0] err\n[rank 1] err\n"
    assert on_daemon("compute", "exec", dev, "--node", "0", "exit 7").code == 7
    told = on_daemon("compute", "exec", dev, "exit 7", "-o", "json")
    assert [result["exit_code"] for result in told.json().values()] == [7, 7]
    assert "error: not_found: " in on_daemon("compute", "exec", dev, "--node", "9", "true").check(3).err


def test_files_there_and_back(on_daemon: Any, dev: str) -> None:
    content = bytes(range(256)) * 4096
    (on_daemon.folder / "data.bin").write_bytes(content)
    assert "on 2 nodes" in on_daemon("compute", "upload", dev, "data.bin", "in/").check().err
    assert "data.bin" in on_daemon("compute", "ls", dev, "in", "--node", "1").check().out
    got = on_daemon.json_of("compute", "download", dev, "in/data.bin", "back.bin", "--node", "1")
    assert (got["path"], got["file"]) == ("in/data.bin", "back.bin")
    assert (on_daemon.folder / "back.bin").read_bytes() == content
    on_daemon("compute", "rm", dev, "in").check()
    assert "error: not_found: " in on_daemon("compute", "download", dev, "in/data.bin", "no.bin").check(3).err
    assert not list(on_daemon.folder.glob("no.bin*"))


def test_a_shell_reads_what_is_piped(on_daemon: Any, dev: str) -> None:
    ended = on_daemon("compute", "shell", dev, stdin="echo $((40 + 2)) is it\nexit\n").check()
    assert "42 is it" in ended.out
    assert "ready" in on_daemon("compute", "shell", dev, "echo ready", "--node", "1").check().out


def test_a_port_of_a_node_is_a_port_here(on_daemon: Any, dev: str) -> None:
    served = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        for _ in range(3):
            connection, _ = served.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    threading.Thread(target=answer, daemon=True).start()
    port = served.getsockname()[1]
    forward = on_daemon.begin("compute", "forward", dev, f"0:{port}")
    try:
        line = forward.stdout.readline()
        assert f"is port {port} of {dev}" in line
        here = line.split()[0]
        for _ in range(3):
            with urllib.request.urlopen(f"http://{here}/", timeout=60) as response:
                assert response.read() == b"hello"
        forward.send_signal(signal.SIGINT)
        _, err = forward.communicate(timeout=60)
        assert forward.returncode == 130
        assert "Traceback" not in err
    finally:
        forward.kill()
        forward.communicate()
        served.close()


def test_resizing_waits_until_it_is_so(live: Any) -> None:
    live("compute", "create", "grow", "--cpus", "1").check()
    grown = live("compute", "resize", "grow", "2", "--wait", "-o", "json").check().json()
    assert grown["status"]["nodes_ready"] == 2
    shrunk = live("compute", "resize", "grow", "1", "--wait").check().out
    assert "1/1" in shrunk
    ended = live("compute", "resize", "grow", "20000").check(2)
    assert "expected `int` <= 10000" in ended.err
    live("compute", "delete", "grow", "--yes").check()


def test_view_piped_is_a_line_per_event_until_the_end(live: Any) -> None:
    live("compute", "create", "seen", "--cpus", "1").check()
    view = live.begin("compute", "view", "seen")
    first = view.stdout.readline()
    missing = live("compute", "download", "seen", "nowhere").check(3)
    assert "`sky compute ls seen` lists what is there" in missing.err
    live("compute", "delete", "seen", "--yes").check()
    out = view.stdout.read()  # not communicate(), which loses what readline() has read ahead
    err = view.stderr.read()
    assert view.wait(timeout=30) == 0, err
    assert first == "compute requested\n"
    lines = out.splitlines()
    assert lines.index("node 0 ready") < lines.index("compute ready") < lines.index("compute deleting")
    assert "node 0: workers completed" in lines
    assert lines[-1] == "compute deleted"
    assert "\x1b" not in out
    assert "cpu_percent" not in out


def test_what_cannot_be_had_is_said_when_the_wait_is_over(live: Any) -> None:
    ended = live("compute", "create", "huge", "--cpus", "4000", "--timeout", "2")
    live("compute", "delete", "huge", "--yes").check()
    assert ended.code in (1, 4)
    assert ended.err.splitlines()[-2].startswith("error: ")
    assert "Traceback" not in ended.err


def test_interrupting_a_wait_says_what_goes_on(live: Any, eventually: Callable[..., None]) -> None:
    process = live.begin("compute", "create", "huger", "--cpus", "4000", "--timeout", "60")
    try:
        eventually(lambda: live("compute", "get", "huger").code == 0, "it was never created")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        if process.returncode == 130:
            assert "huger goes on being created; `sky compute delete huger --yes`" in err
        else:
            assert "error: compute_failed: " in err
    finally:
        process.kill()
        process.communicate()
        live("compute", "delete", "huger", "--yes").check()
