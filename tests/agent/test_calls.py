"""Calls: values, failures, limits of payloads, what code sees of its call. Each on real worker processes."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lz4.frame
import pytest

from sky.kit import context
from sky.kit.context import SOURCE_ATTRIBUTE


def test_a_call_gives_its_value(either: Any, unpack: Any) -> None:
    def add(left: int, *, right: int) -> int:
        return left + right

    outcome = either.run(add, args=lz4.frame.compress(pickle.dumps(((1,), {"right": 2}))))
    assert outcome.state == "succeeded"
    assert unpack(outcome.result) == 3
    assert outcome.seconds >= 0
    assert outcome.ago_s >= 0
    assert outcome.error is None


@pytest.mark.parametrize(
    "value", [None, True, 7, 2.5, "text", b"bytes", [1, (2, {"three": {4}})], {"a": None}, 10**40]
)
def test_values_come_back_equal(either: Any, value: object) -> None:
    assert either.value(lambda given: given, value) == value


def test_no_arguments_at_all(either: Any) -> None:
    assert either.value(lambda: "nothing given", args=None) == "nothing given"


def test_classes_of_the_caller_travel_both_ways(node: Any) -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    moved = node.value(lambda point: type(point)(point.x + 1), Point(1))
    assert moved.x == 2


def test_coroutines_are_run(either: Any) -> None:
    async def later(value: int) -> int:
        await asyncio.sleep(0.001)
        return value + 1

    assert [either.value(later, number) for number in range(3)] == [1, 2, 3]


def test_generators_that_are_not_streamed_become_lists(either: Any) -> None:
    def plain() -> Any:
        yield from range(3)

    async def asynchronous() -> Any:
        for number in range(3):
            yield number

    assert either.value(plain) == [0, 1, 2]
    assert either.value(asynchronous) == [0, 1, 2]


def test_large_arguments_and_results_travel_as_blobs(either: Any, pack: Any, unpack: Any) -> None:
    content = os.urandom(3_000_000)
    sha = either.daemon.store(pack(((content,), {})))
    outcome = either.run(lambda given: given[::-1], args=None, args_sha256=sha)
    assert outcome.state == "succeeded"
    assert outcome.result is None
    assert unpack(either.daemon.blobs[outcome.result_sha256]) == content[::-1]


def test_equal_large_results_do_not_get_in_each_others_way(node: Any) -> None:
    executions = node.send_all(
        [node.item(lambda: b"".join(bytes([i % 251]) * 7 for i in range(900_000))) for _ in range(4)]
    )
    shas = {node.outcome(execution).result_sha256 for execution in executions}
    assert len(shas) == 1
    assert shas <= set(node.daemon.blobs)


def test_a_function_blob_with_other_content_is_refused(node: Any) -> None:
    node.daemon.wrong_blobs["0" * 64] = b"something else"
    outcome = node.run("0" * 64)
    assert outcome.state == "failed"
    assert outcome.error.code == "hash_mismatch"
    assert "0" * 64 in outcome.error.message


def test_a_blob_that_is_not_there_is_named(node: Any) -> None:
    outcome = node.run("1" * 64)
    assert (outcome.state, outcome.error.code) == ("failed", "not_found")
    assert "1" * 64 in outcome.error.message


# ── failures ──


class Refused(Exception):
    """Of this file; it has arguments and attributes of its own."""


def test_an_exception_comes_back_as_itself(either: Any, unpack: Any) -> None:
    def fail() -> None:
        try:
            int("x")
        except ValueError as error:
            refused = KeyError("wrong")
            refused.add_note("a note")
            raise refused from error

    outcome = either.run(fail)
    assert (outcome.state, outcome.error.code, outcome.error.type) == ("failed", "task_failed", "KeyError")
    assert outcome.error.message == "'wrong'"
    error = unpack(outcome.result)
    assert isinstance(error, KeyError)
    assert error.args == ("wrong",)
    assert error.__notes__ == ["a note"]
    assert isinstance(error.__cause__, ValueError)
    assert "direct cause" in outcome.error.traceback
    assert "a note" in outcome.error.traceback


def test_a_traceback_begins_with_the_users_frame_and_shows_source(either: Any) -> None:
    def helper() -> None:
        raise RuntimeError("deep")  # the line that is shown

    def fail() -> None:
        helper()

    setattr(fail, SOURCE_ATTRIBUTE, {"/nowhere/user.py": Path(__file__).read_text()})
    text = either.run(fail).error.traceback
    lines = text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].strip().startswith('File "/nowhere/user.py", line')
    assert "helper()" in text
    assert "raise RuntimeError" in text
    assert "the line that is shown" in text
    assert "sky/agent" not in text


def test_an_exception_that_does_not_unpickle_is_still_described(either: Any) -> None:
    def fail() -> None:
        import threading

        class Awkward(Exception):
            def __init__(self, one: int) -> None:
                super().__init__(f"{one} and a lock")
                self.lock = threading.Lock()

        raise Awkward(1)

    outcome = either.run(fail)
    assert outcome.state == "failed"
    assert outcome.error.type.endswith("Awkward")
    assert outcome.error.message == "1 and a lock"
    assert outcome.result is None


def test_an_exception_that_words_its_own_message_comes_back_as_it_was(either: Any, unpack: Any) -> None:
    class Two(Exception):
        def __init__(self, code: int, detail: str) -> None:
            super().__init__(f"{code}: {detail}")
            self.code = code

    class Prefixed(Exception):
        def __init__(self, code: object) -> None:
            super().__init__(f"code {code}")
            self.code = code

    class Named(ValueError):
        def __init__(self, *, code: int) -> None:
            super().__init__(f"named {code}")
            self.code = code

    def fail(which: int) -> None:
        try:
            raise KeyError("before")
        except KeyError as before:
            raise (Two(5, "no"), Prefixed(5), Named(code=5))[which] from before

    for which, (kind, words) in enumerate({"Two": "5: no", "Prefixed": "code 5", "Named": "named 5"}.items()):
        error = unpack(either.run(fail, which).result)
        assert (type(error).__name__, str(error), error.code) == (kind, words, 5)
        assert isinstance(error.__cause__, KeyError)


def test_an_exception_that_cannot_be_shown_does_not_hurt(either: Any) -> None:
    def fail() -> None:
        class Hostile(Exception):
            def __str__(self) -> str:
                raise SystemExit(3)

        raise Hostile

    outcome = either.run(fail)
    assert outcome.state == "failed"
    assert "SystemExit" in outcome.error.message


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_exits_are_failures_of_the_call(either: Any, kind: type[BaseException]) -> None:
    def leave() -> None:
        raise kind(3)

    pids = either.value(os.getpid), None
    outcome = either.run(leave)
    assert (outcome.state, outcome.error.type) == ("failed", kind.__name__)
    assert either.value(lambda: 1) == 1
    assert pids


def test_a_result_that_does_not_pickle_names_its_type(either: Any) -> None:
    outcome = either.run(threading.Lock)
    assert outcome.state == "failed"
    assert "_thread.lock" in outcome.error.message
    assert "pickled" in outcome.error.message
    assert outcome.error.type == "sky.PackError"


def test_a_missing_module_is_named_with_its_remedy(either: Any) -> None:
    payload = b"\x80\x05cnot_installed_here\nfunction\n."
    outcome = either.run(either.daemon.store(lz4.frame.compress(payload)))
    assert (outcome.state, outcome.error.type) == ("failed", "ModuleNotFoundError")
    assert "'not_installed_here'" in outcome.error.message
    assert "Image(pip=" in outcome.error.message
    assert "the folder of your script" in outcome.error.message


@pytest.mark.parametrize(
    "content", [b"", b"garbage", lz4.frame.compress(b"garbage"), lz4.frame.compress(pickle.dumps(7))]
)
def test_a_function_that_is_none_fails_its_call_alone(either: Any, content: bytes) -> None:
    outcome = either.run(either.daemon.store(content))
    assert outcome.state == "failed"
    assert "cannot be loaded" in outcome.error.message
    assert either.value(lambda: 1) == 1


# ── what a call sees ──


def test_a_call_knows_where_it_runs(either: Any) -> None:
    def told() -> tuple[Any, str, str]:
        return context.current(), str(Path.cwd()), os.environ["TMPDIR"]

    item = either.item(told, rank=2, total=5, peers=("a", "b"))
    either.send_all([item])
    call, folder, temporary = __import__("pickle").loads(
        lz4.frame.decompress(either.outcome(item.execution).result)
    )
    assert (call.execution, call.task, call.rank, call.total) == (item.execution, item.task, 2, 5)
    assert (call.node, call.compute, call.peers) == (either.name, "cmp_test", ("a", "b"))
    assert folder == str(either.home / "work")
    assert temporary == str(either.home / "tmp")


def test_threads_of_a_call_know_it_too(either: Any) -> None:
    def told() -> Any:
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(context.current()))
        thread.start()
        thread.join()
        return seen[0].execution

    item = either.item(told)
    either.send_all([item])
    assert pickle.loads(lz4.frame.decompress(either.outcome(item.execution).result)) == item.execution


def test_the_way_to_the_daemon_is_not_passed_on(node: Any) -> None:
    found = node.value(lambda: sorted(name for name in os.environ if name.startswith("SKY_AGENT")))
    assert found == ["SKY_AGENT_BOOT", "SKY_AGENT_HOME", "SKY_AGENT_NODE"]


def test_calls_share_a_warm_worker_and_its_modules(node_of: Any) -> None:
    node = node_of().start()

    def count() -> tuple[int, int]:
        sys.calls_seen = getattr(sys, "calls_seen", 0) + 1
        return os.getpid(), sys.calls_seen

    results = [node.value(count) for _ in range(3)]
    assert len({pid for pid, _ in results}) == 1
    assert [seen for _, seen in results] == [1, 2, 3]


def test_without_reuse_each_call_has_a_process_of_its_own(node_of: Any) -> None:
    node = node_of(worker={"executor": "process", "concurrency": 1, "reuse": False}).start()
    pids = [node.value(os.getpid) for _ in range(3)]
    assert len(set(pids)) == 3


def test_threads_without_reuse_are_processes_of_their_own(node_of: Any) -> None:
    node = node_of(worker={"executor": "thread", "concurrency": 2, "reuse": False}).start()
    slow = node.send(time.sleep, 0.3)
    assert node.value(os.getpid) != node.value(os.getpid)
    assert node.outcome(slow).state == "succeeded"


def test_user_code_may_fork_and_use_multiprocessing(node: Any) -> None:
    def pooled() -> list[int]:
        import multiprocessing

        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, [-1, -2, -3])

    assert node.value(pooled) == [1, 2, 3]
    assert node.value(lambda: 1) == 1


def test_variables_threads_and_memory_are_as_the_spec_says(node_of: Any) -> None:
    node = node_of(
        worker={"executor": "process", "concurrency": 2},
        cpus=4,
        memory_gb=0.5,
        image={"env": {"GREETING": "hello", "MKL_NUM_THREADS": "7"}, "shell_vars": {"OTHER": "x"}},
    ).start()
    names = ("GREETING", "OTHER", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    assert node.value(lambda: [os.environ[name] for name in names]) == ["hello", "x", "2", "2", "7"]

    def hungry() -> int:
        return len(bytearray(800_000_000))

    outcome = node.run(hungry)
    assert (outcome.state, outcome.error.type) == ("failed", "MemoryError")
    assert node.value(lambda: 1) == 1


# ── order and numbers ──


def test_many_calls_each_run_once(either: Any, unpack: Any, tmp_path: Path) -> None:
    log = tmp_path / "ran"

    def noted(number: int, path: str) -> int:
        with open(path, "a") as file:
            file.write(f"{number}\n")
        return number * 2

    items = [either.item(noted, number, str(log)) for number in range(500)]
    for start in range(0, 500, 100):
        either.send_all(items[start : start + 100])
    assert [unpack(either.outcome(item.execution).result) for item in items] == [2 * n for n in range(500)]
    assert sorted(map(int, log.read_text().split())) == list(range(500))


def test_short_calls_do_not_wait_behind_a_long_one(node: Any, until: Any) -> None:
    warm = [node.item(lambda: None) for _ in range(100)]
    node.send_all(warm)
    for item in warm:
        node.outcome(item.execution)
    long = node.send(time.sleep, 60.0)
    for execution in node.send_all([node.item(lambda: None) for _ in range(50)]):
        node.outcome(execution)
    assert long not in node.daemon.outcomes
    node.cancel(long)
    assert node.outcome(long).state == "cancelled"


def test_only_long_calls_are_told_as_started(either: Any, until: Any, tmp_path: Path) -> None:
    def held(path: str) -> None:
        while not Path(path).exists():
            time.sleep(0.01)

    shorts = [either.send(lambda: None) for _ in range(20)]
    for short in shorts:
        either.outcome(short)
    long = either.send(held, str(tmp_path / "go"))
    told = until(
        lambda: [began for began in either.daemon.started if began.execution == long], "a call that runs"
    )
    assert told[0].ago_s > 0.04
    (tmp_path / "go").touch()
    assert either.outcome(long).state == "succeeded"
    # A busy computer makes a short call long; it does not do so with all of them.
    assert not set(shorts) <= {began.execution for began in either.daemon.started}


def test_the_window_grows_with_short_calls_and_shrinks_with_long_ones(node: Any, until: Any) -> None:
    def after(*calls: Any) -> int:
        for execution in node.send_all([node.item(*call) for call in calls]):
            node.outcome(execution)
        return node.daemon.window or 0

    until(lambda: after(*[(lambda: None,)] * 20) > 32, "a larger window")
    until(lambda: after((time.sleep, 0.06)) == 2, "a window of the slots alone")


# ── workers that die ──


@pytest.mark.parametrize(
    ("die", "said"),
    [
        (lambda: os._exit(3), "exited with code 3"),
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            "SIGKILL, probably because the machine ran out of memory",
        ),
        (os.abort, "SIGABRT"),
        (
            lambda: (os.kill(os.getpid(), signal.SIGTERM), *(time.sleep(0.01) for _ in range(6_000))),
            "SIGTERM that its node did not send",
        ),
    ],
)
def test_a_worker_that_dies_fails_its_call_and_not_the_node(either: Any, die: Any, said: str) -> None:
    outcome = either.run(die)
    assert (outcome.state, outcome.error.code) == ("failed", "worker_died")
    assert said in outcome.error.message
    assert either.value(lambda: "still here") == "still here"


def test_calls_sent_ahead_survive_the_death_of_their_worker(node_of: Any, unpack: Any) -> None:
    node = node_of().start()
    warm = node.send_all([node.item(lambda: None) for _ in range(100)])
    for execution in warm:
        node.outcome(execution)
    items = [node.item(lambda: os._exit(1))] + [node.item(lambda n: n, number) for number in range(20)]
    node.send_all(items)
    assert node.outcome(items[0].execution).error.code == "worker_died"
    assert [unpack(node.outcome(item.execution).result) for item in items[1:]] == list(range(20))


def test_a_call_that_writes_into_the_workers_socket_ends_its_worker_alone(node: Any) -> None:
    def scribble() -> None:
        for fd in range(3, 30):
            try:
                os.write(fd, b"\xff" * 100)
            except OSError:
                continue
        time.sleep(10)

    assert node.run(scribble).error.code == "worker_died"
    assert node.value(lambda: 1) == 1


def test_killing_a_worker_from_outside_is_noticed_at_once(node: Any, until: Any, tmp_path: Path) -> None:
    def wait(path: str) -> None:
        with open(path, "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)  # longer than anybody waits for an outcome

    execution = node.send(wait, str(tmp_path / "pid"))
    pid = int(
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the worker's pid")
    )
    os.kill(pid, signal.SIGKILL)
    assert node.outcome(execution).error.code == "worker_died"
