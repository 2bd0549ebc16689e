"""Calls, requests and paid jobs through daemons other than the one that does the work, with clocks that are
apart, and with content and files in a bucket.

Decides: three daemons with one database and one bucket; the clock of the second is twenty minutes ahead of
this computer's, that of the third as much behind, which is more than the bucket takes in a signature. One
after the other is killed while work is under way, until one is left. That one is of a newer release, and
began beside the others while work was under way.
"""

from __future__ import annotations

import json
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.databases import server
from tests.jobs.conftest import SETTINGS
from tests.jobs.s3_double import FakeS3, serving
from tests.jobs.shop import CATALOGUE, DEADLINE_S, ROOT, Customer, Shop, body
from tests.jobs.test_s3 import ENVIRONMENT
from tests.requests.test_requests import Api
from tests.waiting import until

import sky
from sky.server import elsewhere
from sky.server.settings import load
from sky.store import migrate
from sky.store.migrate import HEAD
from sky.store.schema_users import metadata

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
APART_S = (0, 1200, -1200)
LARGE = 200_000
"""Bytes that are too many for a row."""
OTHER_TIME = """
import os, time
by_ns = int(os.environ.get("SKY_TESTS_CLOCK_AHEAD_S", "0")) * 1_000_000_000
ns, seconds = time.time_ns, time.time
time.time_ns = lambda: ns() + by_ns
time.time = lambda: seconds() + by_ns / 1e9
"""
"""What a Python does first that finds it as ``sitecustomize``."""
NEWER = """
import sys
if "sky.server.main" in sys.orig_argv:
    from pathlib import Path
    from sky.store import migrate
    migrate.HEAD, migrate.FOLDER = "9999", Path(__file__).with_name("migrations")
"""
"""What makes a daemon one of the next release, as far as its database is concerned."""
STEP = f"""
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "9999", "{HEAD}", None, None
def upgrade():
    for table in {[table.name for table in metadata.sorted_tables]}:
        op.add_column(table, sa.Column("of_the_next_release", sa.Text()))
        op.add_column(table, sa.Column("it_begins_with", sa.Integer(), nullable=False, server_default="7"))
    op.drop_index("ix_jobs_in_use", "jobs")
    op.create_index("ix_jobs_of_the_next_release", "jobs", ["owner", "of_the_next_release"])
"""
"""A step of that release: all that a step may do to the tables that the release before works with."""
NEAR_S = 250.0
"""Two moments of this computer's clock may be apart by this much, when it has more to do than a test."""


@sky.function
def doubled(content: bytes, gate: str) -> bytes:
    """More than fits into a row, both ways, once somebody opens the gate."""
    import pathlib
    import time

    while not pathlib.Path(gate).exists():
        time.sleep(0.05)
    return content * 2


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeS3, dict[str, str]]]:
    """An empty one, and the settings that name it."""
    one = FakeS3()
    for name, value in ENVIRONMENT.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    with serving(one) as url:
        yield one, {**ENVIRONMENT, "SKY_ARTIFACTS_ENDPOINT": url}


@pytest.fixture
def three(
    tmp_path_factory: pytest.TempPathFactory, bucket: tuple[FakeS3, dict[str, str]]
) -> Iterator[list[RunningDaemon]]:
    """Sellers with one database and one bucket, the third of the next release and not begun; nothing is left
    of them afterwards."""
    place = tmp_path_factory.mktemp("three")
    (place / "catalogue.yaml").write_text(CATALOGUE)
    (place / "sitecustomize.py").write_text(OTHER_TIME)
    newer = place / "newer"
    shutil.copytree(migrate.FOLDER, newer / "migrations")
    (newer / "migrations" / "versions" / "9999_next.py").write_text(STEP)
    (newer / "sitecustomize.py").write_text(OTHER_TIME + NEWER)
    environment = {
        **SETTINGS,
        **bucket[1],
        "SKY_DATABASE": server().empty(),
        "SKY_SHARED_FOLDER": str(place / "shared"),
        "SKY_CATALOGUE": str(place / "catalogue.yaml"),
        "PYTHONPATH": str(place),
    }
    daemons: list[RunningDaemon] = []
    for ahead_s in APART_S:
        home = place / f"ahead-{ahead_s}"
        home.mkdir()
        daemons.append(
            RunningDaemon(home, free_port(), {**environment, "SKY_TESTS_CLOCK_AHEAD_S": str(ahead_s)})
        )
    for one in daemons[:2]:
        one.start()
    daemons[2].environment["PYTHONPATH"] = str(newer)
    yield daemons
    for one in daemons:
        if hasattr(one, "process") and one.process.poll() is None:
            one.stop()
    RunningDaemon(place / "shared", 0).end_agents()


def database_name(three: list[RunningDaemon]) -> str:
    return three[0].environment["SKY_DATABASE"].rpartition("/")[2]


def waits(*gates: Path) -> str:
    """A script that says how far it is, and waits for a file each time."""
    steps = [f"echo step-{n}; while [ ! -e '{gate}' ]; do sleep 0.05; done" for n, gate in enumerate(gates)]
    return "; ".join((*steps, "echo step-last"))


def seconds_from_now(moment: str | float) -> float:
    """How far a moment that a daemon told is from this computer's time."""
    at = moment if isinstance(moment, int | float) else datetime.fromisoformat(moment).timestamp()
    return abs(at - datetime.now(UTC).timestamp())


class Heard:
    """Lines of an answer that goes on, read by a thread."""

    def __init__(self, url: str, method: str, path: str, **more: Any) -> None:
        self.lines: list[str] = []
        self._came = threading.Condition()
        self._http = httpx2.Client(base_url=url, timeout=DEADLINE_S, trust_env=False)
        self._reader = ThreadPoolExecutor(1)
        self.end = self._reader.submit(self._read, method, path, more)

    def _read(self, method: str, path: str, more: dict[str, Any]) -> list[str]:
        with self._http.stream(method, path, **more) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                with self._came:
                    self.lines.append(line)
                    self._came.notify_all()
        return self.lines

    def until(self, text: str) -> None:
        """Wait until a line has that text."""
        deadline_s = time.monotonic() + DEADLINE_S
        with self._came:
            while not any(text in line for line in self.lines):
                left_s = deadline_s - time.monotonic()
                assert left_s > 0, self.lines
                assert not self.end.done(), self.lines
                self._came.wait(min(left_s, 1.0))


def test_what_is_under_way_goes_on_through_the_daemon_that_is_left(
    three: list[RunningDaemon], bucket: tuple[FakeS3, dict[str, str]], tmp_path: Path
) -> None:
    apis, shops = [Api(one.url) for one in three], [Shop(one.url) for one in three]
    gates = (tmp_path / "first is gone", tmp_path / "second is gone")

    # What one daemon is asked, another one answers; asked again with its key there, it is the same.
    launch = {"task": {"run": "echo launched"}, "cluster_name": "apart"}
    asked = apis[0].ask("launch", key="once", **launch)
    launched = apis[1].get(asked["request_id"])
    assert (launched["status"], launched["result"]["job_id"]) == ("SUCCEEDED", 1), launched
    brought = apis[0].upload(large=secrets.token_hex(LARGE))
    task = {"run": f"wc -c < large; {waits(*gates)}", "files": [{"target": ".", "sha256": brought}]}
    apis[1].do("exec", task=task, cluster_name="apart")

    # The next release begins beside them, and brings the database to its schema. They work on.
    three[2].start()
    assert server().do("SELECT version_num FROM alembic_version", database_name(three)) == [("9999",)]
    assert apis[2].ask("launch", key="once", **launch)["request_id"] == asked["request_id"]
    assert apis[2].logs("apart", 1)[1]["end"] == "SUCCEEDED"
    for shop in shops:
        account = shop.operate("POST", "/accounts", json={"name": f"of-{shop.url.rpartition(':')[2]}"})
        assert seconds_from_now(account["created_at"]) < NEAR_S, "each tells the time of the database"
    paying = shops[0].customer()
    customers = [Customer(shop.http, paying.key, paying.account) for shop in shops]
    script = f"echo result > /out/file; {waits(*gates)}"
    wanted = body(spec__command=["bash", "-c", script], spec__outputs=[{"mount": "/out"}])
    job_id = customers[0].submit(wanted, key="once").json()["id"]
    assert customers[1].submit(wanted, key="once").json()["id"] == job_id

    run = Heard(three[2].url, "POST", "/logs", json={"cluster_name": "apart", "job_id": 2})
    follow = {"params": {"follow": "true"}, "headers": {"authorization": f"Bearer {customers[0].key}"}}
    paid = [Heard(one.url, "GET", f"{ROOT}/jobs/{job_id}/logs", **follow) for one in three[1:]]
    compute = sky.Compute(sky.Local(), nodes=1, url=three[2].url, quiet=True)
    content = secrets.token_bytes(LARGE)
    with compute:
        asked_for = doubled(content, str(gates[1])) > compute
        for heard in (run, *paid):
            heard.until("step-0")
        three[0].kill()
        gates[0].touch()
        for heard in (run, *paid):
            heard.until("step-1")
        # Asked one after the other: an event may come between the two.
        until(lambda: customers[1].events(job_id) == customers[2].events(job_id), "both tell it", DEADLINE_S)
        three[1].kill()
        with pytest.raises(RuntimeError, match="written by a newer release"):
            three[1].start()
        gates[1].touch()
        assert asked_for.result(timeout=DEADLINE_S) == content * 2

    lines = [json.loads(line) for line in run.end.result(DEADLINE_S)]
    text = "".join(line.get("text", "") for line in lines)
    assert str(2 * LARGE) in text, "the files came with the task"
    assert "step-last" in text
    assert lines[-1]["end"] == "SUCCEEDED"
    jobs = apis[2].do("queue", cluster_name="apart")
    assert [job["status"] for job in jobs] == ["SUCCEEDED", "SUCCEEDED"]
    assert all(seconds_from_now(job["submitted_at"]) < NEAR_S for job in jobs)
    apis[2].do("down", cluster_name="apart")
    job = customers[2].ended(job_id)
    assert job["status"] == "succeeded", paid[1].lines
    assert any("step-last" in line for line in paid[1].end.result(DEADLINE_S))
    moments = [event["created_at"] for event in customers[2].events(job_id)]
    assert moments == sorted(moments)
    [file] = customers[2]("GET", f"/jobs/{job_id}/artifacts").json()["data"]
    assert (file["path"], httpx2.get(file["url"], timeout=DEADLINE_S).content) == ("/out/file", b"result\n")
    shops[2].audit()
    check_that_a_backup_knows_the_bucket(three[2], *bucket)


def check_that_a_backup_knows_the_bucket(left: RunningDaemon, held: FakeS3, settings: dict[str, str]) -> None:
    """All that is large is there and nowhere else, and what is missing there is found."""
    assert not (left.home.parent / "shared" / "artifacts").exists()
    kept = [path.name for path in (left.home.parent / "shared" / "blobs").rglob("*") if path.is_file()]
    assert set(kept) <= {"installation.json", "installation.lock"}, "whose it is, and nothing else"
    database = left.environment["SKY_DATABASE"]
    chosen = load({"home": str(left.home), "database": database}, settings)
    told = list(elsewhere.told(database, elsewhere.of_settings(chosen)))
    assert [line.split(" ")[3:5] for line in told][1] == ["1", "files"], told
    elsewhere.look_for(database, elsewhere.of_settings(chosen), chosen)
    held.objects = {key: content for key, content in held.objects.items() if "/blobs/" not in key}
    held.objects.pop(next(key for key in held.objects if "/files/" in key))
    with pytest.raises(elsewhere.LackingError, match=r"pieces of large .*; 1 of 1 files of paid jobs"):
        elsewhere.look_for(database, elsewhere.of_settings(chosen), chosen)
