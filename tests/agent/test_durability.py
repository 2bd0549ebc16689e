"""What survives: lost connections, repeated work, dead agents; and what must not survive its agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest


def noted(path: str, value: int = 0) -> int:
    """Adds a line to a file, so that a second run would show."""
    with open(path, "a") as file:
        file.write("ran\n")
    return value


def held(path: str) -> str:
    """Runs until a file is there."""
    while not Path(path).exists():
        time.sleep(0.005)
    return "let go"


def fail_at_length(path: str, nonce: int) -> None:
    """Waits for a file, then raises something of which much can be told."""
    held(path)
    raise type("Long" * 1000, (RuntimeError,), {})("😀" * 70_000 + str(nonce))


def test_hello_says_who_it_is(node: Any, until: Any) -> None:
    hello = node.daemon.hellos[0]
    assert (hello.protocol, hello.pid, hello.slots, hello.ready, hello.known) == (
        1,
        node.process.pid,
        2,
        False,
        (),
    )
    assert hello.boot
    assert hello.python.startswith("3.")
    assert [(phase.phase, phase.event) for phase in node.daemon.phases] == [
        ("environment", "started"),
        ("environment", "completed"),
        ("workers", "started"),
        ("workers", "completed"),
    ]
    assert not node.daemon.refusals


def test_pings_bring_the_window_and_metrics(node: Any, until: Any) -> None:
    until(lambda: len(node.daemon.pings) > 2, "pings")
    ping = node.daemon.pings[-1]
    assert ping.window == node.daemon.window
    assert 0 <= ping.metrics["cpu_percent"] <= 100
    assert 0 < ping.metrics["memory_used_bytes"] < ping.metrics["memory_total_bytes"]
    assert 0 < ping.metrics["disk_used_bytes"] < ping.metrics["disk_total_bytes"]


def test_accelerators_are_read_where_their_tool_is(node_of: Any, until: Any, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, 87, 1024, 24576'\nsleep 0.3\necho '1, [N/A], 0, 24576'\n")
    tool.chmod(0o755)
    node = node_of(image={"env": {"PATH": f"{tmp_path}:{os.environ['PATH']}"}}).start()

    def told() -> dict[str, float] | None:
        newest = node.daemon.pings[-1].metrics if node.daemon.pings else {}
        return newest if "gpu_0_percent" in newest else None

    gauges = until(told, "a gauge")
    assert gauges["gpu_0_percent"] == 87.0
    assert gauges["gpu_0_memory_used_bytes"] == 2**30
    assert gauges["gpu_1_memory_total_bytes"] == 24 * 2**30
    assert "gpu_1_percent" not in gauges


def test_gauges_of_the_user(node_of: Any, until: Any) -> None:
    gauges = [
        {"name": "answer", "command": "echo 42", "interval": 1},
        {"name": "broken", "command": "exit 1", "interval": 1},
    ]
    node = node_of(image={"metrics": gauges}).start()
    until(lambda: node.daemon.pings and node.daemon.pings[-1].metrics.get("answer") == 42.0, "a gauge")
    assert "broken" not in node.daemon.pings[-1].metrics


def test_work_goes_on_while_the_daemon_is_away(node: Any, until: Any, tmp_path: Path) -> None:
    assert node.value(held, str(tmp_path)) == "let go"
    assert node.value(noted, str(tmp_path / "known")) == 0
    executions = [node.send(held, str(tmp_path / "go")) for _ in range(2)]
    executions += node.send_all([node.item(noted, str(tmp_path / "log"), number) for number in range(20)])
    until(lambda: journal_has(node, executions[-1], 1), "accepted work")
    node.daemon.stop()
    (tmp_path / "go").touch()
    until(
        lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("ran") == 20, "work done"
    )
    before = len(node.daemon.hellos)
    node.daemon.start()
    until(lambda: len(node.daemon.hellos) > before, "a new connection")
    assert all(node.outcome(execution).state == "succeeded" for execution in executions)
    assert set(node.daemon.hellos[-1].known) >= set(executions)
    assert node.daemon.hellos[-1].boot == node.daemon.hellos[0].boot
    assert node.daemon.hellos[-1].ready
    told = node.daemon.outcomes_told
    assert all(told.count(execution) == 1 for execution in executions)


def test_a_report_that_was_not_heard_is_said_again_with_its_number(node: Any, until: Any) -> None:
    number = node.daemon.reports[-1].number
    node.daemon.answering = False
    execution = node.send(lambda: 1)
    time.sleep(0.1)
    node.daemon.answering = True
    node.daemon.hang_up()
    assert node.outcome(execution).state == "succeeded"
    told = next(
        report
        for report in node.daemon.reports
        if report.outcomes and report.outcomes[0].execution == execution
    )
    assert told.number > number


def test_a_report_that_was_heard_before_the_line_broke_is_not_said_again(node: Any, until: Any) -> None:
    repeats = len(node.daemon.repeats)
    for _ in range(5):
        execution = node.send(lambda: 1)
        node.outcome(execution)
        node.daemon.hang_up()
        assert node.value(lambda: 2) == 2
    assert len(node.daemon.repeats) == repeats


def test_whatever_happens_during_a_report_goes_into_the_next(node: Any, until: Any) -> None:
    before = len(node.daemon.reports)
    node.daemon.holding = True
    items = [node.item(lambda: None) for _ in range(400)]
    node.send_all(items)
    until(lambda: all(journal_has(node, item.execution, 2) for item in items), "outcomes in the journal")
    node.daemon.holding = False
    for item in items:
        node.outcome(item.execution)
    reports = node.daemon.reports[before:]
    assert sum(len(report.outcomes) for report in reports) == 400
    assert len(reports) < 10


def test_work_that_comes_again_is_not_run_again(node: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    item = node.item(noted, str(log), 7)
    node.send_all([item, item])
    node.send_all([item])
    assert node.outcome(item.execution).state == "succeeded"
    # Whatever was said of it before a later call is answered has been heard by then.
    assert node.value(lambda: 1) == 1
    told = node.daemon.outcomes_told.count(item.execution)
    node.send_all([item])
    assert node.value(lambda: 1) == 1
    assert log.read_text() == "ran\n"
    assert node.daemon.outcomes_told.count(item.execution) == told + 1


def test_a_new_address_is_read_from_the_file_that_names_it(
    node_of: Any, daemon: Any, until: Any, tmp_path: Path
) -> None:
    told = tmp_path / "daemon.json"
    told.write_text(json.dumps({"url": daemon.url, "pid": 1, "release": "0"}))
    node = node_of()
    node.extra = {"SKY_AGENT_URL_FILE": str(told), "SKY_AGENT_URL": "http://127.0.0.1:9"}
    node.start()
    daemon.stop()
    daemon.port = 0
    daemon.start()
    told.write_text(json.dumps({"url": daemon.url, "pid": 1, "release": "0"}))
    assert node.value(lambda: 1) == 1


# ── agents that die ──


def test_a_new_agent_tells_what_the_killed_one_could_not(
    node_of: Any, daemon: Any, until: Any, tmp_path: Path
) -> None:
    node = node_of(worker={"executor": "process", "concurrency": 2}).start()
    heard = node.send(lambda: "heard")
    node.outcome(heard)
    running = node.send(held, str(tmp_path / "never"))
    until(lambda: running in {began.execution for began in daemon.started}, "a call that runs")
    daemon.answering = False
    large = node.send(os.urandom, 700_000)
    untold = node.item(noted, str(tmp_path / "log"), 5)
    node.send_all([untold])
    until(
        lambda: (tmp_path / "log").exists() and journal_has(node, untold.execution, 2),
        "an outcome in the journal",
    )
    until(lambda: journal_has(node, large, 2), "an outcome in the journal")
    before = node.processes()
    node.signal(signal.SIGKILL)
    node.wait()
    until(lambda: not node.processes(), "the end of everything the agent had")
    assert len(before) >= 4
    with (node.home / "journal").open("ab") as file:
        file.write(b"\x00\x00\x10\x00torn")
    daemon.answering = True
    boot = daemon.hellos[-1].boot
    node.start()
    hello = daemon.hellos[-1]
    assert hello.boot != boot
    assert node.outcome(untold.execution).state == "succeeded"
    assert len(daemon.blobs[node.outcome(large).result_sha256]) > 700_000
    lost = node.outcome(running)
    assert (lost.state, lost.error.code) == ("indeterminate", "task_indeterminate")
    assert "restarted" in lost.error.message
    node.send_all([untold])
    assert node.value(lambda: 1) == 1
    assert (tmp_path / "log").read_text() == "ran\n"
    assert daemon.outcomes_told.count(heard) == 1


def journal_has(node: Any, execution: str, times: int) -> bool:
    return (node.home / "journal").read_bytes().count(execution.encode()) >= times


def test_an_agent_that_is_killed_again_and_again_loses_and_repeats_nothing(
    node_of: Any, daemon: Any, tmp_path: Path
) -> None:
    node = node_of().start()
    logs = {}
    for turn in range(4):
        items = [node.item(noted, str(tmp_path / f"{turn}-{number}"), number) for number in range(30)]
        logs |= {item.execution: tmp_path / f"{turn}-{number}" for number, item in enumerate(items)}
        node.send_all(items)
        time.sleep(0.003 * turn)
        node.signal(signal.SIGKILL)
        node.wait()
        node.start()
        node.send_all(items)
    for execution, log in logs.items():
        outcome = node.outcome(execution)
        ran = log.read_text().count("ran") if log.exists() else 0
        assert ran <= 1
        assert (outcome.state == "succeeded" and ran == 1) or outcome.state == "indeterminate"


def spawning(path: str) -> None:
    """Starts processes that would outlive it: one in its group, one in a session of its own."""
    first = subprocess.Popen(["sleep", "300"])
    second = subprocess.Popen(["sleep", "300"], start_new_session=True)
    Path(path).write_text(f"{first.pid} {second.pid}")
    time.sleep(300)


@pytest.mark.parametrize("how", ["kill", "term", "stop", "lease", "home"])
def test_nothing_outlives_its_agent(node_of: Any, daemon: Any, until: Any, tmp_path: Path, how: str) -> None:
    daemon.lease_seconds = 5.0 if how == "lease" else 0.0
    node = node_of(worker={"executor": "process", "concurrency": 2}).start()
    execution = node.send(spawning, str(tmp_path / "pids"))
    until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text(), "subprocesses")
    assert len(node.processes()) >= 5
    match how:
        case "kill":
            node.signal(signal.SIGKILL)
        case "term":
            node.signal(signal.SIGTERM)
        case "stop":
            daemon.say(__import__("sky.wire.agent", fromlist=["Stop"]).Stop(reason="given back"))
        case "home":
            node.home.rename(tmp_path / "taken away")
        case _:
            began = time.monotonic()
            daemon.answering = False
    code = node.wait()
    until(lambda: not node.processes(), "the end of everything the agent had")
    assert code == (-signal.SIGKILL if how == "kill" else 0)
    assert execution not in daemon.outcomes
    if how == "lease":
        assert "lease is 5 s" in node.log
        assert time.monotonic() - began > 2.5
    elif how == "home":
        assert "its home is gone" in (tmp_path / "taken away" / "agent.log").read_text()
    elif how == "stop":
        assert "given back" in node.log


def test_a_call_that_ends_with_its_agent_is_not_told_as_cancelled(
    node_of: Any, daemon: Any, until: Any, tmp_path: Path
) -> None:
    def going_on(path: str) -> None:
        Path(path).touch()
        while True:
            time.sleep(0.01)

    for executor in ("process", "thread"):
        node = node_of(worker={"executor": executor, "concurrency": 1}).start()
        execution = node.send(going_on, str(tmp_path / executor))
        until((tmp_path / executor).exists, "a call that runs")
        node.signal(signal.SIGTERM)
        assert node.wait() == 0
        assert execution not in daemon.outcomes
        node.start()
        assert node.outcome(execution).state == "indeterminate"
        node.signal(signal.SIGTERM)
        node.wait()


def test_two_agents_do_not_share_a_home(node: Any) -> None:
    second = type(node)(node.daemon, node.home)
    second.name = node.name
    second.start(ready=False)
    assert second.wait() == 2
    assert "another agent" in node.log
    node.daemon.ready = True
    assert node.value(lambda: 1) == 1


def test_an_agent_that_lacks_something_says_what(node_of: Any) -> None:
    node = node_of()
    node.extra = {"SKY_AGENT_TOKEN_FILE": ""}
    node.start(ready=False)
    assert node.wait() == 2
    assert "SKY_AGENT_TOKEN_FILE is not set" in node.log


def test_a_drained_node_asks_for_nothing_and_finishes(node: Any, until: Any) -> None:
    from sky.wire.agent import Drain

    execution = node.send(time.sleep, 0.3)
    node.daemon.say(Drain(draining=True))
    until(lambda: node.daemon.window == 0, "a window of nothing")
    assert node.outcome(execution).state == "succeeded"
    node.daemon.say(Drain(draining=False))
    until(lambda: (node.daemon.window or 0) >= 2, "a window again")


def test_the_journal_does_not_grow_for_ever(node_of: Any, unpack: Any) -> None:
    node = node_of().start()
    first = node.item(lambda: 1)
    node.send_all([first])
    node.outcome(first.execution)
    for _ in range(10):
        items = [node.item(os.urandom, 200_000) for _ in range(10)]
        for execution in node.send_all(items):
            node.outcome(execution)
    assert (node.home / "journal").stat().st_size < 18_000_000
    node.send_all([first])
    assert node.value(lambda: 1) == 1
    assert node.daemon.outcomes_told.count(first.execution) == 2


def test_long_failures_are_told_in_reports_that_a_daemon_takes(
    node_of: Any, until: Any, tmp_path: Path
) -> None:
    node = node_of().start()
    node.daemon.message_bytes_max = 8 * 1024 * 1024
    node.daemon.hang_up()
    until(lambda: len(node.daemon.hellos) > 1, "a connection with a limit")
    go, gone = tmp_path / "go", tmp_path / "gone"
    gone.touch()
    # Once before: a node fetches a function when it first needs it, which it cannot while the daemon is away.
    node.outcome(node.send(fail_at_length, str(gone), 40))
    executions = node.send_all([node.item(fail_at_length, str(go), nonce) for nonce in range(40)])
    until(lambda: journal_has(node, executions[-1], 1), "accepted work")
    node.daemon.stop()
    go.touch()
    until(lambda: journal_has(node, executions[-1], 2), "the last outcome")
    node.daemon.start()
    for execution in executions:
        error = node.outcome(execution).error
        assert error is not None
        assert len(error.type) < 1000
        assert error.message.startswith("😀")
