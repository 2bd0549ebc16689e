"""The parts that keep files of jobs: signatures, credentials, long lists, and the end of their time."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
import time_machine
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from tests.jobs.s3_double import BUCKET, REGION, FakeS3, Held, serving
from tests.jobs.shop import Customer, Shop, body
from tests.store.support import empty

from sky.domain.artifact import StoredFile, key_of
from sky.domain.job_errors import JobRefused
from sky.kit.clock import SECOND_US, ManualClock, SystemClock, to_datetime
from sky.reconcile import wakes
from sky.reconcile.retention import DAY_US, LINES_MAX, Retention, Terms
from sky.reconcile.runner import Runner
from sky.server import settings
from sky.store import s3_xml
from sky.store.artifact_bucket import ArtifactBucket
from sky.store.artifact_folder import ArtifactFolder
from sky.store.db import Database
from sky.store.installation import FIRST, Installation
from sky.store.marks import MarkedFolder
from sky.store.s3 import Bucket, Place
from sky.store.s3_credentials import Chain, NoCredentialsError
from sky.store.schema import events
from sky.store.schema_jobs import artifacts, jobs
from sky.store.sigv4 import Credentials, Wanted, full_url, presigned, signed_headers
from sky.store.tenure import NOT_OURS_S, OwnerOf, Tenure, Tenured, take_over
from sky.store.tx import Tx

BY = Credentials("AKIDEXAMPLE", "a/secret+key")
NOW = datetime(2026, 3, 1, 23, 59, 58, tzinfo=UTC)
NOW_US = round(NOW.timestamp()) * SECOND_US


# ── signatures ──────────────────────────────────────────────────────────────────────────────────

QUERY = {"response-content-disposition": "attachment; filename*=UTF-8''%C3%A9%20~'()*", "x": "a b+c/d=&é"}


@pytest.mark.parametrize("token", [None, "tok/en+=="])
@pytest.mark.parametrize(
    ("method", "headers", "query"),
    [
        ("PUT", {"content-length": "5", "x-amz-checksum-sha256": "YWJj"}, {}),
        ("GET", {}, QUERY),
        ("GET", {}, {"list-type": "2", "prefix": "jobs/", "continuation-token": "a+/="}),
    ],
)
def test_signatures_are_those_of_the_reference(
    token: str | None, method: str, headers: dict[str, str], query: dict[str, str]
) -> None:
    by = Credentials(BY.access_key, BY.secret_key, token)
    reference = ReadOnlyCredentials(by.access_key, by.secret_key, token)
    url = "https://files.s3.eu-test-1.amazonaws.com/jobs/job_1/files/a%3D20b.txt/ab"
    wanted = Wanted(method, url, query, headers)
    with time_machine.travel(NOW, tick=False):
        request = AWSRequest(method, full_url(wanted), headers=dict(headers))
        S3SigV4QueryAuth(reference, "s3", REGION, expires=3_600).add_auth(request)
        in_header = AWSRequest(method, full_url(wanted), headers=dict(headers), data=b"body")
        S3SigV4Auth(reference, "s3", REGION).add_auth(in_header)
    ours = presigned(wanted, by, REGION, NOW_US, 3_600)
    assert _signature(ours) == _signature(request.url)
    assert sorted(urlsplit(ours).query.split("&")) == sorted(urlsplit(request.url).query.split("&"))
    said = signed_headers(wanted, hashlib.sha256(b"body").hexdigest(), by, REGION, NOW_US)
    assert said["authorization"] == in_header.headers["Authorization"]


def _signature(url: str) -> str:
    return url.partition("X-Amz-Signature=")[2]


def test_an_address_is_never_good_for_no_time_or_for_ever() -> None:
    wanted = Wanted("GET", "https://x.test/a", {}, {})
    for seconds in (0, -1, 604_801):
        with pytest.raises(ValueError, match="1 to 604800 seconds"):
            presigned(wanted, BY, REGION, NOW_US, seconds)
    assert BY.secret_key not in repr(BY)


def test_a_bucket_is_where_its_name_and_its_endpoint_say() -> None:
    assert Place("files", "", "eu-west-1").url == "https://files.s3.eu-west-1.amazonaws.com/"
    assert Place("my.files", "", "eu-west-1").url == "https://s3.eu-west-1.amazonaws.com/my.files/"
    assert Place("files", "", "cn-north-1").url == "https://files.s3.cn-north-1.amazonaws.com.cn/"
    assert Place("files", "p/", "x", "http://minio:9000/").url == "http://minio:9000/files/"


# ── credentials ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A process that nobody gave credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return monkeypatch


async def test_addresses_end_with_the_credentials_that_sign_them(bare: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    chain = Chain(clock)
    with pytest.raises(NoCredentialsError, match="AWS_ACCESS_KEY_ID"):
        chain.now()
    bare.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    bare.setenv("AWS_SECRET_ACCESS_KEY", "a/secret+key")
    assert Chain(clock).now() == BY
    bare.setenv("AWS_SESSION_TOKEN", "token")
    end = datetime.now(UTC) + timedelta(minutes=30)
    bare.setenv("AWS_CREDENTIAL_EXPIRATION", end.isoformat())
    bucket = Bucket(Place(BUCKET, "", REGION), clock, Chain(clock).now)
    by = await bucket.credentials()
    assert by.token == "token"
    assert by.until_us is not None
    assert abs(by.until_us / SECOND_US - end.timestamp()) < 5
    file = StoredFile("job_1", "/out/a", 1, "ab" * 32)
    hour_us = clock.now_us() + 3_600 * SECOND_US
    [url], until_us = await ArtifactBucket(bucket).download_urls([file], hour_us)
    assert until_us == by.until_us
    assert 1_700 < int(url.partition("X-Amz-Expires=")[2].partition("&")[0]) <= 1_800
    assert "X-Amz-Security-Token=token" in url


async def test_credentials_that_cannot_be_had_are_a_storage_that_does_not_serve(
    bare: pytest.MonkeyPatch,
) -> None:
    del bare
    clock = SystemClock()
    bucket = ArtifactBucket(Bucket(Place(BUCKET, "", REGION), clock, Chain(clock).now))
    with pytest.raises(JobRefused) as refused:
        await bucket.upload_url(StoredFile("job_1", "/out/a", 1, "ab" * 32), clock.now_us() + SECOND_US)
    assert (refused.value.code, refused.value.status) == ("storage_unavailable", 503)


# ── long lists ──────────────────────────────────────────────────────────────────────────────────


async def test_ten_thousand_files_are_listed_page_by_page() -> None:
    content, fake = b"same", FakeS3(page_keys=1_000)
    digest = hashlib.sha256(content)
    files = [StoredFile("job_1", f"/out/{n:05d} ü", len(content), digest.hexdigest()) for n in range(10_000)]
    checksum = base64.b64encode(digest.digest()).decode()
    fake.objects = {f"p/{key_of(f)}": Held(content, checksum) for f in files[:200]}
    fake.objects |= {f"p/{key_of(f)}": Held(b"shorter than it was", None) for f in files[200:]}
    fake.objects["p/jobs/job_10/files/not/mine"] = Held(b"", None)
    with serving(fake) as url:
        bucket = ArtifactBucket(Bucket(Place(BUCKET, "p/", REGION, url), SystemClock(), lambda: BY))
        found = [part async for part in bucket.arrivals("job_1", files)]
        assert sorted((f for part in found for f in part.good), key=lambda f: f.path) == files[:200]
        left_out = [name for part in found for name, _ in part.left_out]
        assert len(left_out) == 9_800
        assert len([line for line in fake.asked if line == f"GET /{BUCKET}/"]) == 10
        fake.asked.clear()
        urls, _ = await bucket.download_urls(files, SystemClock().now_us() + 3_600 * SECOND_US)
        assert len(set(urls)) == 10_000
        assert not fake.asked, "addresses are made without asking"


async def test_a_bucket_that_is_not_there_is_told_and_a_short_page_is_not_the_end() -> None:
    fake = FakeS3(page_keys=1)
    fake.objects = {f"jobs/job_1/{n}": Held(b"", None) for n in range(3)}
    with serving(fake) as url:
        wrong = Bucket(Place("other", "", REGION, url), SystemClock(), lambda: BY)
        with pytest.raises(JobRefused, match="bucket does not exist"):
            _ = [part async for part in ArtifactBucket(wrong).arrivals("job_1", [])]
        right = Bucket(Place(BUCKET, "", REGION, url), SystemClock(), lambda: BY)
        [part] = [part async for part in ArtifactBucket(right).arrivals("job_1", [])]
        assert len(part.left_out) == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"<html></html>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult>&a;</ListBucketResult>',
        b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        b"<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
        b"<a>" * 20,
    ],
)
def test_an_answer_that_is_no_list_is_never_an_empty_one(answer: bytes) -> None:
    with pytest.raises(s3_xml.UnreadableError):
        s3_xml.page_of(answer)


# ── the end of their time ───────────────────────────────────────────────────────────────────────


@dataclass
class Following(FakeS3):
    """A bucket that lives in the test's time."""

    clock: ManualClock = field(default_factory=ManualClock)

    def now(self) -> datetime:
        return to_datetime(self.clock.now_us())


@dataclass
class Kept:
    """Jobs that are over, what they left, and the loop that removes it."""

    db: Database
    clock: ManualClock
    runner: Runner
    keeper: ArtifactFolder | ArtifactBucket
    bucket: Following | None

    async def settle(self) -> None:
        """Look at whatever is due, until nothing is."""
        while await self.runner.tick():
            await self.runner.drain()

    async def leaves(self, job_id: str, files: int, lines: int) -> None:
        """A job that ends now, with files and lines."""
        digest = hashlib.sha256(b"content").hexdigest()
        wanted = [StoredFile(job_id, f"/out/{n}", 7, digest) for n in range(files)]
        for file in wanted:
            if isinstance(self.keeper, ArtifactFolder):
                await self.keeper.put(file, _content())
            elif self.bucket is not None:
                self.bucket.objects[key_of(file)] = Held(b"content", None)
        now_us = self.clock.now_us()

        def write(tx: Tx) -> None:
            tx.connection.execute(sa.insert(jobs).values(**_row(job_id, now_us)))
            for file in wanted:
                tx.connection.execute(
                    sa.insert(artifacts).values(
                        job_id=job_id,
                        path=file.path,
                        size_bytes=7,
                        sha256=digest,
                        allowed_us=now_us,
                        stored_us=now_us,
                    )
                )
            first = tx.connection.execute(sa.select(sa.func.max(events.c.seq))).scalar() or 0
            rows = [
                {"seq": first + n, "at_us": now_us, "name": name, "task_id": task, "payload": "{}"}
                for n, (name, task) in enumerate(
                    [("node.console", f"run_{job_id}")] * lines
                    + [("task.done", f"run_{job_id}"), ("node.console", "another")],
                    1,
                )
            ]
            tx.connection.execute(sa.insert(events), rows)
            tx.touch(f"retention/{job_id}")

        await self.db.write(write)

    async def left(self, job_id: str) -> tuple[int, int, bool, int]:
        """How many files rows and the storage have, whether they are offered, and how many lines it has."""

        def read(connection: sa.Connection) -> tuple[int, bool, int]:
            count = sa.select(sa.func.count())
            files = connection.execute(count.where(artifacts.c.job_id == job_id)).scalar_one()
            offered = connection.execute(sa.select(jobs.c.manifest_us).where(jobs.c.id == job_id)).scalar()
            mine = (events.c.task_id == f"run_{job_id}", events.c.name == "node.console")
            return files, offered is not None, connection.execute(count.where(*mine)).scalar_one()

        files, offered, lines = await self.db.read(read)
        return files, self.stored(job_id), offered, lines

    def stored(self, job_id: str) -> int:
        """How many files of a job the storage has."""
        if self.bucket is not None:
            return len([key for key in self.bucket.objects if key.startswith(f"jobs/{job_id}/")])
        folder = self.folder / job_id
        return len(list(folder.iterdir())) if folder.exists() else 0

    folder: Path = Path()


def _row(job_id: str, now_us: int) -> dict[str, Any]:
    return {
        "id": job_id,
        "owner": "o",
        "key_id": "k",
        "backend": "local",
        "state": "succeeded",
        "sku": "cpu",
        "tier": "",
        "gpu_count": 0,
        "interruptible": False,
        "price_micro": 1,
        "machines": [],
        "spec": {},
        "labels": {},
        "max_runtime_seconds": 60,
        "run_task": f"run_{job_id}",
        "created_us": now_us,
        "finished_us": now_us,
        "settled_us": now_us,
        "manifest_us": now_us,
    }


async def _content() -> AsyncIterator[bytes]:
    yield b"content"


@pytest.fixture(params=["folder", "bucket"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    """What jobs left, in each storage."""
    clock = ManualClock()
    db = Database(empty(tmp_path / "sky.db"), clock, wakes.keys)
    db.start()
    with ExitStack() as stack:
        bucket = None
        if request.param == "bucket":
            bucket = Following(page_keys=100, clock=clock)
            url = stack.enter_context(serving(bucket))
            keeper = ArtifactBucket(Bucket(Place(BUCKET, "", REGION, url), clock, lambda: BY))
        else:
            keeper = ArtifactFolder(tmp_path / "artifacts")
            keeper.prepare()
        loop = Retention(db, clock, keeper, Terms())
        runner = Runner(db, clock, [loop], holder="test", hints=False)
        yield Kept(db, clock, runner, keeper, bucket, tmp_path / "artifacts")
    db.close()


DAY_S = DAY_US // SECOND_US


async def test_lines_go_after_seven_days_and_files_after_thirty(kept: Kept) -> None:
    lines = LINES_MAX + 7
    await kept.leaves("job_1", 230, lines)
    await kept.settle()
    assert await kept.left("job_1") == (230, 230, True, lines)
    kept.clock.advance(7 * DAY_S - 1)
    await kept.leaves("job_2", 1, 1)
    await kept.settle()
    assert await kept.left("job_1") == (230, 230, True, lines)
    kept.clock.advance(1)
    await kept.settle()
    assert await kept.left("job_1") == (230, 230, True, 0)
    others = sa.select(sa.func.count()).where(events.c.name != "node.console")
    assert await kept.db.read(lambda c: c.execute(others).scalar()) == 2, "only lines of jobs are dropped"
    another = sa.select(sa.func.count()).where(events.c.task_id == "another")
    assert await kept.db.read(lambda c: c.execute(another).scalar()) == 2
    kept.clock.advance(23 * DAY_S - 1)
    await kept.settle()
    assert await kept.left("job_1") == (230, 230, True, 0)
    kept.clock.advance(1)
    await kept.settle()
    assert await kept.left("job_1") == (0, 0, False, 0)
    assert await kept.left("job_2") == (1, 1, True, 0), "each job has its own time"
    assert await kept.runner.tick() == 0, "what is over is not looked at again"


async def test_files_are_no_longer_offered_before_the_first_is_removed(kept: Kept) -> None:
    await kept.leaves("job_1", 5, 0)
    await kept.settle()
    kept.clock.advance(30 * DAY_S)
    obstacle = kept.folder / "job_1" / "strange"
    if kept.bucket is not None:
        kept.bucket.fails = "SlowDown"
    else:
        obstacle.mkdir()
    await kept.settle()
    rows, there, offered, _ = await kept.left("job_1")
    assert (rows, offered) == (5, False), "what may still be there is still known"
    assert there
    if kept.bucket is not None:
        kept.bucket.fails = None
    else:
        obstacle.rmdir()
    assert await kept.runner.tick() == 0, "a storage that does not answer is left alone for a while"
    kept.clock.advance(300)
    await kept.settle()
    assert await kept.left("job_1") == (0, 0, False, 0)


async def test_files_that_are_anothers_to_remove_are_left_alone_for_hours(kept: Kept, tmp_path: Path) -> None:
    ours = OwnerOf(kept.db)
    place = MarkedFolder(tmp_path / "marked")
    before = Installation("ins_before", FIRST)
    await take_over(place, await place.read(), before, 1)
    keeper = Tenured(kept.keeper, Tenure(place, kept.clock, ours))
    loop = Retention(kept.db, kept.clock, keeper, Terms())
    own = replace(kept, runner=Runner(kept.db, kept.clock, [loop], holder="own", hints=False))
    await own.leaves("job_1", 5, 0)
    own.clock.advance(30 * DAY_S)
    await own.settle()
    assert await own.left("job_1") == (5, 5, False, 0)
    await take_over(place, await place.read(), await ours.who(), 2)
    own.clock.advance(round(NOT_OURS_S) - 1)
    assert await own.runner.tick() == 0, "many jobs do not ask a bucket all the time whose it is"
    own.clock.advance(1)
    await own.settle()
    assert await own.left("job_1") == (0, 0, False, 0)


async def test_a_job_that_is_not_over_keeps_what_it_has(kept: Kept) -> None:
    await kept.leaves("job_1", 2, 3)
    await kept.db.write(lambda tx: tx.connection.execute(sa.update(jobs).values(state="running")))
    kept.clock.advance(1_000 * DAY_S)
    await kept.settle()
    assert await kept.left("job_1") == (2, 2, True, 3)


def test_a_job_that_ended_has_its_time(shop: Shop, customer: Customer) -> None:
    job_id = customer.submit(body()).json()["id"]
    customer.ended(job_id)
    deadline = time.monotonic() + 40
    key = f"retention/{job_id}"
    ends = ("nothing of it is kept any more", "what it left has its time")
    while True:
        told = shop.http.get("/v1/loops", params={"key": key}).json()["items"]
        if any(one["key"] == key and one["decision"] in ends for one in told):
            break
        assert time.monotonic() < deadline, told
        time.sleep(0.1)


# ── settings ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("artifacts", "files"),
        ("artifacts", "s3://"),
        ("artifacts", "s3://Bad_Name"),
        ("artifacts", "s3://files/a/../b"),
        ("artifacts", "s3://files/a//b"),
        ("artifacts", "https://files"),
        ("blobs", "none"),
        ("blobs", "s3://files/.."),
        ("artifacts_endpoint", "minio:9000"),
        ("artifacts_endpoint", "http://minio/path"),
        ("artifacts_region", "eu west"),
        ("artifact_days", "0"),
        ("job_log_days", "x"),
    ],
)
def test_a_setting_that_is_wrong_is_named(name: str, value: str) -> None:
    with pytest.raises(settings.SettingsError, match=name):
        settings.load({name: value}, {})


def test_a_bucket_and_its_prefix() -> None:
    for given, wanted in {
        "s3://files": ("files", ""),
        "s3://files/": ("files", ""),
        "s3://files/a/b.c": ("files", "a/b.c/"),
        "s3://files/a/": ("files", "a/"),
    }.items():
        assert settings.load({"artifacts": given}, {}).bucket == wanted
    assert settings.load({}, {}).bucket is None
    assert settings.load({"artifacts": "none"}, {}).bucket is None


def test_a_daemon_without_a_bucket_does_not_load_what_buckets_need() -> None:
    script = "import sys, sky.server.daemon; print([m for m in sys.modules if m.startswith('boto')])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"
