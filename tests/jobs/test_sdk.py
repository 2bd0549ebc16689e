"""Paid jobs through the SDK: the same life, blocking and awaited, with a real seller.

Decides: what a customer's program may rely on: one job per submit whatever breaks, every line of a log once,
files that are what was written. Never: looks into the daemon.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, cast

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.jobs.conftest import SETTINGS
from tests.jobs.shop import CATALOGUE, Customer, Shop

import sky
from sky.client import job_files, job_flows
from sky.wire import jobs as wire

WAIT_S = 60.0


@pytest.fixture
def jobs(selling: RunningDaemon, customer: Customer) -> Iterator[sky.Jobs]:
    """The seller as a customer with a hundred dollars sees it."""
    with sky.Jobs(selling.url, customer.key) as jobs:
        yield jobs


def shell(jobs: sky.Jobs, script: str, **more: Any) -> sky.Job:
    return jobs.submit(
        sku="cpu", image="local", command=["sh", "-c", script], **{"max_runtime_seconds": 60, **more}
    )


def test_a_job_from_submit_to_bill(jobs: sky.Jobs) -> None:
    job = shell(jobs, "echo $NAME; echo two", env={"NAME": "one"}, metadata={"run": "7"})
    assert (job.status, job.usage.hold_usd) == ("queued", "0.060000")
    assert list(job.logs(follow=True)) == ["one", "two"]
    assert job.wait(WAIT_S, check=True) is job
    assert (job.status, job.seen.metadata) == ("succeeded", {"run": "7"})
    assert float(job.usage.settled_cost_usd) > 0
    assert list(job.logs()) == ["one", "two"]
    told = [event.type for event in job.events(follow=True)]
    assert told == ["job.queued", "job.provisioning", "job.placed", "job.running", "job.succeeded"]
    first = next(iter(job.events())).id
    assert [event.type for event in job.events(after=first)] == told[1:]
    assert jobs.get(job.id).seen == job.seen


def test_a_job_that_fails_raises_where_that_was_asked_for(jobs: sky.Jobs) -> None:
    job = shell(jobs, "exit 3").wait(WAIT_S)
    assert job.status == "failed"
    assert job.error is not None
    assert job.error.code == "command_failed"
    with pytest.raises(sky.JobFailed, match="command_failed") as failed:
        job.wait(check=True)
    assert failed.value.job == job.seen
    assert pickle.loads(pickle.dumps(failed.value)).job == job.seen


def test_waiting_has_an_end_and_so_has_the_job(jobs: sky.Jobs) -> None:
    job = shell(jobs, "sleep 600", max_runtime_seconds=700)
    with pytest.raises(TimeoutError, match=job.id):
        job.wait(0.2)
    assert job.cancel().status == "cancelled"
    assert job.cancel().status == "cancelled", "what was cancelled is cancelled"
    ended = shell(jobs, "true").wait(WAIT_S)
    with pytest.raises(sky.JobRefused) as refused:
        ended.cancel()
    assert refused.value.code == "job_terminal"


def test_pages_are_walked_to_the_end(jobs: sky.Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_flows, "PAGE_ITEMS", 2)
    wanted = [shell(jobs, "true", metadata={"n": str(n)}).id for n in range(5)]
    assert [job.id for job in jobs.list()] == wanted[::-1]
    ended = jobs.get(wanted[0]).wait(WAIT_S)
    assert wanted[0] in [job.id for job in jobs.list("succeeded")]
    assert list(jobs.list(["failed", "interrupted"])) == []
    assert len(list(ended.events())) == 5


# ── refusals ────────────────────────────────────────────────────────────────────────────────────


def test_refusals_are_one_tree(shop: Shop, selling: RunningDaemon, jobs: sky.Jobs) -> None:
    with pytest.raises(sky.JobNotFound) as missing:
        jobs.get("job_" + "0" * 26)
    assert isinstance(missing.value, sky.NotFound)
    with pytest.raises(sky.JobRefused) as refused:
        jobs.submit(sku="cpuu", image="local", command=["true"], max_runtime_seconds=1)
    error = refused.value
    assert (error.type, error.code, error.param, error.status) == (
        "invalid_request",
        "unknown_sku",
        "sku",
        400,
    )
    assert error.request_id
    poor = sky.Jobs(selling.url, shop.customer(paid="0.01").key)
    with pytest.raises(sky.InsufficientBalance, match=r"0\.060000") as broke:
        shell(poor, "true")
    assert pickle.loads(pickle.dumps(broke.value)).code == "insufficient_balance"
    few = sky.Jobs(selling.url, shop.customer(limits={"max_active_jobs": 0}).key)
    with pytest.raises(sky.QuotaExceeded) as full:
        shell(few, "true")
    [quota] = full.value.quotas
    assert (quota.limit, quota.max, quota.headroom) == ("max_active_jobs", 0, 0)
    with pytest.raises(sky.JobRefused) as unknown:
        next(sky.Jobs(selling.url, "uck_" + "a" * 40).list())
    assert (unknown.value.type, unknown.value.code) == ("authentication_error", "invalid_key")


def test_what_cannot_be_meant_is_refused_here(jobs: sky.Jobs) -> None:
    with pytest.raises(sky.InvalidRequest, match="list of words"):
        jobs.submit(sku="cpu", image="local", command="python run.py", max_runtime_seconds=1)
    with pytest.raises(sky.InvalidRequest, match="is no input"):
        jobs.submit(sku="cpu", inputs=cast("Any", ["https://x.test/a"]))


def test_the_key_of_the_environment_is_used_and_the_daemons_token_is_not(
    selling: RunningDaemon, customer: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_URL", selling.url)
    monkeypatch.setenv("SKY_TOKEN", customer.key)
    with pytest.raises(sky.JobRefused) as refused:
        next(sky.Jobs().list())
    assert refused.value.code == "missing_key"
    assert [sku.id for sku in sky.Jobs().skus()][:2] == ["cpu", "dear"]
    assert "greet" in [template.id for template in sky.Jobs().templates()]
    assert [one.cloud for one in sky.Jobs().upstreams()] == ["aws", "local"]
    monkeypatch.setenv("SKY_API_KEY", customer.key)
    assert list(sky.Jobs().list()) == []


# ── what breaks on the way ──────────────────────────────────────────────────────────────────────


def test_a_submit_whose_answer_is_lost_is_one_job(selling: RunningDaemon, customer: Customer) -> None:
    with Between(selling.port, cut_answers=2) as between:
        job = shell(sky.Jobs(between.url, customer.key), "true")
    assert between.lost == 2, "the answers were never lost"
    assert [one["id"] for one in customer("GET", "/jobs").json()["data"]] == [job.id]


def test_a_key_makes_a_submit_the_same_from_another_program(jobs: sky.Jobs) -> None:
    first = shell(jobs, "true", idempotency_key="nightly-7")
    assert shell(jobs, "true", idempotency_key="nightly-7").id == first.id
    with pytest.raises(sky.JobRefused) as refused:
        shell(jobs, "false", idempotency_key="nightly-7")
    assert refused.value.code == "idempotency_conflict"
    assert shell(jobs, "true").id != first.id, "without one, each is its own"


def test_a_log_survives_its_connections(selling: RunningDaemon, customer: Customer, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"for i in 1 2 3; do echo a$i; done; until [ -e {go} ]; do sleep 0.1; done; echo b; echo c"
    with Between(selling.port) as between:
        job = shell(sky.Jobs(between.url, customer.key), script)
        seen: list[str] = []
        for line in job.logs(follow=True):
            seen.append(line)
            if line == "a3":
                between.cut_all()
                go.touch()
    assert between.cut > 0
    assert seen == ["a1", "a2", "a3", "b", "c"]


def test_asking_too_often_is_waited_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "catalogue.yaml").write_text(CATALOGUE)
    limits = {"SKY_JOB_READS_PER_MINUTE": "60", "SKY_CATALOGUE": str(home / "catalogue.yaml")}
    own = RunningDaemon(home, free_port(), environment={**SETTINGS, **limits})
    own.start()
    try:
        key = Shop(own.url).customer().key
        patient, hasty = sky.Jobs(own.url, key), sky.Jobs(own.url, key, patience_s=0)
        with pytest.raises(sky.RateLimited) as limited:
            any(list(hasty.list()) for _ in range(200))
        assert limited.value.retry_after is not None
        assert limited.value.retry_after >= 1
        began_s = time.monotonic()
        for _ in range(4):  # the first may come when they are let through already
            assert list(patient.list()) == []
        assert time.monotonic() - began_s > 0.5, "it was not waited for"
    finally:
        own.stop()


class Between:
    """A wire to a daemon that can be cut: after so many answers have begun, or all at once."""

    def __init__(self, port: int, cut_answers: int = 0) -> None:
        self._port = port
        self._left = cut_answers
        self._server = socket.create_server(("127.0.0.1", 0))
        here = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.url = f"http://{here}"
        self._addresses = here.encode(), f"127.0.0.1:{port}".encode()
        self._open: list[socket.socket] = []
        self.lost = self.cut = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self.cut_all()

    def cut_all(self) -> None:
        """Break every connection that is open."""
        for end in self._open:
            self._break(end)
        self.cut += bool(self._open)
        self._open.clear()

    @staticmethod
    def _break(end: Any) -> None:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                ours, _ = self._server.accept()
                theirs = socket.create_connection(("127.0.0.1", self._port))
                self._open += [ours, theirs]
                threading.Thread(target=self._pump, args=(ours, theirs, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(theirs, ours, True), daemon=True).start()

    def _pump(self, source: Any, target: Any, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if answers and self._left > 0:
                    self._left -= 1
                    self.lost += 1
                    break
                # The daemon serves whoever calls it by its own address.
                target.sendall(piece if answers else piece.replace(*self._addresses))
        self._break(source)
        self._break(target)


# ── files ───────────────────────────────────────────────────────────────────────────────────────


def test_a_jobs_files_arrive_as_they_were_written(jobs: sky.Jobs, tmp_path: Path) -> None:
    script = "cd $UNIFY_COMPUTE_ROOT/out; mkdir deep; printf hello > a.txt; head -c 300000 /dev/zero > deep/b"
    job = shell(jobs, script, outputs=["/out"]).wait(WAIT_S, check=True)
    files = {file.path: file for file in job.artifacts()}
    assert sorted(files) == ["/out/a.txt", "/out/deep/b"]
    assert files["/out/a.txt"].download(tmp_path) == tmp_path / "a.txt"
    assert (tmp_path / "a.txt").read_text() == "hello"
    where = files["/out/deep/b"].download(tmp_path / "zeros")
    assert hashlib.sha256(where.read_bytes()).hexdigest() == files["/out/deep/b"].sha256
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.txt", "zeros"]
    (tmp_path / "a.txt").write_text("of a run before")
    made = [files["/out/a.txt"].download(tmp_path / name) for name in ("a.txt", "new/name")]
    made.append(files["/out/a.txt"].download(f"{tmp_path}/folder/"))
    assert made == [tmp_path / "a.txt", tmp_path / "new/name", tmp_path / "folder/a.txt"]
    assert {one.read_text() for one in made} == {"hello"}
    every = [tmp_path / "all/out/a.txt", tmp_path / "all/out/deep/b"]
    assert sorted(job.download(tmp_path / "all")) == every
    assert every[1].read_bytes() == where.read_bytes()


class Storage(http.server.BaseHTTPRequestHandler):
    """Where files are kept, by somebody who breaks off, lies, or says that an address is over."""

    protocol_version = "HTTP/1.1"
    content = bytes(range(256)) * 4000
    cut_at = 0
    lies = 0
    expired = 0
    asked: list[str | None]

    def do_GET(self) -> None:
        kind = type(self)
        kind.asked.append(self.headers.get("Range"))
        assert self.headers.get("Authorization") is None, "the key was shown to the storage"
        if kind.expired:
            kind.expired -= 1
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        body = kind.content[begin:]
        if kind.lies:
            kind.lies -= 1
            body = b"x" * len(body)
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if kind.cut_at:
            body, kind.cut_at = body[: kind.cut_at], 0
            self.close_connection = True
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def storage() -> Iterator[tuple[type[Storage], wire.Artifact]]:
    kind = type("One", (Storage,), {"asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        artifact = wire.Artifact(
            object="compute.artifact",
            path="/out/table",
            size=len(kind.content),
            sha256=hashlib.sha256(kind.content).hexdigest(),
            url=f"http://127.0.0.1:{server.server_port}/k/table?X-Sig=abc%2Fdef",
            expires_at=0,
        )
        yield kind, artifact
        server.shutdown()


def never() -> wire.Artifact:
    raise AssertionError("a fresh address was asked for")


def test_a_download_goes_on_where_it_broke_off(storage: Any, tmp_path: Path) -> None:
    kind, artifact = storage
    kind.cut_at = 100_000
    where = job_files.fetch(artifact, tmp_path, never)
    assert where.read_bytes() == kind.content
    assert kind.asked == [None, "bytes=100000-"]


def test_a_file_that_is_not_what_was_written_is_fetched_again_and_never_kept(
    storage: Any, tmp_path: Path
) -> None:
    kind, artifact = storage
    kind.lies = 1
    assert job_files.fetch(artifact, tmp_path / "t", never).read_bytes() == kind.content
    kind.lies = 1_000
    with pytest.raises(sky.TransferFailed, match="/out/table"):
        job_files.fetch(artifact, tmp_path / "other", never)
    assert [file.name for file in tmp_path.iterdir()] == ["t"]


def test_an_address_that_is_over_is_renewed_once(storage: Any, tmp_path: Path) -> None:
    kind, artifact = storage
    kind.expired = 1
    assert job_files.fetch(artifact, tmp_path, lambda: artifact).read_bytes() == kind.content
    kind.expired = 2
    with pytest.raises(sky.AccessDenied) as denied:
        job_files.fetch(artifact, tmp_path / "again", lambda: artifact)
    assert "X-Sig" not in str(denied.value)


@pytest.mark.parametrize("path", ["/../../x", "/a/../../x", "..", "/out/../x"])
def test_a_path_never_leads_out_of_the_folder(path: str, tmp_path: Path) -> None:
    assert job_files.below(tmp_path, path).resolve().is_relative_to(tmp_path.resolve())


# ── in an event loop ────────────────────────────────────────────────────────────────────────────


async def test_the_same_life_awaited(selling: RunningDaemon, customer: Customer) -> None:
    async with sky.AsyncJobs(selling.url, customer.key) as jobs:
        job = await jobs.submit(
            sku="cpu", image="local", command=["sh", "-c", "echo one; echo two"], max_runtime_seconds=60
        )
        assert [line async for line in job.logs(follow=True)] == ["one", "two"]
        await job.wait(WAIT_S, check=True)
        assert job.status == "succeeded"
        assert float(job.usage.settled_cost_usd) > 0
        assert [line async for line in job.logs()] == ["one", "two"]
        assert [event.type async for event in job.events()][-1] == "job.succeeded"
        assert await job.artifacts() == ()
        assert [one.id async for one in jobs.list()] == [job.id]
        assert (await jobs.get(job.id)).seen == job.seen
        assert "cpu" in [sku.id for sku in await jobs.skus()]
        with pytest.raises(sky.JobNotFound):
            await jobs.get("job_X")
        long = await jobs.submit(sku="cpu", image="local", command=["sleep", "600"], max_runtime_seconds=700)
        assert (await long.cancel()).status == "cancelled"


def test_many_at_once_are_as_many_jobs(jobs: sky.Jobs) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: shell(jobs, "true").id, range(16)))
    assert len(set(made)) == 16
    assert {job.id for job in jobs.list()} == set(made)


def test_the_jobs_of_the_sdk_load_no_server() -> None:
    code = "import sys, sky; sky.Jobs; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    heavy = ("sky.server", "sky.store", "sky.api", "litestar", "httpx2", "cloudpickle")
    assert not [name for name in done.stdout.split() if name.startswith(heavy)]
