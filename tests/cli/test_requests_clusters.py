"""Clusters and their jobs by commands, against a real daemon with machines that are processes here.

Decides: what a person and a script see from launch to down. Follows: one cluster serves the whole module.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Ended, Sky

TASK = """
name: greet
num_nodes: 2
envs:
  WHO: null
setup: echo prepared
run: echo "hello $WHO, ${#TOKEN}, from $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES"
"""
CHAIN = """
name: both
---
name: first
run: echo one
---
name: second
run: echo two; exit 4
---
name: third
run: echo three
"""
pytestmark = pytest.mark.real


def unique(word: str) -> str:
    return f"{word}-{secrets.token_hex(3)}"


@pytest.fixture(scope="module")
def there(on_daemon: Sky) -> Iterator[tuple[str, Ended]]:
    """A cluster of two nodes, and how the command that launched it ended."""
    name = unique("there")
    (on_daemon.folder / "task.yaml").write_text(TASK)
    (on_daemon.folder / "chain.yaml").write_text(CHAIN)
    ended = on_daemon("launch", "-c", name, "--env", "WHO=world", "--secret", "TOKEN=s3cret", "task.yaml")
    yield name, ended
    on_daemon("down", name, "--yes").check()


def test_launch_prints_what_each_node_printed_and_nothing_else(there: tuple[str, Ended]) -> None:
    name, ended = there
    ended.check()
    said = sorted(ended.out.splitlines())
    assert said[:2] == [f"(greet, rank={rank}) hello world, 6, from {rank} of 2" for rank in range(2)]
    assert said[2:] == [f"(setup, rank={rank}) prepared" for rank in range(2)]
    assert f"'{name}'" in ended.err
    assert ended.err.splitlines()[-1] == f"submitted as job 1 of {name}"


def test_what_a_setup_prints_is_shown_while_it_runs_and_once(on_daemon: Sky) -> None:
    name, go = unique("set"), on_daemon.folder / "go"
    task = on_daemon.folder / "setup.yaml"
    task.write_text(
        "num_nodes: 2\n"
        f"setup: echo begun $SKY_NODE_RANK; until [ -e {go} ]; do sleep 0.1; done; echo prepared\n"
        "run: echo done\n"
    )
    launching = on_daemon.begin("launch", "-c", name, task.name)
    try:
        assert launching.stdout is not None
        assert launching.stderr is not None
        begun = [launching.stdout.readline() for _ in range(2)]
        assert sorted(begun) == [f"(setup, rank={rank}) begun {rank}\n" for rank in range(2)]
        go.touch()
        rest, said = launching.communicate(timeout=60)
    finally:
        launching.kill()
    assert sorted(rest.splitlines()) == [
        *(f"(setup, rank={rank}) prepared" for rank in range(2)),
        *(f"(task, rank={rank}) done" for rank in range(2)),
    ]
    assert launching.returncode == 0
    assert said.splitlines()[-1] == f"submitted as job 1 of {name}"
    task.write_text("setup: echo broken; exit 7\nrun: echo never\n")
    failed, detached = on_daemon("launch", "-c", name, task.name), on_daemon("launch", "-dc", name, task.name)
    assert (failed.check(1).out, detached.check(1).out) == ("(setup) broken\n", "")
    assert "ended with 7" in failed.err
    assert "ended with 7" in detached.err
    as_json = on_daemon("launch", "-c", name, task.name, "-o", "json")
    assert (as_json.check(1).out, "(setup) broken\n" in as_json.err) == ("", True)
    on_daemon("down", name, "--yes").check()


def test_lists_fit_eighty_columns_and_name_what_is_there(on_daemon: Sky, there: tuple[str, Ended]) -> None:
    name, _ = there
    words = [
        ["status", name], ["status", "-v", name], ["status", f"{name[:-1]}*"], ["queue", name],
        ["status", name, "--ip"], ["logs", name, "1", "--status"], ["logs", name, "--provision"],
        ["cost-report"], ["api", "status", "--all"], ["status", "-o", "json", name],
        ["queue", name, "-o", "json"], ["logs", name, "1", "--sync-down"], ["status", "-u"],
    ]  # fmt: skip
    ended = [one.check() for one in on_daemon.together(words)]
    status, verbose, by_pattern, queue, address, state, provision, costs, requests, *rest = ended
    assert re.search(rf"(?m)^{name} +local\S* .* UP ", status.out)
    assert status.out.split()[:7] == by_pattern.out.split()[:7]
    assert "2 of 2 ready" in verbose.out
    assert re.search(r"(?m)^1 +greet +.* SUCCEEDED +0,0$", queue.out)
    assert address.out == "127.0.0.1\n"
    assert state.out == "job 1: SUCCEEDED\n"
    assert f"'{name}'" in provision.out
    assert re.search(rf"(?m)^{name} ", costs.out)
    assert re.search(rf"(?m) launch +{name} .* SUCCEEDED$", requests.out)
    assert max(len(line) for line in (status.out + queue.out + costs.out).splitlines()) <= 80
    as_json, jobs, logs, everybody = rest
    assert "s3cret" not in "".join(one.out for one in ended)
    [record] = as_json.json()
    assert (record["name"], record["status"], record["nodes"]) == (name, "UP", 2)
    assert [(job["cluster_name"], job["job_id"], job["status"]) for job in jobs.json()] == [
        (name, 1, "SUCCEEDED")
    ]
    folder = logs.out.strip().removeprefix("job 1: ")
    assert "hello world" in "".join(file.read_text() for file in Path(folder).rglob("*.log"))
    assert name in everybody.out


def test_what_nobody_knows_ends_with_3(on_daemon: Sky, there: tuple[str, Ended]) -> None:
    name, _ = there
    words = [
        ["status", name[:-1]], ["down", "nosuch", "-y"], ["stop", "nosuch*", "-y"], ["start", "nosuch"],
        ["exec", "nosuch", "ls"], ["queue", "nosuch"], ["logs", "nosuch"], ["logs", name, "99"],
        ["logs", name, "99", "--status"], ["cancel", name, "99", "-y"], ["cancel", "nosuch", "-y"],
        ["cancel", name, "99", "--dry-run"],
        ["autostop", "nosuch"], ["api", "logs", "nosuch"], ["api", "cancel", "nosuch"],
        ["api", "status", "nosuch"], ["storage", "delete", "nosuch", "-y"], ["status", "nosuch", "--ip"],
        ["gpus", "list", "A1000"],
    ]  # fmt: skip
    for line, ended in zip(words, on_daemon.together(words), strict=True):
        ended.check(3)
        assert re.findall(r"(?m)^error: ", ended.err) == ["error: "], line
        assert ended.out == "" or line[0] == "logs"
    near = on_daemon.together([["status", name[:-1]]])[0]
    assert near.err.splitlines()[1] == f"hint: did you mean `{name}`?"


def test_exec_ends_as_its_job_does(on_daemon: Sky, there: tuple[str, Ended]) -> None:
    name, _ = there
    failed, told, chain = on_daemon.together(
        [
            ["exec", name, "--env", "CODE=5", "--", "echo", "a  b", "$CODE;", "exit", "$CODE"],
            ["exec", name, "-n", "short", "-o", "json", "echo out"],
            ["exec", name, "chain.yaml"],
        ]
    )
    assert failed.check(100).out == "(task) a  b 5\n"
    assert re.search(rf"(?m)^job \d+ of {name} failed with exit code 5: `sky queue {name}`$", failed.err)
    found = told.check().json()
    assert (found["cluster_name"], found["status"], found["exit_code"]) == (name, "SUCCEEDED", 0)
    assert "(short) out" in told.err
    assert chain.check(100).out == "(first) one\n(second) two\n"


def test_a_terminal_is_where_the_jobs_run(on_daemon: Sky, there: tuple[str, Ended]) -> None:
    name, _ = there
    job, refused = on_daemon.together([["exec", name, "pwd; echo $HOME"], ["ssh", "nosuch"]])
    where = [line.removeprefix("(task) ") for line in job.check().out.splitlines()]
    with on_daemon.terminal("ssh", name, "pwd; echo $HOME; exit 7") as terminal:
        ended = terminal.end()
    assert (ended.code, ended.out.split()) == (7, where)
    refused.check(3)


def test_a_job_that_nobody_follows_is_cancelled(on_daemon: Sky, there: tuple[str, Ended]) -> None:
    name, _ = there
    job = on_daemon("exec", name, "-d", "sleep 300").check().out.strip()
    early, tried, asked, cancelled, late = on_daemon.together(
        [
            ["logs", name, job, "--no-follow"],
            ["cancel", name, job, "--dry-run", "-o", "json"],
            ["cancel", name, job],
            ["cancel", name, job, "--yes"],
            ["logs", name, job],
        ]
    )
    early.check(101)
    assert [str(one["job_id"]) for one in tried.check().json()] == [job]
    assert "--yes" in asked.check(4).err
    assert cancelled.check().out == f"cancelled on {name}: {job}\n"
    late.check(103)


def test_interrupted_the_job_goes_on_and_it_says_how_to_come_back(
    on_daemon: Sky, there: tuple[str, Ended]
) -> None:
    name, _ = there
    with on_daemon.terminal("exec", name, "echo begun; sleep 300") as terminal:
        terminal.until("begun")
        terminal.type("\x03")
        ended = terminal.end()
    assert ended.code == 130
    job = re.search(rf"`sky cancel {name} (\d+)` ends it", ended.out)
    assert job is not None
    state, _ = on_daemon.together([["logs", name, job[1], "--status"], ["cancel", name, "--all", "-y"]])
    assert state.check(101).out == f"job {job[1]}: RUNNING\n"


def test_a_person_is_shown_the_machines_and_asked(on_daemon: Sky, there: tuple[str, Ended]) -> None:
    del there
    name = unique("asked")
    with on_daemon.terminal("launch", "-c", name, "echo never") as terminal:
        shown = terminal.until("[Y/n]")
        terminal.type("n\n")
        ended = terminal.end()
    assert ended.code == 4
    assert re.search(r"local\S* +local-1 .* \*", shown.replace("\x1b[36m", ""))
    assert "an hour? [Y/n]" in shown
    assert "nothing was launched" in ended.out
    with on_daemon.terminal("launch", "-c", name, "echo so be it") as terminal:
        terminal.until("[Y/n]")
        terminal.type("\n")
        ended = terminal.end()
    assert (ended.code, ended.out.count("INSTANCE")) == (0, 1)
    assert f"launching cluster '{name}' with 1 node\r" in ended.out
    assert "(task) so be it" in ended.out
    on_daemon("down", name, "--yes").check()
    dry, missing = on_daemon.together(
        [["launch", "--dryrun", "-o", "json", "task.yaml", "--env", "WHO=x"], ["status", name]]
    )
    [optimized] = dry.check().json()
    assert optimized["chosen"]["total_cost"] == 0
    missing.check(3)


def test_a_request_is_listed_followed_and_cancelled(on_daemon: Sky, there: tuple[str, Ended]) -> None:
    name, _ = there
    _, asked = on_daemon.together(
        [
            ["exec", name, "-d", "sleep 300"],
            ["stop", name, "--yes", "--async", "--graceful", "--graceful-timeout", "300"],
        ]
    )
    request = asked.check().out.strip()
    listed, told, cancelled, again, ended, error, _ = on_daemon.together(
        [
            ["api", "status", "-c", name],
            ["api", "status", request[:20], "-o", "json"],
            ["api", "cancel", request[:20]],
            ["api", "cancel", request],
            ["api", "status", "--all", "-c", name],
            ["api", "logs", request],
            ["cancel", name, "--all", "--yes"],
        ]
    )
    assert re.search(rf"(?m)^{request} +stop +{name} .* (PENDING|RUNNING|WAITING)$", listed.check().out)
    [record] = told.check().json()
    assert (record["request_id"], record["cluster_name"]) == (request, name)
    assert cancelled.check().out == f"cancelled: {request}\n"
    assert "had ended already" in again.check().err
    assert re.search(rf"(?m)^{request} .* CANCELLED$", ended.check().out)
    assert error.check(1).err.startswith("error: request_cancelled: ")


def test_what_cannot_be_had_is_told_once(on_daemon: Sky) -> None:
    refused = on_daemon("launch", "-c", unique("big"), "--cpus", "4000+", "true").check(1)
    assert refused.err.startswith("error: resources_unavailable: no machine will do: ")
    assert len(re.findall("no machine will do", refused.err)) == 1


def test_many_are_ended_at_once_and_the_worst_is_the_end(on_daemon: Sky) -> None:
    base = unique("many")
    names = [f"{base}-{number}" for number in range(3)]
    asked = on_daemon.together([["launch", "-c", name, "--async", "true"] for name in names])
    for ended in asked:
        [request] = ended.check().out.split()
        assert request in ended.err
    ended, again = on_daemon.together(
        [["down", f"{base}-*", "nosuch", "--yes"], ["down", *names, "--yes", "-o", "json"]]
    )
    ended.check(3)
    assert sorted(ended.out.splitlines()) == [f"{name} is gone" for name in names]
    assert re.findall(r"(?m)^error: (\S+)", ended.err) == ["cluster_does_not_exist:"]
    gone = again.check(3).json()
    assert [one["code"] for one in gone] == ["cluster_does_not_exist"] * 3


def test_a_cluster_is_stopped_and_started_again(on_daemon: Sky, there: tuple[str, Ended]) -> None:
    name, _ = there
    kept, stopped, status, refused, started, again = on_daemon.together(
        [
            ["exec", name, "echo kept > ~/kept"],
            ["stop", name, "--yes"],
            ["status", name],
            ["exec", name, "cat ~/kept"],
            ["start", name],
            ["exec", name, "cat ~/kept"],
        ]
    )
    kept.check()
    assert "sky start" in stopped.check().out
    assert "STOPPED" in status.check().out
    assert f"sky start {name}" in refused.check(4).err
    assert started.check().out == f"{name} is up\n"
    assert again.check().out == "(task) kept\n"


def test_autostop_says_what_will_happen(on_daemon: Sky, there: tuple[str, Ended]) -> None:
    name, _ = there
    said: list[Any] = on_daemon.together(
        [
            ["autostop", name, "-i", "30", "--down"],
            ["status", name],
            ["autostop", name, "--cancel"],
            ["status", name],
        ]
    )
    assert said[0].check().out == f"{name} is taken down after 30m of idleness\n"
    assert "30m (down)" in said[1].check().out
    assert "neither" in said[2].check().out
    assert "30m" not in said[3].check().out
