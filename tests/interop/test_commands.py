"""The commands of the published client library against our daemon."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.conftest import Library

KIND = "verda"
"""The commands know the library's own kinds alone; a provider of ours may bear the name of one."""
GONE_S = 100.0


@pytest.fixture
def account(library: Library) -> Iterator[None]:
    """A provider of this computer under that name; other tests of the daemon count on there being one."""
    library.ask("POST", "/v1/providers", {"name": KIND, "kind": "local"})
    yield
    deadline_s = time.monotonic() + GONE_S
    while not _removed(library):
        assert time.monotonic() < deadline_s, f"{KIND} is in use after {GONE_S:g} s"
        time.sleep(0.1)


def _removed(library: Library) -> bool:
    """Remove it; False: its machines are still being given back."""
    try:
        library.ask("DELETE", f"/v1/providers/{KIND}")
    except urllib.error.HTTPError as error:
        if error.code == 409:
            return False
        raise
    return True


def test_a_compute_is_made_seen_resized_and_taken_down(library: Library, account: None) -> None:
    name = f"made-{os.getpid()}"
    wanted = ("--provider", KIND, "--name", name)
    made = library.run("sky", "compute", "create", *wanted, "--output", "json").json
    library.wait(name, "ready")
    [row] = library.run("sky", "status", name, "--output", "json").json
    assert (row["id"], row["state"], row["ready"]) == (made[0]["id"], "ready", "1")
    scaled = library.run("sky", "compute", "scale", name, "--nodes", "1:2", "--output", "json").json
    assert scaled[0]["id"] == row["id"]
    assert library.ask("GET", f"/v1/computes/{name}")["spec"]["nodes"] == {"desired": 2, "min": 1, "max": 2}
    view = library.run("sky", "compute", "view", name)
    assert view.code == 0, view.err
    assert "127.0.0.1" in view.out
    stopped = library.run("sky", "stop", name, "--output", "json").json
    assert stopped[0]["state"] == "deleting"
    assert library.wait(row["id"], "deleted")["name"] == name


def test_a_compute_that_failed_does_not_hide_the_others(library: Library) -> None:
    name = f"broken-{os.getpid()}"
    told = library.run("broken.py", name).told
    assert "could not be made ready" in told["error"]
    broken = library.ask("GET", f"/v1/computes/{name}")["id"]
    listed = library.run("sky", "compute", "list", "--output", "json").json
    assert broken in {row["id"] for row in listed}
    assert library.run("sky", "compute", "view", broken).code == 0
    library.ask("DELETE", f"/v1/computes/{broken}", headers={"If-Match": "*"})


def test_commands_and_files_on_nodes(library: Library, stays: str) -> None:
    (library.home / "notes.txt").write_text("three words here\n")
    ran = library.run("sky", "compute", "exec", stays, "--output", "json", "--", "echo", "$SKY_RANK").json
    assert [(one["stdout"], one["exit"]) for one in ran] == [("0\n", 0), ("1\n", 0)]
    assert library.run("sky", "compute", "exec", stays, "exit 3", "--node", "1").code == 3
    sent = library.run("sky", "compute", "upload", stays, "notes.txt", "in/notes.txt")
    assert sent.code == 0, sent.err
    [listed] = library.run("sky", "compute", "ls", stays, "in", "--node", "1", "--output", "json").json
    assert "notes.txt" in listed["stdout"]
    back = library.run("sky", "compute", "download", stays, "in/notes.txt", "back.txt", "--node", "1")
    assert (library.home / "back.txt").read_text() == "three words here\n", back
    assert library.run("sky", "compute", "rm", stays, "in").code == 0
    gone = library.run("sky", "compute", "download", stays, "in/notes.txt", "back.txt")
    assert gone.code == 1
    assert gone.err.startswith("not_found: ")


def test_a_script_runs_as_a_call_and_its_output_is_in_the_log(library: Library, stays: str) -> None:
    script = library.home / "script.py"
    script.write_text("import sys\nprint('said by', *sys.argv[1:])\nsys.exit(7)\n")
    ran = library.run("sky", "compute", "run", stays, str(script), "one", "two")
    assert ran.code == 7, ran.err
    assert library.run("sky", "compute", "upload", stays, str(script), "script.py").code == 0
    printed = library.run("sky", "compute", "exec", stays, "python script.py three", "--node", "1")
    assert ("said by three\n" in printed.out, printed.code) == (True, 7), "what docs/interop.md says to do"
    script.write_text("import os\nos._exit(9)\n")
    died = library.run("sky", "compute", "run", stays, str(script))
    assert (died.code, died.err) == (1, "task_failed: the worker process that ran it exited with code 9\n")
    exported = library.run("sky", "log", "export", stays, "log.jsonl")
    assert exported.code == 0, exported.err
    log = [json.loads(line) for line in (library.home / "log.jsonl").read_text().splitlines()]
    assert {"event": "node.console", "content": "said by one two"}.items() <= log_line(log, "said by").items()
    assert {"task.queued", "task.started", "task.succeeded", "task.failed"} <= {one["event"] for one in log}
    assert "said by one two\n" in library.run("sky", "log", stays).out


def log_line(log: list[dict[str, str]], words: str) -> dict[str, str]:
    return next(one for one in log if words in one.get("content", ""))


def test_a_terminal_on_a_node(library: Library, stays: str) -> None:
    # Quoted in two halves, so that the echo of what was typed is not what is looked for.
    typed = "echo over-'there' in $SKY_NODE; exit\n"
    ran = library.run("sky", "console", stays, given=typed)
    node = library.ask("GET", f"/v1/computes/{stays}/nodes")["items"][0]["id"]
    assert f"over-there in {node}" in ran.out
    told = library.run("sky", "console", stays, "--command", "tty && echo at $PLACE", given="")
    assert "/dev/pts/" in told.out
    assert "at a node" in told.out


def test_what_can_be_bought_and_from_whom(library: Library, account: None) -> None:
    offers = library.run("sky", "offers", "list", "--limit", "0", "--refresh", "--output", "json").json
    assert {"local-1"} <= {row["INSTANCE"] for row in offers}
    summary = library.run("sky", "offers", "summary", "--provider", KIND, "--output", "json").json
    assert [row["PROVIDER"] for row in summary] == [KIND]
    kinds = library.run("sky", "providers", "list", "--kinds", "--output", "json").json
    assert "local" in {row["kind"] for row in kinds}
    [checked] = library.run("sky", "providers", "check", KIND, "--output", "json").json
    assert (checked["kind"], checked["status"]) == ("local", "ok")


def test_the_daemon_is_found_and_watched(library: Library, stays: str) -> None:
    [status] = library.run("sky", "server", "status", "--output", "json").json
    assert (status["url"], status["live"]) == (library.url, "True")
    watching = library.start("sky", "monitor", stays, "--mode", "log")
    try:
        assert watching.stderr is not None
        seen = iter(watching.stderr.readline, "")
        assert any(line.strip().endswith("│ ready") for line in seen), "what was before is shown first"
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)
    finally:
        watching.kill()
        watching.communicate()


def test_its_release_is_the_one_that_the_daemon_names(library: Library) -> None:
    named = library.ask("GET", "/v1/health/live")
    assert library.run("sky", "version").out.startswith(f"skyward {named['version']},")
    assert named["live"] is True
    locked = Path(__file__).parents[2].joinpath("requirements", "interop.txt").read_text()
    assert f"skyward=={named['version']} " in locked
