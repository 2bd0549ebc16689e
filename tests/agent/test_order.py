"""What a call does to its process does not reach the next one: it is put back, or the worker is replaced."""

from __future__ import annotations

import builtins
import gc
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest


def _seen() -> dict[str, Any]:
    """What code can see of its process."""
    umask = os.umask(0o22)
    os.umask(umask)
    spoken = subprocess.run(["sh", "-c", "pwd; ulimit -n"], capture_output=True, text=True, check=True)
    return {
        "cwd": str(Path.cwd()),
        "spoken": spoken.stdout,
        "environment": dict(os.environ),
        "umask": umask,
        "limits": [resource.getrlimit(name) for name in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)],
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "ignored": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "recursion": sys.getrecursionlimit(),
        "gc": gc.isenabled(),
        "timeout": socket.getdefaulttimeout(),
        "tracing": sys.gettrace() is not None,
        "path": len(sys.path),
        "main": "__main__" in sys.modules,
        "output": type(sys.stdout).__name__,
    }


def _vanish() -> None:
    Path("gone").mkdir(exist_ok=True)
    os.chdir("gone")
    Path("../gone").rmdir()


def _leave_variables() -> None:
    os.environ["LEFT_BEHIND"] = "1"
    os.environ["PATH"] = "/nowhere"
    del os.environ["TMPDIR"]


def _lower() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, hard))


def _switches() -> None:
    sys.setrecursionlimit(200)
    gc.disable()
    socket.setdefaulttimeout(0.001)
    sys.path.clear()
    del sys.modules["__main__"]
    vars(sys).update(stdout=None, stderr=None)


def _alarm() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.alarm(1)


REPAIRED = [
    lambda: os.chdir("/"),
    _vanish,
    _leave_variables,
    lambda: os.umask(0o777),
    _lower,
    _switches,
    lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1}),
]


@pytest.mark.parametrize("change", REPAIRED)
def test_what_a_call_changes_is_put_back_for_the_next(single: Any, change: Any) -> None:
    def changed() -> int:
        change()
        return os.getpid()

    before, pid = single.value(_seen), single.value(os.getpid)
    assert single.value(changed) == pid
    assert single.value(_seen) == before
    assert single.value(os.getpid) == pid, "the worker is warm still"


def test_each_call_finds_its_own_peers_whatever_the_call_before_it_did_to_them(
    single: Any, unpack: Any
) -> None:
    def peers(left: str | None = None) -> str | None:
        found = os.environ.pop("SKYWARD_PEERS", None)
        if left is not None:
            os.environ["SKYWARD_PEERS"] = left
        return found

    told = [("10.0.0.1", "10.0.0.2"), ("10.0.0.1", "10.0.0.2"), ("10.0.0.3",), (), ("10.0.0.1",)]
    items = [single.item(peers, left, peers=each) for each in told for left in (None, "wrong")]
    found = [single.outcome(execution) for execution in single.send_all(items)]
    assert [unpack(outcome.result) for outcome in found] == [
        ",".join(each) for each in told for _ in range(2)
    ]


def test_an_alarm_and_a_handler_do_not_outlive_their_call(node_of: Any) -> None:
    node = node_of().start()
    before, pid = node.value(_seen), node.value(os.getpid)
    node.value(_alarm)
    assert node.value(_seen) == before
    node.value(time.sleep, 1.2)
    assert node.value(os.getpid) == pid


def test_what_modules_keep_is_kept(single: Any) -> None:
    single.value(lambda: setattr(os, "kept_by_a_call", 5))
    assert single.value(lambda: getattr(os, "kept_by_a_call", None)) == 5


def _break_pickle() -> None:
    vars(pickle).update(loads=None)


def _lose_modules() -> None:
    sys.modules.clear()


BEYOND_REPAIR = [
    _lose_modules,
    lambda: os.close(1),
    _break_pickle,
    lambda: delattr(builtins, "len"),
]


@pytest.mark.parametrize("ruin", BEYOND_REPAIR)
def test_a_worker_beyond_repair_is_replaced_and_no_later_call_suffers(single: Any, ruin: Any) -> None:
    before = single.value(os.getpid)
    single.run(ruin)  # how this one ends is its own affair
    items = [single.item(lambda number: (number, os.getpid()), number) for number in range(20)]
    outcomes = [single.outcome(name) for name in single.send_all(items)]
    assert [outcome.error for outcome in outcomes] == [None] * 20
    assert single.value(os.getpid) != before
    assert single.value(lambda: "" if "json" in sys.modules else __import__("json").dumps(1)) in ("", "1")


def test_a_function_that_no_worker_can_load_costs_one_worker(single: Any) -> None:
    single.value(lambda: None)

    def lacking() -> Any:
        import no_such_module

        return no_such_module

    class Unloadable:
        def __reduce__(self) -> Any:
            return (__import__, ("no_such_module_at_all",))

    first = single.run(lambda given: given, Unloadable())
    assert first.error.type == "ModuleNotFoundError"
    pid = single.value(os.getpid)
    second = single.run(lacking)
    assert second.error.type == "ModuleNotFoundError", "this one began, and is not tried again"
    assert single.value(os.getpid) == pid
