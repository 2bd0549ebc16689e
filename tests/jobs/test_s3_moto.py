"""Files of jobs in moto, a bucket that others wrote: what it answers otherwise than our own double, and what
becomes of a job whose bucket is away when it ends.

Never: proves a signature or a checksum with it; it takes any. That is what ``test_s3`` does.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from botocore.session import Session
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from tests.conftest import RunningDaemon, free_port
from tests.jobs.conftest import SETTINGS
from tests.jobs.s3_double import BUCKET
from tests.jobs.shop import CATALOGUE, DEADLINE_S, Shop, body, refusal
from tests.jobs.test_s3 import CONTENT, ENVIRONMENT, PREFIX, Node, Stored, sha256
from werkzeug.serving import BaseWSGIServer, make_server

from sky.server.keys import Keys

HOME_REGION = "us-east-1"
TRIES = 3
"""A node has asked a bucket that is away this often before it is back."""


@dataclass
class Moto:
    """Its server. What it holds is this process's, and is there again when it is started again."""

    port: int
    server: BaseWSGIServer | None = None

    def start(self) -> None:
        app = DomainDispatcherApplication(create_backend_app)
        self.server = make_server("127.0.0.1", self.port, app, threaded=True)
        Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def client(self) -> Any:
        """The published client, for what no job does."""
        return Session().create_client(
            "s3",
            region_name=HOME_REGION,
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )

    def stop(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    """One with an empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    one = Moto(free_port())
    one.start()
    one.client().create_bucket(Bucket=BUCKET)
    yield one
    one.stop()


@pytest.fixture(scope="module")
def stored(moto: Moto, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """A seller whose files go there."""
    home = tmp_path_factory.mktemp("moto")
    (home / "catalogue.yaml").write_text(CATALOGUE)
    environment = {
        **SETTINGS,
        **ENVIRONMENT,
        "SKY_ARTIFACTS_REGION": HOME_REGION,
        "SKY_CATALOGUE": str(home / "catalogue.yaml"),
        "SKY_ARTIFACTS_ENDPOINT": f"http://127.0.0.1:{moto.port}",
    }
    running = RunningDaemon(home, free_port(), environment=environment)
    running.start()
    yield Stored(Shop(running.url), Keys(home), None)
    running.stop()


def test_files_are_kept_listed_had_and_written_down(stored: Stored, moto: Moto) -> None:
    customer = stored.shop.customer()
    script = (
        "mkdir /out/deep; printf one > /out/a.txt; : > /out/empty; printf 'b c' > '/out/deep/ä b+c%20.txt'"
    )
    wanted = body(spec__command=["bash", "-c", script], spec__outputs=[{"mount": "/out"}])
    job_id = customer.submit(wanted).json()["id"]
    job = customer.ended(job_id)
    assert job["status"] == "succeeded", customer("GET", f"/jobs/{job_id}/logs").text
    node = Node(stored, customer, job_id)
    assert node.files() == {"/out/a.txt": b"one", "/out/empty": b"", "/out/deep/ä b+c%20.txt": b"b c"}
    kept = moto.client().get_object(Bucket=BUCKET, Key=f"{PREFIX}/jobs/{job_id}/_manifest.json")
    manifest = json.loads(kept["Body"].read())
    assert sorted(file["path"] for file in manifest["files"]) == sorted(node.files())


def test_a_bucket_that_was_away_at_a_jobs_end_has_its_files_when_it_is_back(
    stored: Stored, moto: Moto, tmp_path: Path
) -> None:
    customer, gate = stored.shop.customer(), tmp_path / "go on"
    script = f"printf result > /out/file; while [ ! -e '{gate}' ]; do sleep 0.05; done"
    wanted = body(spec__command=["bash", "-c", script], spec__outputs=[{"mount": "/out"}])
    before = Node(stored, customer, customer.submit(body(spec__outputs=[{"mount": "/out"}])).json()["id"])
    customer.ended(before.job_id)
    job_id = customer.submit(wanted).json()["id"]
    customer.until(job_id, lambda job: job["status"] == "running")
    node = Node(stored, customer, job_id)
    moto.stop()
    try:
        answer = node.ask("complete")
        assert "nothing was lost" in refusal(answer, "storage_unavailable", 503)["message"]
        assert int(answer.headers["retry-after"]) >= 1
        with socket.create_server(("127.0.0.1", moto.port)) as hangs_up:
            hangs_up.settimeout(DEADLINE_S)
            gate.touch()
            for _ in range(TRIES):
                hangs_up.accept()[0].close()
        assert customer.job(job_id)["status"] == "running", "it waits for the bucket, and does not fail"
        assert before.listed()["complete"] is True
        assert stored.shop.http.get("/v1/health/ready").status_code == 200
    finally:
        moto.start()
    assert customer.ended(job_id)["status"] == "succeeded"
    assert node.files() == {"/out/file": b"result"}


def test_content_is_kept_had_and_outlives_that_the_bucket_was_away(stored: Stored, moto: Moto) -> None:
    content, http = b"large content" * 100_000, stored.shop.http
    place = f"/v1/blobs/{sha256(content)}"
    media = {"content-type": "application/octet-stream"}
    assert http.put(place, content=content, headers=media).status_code == 201
    listed = moto.client().list_objects_v2(Bucket=BUCKET, Prefix=f"{CONTENT}/blobs/{sha256(content)}/")
    assert [one["Size"] for one in listed["Contents"]] == [len(content)]
    moto.stop()
    try:
        other = f"/v1/blobs/{sha256(content[1:])}"
        for answer in (http.get(place), http.put(other, content=content[1:], headers=media)):
            assert (answer.status_code, answer.json()["code"]) == (503, "busy"), answer.text
            assert int(answer.headers["retry-after"]) >= 1
            assert BUCKET not in answer.text
        assert http.get("/v1/health/ready").status_code == 200
        assert http.put(place, content=content, headers=media).status_code == 200
    finally:
        moto.start()
    assert http.get(place).content == content
    assert http.get(other).status_code == 404
    for wanted, part in {"1299990-": content[-10:], "10-19": content[10:20]}.items():
        answer = http.get(place, headers={"range": f"bytes={wanted}"})
        assert (answer.status_code, answer.content) == (206, part)
    found = http.get("/admin/v1/garbage").json()
    assert [one["count"] for one in found["items"] if one["kind"] == "files"] == [0], found
