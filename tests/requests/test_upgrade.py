"""The database of the release before, as a kill left it: this release opens it, and its requests answer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.databases import IN_A_FILE
from tests.requests.test_requests import Api
from tests.system.processes import wait_gone

pytestmark = [IN_A_FILE, pytest.mark.real]

BEFORE = Path(__file__).with_name("before") / "0003.sql"


@pytest.fixture
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon on what was left; the machines of that time are gone."""
    running = RunningDaemon(tmp_path_factory.mktemp("before"), free_port())
    with sqlite3.connect(running.home / "sky.db") as link:
        link.executescript(BEFORE.read_text(encoding="utf-8").replace("@HOME@", str(running.home)))
        assert link.execute("SELECT version_num FROM alembic_version").fetchall() == [("0003",)]
    link.close()
    running.start()
    yield running
    running.stop()


def asked_before(home: Path) -> dict[tuple[str, str], str]:
    """The ids of the requests of that time, by name and cluster."""
    with sqlite3.connect(f"file:{home}/sky.db?mode=ro", uri=True, timeout=30) as link:
        rows = link.execute("SELECT name, cluster_name, id FROM requests").fetchall()
    link.close()
    return {(name, cluster): request_id for name, cluster, request_id in rows}


def test_requests_of_the_release_before_answer_and_what_was_under_way_comes_to_its_end(
    upgraded: RunningDaemon,
) -> None:
    api, asked = Api(upgraded.url), asked_before(upgraded.home)
    assert len(asked) == 5
    launched = api.get(asked["launch", "done"])
    assert (launched["status"], launched["result"]["job_id"]) == ("SUCCEEDED", 1)
    assert launched["result"]["handle"]["cluster_name"] == "done"
    missing = api.get(asked["queue", "nosuch"])
    assert (missing["status"], missing["error"]["type"]) == ("FAILED", "ClusterDoesNotExist")
    said = api.http.get("/api/stream", params={"request_id": asked["launch", "done"]}).text
    assert "launching cluster 'done' with 1 nodes" in said
    early = api.get(asked["launch", "early"])
    assert (early["status"], early["result"]["job_id"]) == ("SUCCEEDED", 1), early
    lines, end = api.logs("early")
    assert (lines, end["end"]) == (["(task) early"], "SUCCEEDED")
    half = api.get(asked["launch", "half"])
    assert (half["status"], half["error"]["type"]) == ("FAILED", "JobError")
    assert "was lost after it may have begun" in half["error"]["message"]
    assert [job["status"] for job in api.do("queue", cluster_name="done")] == ["FAILED_DRIVER", "SUCCEEDED"]
    for name in ("done", "half", "early"):
        api.do("down", cluster_name=name)
    assert api.do("status") == []
    assert wait_gone(upgraded.home, but=upgraded.process.pid) == {}
