"""Task files against a real daemon: working folders, mounts, variables, functions, on two local nodes."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon

import sky
from sky.client import calls_requests
from sky.client.tasks import wire

EXAMPLE = Path(__file__).parents[2] / "examples" / "task_files"

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _server(daemon: RunningDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", daemon.url)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def two(daemon: RunningDaemon) -> Iterator[str]:
    """A cluster of two nodes that several tests use."""
    name = f"files-{secrets.token_hex(3)}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKY_API_ENDPOINT", daemon.url)
        sky.get(sky.launch(sky.Task(num_nodes=2), cluster_name=name))
        yield name
        sky.get(sky.down(name))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of every archive that is uploaded, as it is."""
    sizes: list[int] = []
    plain = calls_requests.upload

    def watched(sha256: str, archive: Any) -> Any:
        if archive != b"":
            sizes.append(archive.size)
        return plain(sha256, archive)

    monkeypatch.setattr(calls_requests, "upload", watched)
    return sizes


def output(cluster: str, job_id: int | None, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a job printed, without who printed it."""
    capsys.readouterr()
    sky.tail_logs(cluster, job_id, follow=True)
    lines = capsys.readouterr().out.splitlines()
    return sorted(line.partition(") ")[2] for line in lines if line.startswith(("(t,", "(t)")))


def test_a_task_file_brings_its_files_and_variables_to_every_node(
    two: str, tmp_path: Path, sent: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "project"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "data" / "deep" / "words").write_text("one two")
    (folder / "tool.sh").write_text("#!/bin/bash\necho tool $1\n")
    (folder / "tool.sh").chmod(0o755)
    (folder / "skipped.log").write_text("x" * 100_000)
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "link").symlink_to("data/deep/words")
    (tmp_path / "single").write_text("single")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a").write_text("more")
    file = tmp_path / "task.yaml"
    file.write_text(
        "name: t\nnum_nodes: 2\nworkdir: ${FOLDER}\nenvs: {FOLDER: nowhere, WHO: world, N: 1.50, LATER: }\n"
        "secrets: {TOKEN: }\nfile_mounts:\n  ~/in/renamed: ~/single\n  ~/in/into/: ~/single\n  more: more\n"
        "setup: echo ready > prepared\nrun: |\n"
        "  echo $SKYPILOT_NODE_RANK $WHO $N $LATER ${TOKEN:0:2} $(cat prepared) $(cat link) $(./tool.sh x)\n"
        "  echo $(cat ~/in/renamed ~/in/into/single more/a) $(ls skipped.log 2>&1 | grep -c cannot)\n"
    )
    task = sky.Task.from_yaml(
        file, env_overrides={"FOLDER": "project", "LATER": "given"}, secrets_overrides={"TOKEN": "s3cr3t"}
    )
    job_id, _ = sky.get(sky.launch(task, cluster_name=two))
    assert output(two, job_id, capsys) == [
        "0 world 1.50 given s3 ready one two tool x",
        "1 world 1.50 given s3 ready one two tool x",
        "singlesinglemore 1",
        "singlesinglemore 1",
    ]
    assert len(sent) == 3, "the same file twice is one archive"
    sent.clear()
    sky.get(sky.exec(task, cluster_name=two))
    assert sent == [], "nothing changed"
    (folder / "data" / "deep" / "words").write_text("three")
    job_id, _ = sky.get(sky.exec(task, cluster_name=two))
    assert len(sent) == 1
    assert "0 world 1.50 given s3 ready three tool x" in output(two, job_id, capsys)


def test_what_a_job_overwrote_is_brought_again(
    two: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "value").write_text("first")
    (tmp_path / "w" / "gone").write_text("there")
    task = sky.Task("t", workdir="w", run="cat value gone; echo; echo mine > value; rm gone")
    wanted = ["firstthere"]
    assert output(two, sky.get(sky.exec(task, cluster_name=two))[0], capsys) == wanted
    assert output(two, sky.get(sky.exec(task, cluster_name=two))[0], capsys) == wanted
    (tmp_path / "w" / "value").write_text("second")
    assert output(two, sky.get(sky.exec(task, cluster_name=two))[0], capsys) == ["secondthere"]
    (tmp_path / "w" / "value").write_text("first")
    assert output(two, sky.get(sky.exec(task, cluster_name=two))[0], capsys) == wanted


def test_a_function_runs_on_every_node_or_makes_the_script_of_each(
    two: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "beside.py").write_text("VALUE = 7\n")
    factor = 6

    def work() -> None:
        import beside

        print("answer", beside.VALUE * factor, os.environ["SKY_NODE_RANK"], flush=True)

    def script(rank: int, addresses: list[str]) -> str | None:
        return f'echo "rank {rank} of {len(addresses)}"' if rank else None

    def broken() -> None:
        raise ValueError("no such luck")

    task = sky.Task("t", workdir="w", num_nodes=2, run=work)
    assert output(two, sky.get(sky.exec(task, cluster_name=two))[0], capsys) == ["answer 42 0", "answer 42 1"]
    task = sky.Task("t", num_nodes=2, run=script)
    assert output(two, sky.get(sky.exec(task, cluster_name=two))[0], capsys) == ["rank 1 of 2"]
    job_id, _ = sky.get(sky.exec(sky.Task("t", run=broken), cluster_name=two))
    shown = output(two, job_id, capsys)
    assert "ValueError: no such luck" in shown
    assert '    raise ValueError("no such luck")' in shown
    assert sky.get(sky.job_status(two, [job_id])) == {job_id: sky.JobStatus.FAILED}
    with pytest.raises(ValueError, match="would be called without arguments, or with the rank"):
        sky.exec(sky.Task(run=lambda a, b, c: None), cluster_name=two)


def test_files_of_the_web_and_of_a_repository_are_brought(
    two: str, tmp_path: Path, daemon: RunningDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = tmp_path / "repository"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(repository)]
    subprocess.run(["git", "init", "-q", "-b", "main", str(repository)], check=True)
    (repository / "file").write_text("committed")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    subprocess.run([*git, "tag", "v1"], check=True)
    (repository / "file").write_text("later")
    subprocess.run([*git, "commit", "-q", "-a", "-m", "second"], check=True)
    task = sky.Task(
        "t",
        workdir={"url": repository.as_uri(), "ref": "v1"},
        file_mounts={"~/web/live": f"{daemon.url}/v1/health/live", "~/web/": f"{daemon.url}/v1/health/ready"},
        run="cat file; echo; ls ~/web; cat ~/web/live",
    )
    job_id, _ = sky.get(sky.launch(task, cluster_name=two))
    shown = output(two, job_id, capsys)
    assert {"committed", "live", "ready"} <= set(shown)
    with pytest.raises(ValueError, match=r"workdir: '.*repository' at 'v9' cannot be fetched: "):
        sky.exec(sky.Task(workdir={"url": repository.as_uri(), "ref": "v9"}), cluster_name=two)


def test_a_dry_run_and_a_check_send_nothing(two: str, tmp_path: Path, sent: list[int]) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "f").write_text(secrets.token_hex())
    task = sky.Task("t", workdir="w", run="ls")
    sky.get(sky.launch(task, cluster_name=two, dryrun=True))
    sky.validate(task)
    assert sent == []
    assert sky.Resources(infra="local").get_cost(7200) == 2 * sky.Resources(infra="local").get_cost(3600)
    with pytest.raises(sky.exceptions.ResourcesUnavailableError):
        sky.Resources(infra="local", cpus=4000).get_cost(1)
    assert wire.autostop_of(task.set_resources(sky.Resources(autostop="10m"))) == wire.Autostop(10)


def test_the_example_counts_what_is_in_its_texts(daemon: RunningDaemon, tmp_path: Path) -> None:
    cluster = f"words-{secrets.token_hex(3)}"
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py"), cluster],
        capture_output=True,
        text=True,
        env={**os.environ, "SKYPILOT_API_SERVER_ENDPOINT": daemon.url},
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    words = " ".join(file.read_text() for file in (EXAMPLE / "texts").glob("*.txt")).lower()
    counts = Counter(word for word in re.findall("[a-z]+", words) if len(word) >= 3)
    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
    assert ran.stdout.splitlines()[-5:] == [f"{count:3} {word}" for word, count in best]


def test_a_storage_keeps_what_a_folder_had_and_gives_it_to_later_tasks(
    two: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    name = f"storage-{secrets.token_hex(3)}"
    storage = sky.Storage(name, source="kept", mode="COPY")
    first = sky.Task("t", file_mounts={"~/s": storage}, run="cat ~/s/file; echo")
    assert output(two, sky.get(sky.launch(first, cluster_name=two))[0], capsys) == ["kept"]
    later = sky.Task(
        "t", file_mounts={"~/again": {"name": name, "mode": "COPY"}}, run="cat ~/again/file; echo"
    )
    assert output(two, sky.get(sky.launch(later, cluster_name=two))[0], capsys) == ["kept"]
    assert name in [one["name"] for one in sky.get(sky.storage_ls())]
    sky.get(sky.storage_delete(name))
    assert name not in [one["name"] for one in sky.get(sky.storage_ls())]
