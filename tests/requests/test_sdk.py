"""The SDK of requests against real daemons: results, live output, errors by name, and a server that dies."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon

import sky
from sky import exceptions
from sky.client import sdk_async, sdk_server

pytestmark = pytest.mark.real

DEADLINE_S = 60.0
LINES = 300


@pytest.fixture(autouse=True)
def _server(daemon: RunningDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", daemon.url)


@pytest.fixture(scope="module")
def dev(daemon: RunningDaemon) -> Iterator[str]:
    """A cluster of two nodes that several tests use."""
    name = f"sdk-{secrets.token_hex(4)}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKY_API_ENDPOINT", daemon.url)
        task = sky.Task(name="greet", num_nodes=2, setup="echo ready", run="echo hello from $SKY_NODE_RANK")
        job_id, handle = sky.get(sky.launch(task, cluster_name=name))
    assert job_id == 1
    assert handle is not None
    yield name
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKY_API_ENDPOINT", daemon.url)
        sky.get(sky.down(name))


def run(script: str) -> sky.Task:
    return sky.Task(name="t", run=script)


# ── results ─────────────────────────────────────────────────────────────────────────────────────


def test_a_launch_gives_a_job_and_a_handle_and_its_output_and_records(dev: str) -> None:
    out = io.StringIO()
    assert sky.tail_logs(dev, 1, follow=True, output_stream=out) == 0
    assert sorted(line for line in out.getvalue().splitlines() if line.startswith("(greet")) == [
        f"(greet, rank={rank}) hello from {rank}" for rank in range(2)
    ]
    [record] = sky.get(sky.status([dev]))
    assert (record.name, record["status"], record.status) == (dev, "UP", sky.ClusterStatus.UP)
    assert dict(record)["handle"].get_cluster_name() == record.get("name")
    assert record.handle is not None
    assert (record.handle.launched_nodes, record.handle.head_ip) == (2, "127.0.0.1")
    assert pickle.loads(pickle.dumps(record)) == record
    assert json.loads(json.dumps(record))["status"] == "UP"
    with pytest.raises(AttributeError, match="has no 'nmae'; it has name"):
        _ = record.nmae
    [job] = sky.get(sky.queue(dev))
    assert (job.job_id, job.job_name, job.status.is_terminal()) == (1, "greet", True)
    assert sky.get(sky.job_status(dev, [1, 99])) == {1: sky.JobStatus.SUCCEEDED, 99: None}
    assert [one.name for one in sky.get(sky.cost_report())].count(dev) == 1


def test_a_request_is_a_text_that_another_program_can_take(dev: str) -> None:
    request_id = sky.queue(dev)
    assert isinstance(request_id, str)
    assert sky.get(str(request_id)) == sky.get(request_id)
    assert sky.get(str(request_id)[:20]) == sky.get(pickle.loads(pickle.dumps(request_id)))


def test_an_answer_that_is_known_at_once_costs_one_round_trip(
    dev: str, daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = sky.status([dev])
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", "http://127.0.0.1:1")
    assert [one.name for one in sky.get(request_id)] == [dev]


def test_exec_logs_and_their_exit_codes(dev: str) -> None:
    job_id, _ = sky.get(sky.exec(run("echo one; echo two; echo three; exit 3"), dev))
    assert sky.tail_logs(dev, job_id, follow=True, output_stream=io.StringIO()) == 100
    out = io.StringIO()
    assert sky.tail_logs(dev, job_id, follow=True, tail=2, output_stream=out) == 100
    assert out.getvalue() == "(t) two\n(t) three\n"
    assert list(sky.tail_logs(dev, job_id, False, preload_content=False)) == [
        "(t) one\n",
        "(t) two\n",
        "(t) three\n",
    ]
    job_id, _ = sky.get(sky.exec(run("echo begun; sleep 600"), dev))
    lines = sky.tail_logs(dev, None, True, preload_content=False)
    assert isinstance(lines, Iterator)
    assert next(lines) == "(t) begun\n"
    assert sky.tail_logs(dev, job_id, follow=False, output_stream=io.StringIO()) == 101
    assert sky.get(sky.cancel(dev, job_ids=[job_id])) == [job_id]
    assert list(lines) == []
    assert sky.tail_logs(dev, job_id, follow=True, output_stream=io.StringIO()) == 103


def test_what_a_request_says_is_streamed_and_its_result_returned(dev: str) -> None:
    request_id = sky.exec(run("true"), dev)
    out = io.StringIO()
    assert sky.stream_and_get(request_id, output_stream=out)[0] == sky.get(request_id)[0]
    said = out.getvalue()
    again = io.StringIO()
    sky.stream_and_get(str(request_id)[:20], tail=0, output_stream=again)
    assert again.getvalue() == ""
    again = io.StringIO()
    assert sky.stream_and_get(request_id, tail=1_000, follow=False, output_stream=again)[0] is not None
    assert again.getvalue() == said
    [job, *_] = sky.get(sky.queue(dev))
    log = io.StringIO()
    assert sky.stream_and_get(log_path=job.log_path, output_stream=log) is None
    with pytest.raises(exceptions.InvalidArgument, match="sky_logs"):
        sky.stream_and_get(log_path="/etc/passwd")


async def test_the_asynchronous_sdk_returns_results(dev: str, capsys: pytest.CaptureFixture[str]) -> None:
    everything = await asyncio.gather(*(sdk_async.status([dev]) for _ in range(20)))
    assert {one.name for [one] in everything} == {dev}
    job_id, handle = await sdk_async.exec(run("echo async"), dev)
    assert handle is not None
    assert await sdk_async.tail_logs(dev, job_id, follow=True) == 0
    assert capsys.readouterr().out.endswith("(t) async\n")
    out = io.StringIO()
    job_id, _ = await sdk_async.exec(run("sleep 600"), dev, stream_logs=None)
    assert await sdk_async.cancel(dev, job_ids=[job_id or 0]) == [job_id]
    with pytest.raises(exceptions.ClusterDoesNotExist):
        await sdk_async.down("nosuch", stream_logs=sdk_async.StreamConfig(output_stream=out))
    assert (await sdk_async.api_info()).version == sky.__version__
    with pytest.raises(exceptions.RequestNotFound):
        await sdk_async.api_cancel("nosuch")


def test_logs_of_jobs_are_copied_here(dev: str, tmp_path: Path) -> None:
    found = sky.download_logs(dev, [1])
    assert list(found) == ["1"]
    folder = Path(found["1"])
    assert folder.is_relative_to(tmp_path / "sky_logs" / dev)
    assert "(greet, rank=1) hello from 1" in (folder / "run.log").read_text().splitlines()
    assert sky.download_logs(dev, None)["1"] == found["1"]
    with pytest.raises(exceptions.JobNotFoundError, match="no job 99"):
        sky.download_logs(dev, [99])
    with pytest.raises(exceptions.ClusterDoesNotExist, match="nosuch"):
        sky.download_logs("nosuch", None)


# ── errors ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ask", "kind", "says"),
    [
        (lambda: sky.get(sky.queue("nosuch")), exceptions.ClusterDoesNotExist, "'nosuch'"),
        (lambda: sky.get(sky.down("nosuch")), exceptions.ClusterDoesNotExist, "'nosuch'"),
        (lambda: sky.tail_logs("nosuch", None, True), exceptions.ClusterDoesNotExist, "'nosuch'"),
        (lambda: sky.tail_logs("nosuch", 3, True), exceptions.ClusterDoesNotExist, "'nosuch'"),
        (lambda: sky.get("nosuch"), exceptions.RequestNotFound, "sky api status -a"),
        (lambda: sky.get("abc"), exceptions.RequestNotFound, "4 to 64"),
        (lambda: sky.stream_and_get("nosuch"), exceptions.RequestNotFound, "sky api status -a"),
        (lambda: sky.api_cancel("nosuch"), exceptions.RequestNotFound, "sky api status -a"),
        (lambda: sky.api_status(["nosuch"]), exceptions.RequestNotFound, "sky api status -a"),
        (lambda: sky.exec(run("true")), exceptions.InvalidArgument, "cluster_name"),
        (lambda: sky.check(None, False, workspace="w"), exceptions.NotSupportedError, "'w'"),
        (lambda: sky.status(refresh="SOON"), exceptions.InvalidArgument, "NONE, AUTO, FORCE"),
        (lambda: sky.launch("task.yaml"), exceptions.InvalidTaskError, "from_yaml"),
    ],
)
def test_errors_have_names_and_say_what_to_do(ask: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says) as raised:
        ask()
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (kind, str(raised.value))
    assert isinstance(again, sky.SkyError)


def test_a_job_that_is_not_there_is_told_by_its_number(dev: str) -> None:
    with pytest.raises(exceptions.JobNotFoundError, match="no job 99"):
        sky.tail_logs(dev, 99, follow=False)


def test_a_setup_that_fails_raises_its_code(dev: str) -> None:
    task = sky.Task(setup="echo broken; exit 7", run="true")
    with pytest.raises(exceptions.CommandError) as raised:
        sky.get(sky.launch(task, cluster_name=dev))
    assert raised.value.returncode == 7
    assert raised.value.request_id


def test_nobody_at_the_endpoint_is_told_at_once_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", "http://127.0.0.1:1")
    begun = time.monotonic()
    with pytest.raises(
        exceptions.ApiServerConnectionError, match=r"127\.0\.0\.1:1 .*sky api login"
    ) as raised:
        sky.status()
    assert time.monotonic() - begun < 10
    assert raised.value.__cause__ is None  # or the same would be printed twice
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", "127.0.0.1:1")
    with pytest.raises(exceptions.InvalidEndpointError, match="https://127"):
        sky.status()


def test_a_client_that_is_too_old_is_told_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_CLIENT_API_VERSION", "3")
    for ask in (sky.status, lambda: sky.get("0000")):
        with pytest.raises(exceptions.APINotSupportedError, match=r"version 3 .*upgrade the client"):
            ask()


# ── requests ────────────────────────────────────────────────────────────────────────────────────


def test_requests_are_listed_and_cancelled(dev: str, capsys: pytest.CaptureFixture[str]) -> None:
    task = sky.Task(setup="sleep 600", run="true")
    request_id = sky.launch(task, cluster_name=dev)
    [record] = sky.api_status(str(request_id))
    assert (record.name, record.cluster_name) == ("launch", dev)
    assert request_id in [one.request_id for one in sky.api_status(cluster_name=dev)]
    assert sky.api_status(all_status=True, limit=1, fields=["name"]) != []
    with pytest.raises(exceptions.InvalidArgument, match="no field 'nmae'"):
        sky.api_status(all_status=True, fields=["nmae"])
    assert sky.get(sky.api_cancel(str(request_id)[:20])) == [request_id]
    assert f"cancelled {request_id}" in capsys.readouterr().err
    assert sky.stream_and_get(sky.api_cancel([request_id], silent=True)) == []
    assert capsys.readouterr().err == ""
    with pytest.raises(exceptions.RequestCancelled, match="was cancelled"):
        sky.get(request_id)


def test_an_interrupt_leaves_the_request_and_says_how_to_come_back(dev: str) -> None:
    task = sky.Task(setup="sleep 600", run="true")
    request_id = sky.launch(task, cluster_name=dev)
    script = f"import sky; sky.get; print('waits', flush=True); sky.get({str(request_id)!r})"
    waiting = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "waits\n"
    while Path(f"/proc/{waiting.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert waiting.poll() is None
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=DEADLINE_S)
    assert f"request {request_id} goes on: `sky api logs {request_id}`" in err
    [record] = sky.api_status(str(request_id))
    assert record.status == "RUNNING"
    assert sky.get(sky.api_cancel(request_id, silent=True)) == [request_id]


# ── a server that dies ──────────────────────────────────────────────────────────────────────────


def test_who_waits_and_who_reads_do_not_notice_a_server_that_dies(
    own_daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", own_daemon.url)
    script = f"for i in $(seq {LINES}); do echo line $i; if [ $((i % 100)) = 0 ]; then sleep 0.7; fi; done"
    request_id = sky.launch(run(script), cluster_name="dies")
    out, half = io.StringIO(), threading.Event()

    def read() -> int:
        for line in sky.tail_logs("dies", 1, True, preload_content=False):
            out.write(str(line))
            half.set()
        return sky.tail_logs("dies", 1, follow=True, output_stream=io.StringIO())

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(sky.get, str(request_id)), pool.submit(sky.stream_and_get, request_id)]
        assert sky.get(request_id)[0] == 1
        reading = pool.submit(read)
        asynchronous = pool.submit(
            lambda: asyncio.run(sdk_async.tail_logs("dies", 1, True, output_stream=io.StringIO()))
        )
        assert half.wait(DEADLINE_S)
        own_daemon.kill()
        own_daemon.start()
        assert reading.result(DEADLINE_S) == asynchronous.result(DEADLINE_S) == 0
        assert {one.result(DEADLINE_S)[0] for one in waiting} == {1}
    assert out.getvalue().splitlines() == [f"(t) line {n}" for n in range(1, LINES + 1)]


def test_a_person_who_reads_is_told_that_the_server_is_away(
    own_daemon: RunningDaemon, tmp_path: Path
) -> None:
    environment = {**os.environ, "SKYPILOT_API_SERVER_ENDPOINT": own_daemon.url}
    go_on = tmp_path / "go-on"
    script = f"echo begun; until [ -e {go_on} ]; do sleep 0.1; done; echo ended"
    with subprocess.Popen(
        [sys.executable, "-m", "sky.cli.main", "launch", "-c", "told", "-n", "t", "-y", "--", script],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    ) as command:  # fmt: skip
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stdout.readline() == "(t) begun\n"
        own_daemon.kill()
        told = next(line for line in iter(command.stderr.readline, "") if line.startswith("no answer"))
        own_daemon.start()
        go_on.touch()
        assert command.wait(DEADLINE_S) == 0
        assert command.stdout.read() == "(t) ended\n"
    assert told.startswith("no answer from the server; trying again for up to 300 s")


def test_our_own_server_is_started_by_the_first_call_that_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKYPILOT_API_SERVER_ENDPOINT")
    monkeypatch.setenv("SKY_PORT", "0")
    with pytest.raises(exceptions.ApiServerConnectionError, match="sky api start"):
        sky.api_info()
    sky.api_stop()
    try:
        assert sky.get(sky.status()) == []
        info = sky.api_info()
        assert (info.status, info["endpoint"].startswith("http://127.0.0.1:")) == ("healthy", True)
        sky.api_start()
        with pytest.raises(sky.DaemonStartFailed, match=r"runs already .*otherwise"):
            sky.api_start(port=1)
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        sky.api_server_logs(follow=False)
        assert str(info.endpoint) in out.getvalue()
        before = len(out.getvalue())
        sky.api_server_logs(follow=False, tail=1)
        assert len(out.getvalue()[before:].splitlines()) == 1
        asyncio.run(sdk_async.api_stop())
        script = "import sky; sky.api_start(foreground=True)"
        here = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
        while not sdk_server.daemon.status().running:
            assert here.poll() is None
        assert sky.get(sky.status()) == []  # the new one is found where it is now
        here.send_signal(signal.SIGINT)
        here.wait(DEADLINE_S)
        assert not sdk_server.daemon.status().running
    finally:
        sdk_server.daemon.stop()
