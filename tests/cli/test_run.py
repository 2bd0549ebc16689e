"""``sky run`` and what can be learnt about the calls afterwards: tasks, results, logs, reasons."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sky.cli import values

pytestmark = pytest.mark.real

FILE = '''
import dataclasses
import time
import sky

print("this file is being loaded")

@dataclasses.dataclass
class Trial:
    name: str
    epochs: int

@sky.function
def train(epochs: int, rate: float = 0.5, *, tags: tuple[str, ...] = (), fast: bool = False) -> dict:
    """Train for a while.

    Parameters
    ----------
    epochs: int
        How many times.
    """
    print("training", epochs)
    return {"epochs": epochs, "rate": rate, "tags": list(tags), "fast": fast}

@sky.function
def fail(message: str):
    raise LookupError(message)

@sky.function
def count(n: int):
    for i in range(n):
        yield {"i": i}
    if n == 3:
        raise LookupError("three is too many")

@sky.function
def leave(code: int):
    import os

    os._exit(code)

@sky.function(timeout=1)
def late():
    time.sleep(60)

@sky.function
def slow(seconds: float):
    print("begun", flush=True)
    time.sleep(seconds)

@sky.function
def trial(name: str):
    return Trial(name, 3)

@sky.function
def lacking():
    import no_such_module

@sky.function
def rank():
    return sky.instance_info().rank

@sky.function
def compute(compute: str):
    return compute
'''

ALONE = """
import sky

@sky.app(nodes=1, cpus=1)
def main(epochs: int = 2):
    return epochs * 2

def helper():
    return 1

if __name__ == "__main__":
    raise SystemExit("this must not run")
"""


@pytest.fixture(scope="module")
def files(on_daemon: Any) -> None:
    (on_daemon.folder / "work.py").write_text(FILE)
    (on_daemon.folder / "alone.py").write_text(ALONE)
    (on_daemon.folder / "broken.py").write_text("x = 1\nraise RuntimeError('not today')\n")
    (on_daemon.folder / "wrong.py").write_text("def f(:\n")
    (on_daemon.folder / "empty.py").write_text("x = 1\n")


@pytest.fixture
def run(on_daemon: Any, dev: str, files: None) -> Any:
    def run(*words: str, **more: Any) -> Any:
        return on_daemon("run", "--compute", dev, *words, **more)

    return run


def test_the_result_is_json_and_the_rest_is_beside_it(run: Any) -> None:
    ended = run(
        "work.py:train", "--epochs", "3", "--rate", "0.25", "--tags", "a", "--tags", "b", "--fast"
    ).check()
    assert ended.json() == {"epochs": 3, "rate": 0.25, "tags": ["a", "b"], "fast": True}
    assert "this file is being loaded" in ended.err
    assert "training 3" in ended.err


def test_values_json_does_not_know_are_shown(run: Any) -> None:
    assert run("work.py:trial", "--name", "x").check().json() == {"name": "x", "epochs": 3}


def test_every_node_and_one_after_the_other(run: Any) -> None:
    assert run("work.py:rank", "--all").check().json() == [0, 1]
    lines = run("work.py:count", "--n", "2").check().out.splitlines()
    assert [json.loads(line) for line in lines] == [{"i": 0}, {"i": 1}]


def test_what_was_raised_is_shown_with_its_place(run: Any) -> None:
    ended = run("work.py:fail", "--message", "no such thing")
    assert ended.code == 1
    assert not ended.out
    assert "raise LookupError(message)" in ended.err
    assert ended.err.splitlines()[-2] == "error: task_failed: LookupError: no such thing"
    raised = run("work.py:count", "--n", "3")
    assert (raised.code, len(raised.out.splitlines())) == (1, 3)
    assert "error: task_failed: LookupError: three is too many" in raised.err


def test_our_options_may_stand_behind_the_file(on_daemon: Any, dev: str, files: None) -> None:
    words = ["run", "work.py:train", "--epochs", "1", "--compute", dev]
    assert on_daemon(*words).check().json()["epochs"] == 1
    # A parameter of the function's own comes first.
    words = ["run", "--compute", dev, "work.py:compute", "--compute", "mine"]
    assert on_daemon(*words).check().json() == "mine"
    assert on_daemon("compute", "run", dev, "work.py:train", "--epochs", "2").check().json()["epochs"] == 2


def test_a_temporary_compute_is_gone_afterwards(on_daemon: Any, files: None) -> None:
    def there() -> set[str]:
        page = on_daemon("compute", "list", "-o", "json").check().json()
        return {item["id"] for item in page["items"]}

    before = there()
    assert on_daemon("run", "alone.py", "--epochs", "4").check().out == "8\n"
    assert there() <= before


def test_ctrl_c_ends_the_call(on_daemon: Any, dev: str, files: None) -> None:
    process = on_daemon.begin("run", "--compute", dev, "work.py:slow", "--seconds", "50")
    try:
        while "begun" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()  # not communicate(), which loses what was read ahead
        process.wait(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    task = err.split()[0]
    assert err.strip() == f"{task} was asked to end"
    ended = on_daemon("task", "result", task, "--wait", "60")
    assert ended.code != 0
    assert on_daemon("task", "get", task, "-o", "json").check().json()["state"] == "cancelled"


AT_ONCE = """
import os
import signal
import sys

from sky.cli.main import main
from sky.client.events import Reader

start = Reader.start

def then_ctrl_c(reader):
    start(reader)
    os.kill(os.getpid(), signal.SIGINT)

Reader.start = then_ctrl_c
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_as_soon_as_a_call_is_sent_ends_it_too(on_daemon: Any, dev: str, files: None) -> None:
    words = ["run", "--compute", dev, "work.py:slow", "--seconds", "50"]
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, *words],
        env=on_daemon.environment,
        cwd=on_daemon.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    [said] = [line for line in done.stderr.splitlines() if "was asked to end" in line]
    assert on_daemon("task", "result", said.split()[0], "--wait", "60").code != 0
    assert on_daemon("task", "get", said.split()[0], "-o", "json").check().json()["state"] == "cancelled"


def test_ctrl_c_on_a_temporary_compute_is_a_cancelled_call(on_daemon: Any, files: None) -> None:
    process = on_daemon.begin("run", "work.py:slow", "--seconds", "50")
    try:
        said = ""
        while "begun" not in said:
            assert process.poll() is None
            said = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        process.wait(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    assert on_daemon("task", "result", err.split()[0], "--wait", "60").code != 0
    assert on_daemon("task", "get", err.split()[0], "-o", "json").check().json()["state"] == "cancelled"


def test_what_is_missing_is_told_with_how_to_have_it(on_daemon: Any, dev: str, files: None) -> None:
    ended = on_daemon("run", "--compute", dev, "work.py:lacking")
    assert ended.code == 1
    assert "No module named 'no_such_module'" in ended.err
    assert "--pip PACKAGE" in ended.err
    (on_daemon.folder / "sky.toml").write_text("[compute.described]\nnodes = 1\n")
    try:
        ended = on_daemon("run", "--compute", "described", "work.py:rank").check(3)
    finally:
        (on_daemon.folder / "sky.toml").unlink()
    assert "make it with `sky compute create described`" in ended.err


WRONG = [
    (["work.py"], "work.py has 10 functions that could be meant", "name one: `work.py:train`"),
    (["work.py:trainn"], "work.py has no function 'trainn'", "did you mean `work.py:train`?"),
    (["work.py:train"], "train: --epochs is missing", "`sky run work.py:train --help`"),
    (["work.py:train", "--epoch", "3"], "train: unknown option: --epoch", "did you mean --epochs?"),
    (
        ["work.py:train", "--epochs", "x"],
        'train: invalid value for --epochs: unable to convert "x"',
        "--help",
    ),
    (["empty.py"], "empty.py has no function to run", "@sky.function"),
]


@pytest.mark.parametrize(("words", "said", "hint"), WRONG, ids=[" ".join(case[0]) for case in WRONG])
def test_a_command_line_that_does_not_fit(
    on_daemon: Any, files: None, words: list[str], said: str, hint: str
) -> None:
    ended = on_daemon("run", *words).check(2)
    *_, first, second = ended.err.splitlines()
    assert first.startswith("error: usage: ")
    assert said in first
    assert second.startswith("hint: ")
    assert hint in second


@pytest.mark.parametrize(
    ("file", "said"),
    [("broken.py", "broken.py:2: RuntimeError: not today"), ("wrong.py", "wrong.py:1: SyntaxError")],
)
def test_a_file_that_does_not_load(on_daemon: Any, files: None, file: str, said: str) -> None:
    ended = on_daemon("run", file).check(1)
    assert ended.err.startswith("error: cannot_load: ")
    assert said in ended.err


def test_help_shows_the_function(on_daemon: Any, files: None) -> None:
    page = on_daemon("run", "work.py:train", "--help").check().out
    assert page.startswith("Usage: sky run work.py:train")
    assert "--epochs INT" in page
    assert "How many times." in page
    page = on_daemon("run", "work.py:late", "--help").check().out
    assert page.strip() == "Usage: sky run work.py:late [OPTIONS]"


def test_tasks_results_logs_and_reasons(on_daemon: Any, dev: str, run: Any) -> None:
    run("work.py:train", "--epochs", "11").check()
    run("work.py:fail", "--message", "why not")
    page = on_daemon("task", "list", "--compute", dev, "--limit", "2", "-o", "json").check().json()
    failed, done = page["items"]
    table = on_daemon("task", "list", "--compute", dev, "--limit", "2").check()
    assert [line.split()[:4] for line in table.out.splitlines()[1:]] == [
        [failed["id"], "failed", dev, "fail"],
        [done["id"], "succeeded", dev, "train"],
    ]

    assert on_daemon("task", "result", done["id"]).check().json()["epochs"] == 11
    assert on_daemon("task", "result", done["id"], "--save", "value.bin", "--raw").check().out == ""
    assert (on_daemon.folder / "value.bin").stat().st_size > 0
    ended = on_daemon("task", "result", failed["id"])
    assert (ended.code, ended.out) == (1, "")
    assert "error: task_failed: LookupError: why not" in ended.err
    assert "why not" in on_daemon("task", "get", failed["id"]).check().out
    assert on_daemon("task", "get", done["id"], "-o", "json").check().json()["executions"]

    assert on_daemon("log", done["id"]).check().out == "training 11\n"
    events = on_daemon("log", dev, "-o", "json").check().out.splitlines()
    assert "training 11" in "".join(json.loads(line).get("content", "") for line in events)
    followed = on_daemon("log", done["id"], "-f", timeout_s=60).check().out
    assert followed == "training 11\n"

    told = on_daemon("why", failed["id"], "-o", "json").check().json()
    assert told["resource"]["id"] == failed["id"]
    assert [event["now"] for event in told["events"]] == ["queued", "running", "failed"]
    assert "why not" in on_daemon("why", failed["id"]).check().out
    of_compute = on_daemon("why", dev).check().out
    assert "2 of 2 nodes are ready" in of_compute
    node = on_daemon("why", dev, "-o", "json").check().json()["decisions"]
    assert {"computes", "nodes"} <= {one["loop"] for one in node}


@pytest.mark.parametrize(
    ("words", "cause"), [(["work.py:leave", "--code", "3"], "worker_died"), (["work.py:late"], "timed_out")]
)
def test_why_a_call_did_not_succeed_is_told_by_its_name(
    on_daemon: Any, dev: str, run: Any, words: list[str], cause: str
) -> None:
    assert f"error: {cause}: " in run(*words).check(1).err
    task = on_daemon("task", "list", "--limit", "1", "-o", "json").json()["items"][0]["id"]
    assert f"error: {cause}: " in on_daemon("task", "result", task).check(1).err
    for noun in (["task", "get"], ["why"]):
        assert f"{cause}: " in on_daemon(*noun, task).check().out


def test_retry_and_cancel(on_daemon: Any, dev: str, run: Any) -> None:
    run("work.py:fail", "--message", "again")
    task = on_daemon("task", "list", "--limit", "1", "-o", "json").json()["items"][0]["id"]
    assert on_daemon("task", "retry", task, "-o", "json").check().json()["id"] == task
    assert on_daemon("task", "result", task, "--wait", "60").code == 1
    tried = on_daemon("task", "get", task, "-o", "json").check().json()
    assert len(tried["executions"]) == 2
    assert "had ended before: failed" in on_daemon("task", "cancel", task).check().err
    run("work.py:train", "--epochs", "1").check()
    done = on_daemon("task", "list", "--limit", "1", "-o", "json").json()["items"][0]["id"]
    on_daemon("task", "retry", done).check(4)


def test_a_result_that_is_not_there_yet(on_daemon: Any, dev: str, files: None) -> None:
    process = on_daemon.begin("run", "--compute", dev, "work.py:slow", "--seconds", "30")
    try:
        while "begun" not in process.stderr.readline():
            assert process.poll() is None
        task = on_daemon("task", "list", "--state", "running", "-o", "json").json()["items"][0]["id"]
        ended = on_daemon("task", "result", task).check(1)
        assert ended.err.startswith(f"error: not_ended: {task} is running")
        assert on_daemon("task", "cancel", task).check()
        err = process.stderr.read()  # not communicate(), which loses what was read ahead
        process.wait(timeout=60)
        assert process.returncode == 1
        assert "error: cancelled: " in err
    finally:
        process.kill()
        process.communicate()


def test_a_reader_that_leaves_early(on_daemon: Any, dev: str, run: Any) -> None:
    run("work.py:train", "--epochs", "1").check()
    line = f"'{on_daemon.environment.get('SKY', '')}' "
    command = f"{line.strip()} sky task list --limit 100000 | head -n 1"
    path = {**on_daemon.environment, "PATH": f"{__import__('sys').prefix}/bin:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.removeprefix("'' ")],
        capture_output=True,
        text=True,
        env=path,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("ID")
    assert done.stderr == ""
    assert done.returncode == 0


def test_offers_and_providers(on_daemon: Any) -> None:
    # Of its own kind alone: others whose tests have this daemon too may have added theirs.
    ours = ("offers", "--kind", "local")
    offers = on_daemon(*ours, "-o", "json").check().json()["items"]
    assert {offer["kind"] for offer in offers} == {"local"}
    assert "local-1" in on_daemon(*ours, "--max-price", "1").check().out
    assert on_daemon(*ours, "--accelerator", "H100").check().out == ""
    assert "local" in on_daemon("provider", "kinds").check().out
    added = on_daemon(
        "provider", "add", "mine", "--kind", "local", "--config", "price_per_hour_usd=0.5"
    ).check()
    assert added.out.startswith("prv_")
    assert "mine" in on_daemon("provider", "list").check().out
    on_daemon("provider", "add", "mine", "--kind", "local").check(4)
    on_daemon("provider", "remove", "mine", "--yes").check()
    assert "mine" not in on_daemon("provider", "list").check().out


def test_paths_are_texts_in_results() -> None:
    assert values.dumps({"at": Path("/a/b"), "or": [PurePosixPath("c")]}) == b'{"at":"/a/b","or":["c"]}'
