"""Two deployments and one bucket: a copy removes nothing there, however it came to be, until its operator
has it take the bucket over, after which the original does not.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests import commands
from tests.conftest import RunningDaemon, free_port
from tests.jobs.s3_double import BUCKET, BUCKET_SETTINGS, FakeS3, serving
from tests.waiting import until

from sky.client import calls, calls_admin
from sky.client.http import Http

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]
WAIT_S = 60.0
BYTES = {"Content-Type": "application/octet-stream"}
URL = f"s3://{BUCKET}/own"


@dataclass
class Deployments:
    """Daemons with the same settings, but for their folders."""

    bucket: FakeS3
    environment: dict[str, str]
    folder: Path
    started: list[RunningDaemon]

    def start(self, home: Path) -> RunningDaemon:
        home.mkdir(exist_ok=True, mode=0o700)
        running = RunningDaemon(home, free_port(), self.environment)
        running.start()
        self.started.append(running)
        return running

    def admin(self, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment, "SKY_HOME": str(home)}
        return commands.sky("admin", *words, environment=environment)

    def age(self) -> None:
        """Two hours pass for all that is in the bucket."""
        for held in self.bucket.objects.values():
            held.since -= timedelta(hours=2)

    def has(self, sha256: str) -> bool:
        return any(f"/{sha256}/" in key for key in self.bucket.objects)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Deployments]:
    """An empty bucket, and nobody who uses it yet."""
    bucket = FakeS3()
    environment = {
        "SKY_DATABASE": "",
        "SKY_BLOBS": URL,
        **BUCKET_SETTINGS,
    }
    started: list[RunningDaemon] = []
    with serving(bucket) as url:
        yield Deployments(bucket, {**environment, "SKY_ARTIFACTS_ENDPOINT": url}, tmp_path, started)
        for one in started:
            one.stop()


def put(daemon: RunningDaemon, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    request = urllib.request.Request(
        f"{daemon.url}/v1/blobs/{sha256}", data=content, headers=BYTES, method="PUT"
    )
    with urllib.request.urlopen(request, timeout=20):
        return sha256


def got(daemon: RunningDaemon, sha256: str) -> bytes:
    with urllib.request.urlopen(f"{daemon.url}/v1/blobs/{sha256}", timeout=20) as answer:
        return answer.read()


def said(daemon: RunningDaemon, key: str) -> str:
    """What a loop decided last about a key."""
    found = Http(daemon.url).send(calls.loops(key)).items
    return found[0].decision if found else ""


def collected(daemon: RunningDaemon, expected: Callable[[str], bool]) -> str:
    """Have files collected now; returns what was decided once it is what is expected."""
    Http(daemon.url).send(calls_admin.collect_garbage())
    return until(
        lambda: text if expected(text := said(daemon, "collect/files")) else "", "files collected", WAIT_S
    )


def is_kept(text: str) -> bool:
    return "it removes nothing there" in text


def test_a_restored_copy_removes_nothing_until_it_takes_the_bucket_over(there: Deployments) -> None:
    original = there.start(there.folder / "original")
    until(lambda: "own" in said(original, "storage/blob-bucket"), "the bucket is marked", WAIT_S)
    before = put(original, b"before" * 50_000)
    file = there.folder / "sky.tar"
    assert there.admin(original.home, "backup", str(file)).returncode == 0
    after = put(original, b"after" * 50_000)
    there.age()
    back = there.admin(there.folder / "copy", "restore", str(file), "-o", "json")
    assert back.returncode == 0, back.stderr
    mine = json.loads(back.stdout)["installation"]

    copy = there.start(there.folder / "copy")
    why = collected(copy, is_kept)
    assert f"{URL} is the installation ins_" in why
    assert f"this is {mine}, a restored one" in why
    assert is_kept(until(lambda: said(copy, "storage/blob-bucket"), "told why", WAIT_S))
    assert "is this installation's own" in until(lambda: said(copy, "storage/blobs"), "its folder", WAIT_S)
    assert there.has(after)
    assert got(original, after) == b"after" * 50_000
    assert got(copy, before) == b"before" * 50_000, "it reads"
    theirs = put(copy, b"theirs" * 50_000)  # and writes
    assert there.admin(copy.home, "gc", "--dry-run").returncode == 0
    look = subprocess.run(
        [sys.executable, "-m", "sky.server.doctor", "--home", str(copy.home)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        env={**os.environ, **there.environment},
    )
    found = [json.loads(line) for line in look.stdout.splitlines()]
    told = [one for one in found if one["check"] == "owner" and one["state"] == "warn"]
    assert [URL in one["said"] and "takeover" in one["mend"] for one in told] == [True]

    nobody = there.admin(copy.home, "takeover")
    assert nobody.returncode != 0
    assert "add --yes" in nobody.stderr
    tried = json.loads(there.admin(copy.home, "takeover", "--dry-run", "-o", "json").stdout)
    assert (tried["taken"], tried["dry_run"], tried["installation"]) == (1, True, mine)
    assert is_kept(collected(copy, is_kept)), "nothing was taken yet"
    taken = there.admin(copy.home, "takeover", "--yes", "-o", "json")
    assert taken.returncode == 0, taken.stderr
    assert [one["where"] for one in json.loads(taken.stdout)["places"] if one["taken"]] == [URL]

    there.age()
    kept = collected(original, is_kept)
    assert f"{URL} is the installation {mine}'s" in kept
    assert there.has(theirs), "the one before removes nothing there"
    collected(copy, lambda text: not there.has(after))
    assert got(copy, theirs) == b"theirs" * 50_000
    assert got(copy, before) == b"before" * 50_000


def test_a_copied_folder_is_another_installation_and_the_original_goes_on(there: Deployments) -> None:
    original = there.start(there.folder / "original")
    until(lambda: "own" in said(original, "storage/blob-bucket"), "the bucket is marked", WAIT_S)
    original.stop()
    shutil.copytree(original.home, there.folder / "copy")
    original.start()
    after, stray = put(original, b"after" * 50_000), hashlib.sha256(b"stray").hexdigest()
    there.age()
    copy = there.start(there.folder / "copy")
    assert "a copied one" in collected(copy, is_kept)
    assert "installation.copied" in (copy.home / "server.log").read_text(), "with the numbers that it goes by"
    [held] = [held for key, held in there.bucket.objects.items() if f"/{after}/" in key]
    there.bucket.objects[f"own/blobs/{stray}/0"] = held
    collected(original, lambda text: not there.has(stray))
    assert got(original, after) == b"after" * 50_000
