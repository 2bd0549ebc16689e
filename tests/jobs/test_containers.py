"""Jobs in containers, with a real engine, a real registry and an image built here."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.jobs.conftest import Boxed
from tests.jobs.shop import CATALOGUE, Customer, Shop, body, refusal

from sky.kit.clock import ManualClock
from sky.kit.containers import Engine
from sky.server.engines import BAD_SECONDS, LocalEngine

GONE_S = 60.0


def inside(boxed: Boxed, script: str, **more: Any) -> dict[str, Any]:
    """A job that runs a script in a container."""
    request = {"spec__image": boxed.podman.image, "spec__command": ["/bin/sh", "-c", script], **more}
    return body(**request)


def submitted(customer: Customer, request: dict[str, Any]) -> str:
    answer = customer.submit(request)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def log(customer: Customer, job_id: str) -> str:
    return customer("GET", f"/jobs/{job_id}/logs").text


def told(customer: Customer, job_id: str, *words: str) -> None:
    """Wait until the job's log has these."""
    customer.until(job_id, lambda _: all(word in log(customer, job_id) for word in words))


def until(done: Callable[[], bool], what: object) -> None:
    deadline = time.monotonic() + GONE_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def processes(mark: str) -> list[int]:
    """Processes with these words in their command line."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


LOOK = """
echo from=$FROM_IMAGE mode=$MODE job=$UNIFY_COMPUTE_JOB_ID token=$UNIFY_COMPUTE_ARTIFACTS_TOKEN
echo uid=$(id -u) where=$(pwd)
grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'
echo map=$(cat /proc/self/uid_map)
echo memory=$(cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null)
echo pids=$(cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null)
echo files=$(ulimit -n) cores=$(ulimit -c)
wget -q -T 3 -O - http://169.254.169.254/ || echo no metadata
wget -q -T 3 -O - http://127.0.0.1:PORT/v1/health/live || echo no daemon
mount -t tmpfs none /tmp 2>/dev/null || echo no mount
chown 7 /bin/busybox 2>/dev/null || echo no chown
echo on the other stream >&2
"""


def test_a_command_runs_in_its_image_with_nothing_that_it_was_not_given(boxed: Boxed) -> None:
    customer = boxed.shop.customer()
    script = LOOK.replace("PORT", str(boxed.daemon.port))
    job_id = submitted(customer, inside(boxed, script, spec__env={"MODE": "a b"}))
    job = customer.ended(job_id)
    text = log(customer, job_id)
    assert job["status"] == "succeeded", text
    lines = text.splitlines()
    assert f"from=yes mode=a b job={job_id} token=" in lines
    assert "uid=1234 where=/tmp" in lines
    for line in ("CapEff:0000000000000000", "CapBnd:0000000000000000", "NoNewPrivs:1", "Seccomp:2"):
        assert line in lines
    assert "map= 0 2000000000 65536" in lines
    assert f"memory={1024**3}" in lines
    assert "pids=4096" in lines
    assert "cores=0" in text
    for line in ("no metadata", "no daemon", "no mount", "no chown", "on the other stream"):
        assert line in lines
    assert f"pulling the image {boxed.podman.image}" in lines
    assert boxed.podman.containers(job_id) == []
    boxed.shop.audit()


def test_how_a_command_ends_is_told(boxed: Boxed) -> None:
    customer = boxed.shop.customer()
    jobs = {
        "seven": submitted(customer, inside(boxed, "exit 7")),
        "killed": submitted(customer, inside(boxed, "kill -9 $$; sh -c 'kill -9 $$'; exit $?")),
        "absent": submitted(customer, inside(boxed, "", spec__command=["/no/such/program"])),
        "greedy": submitted(
            customer, inside(boxed, "exec awk 'BEGIN { x = \"sixteen letters!\"; while (1) x = x x }'")
        ),
        "late": submitted(
            customer,
            inside(boxed, "trap 'echo asked; exit 0' TERM; sleep 60 & wait", spec__max_runtime_seconds=8),
        ),
    }
    ended = {name: customer.ended(job_id) for name, job_id in jobs.items()}
    assert {job["status"] for job in ended.values()} == {"failed"}
    codes = {name: customer.events(job_id)[-1]["data"].get("exit_code") for name, job_id in jobs.items()}
    assert codes == {"seven": 7, "killed": 137, "absent": 127, "greedy": 137, "late": None}
    assert "memory" in log(customer, jobs["greedy"])
    assert "memory" not in ended["killed"]["error"]["message"]
    assert ended["late"]["error"]["code"] == "max_runtime_exceeded", ended["late"]["error"]
    assert "asked" in log(customer, jobs["late"])
    assert [boxed.podman.containers(job_id) for job_id in jobs.values()] == [[]] * len(jobs)
    boxed.shop.audit()


def test_an_image_that_cannot_be_had_is_told_why_and_costs_nothing(boxed: Boxed) -> None:
    customer = boxed.shop.customer()
    registry = boxed.podman.registry
    wanted = {
        f"{registry}/nothing:1": "no such image",
        "127.0.0.1:9/job:1": "cannot be reached",
        f"{registry}/job@sha256:{'a' * 64}": "no such image",
    }
    jobs = {image: submitted(customer, inside(boxed, "true", spec__image=image)) for image in wanted}
    for image, words in wanted.items():
        job = customer.ended(jobs[image])
        assert (job["status"], job["error"]["code"]) == ("failed", "image_unavailable")
        assert image in job["error"]["message"]
        assert words in job["error"]["message"]
        assert job["usage"]["settled_cost_usd"] == "0.000000"


def test_an_image_is_had_by_its_digest(boxed: Boxed) -> None:
    customer = boxed.shop.customer()
    boxed.podman("pull", "--quiet", boxed.podman.image)
    digest = boxed.podman("image", "inspect", "--format", "{{.Digest}}", boxed.podman.image)
    image = f"{boxed.podman.registry}/job@{digest}"
    job_id = submitted(customer, inside(boxed, "echo here", spec__image=image))
    assert customer.ended(job_id)["status"] == "succeeded", log(customer, job_id)
    assert "here already" in log(customer, job_id)


# ── nothing is left behind ──────────────────────────────────────────────────────────────────────


def running(boxed: Boxed, customer: Customer, mark: str) -> str:
    """A job that would not end by itself, and ignores whoever asks it to."""
    script = f"trap '' TERM; echo up; exec env -i sleep {mark}"
    job_id = submitted(customer, inside(boxed, script, spec__max_runtime_seconds=900))
    told(customer, job_id, "up")
    assert len(boxed.podman.containers(job_id)) == 1
    return job_id


def members(boxed: Boxed, job_id: str) -> tuple[int, int]:
    """The agent of a job's node, and the worker that runs its command."""
    # Of those that know its name, this one is there as long as the container is.
    [engine] = processes(f"start\0--attach\0sky-{job_id}")
    worker = parent(engine)
    return parent(worker), worker


def parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[1])


def test_a_cancelled_command_is_gone_whatever_it_does(boxed: Boxed) -> None:
    customer = boxed.shop.customer()
    mark = f"71.{os.getpid()}"
    job_id = running(boxed, customer, mark)
    assert customer("POST", f"/jobs/{job_id}/cancel").status_code == 202
    until(lambda: not boxed.podman.containers(job_id) and not processes("sleep\0" + mark), job_id)


@pytest.mark.parametrize("which", ["worker", "agent"])
def test_a_command_does_not_outlive_whoever_ran_it(boxed: Boxed, which: str) -> None:
    customer = boxed.shop.customer()
    mark = {"worker": "72.", "agent": "73."}[which] + str(os.getpid())
    job_id = running(boxed, customer, mark)
    agent, worker = members(boxed, job_id)
    os.kill(worker if which == "worker" else agent, signal.SIGKILL)
    until(lambda: not boxed.podman.containers(job_id) and not processes("sleep\0" + mark), job_id)
    job = customer.ended(job_id)
    assert job["status"] == "failed"
    until(lambda: not processes(f"podman\0sky-{job_id}"), "its keeper ends too")
    boxed.shop.audit()


def test_a_job_does_not_notice_that_its_daemon_was_killed(boxed: Boxed) -> None:
    customer = boxed.shop.customer()
    script = "echo up; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo kept > /out/file"
    job_id = submitted(customer, inside(boxed, script, spec__outputs=[{"mount": "/out"}]))
    told(customer, job_id, "up")
    boxed.daemon.kill()
    [container] = boxed.podman.containers(job_id)
    boxed.podman("exec", container, "touch", "/tmp/go")
    until(lambda: not boxed.podman.containers(job_id), "the command ends while nobody asks for it")
    boxed.daemon.start()
    assert customer.ended(job_id)["status"] == "succeeded", log(customer, job_id)
    [file] = customer("GET", f"/jobs/{job_id}/artifacts").json()["data"]
    assert (file["path"], file["size"]) == ("/out/file", 5)
    boxed.shop.audit()


@pytest.mark.parametrize("how", ["end", "worker"])
def test_a_process_of_the_node_itself_leaves_none_behind(boxed: Boxed, how: str) -> None:
    customer = boxed.shop.customer()
    mark = {"end": "74.", "worker": "75."}[how] + str(os.getpid())
    wait = "exit 0" if how == "end" else "sleep 900"
    script = f"setsid env -i sleep {mark} & echo up; {wait}"
    job_id = submitted(customer, body(spec__command=["sh", "-c", script], spec__max_runtime_seconds=900))
    told(customer, job_id, "up")
    if how == "worker":
        views = [pid for pid in processes("job_view.py") if job_id.encode() in environment(pid)]
        [outer] = {parent(pid) for pid in views} - set(views)
        os.kill(outer, signal.SIGKILL)
    assert customer.ended(job_id)["status"] == ("succeeded" if how == "end" else "failed")
    until(lambda: not processes("sleep\0" + mark), "it ends with its command")


def environment(pid: int) -> bytes:
    """What a process was given; nothing of one that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


# ── machines without an engine ──────────────────────────────────────────────────────────────────


def test_without_an_engine_a_container_is_refused_before_anything_is_held(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("bare")
    (home / "bin").mkdir()
    for program in ("setpriv", "sh", "env", "true"):
        (home / "bin" / program).symlink_to(shutil.which(program) or "")
    (home / "catalogue.yaml").write_text(CATALOGUE)
    daemon = RunningDaemon(
        home,
        free_port(),
        environment={
            "PATH": str(home / "bin"),
            "SKY_ALLOW_HOST_JOBS": "true",
            "SKY_CATALOGUE": str(home / "catalogue.yaml"),
        },
    )
    daemon.start()
    try:
        customer = Shop(daemon.url).customer()
        request = body(spec__image="docker.io/library/busybox")
        error = refusal(customer.submit(request), "upstream_unavailable", 503)
        assert "podman is not installed; docker is not installed" in error["message"]
        assert customer("GET", "/jobs").json()["data"] == []
        assert customer.submit().status_code == 201, "the machine itself can be used all the same"
    finally:
        daemon.stop()


def test_an_engine_that_comes_and_goes_is_noticed() -> None:
    clock = ManualClock()
    answers: SimpleQueue[Engine | str] = SimpleQueue()
    engine = LocalEngine(clock, lambda _: answers.get(timeout=GONE_S))
    assert engine.unusable() == {}, "nothing is refused before it was looked"
    answers.put("podman is not installed")
    until(lambda: engine.unusable() == {"local": "podman is not installed"}, "the first look")
    clock.advance(BAD_SECONDS)
    assert engine.unusable() == {"local": "podman is not installed"}, "what was seen last counts meanwhile"
    answers.put(Engine("podman", "/usr/bin/podman", rootless=False))
    until(lambda: engine.unusable() == {}, "the second look")
