"""Buckets that settings name: tried before they are relied on, looked into before a backup is put back."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests import forked
from tests.databases import fresh
from tests.jobs.s3_double import BUCKET, BUCKET_SETTINGS, FakeS3, serving

from sky.kit import codec
from sky.kit.clock import SystemClock
from sky.reconcile import wakes
from sky.server import buckets, elsewhere, settings
from sky.store.blob_bucket import BlobBucket
from sky.store.blobs import Blobs
from sky.store.db import Database

LARGE = [bytes([number]) * 100_000 for number in range(3)]


@dataclass
class Installation:
    """A state folder, and the bucket that its settings name."""

    home: Path
    bucket: FakeS3
    environment: dict[str, str]

    def settings(self, **more: str) -> settings.Settings:
        """As its daemon would read them."""
        return settings.load({"home": str(self.home)}, {**self.environment, **more})

    def trouble(self, **more: str) -> buckets.Trouble | None:
        """What a trial of its bucket finds."""
        chosen = self.settings(**more)
        [one] = buckets.named(chosen)
        bucket = buckets.bucket_of(chosen, one.setting, one.where, SystemClock())
        return asyncio.run(buckets.tried(bucket, one))

    def run(self, module: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A module of this installation, as its operator has it run."""
        environment = {**os.environ, **self.environment, **more}
        home = ("--home", str(self.home))
        return forked.run(f"sky.server.{module}", *home, *words, environment=environment, timeout=60)

    async def keep(self, contents: list[bytes]) -> None:
        """Bring large content, as clients do."""
        chosen = self.settings()
        [one] = buckets.named(chosen)
        bucket = buckets.bucket_of(chosen, one.setting, one.where, SystemClock())
        db = Database(
            fresh(self.home / "sky.db", postgresql=False), SystemClock(), wakes.keys, threaded=False
        )
        blobs = Blobs(db, self.home / "blobs", bucket=BlobBucket(bucket))
        blobs.prepare()
        for content in contents:
            await blobs.put(codec.sha256_hex(content), _whole(content), limit_bytes=len(content))
        db.close()


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    """One with its keys, and an empty bucket."""
    bucket, home = FakeS3(page_keys=2), tmp_path / "home"
    home.mkdir(mode=0o700)
    for name in ("token", "secret"):
        (home / name).write_text("k" * 40)
    environment = {
        "SKY_BLOBS": f"s3://{BUCKET}/own",
        **BUCKET_SETTINGS,
    }
    with serving(bucket) as url:
        environment["SKY_ARTIFACTS_ENDPOINT"] = url
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield Installation(home, bucket, environment)


def test_a_trial_leaves_nothing_behind(there: Installation) -> None:
    assert there.trouble() is None
    asked = {line.partition(" ")[0] for line in there.bucket.asked}
    assert asked == {"PUT", "GET", "DELETE"}
    assert not there.bucket.objects


@pytest.mark.parametrize(
    ("method", "what"), [("PUT", "written to"), ("GET", "listed"), ("DELETE", "removed from")]
)
def test_a_right_that_is_missing_is_named(there: Installation, method: str, what: str) -> None:
    there.bucket.denies = method
    trouble = there.trouble()
    assert trouble is not None
    assert trouble.said.startswith(f"s3://{BUCKET}/own cannot be {what}: it answered 403 AccessDenied")
    assert "s3:DeleteObject" in trouble.mend
    assert all(key.partition("own/")[2] in trouble.said for key in there.bucket.objects), (
        "what is left is told"
    )


def test_a_trial_whose_upload_got_no_answer_is_removed_too(there: Installation) -> None:
    def breaks() -> None:
        raise ConnectionError("the line broke")

    there.bucket.took = breaks
    trouble = there.trouble()
    assert trouble is not None
    assert "cannot be written to: it cannot be reached" in trouble.said
    assert not there.bucket.objects


def test_what_else_is_wrong_comes_with_what_helps(
    there: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = there.trouble(SKY_BLOBS="s3://another-one")
    assert other is not None
    assert other.mend == "make the bucket another-one, or name another one in SKY_BLOBS"
    there.bucket.clock_ahead = timedelta(hours=1)
    late = there.trouble()
    assert late is not None
    assert "set-ntp" in late.mend
    there.bucket.clock_ahead = timedelta()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another/key")
    wrong = there.trouble()
    assert wrong is not None
    assert "set both anew" in wrong.mend
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    nobody = there.trouble()
    assert nobody is not None
    assert "AWS_ACCESS_KEY_ID" in nobody.mend
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a/secret+key")
    gone = there.trouble(SKY_ARTIFACTS_ENDPOINT="http://127.0.0.1:9")
    assert gone is not None
    assert "cannot be written to: it cannot be reached" in gone.said
    assert "SKY_ARTIFACTS_ENDPOINT" in gone.mend


def test_the_doctor_tries_the_bucket(there: Installation) -> None:
    there.bucket.denies = "DELETE"
    told = [json.loads(line) for line in there.run("doctor", PATH="/nowhere").stdout.splitlines()]
    [found] = [one for one in told if one["check"] == "bucket"]
    assert found["state"] == "bad"
    assert "cannot be removed from" in found["said"]


def test_a_backup_tells_what_is_in_the_bucket_and_is_put_back_only_where_that_is(
    there: Installation, tmp_path: Path
) -> None:
    asyncio.run(there.keep(LARGE))
    file = tmp_path / "backup.tar"
    made = there.run("upkeep", "backup", str(file))
    assert made.returncode == 0, made.stderr
    assert f"not in it: 3 pieces of large content (300000 bytes) in s3://{BUCKET}/own;" in made.stdout

    copy, places = f"sqlite:///{there.home / 'sky.db'}", elsewhere.of_settings(there.settings())
    elsewhere.look_for(copy, places, there.settings())
    with pytest.raises(elsewhere.LackingError, match=f"set SKY_BLOBS=s3://{BUCKET}/own"):
        elsewhere.look_for(copy, places, there.settings(SKY_BLOBS=""))
    there.bucket.fails = "AccessDenied"
    with pytest.raises(elsewhere.LackingError, match="403 AccessDenied"):
        elsewhere.look_for(copy, places, there.settings())
    there.bucket.fails = None

    again = Installation(tmp_path / "again", there.bucket, there.environment)
    lost, _ = there.bucket.objects.popitem()
    lacking = again.run("upkeep", "restore", str(file))
    assert lacking.returncode == 1
    assert f"1 of 3 pieces of large content are not in s3://{BUCKET}/own" in lacking.stderr
    assert lost.removeprefix("own/") in lacking.stderr
    assert not (again.home / "secret").exists()
    assert not (again.home / "sky.db").exists(), "nothing was put back"
    rest = again.run("upkeep", "restore", "--incomplete", str(file))
    assert rest.returncode == 0, rest.stderr
    assert lost.removeprefix("own/") in rest.stderr
    assert f"removes nothing in s3://{BUCKET}/own until `sky admin takeover`" in rest.stdout
    assert (again.home / "secret").exists()
