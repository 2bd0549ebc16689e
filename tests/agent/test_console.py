"""Output of calls: live, whole lines, in order, with their owner, bounded, and counted exactly."""

from __future__ import annotations

import contextvars
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest


def lines_of(node: Any, execution: str | None) -> list[Any]:
    return [lines for lines in node.daemon.console if lines.execution == execution]


def test_both_streams_arrive_with_their_names_and_in_order(either: Any) -> None:
    def speak() -> None:
        print("one")
        print("two", file=sys.stderr)
        logging.getLogger("user").warning("three")
        print("four")

    execution = either.send(speak)
    outcome = either.outcome(execution)
    said = [
        (lines.stream, line) for lines in lines_of(either, execution) for line in lines.content.splitlines()
    ]
    assert said == [("stdout", "one"), ("stderr", "two"), ("stderr", "three"), ("stdout", "four")]
    assert outcome.console_lines == 4


def test_output_arrives_while_the_call_runs(either: Any, until: Any, tmp_path: Path) -> None:
    def speak(path: str) -> None:
        print("early")
        while not Path(path).exists():
            time.sleep(0.005)

    execution = either.send(speak, str(tmp_path / "go"))
    until(lambda: either.daemon.text(execution) == "early\n", "a line of a running call")
    assert execution not in either.daemon.outcomes
    (tmp_path / "go").touch()
    assert either.outcome(execution).console_lines == 1


def test_subprocesses_and_descriptors_belong_to_the_call(either: Any) -> None:
    def speak() -> None:
        print("a")
        os.write(1, b"b\n")
        print("c")
        subprocess.run("echo d; echo e >&2; echo f", shell=True, check=True)
        print("g")
        os.system("printf h")

    execution = either.send(speak)
    outcome = either.outcome(execution)
    assert either.daemon.text(execution) == "a\nb\nc\nd\nf\ng\nh\n"
    assert either.daemon.text(execution, "stderr") == "e\n"
    assert outcome.console_lines == 8


def test_consecutive_calls_do_not_mix_what_their_subprocesses_say(node: Any) -> None:
    for execution in node.send_all([node.item(lambda: None) for _ in range(100)]):
        node.outcome(execution)
    items = [node.item(lambda n: os.write(1, b"call %d\n" % n), number) for number in range(100)]
    node.send_all(items)
    for number, item in enumerate(items):
        assert node.outcome(item.execution).console_lines == 1
        assert node.daemon.text(item.execution) == f"call {number}\n"


def test_threads_speak_for_their_own_call(threaded: Any) -> None:
    def speak(name: str) -> None:
        for number in range(50):
            print(name, number)
            time.sleep(0.0005)

    executions = [threaded.send(speak, name) for name in ("left", "right")]
    for execution, name in zip(executions, ("left", "right"), strict=True):
        assert threaded.outcome(execution).console_lines == 50
        assert threaded.daemon.text(execution) == "".join(f"{name} {n}\n" for n in range(50))


def test_a_thread_that_a_call_started_with_its_context_speaks_for_it(threaded: Any) -> None:
    def speak() -> None:
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(print, "from a thread"))
        thread.start()
        thread.join()

    execution = threaded.send(speak)
    assert threaded.outcome(execution).console_lines == 1
    assert threaded.daemon.text(execution) == "from a thread\n"


def test_what_is_not_utf8_is_replaced(either: Any) -> None:
    def speak() -> None:
        sys.stdout.buffer.write(b"caf\xe9 \xf0\x9f\x98\x80\n")
        os.write(1, b"raw \xff\xfe\n")
        print("lone \ud800 surrogate")

    execution = either.send(speak)
    assert either.outcome(execution).console_lines == 3
    text = either.daemon.text(execution)
    assert "caf\ufffd \U0001f600\n" in text
    assert "raw \ufffd\ufffd\n" in text
    assert "lone \\ud800 surrogate\n" in text


def test_long_and_unfinished_lines(either: Any) -> None:
    def speak() -> None:
        print("x" * 200_000)
        sys.stdout.write("no newline at the end")

    execution = either.send(speak)
    outcome = either.outcome(execution)
    lines = either.daemon.text(execution).split("\n")
    assert [len(line) for line in lines[:4]] == [65536, 65536, 65536, 200_000 - 3 * 65536]
    assert lines[4:] == ["no newline at the end", ""]
    assert outcome.console_lines == 5


def test_counts_agree_and_lines_never_come_after_the_outcome(either: Any) -> None:
    def speak(count: int) -> None:
        for number in range(count):
            print("line", number)

    items = [either.item(speak, number % 7) for number in range(100)]
    either.send_all(items)
    for item in items:
        either.outcome(item.execution)
    wanted = {item.execution for item in items}
    counted = dict.fromkeys(wanted, 0)
    for report in either.daemon.reports:
        for lines in report.console:
            if lines.execution in wanted:
                counted[lines.execution] += lines.lines
                assert lines.lines == lines.content.count("\n")
        for outcome in report.outcomes:
            if outcome.execution in wanted:
                assert counted[outcome.execution] == outcome.console_lines
    assert sorted(counted.values()) == sorted(number % 7 for number in range(100))


def test_a_crash_does_not_take_the_last_lines_with_it(node: Any) -> None:
    def crash() -> None:
        print("the last words")
        os._exit(1)

    execution = node.send(crash)
    assert node.outcome(execution).console_lines == 1
    assert node.daemon.text(execution) == "the last words\n"


def test_a_crash_in_native_code_shows_where_it_was(node: Any) -> None:
    def crash() -> None:
        import ctypes

        ctypes.string_at(0)

    execution = node.send(crash)
    assert "SIGSEGV" in node.outcome(execution).error.message
    assert "Segmentation fault" in node.daemon.text(execution, "stderr")


@pytest.mark.parametrize("way", ["print", "descriptor"])
def test_a_runaway_printer_is_slowed_and_loses_nothing(node: Any, until: Any, way: str) -> None:
    def flood(raw: bool) -> None:
        line = "y" * 99 + "\n"
        for _ in range(60_000):
            if raw:
                os.write(1, line.encode())
            else:
                sys.stdout.write(line)

    node.daemon.answering = False
    execution = node.send(flood, way == "descriptor")
    other = node.send(lambda: sum(range(10)))
    time.sleep(0.5)
    assert memory_of(node) < 200_000_000
    node.daemon.answering = True
    node.daemon.hang_up()
    assert node.outcome(other).state == "succeeded"
    outcome = node.outcome(execution)
    assert outcome.console_lines == 60_000
    assert len(node.daemon.text(execution)) == 6_000_000
    assert (
        max(sum(len(lines.content) for lines in report.console) for report in node.daemon.reports) <= 1 << 20
    )


def memory_of(node: Any) -> int:
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_a_cancelled_flood_ends(node: Any, until: Any) -> None:
    def flood() -> None:
        while True:
            print("z" * 99)

    execution = node.send(flood)
    until(lambda: node.daemon.text(execution), "output")
    node.cancel(execution)
    assert node.outcome(execution).state == "cancelled"
    assert node.value(lambda: 1) == 1


def test_forked_children_print_too(node: Any) -> None:
    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            print("from a child")
            os._exit(0)
        os.waitpid(pid, 0)

    execution = node.send(fork)
    assert node.outcome(execution).console_lines == 1
    assert node.daemon.text(execution) == "from a child\n"
