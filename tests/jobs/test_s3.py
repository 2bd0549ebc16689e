"""Files of jobs, over both storages: a folder of the daemon, and a bucket that checks every signature.

Decides: what an address allows and what becomes of what is put there, seen as a node and a customer see it.
Follows: what holds for one storage holds for the other, but where a test says otherwise.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.jobs.conftest import SETTINGS
from tests.jobs.s3_double import BUCKET, BUCKET_SETTINGS, CHECKSUM, FakeS3, Held, serving
from tests.jobs.shop import CATALOGUE, ROOT, Customer, Shop, body, refusal

import sky
from sky.server.keys import Keys

PREFIX = "made/here"
CONTENT = "content"
ENVIRONMENT = {
    "SKY_ARTIFACTS": f"s3://{BUCKET}/{PREFIX}",
    "SKY_BLOBS": f"s3://{BUCKET}/{CONTENT}",
    **BUCKET_SETTINGS,
}


@dataclass
class Stored:
    """A seller, where it keeps files (``bucket`` None: in a folder), and what a job of it shows."""

    shop: Shop
    keys: Keys
    bucket: FakeS3 | None = None
    url: str = ""
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def bucket_(self) -> FakeS3:
        """The bucket, of a seller that has one."""
        assert self.bucket is not None
        return self.bucket

    def job(self, mount: str = "/out") -> Node:
        """A job that is under way and has not written anything."""
        customer = self.shop.customer()
        made = customer.submit(
            body(
                spec__command=["sleep", "600"],
                spec__outputs=[{"mount": mount}],
                spec__max_runtime_seconds=900,  # the one that several tests share is to outlive them all
            )
        )
        assert made.status_code == 201, made.text
        return Node(self, customer, made.json()["id"])

    def key_of(self, job_id: str, name: str, content: bytes) -> str:
        """Where a file is in the bucket."""
        return f"{PREFIX}/jobs/{job_id}/files/{name}/{sha256(content)}"


@dataclass
class Node:
    """What the node of a job does for its files."""

    at: Stored
    customer: Customer
    job_id: str
    token: str = ""

    def ask(self, what: str, **more: Any) -> httpx2.Response:
        """One of the two things that a node asks."""
        token = self.token or self.at.keys.job_token(self.job_id)
        headers = {"authorization": f"Bearer {token}"}
        url = f"{ROOT}/internal/jobs/{self.job_id}/artifacts/{what}"
        return self.at.shop.http.post(url, headers=headers, **more)

    def wish(self, path: str, content: bytes, **other: Any) -> httpx2.Response:
        """Ask where a file may be put."""
        form = {"path": path, "size": str(len(content)), "sha256": sha256(content), **other}
        return self.ask("uploads", data=form)

    def address(self, path: str, content: bytes) -> tuple[str, str]:
        """Where it may be put, and its checksum."""
        answer = self.wish(path, content)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/plain")
        url, checksum = answer.text.removesuffix("\n").split(" ")
        assert answer.text == f"{url} {checksum}\n"
        return url, checksum

    def put(self, path: str, content: bytes) -> httpx2.Response:
        """Upload a file as a node does."""
        url, checksum = self.address(path, content)
        return self.at.shop.http.put(url, content=content, headers={CHECKSUM: checksum})

    def complete(self) -> dict[str, Any]:
        """Say that all is there."""
        answer = self.ask("complete")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def listed(self) -> dict[str, Any]:
        """The list of files as the customer sees it."""
        answer = self.customer("GET", f"/jobs/{self.job_id}/artifacts")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def files(self) -> dict[str, bytes]:
        """Every file of the list, fetched and held against it."""
        found: dict[str, bytes] = {}
        for one in self.listed()["data"]:
            answer = self.at.shop.http.get(one["url"])
            assert answer.status_code == 200, answer.text
            assert (len(answer.content), sha256(answer.content)) == (one["size"], one["sha256"])
            assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
            found[one["path"]] = answer.content
        return found

    def end(self) -> None:
        """The job is over."""
        assert self.customer("POST", f"/jobs/{self.job_id}/cancel").status_code == 202
        self.customer.ended(self.job_id)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="session")
def with_bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """A seller whose files go to a bucket, for the whole session."""
    home = tmp_path_factory.mktemp("bucket")
    (home / "catalogue.yaml").write_text(CATALOGUE)
    bucket, stack = FakeS3(), ExitStack()
    url = stack.enter_context(serving(bucket, free_port()))
    environment = {
        **SETTINGS,
        **ENVIRONMENT,
        "SKY_CATALOGUE": str(home / "catalogue.yaml"),
        "SKY_ARTIFACTS_ENDPOINT": url,
    }
    running = RunningDaemon(home, free_port(), environment=environment)
    running.start()
    yield Stored(Shop(running.url), Keys(home), bucket, url, stack)
    running.stop()
    stack.close()


@pytest.fixture(params=["folder", "bucket"])
def stored(request: pytest.FixtureRequest) -> Stored:
    """Each storage in turn."""
    if request.param == "bucket":
        return request.getfixturevalue("with_bucket")
    selling: RunningDaemon = request.getfixturevalue("selling")
    return Stored(request.getfixturevalue("shop"), Keys(selling.home))


# ── both ────────────────────────────────────────────────────────────────────────────────────────


def test_a_jobs_own_files_are_kept_listed_and_had(stored: Stored) -> None:
    customer = stored.shop.customer()
    script = (
        "mkdir -p /out/deep; printf one > /out/a.txt; : > /out/empty; printf 'b c' > '/out/deep/ä b+c%20.txt'"
    )
    request = body(
        spec__command=["bash", "-c", script], spec__outputs=[{"mount": "/out"}], spec__max_runtime_seconds=60
    )
    job_id = customer.submit(request).json()["id"]
    job = customer.ended(job_id)
    assert job["status"] == "succeeded", customer("GET", f"/jobs/{job_id}/logs").text
    node = Node(stored, customer, job_id)
    listed = node.listed()
    assert (listed["complete"], listed["truncated"]) == (True, False)
    assert node.files() == {"/out/a.txt": b"one", "/out/empty": b"", "/out/deep/ä b+c%20.txt": b"b c"}
    stranger = stored.shop.customer()
    refusal(stranger("GET", f"/jobs/{job_id}/artifacts"), "job_not_found", 404)


def test_bash_and_curl_are_enough(stored: Stored, tmp_path: Path) -> None:
    node = stored.job()
    (tmp_path / "some file").write_bytes(b"x" * 100_000)
    (tmp_path / "none").touch()
    script = """
    set -euo pipefail
    for file in "some file" none; do
        read -r url checksum < <(curl -sSf -H "Authorization: Bearer $TOKEN" "$API/uploads" \\
            --data-urlencode "path=/out/$file" --data-urlencode "size=$(stat -c %s "$file")" \\
            --data-urlencode "sha256=$(sha256sum "$file" | cut -d' ' -f1)")
        curl -sSf -T "$file" -H "x-amz-checksum-sha256: $checksum" "$url"
    done
    curl -sSf -X POST -H "Authorization: Bearer $TOKEN" "$API/complete"
    """
    environment = {
        "PATH": os.environ["PATH"],
        "TOKEN": stored.keys.job_token(node.job_id),
        "API": f"{stored.shop.url}{ROOT}/internal/jobs/{node.job_id}/artifacts",
    }
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith('{"object":"compute.artifact_manifest","files":2,"truncated":false}')
    assert node.files() == {"/out/some file": b"x" * 100_000, "/out/none": b""}
    node.end()


def test_what_is_not_as_it_was_announced_is_refused(stored: Stored) -> None:
    node = stored.job()
    other = stored.job()
    http = stored.shop.http
    right = b"right content"
    url, checksum = node.address("/out/file", right)
    elsewhere, _ = node.address("/out/other", right)
    good = {CHECKSUM: checksum}
    parts = urlsplit(url)
    wrong = base64.b64encode(hashlib.sha256(b"x").digest()).decode()
    tries = {
        "other bytes": http.put(url, content=b"wrong content", headers=good),
        "other bytes, their checksum": http.put(url, content=b"x" * len(right), headers={CHECKSUM: wrong}),
        "shorter": http.put(url, content=right[:-1], headers=good),
        "longer": http.put(url, content=right + b"!", headers=good),
        "no checksum": http.put(url, content=right),
        "other method": http.post(url, content=right, headers=good),
        "read": http.get(url),
        "other path": http.put(
            parts._replace(path=parts.path[:-1] + ("a" if parts.path[-1] != "a" else "b")).geturl()
            if stored.bucket
            else url.replace(parts.path.split("/")[-2][:40], "A" * 40),
            content=right,
            headers=good,
        ),
        "signature of another": http.put(
            url[:-64] + elsewhere[-64:] if stored.bucket else url.replace(_sign(url), _sign(elsewhere)),
            content=right,
            headers=good,
        ),
        "token of another job": Node(stored, node.customer, node.job_id, _token(other)).wish("/out/a", b"a"),
        "no token": Node(stored, node.customer, node.job_id, "x").wish("/out/a", b"a"),
        "a customer's key": Node(stored, node.customer, node.job_id, node.customer.key).wish("/out/a", b"a"),
    }
    assert {name: answer.status_code for name, answer in tries.items() if answer.status_code < 400} == {}
    assert node.complete()["files"] == 0
    assert node.listed() == {"object": "list", "data": [], "complete": True, "truncated": False}
    assert http.put(url, content=right, headers=good).status_code == 200, "the address itself is still good"
    assert node.complete()["files"] == 1
    assert node.files() == {"/out/file": right}
    node.end()
    other.end()


def _sign(url: str) -> str:
    return urlsplit(url).path.split("/")[-2].partition(".")[2]


def _token(node: Node) -> str:
    return node.at.keys.job_token(node.job_id)


def test_a_file_is_written_once(stored: Stored) -> None:
    node = stored.job()
    http = stored.shop.http
    early, early_sum = node.address("/out/file", b"first try")  # and never came
    url, checksum = node.address("/out/file", b"second try")
    assert http.put(url, content=b"second try", headers={CHECKSUM: checksum}).status_code == 200
    http.put(early, content=b"first try", headers={CHECKSUM: early_sum})
    refusal(node.wish("/out/file", b"before the end"), "upload_conflict", 409)
    assert node.complete()["files"] == 1
    assert node.files() == {"/out/file": b"second try"}, "the last word before it arrived"
    again = http.put(url, content=b"second try", headers={CHECKSUM: checksum})
    if stored.bucket is None:
        refusal(again, "upload_conflict", 409)
    http.put(url, content=b"SECOND TRY", headers={CHECKSUM: checksum})
    http.put(early, content=b"first try", headers={CHECKSUM: early_sum})
    refusal(node.wish("/out/file", b"a third content"), "upload_conflict", 409)
    assert node.wish("/out/file", b"second try").status_code == 200, "a node may have missed an answer"
    assert node.complete()["files"] == 1
    assert node.files() == {"/out/file": b"second try"}
    node.end()


def test_what_a_command_uploaded_by_itself_stays_as_it_was(stored: Stored) -> None:
    customer = stored.shop.customer()
    script = """
    printf before > $UNIFY_COMPUTE_ROOT/out/file
    sum=$(sha256sum $UNIFY_COMPUTE_ROOT/out/file); sum=${sum%% *}
    read -r place checksum < <(curl -sS -H "Authorization: Bearer $UNIFY_COMPUTE_ARTIFACTS_TOKEN" \\
        -d path=/out/file -d size=6 -d sha256="$sum" "$UNIFY_COMPUTE_ARTIFACTS_URL/uploads")
    curl -sS -f -T "$UNIFY_COMPUTE_ROOT/out/file" -H "x-amz-checksum-sha256: $checksum" "$place"
    printf after > $UNIFY_COMPUTE_ROOT/out/file
    """
    request = body(spec__command=["bash", "-ec", script], spec__outputs=[{"mount": "/out"}])
    job_id = customer.submit(request).json()["id"]
    job = customer.ended(job_id)
    assert job["status"] == "succeeded", customer("GET", f"/jobs/{job_id}/logs").text
    assert Node(stored, customer, job_id).files() == {"/out/file": b"before"}


NAMES = [
    "a b",
    "a+b",
    "a%20b",
    "%2e%2e",
    "..%2f..%2fetc",
    "...",
    "a=20b",
    "tilde~(1)'!*;&?#",
    "é",
    "e\u0301",
    "日本語.txt",
    "line\nbreak",
    'quote"\\',
    "_manifest.json",
    "d/" * 100 + "deep",
    "n" * 255,
    "ü" * 120 + "/" + "ü" * 120,
]


def test_names_are_kept_as_they_are_and_never_meet(stored: Stored) -> None:
    node = stored.job()
    wanted = {f"/out/{name}": f"content of {name}".encode() for name in NAMES}
    for path, content in wanted.items():
        answer = node.put(path, content)
        assert answer.status_code == 200, (path, answer.text)
    assert node.complete()["files"] == len(wanted)
    assert node.files() == wanted
    if stored.bucket is not None:
        keys = [key for key in list(stored.bucket.objects) if node.job_id in key]
        assert len(keys) == len(wanted) + 1
        for key in keys:
            assert key.startswith(f"{PREFIX}/jobs/{node.job_id}/")
            assert all(part.strip(".") for part in key.split("/")), key
            assert key.isascii()
            assert len(key) <= 1_024
    node.end()


@pytest.mark.parametrize(
    "path",
    [
        "/out/../etc/passwd",
        "/out/./a",
        "/out//a",
        "/out",
        "/out/",
        "out/a",
        "/output/a",
        "/etc/passwd",
        "/out/a\0b",
        "",
        "/out/" + "x" * 1_024,
    ],
)
def test_a_path_outside_of_the_mounts_is_refused(with_bucket: Stored, shared: Node, path: str) -> None:
    del with_bucket
    assert refusal(shared.wish(path, b"x"), "invalid_path", 400)["param"] == "path"


@pytest.fixture(scope="module")
def shared(with_bucket: Stored) -> Iterator[Node]:
    """A job that stays."""
    node = with_bucket.job()
    yield node
    node.end()


def test_a_job_that_is_over_takes_no_more_files(stored: Stored) -> None:
    node = stored.job()
    node.put("/out/file", b"content")
    node.end()
    refusal(node.wish("/out/more", b"x"), "job_terminal", 409)
    refusal(node.ask("complete"), "job_terminal", 409)
    assert node.listed() == {"object": "list", "data": [], "complete": False, "truncated": False}


# ── a bucket ────────────────────────────────────────────────────────────────────────────────────


def test_an_address_binds_its_headers_and_an_hour_at_most(with_bucket: Stored, shared: Node) -> None:
    url, checksum = shared.address("/out/bound", b"bound")
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    assert query["X-Amz-SignedHeaders"] == "content-length;host;x-amz-checksum-sha256"
    assert 3_590 <= int(query["X-Amz-Expires"]) <= 3_600
    assert base64.b64decode(checksum).hex() == sha256(b"bound")
    key = with_bucket.key_of(shared.job_id, "out/bound", b"bound")
    assert urlsplit(url).path == f"/{BUCKET}/{key}"
    http = with_bucket.shop.http
    longer = url.replace("X-Amz-Expires=3", "X-Amz-Expires=9")
    for changed in (longer, url + "&versionId=1", url.replace("&X-Amz-Expires", "&x=1&X-Amz-Expires")):
        answer = http.put(changed, content=b"bound", headers={CHECKSUM: checksum})
        assert (answer.status_code, "SignatureDoesNotMatch" in answer.text) == (403, True)
    more = {CHECKSUM: checksum, "x-amz-acl": "public-read"}
    assert "not signed" in http.put(url, content=b"bound", headers=more).text
    assert key not in with_bucket.bucket_.objects
    once = {CHECKSUM: checksum, "if-none-match": "*"}
    assert [http.put(url, content=b"bound", headers=once).status_code for _ in range(2)] == [200, 412]


def test_an_address_that_is_over_is_worthless(with_bucket: Stored) -> None:
    node = with_bucket.job()
    bucket = with_bucket.bucket_
    url, checksum = node.address("/out/late", b"late")
    node.put("/out/there", b"there")
    node.complete()
    [there] = node.listed()["data"]
    bucket.clock_ahead = timedelta(seconds=3_601)
    try:
        answer = with_bucket.shop.http.put(url, content=b"late", headers={CHECKSUM: checksum})
        assert (answer.status_code, "expired" in answer.text) == (403, True)
        assert "expired" in with_bucket.shop.http.get(there["url"]).text
    finally:
        bucket.clock_ahead = timedelta()
    assert with_bucket.shop.http.get(there["url"]).content == b"there"
    node.end()


@pytest.mark.parametrize("trouble", ["RequestTimeTooSkewed", "AccessDenied", "SlowDown", "down"])
def test_a_bucket_that_does_not_serve_loses_nothing(with_bucket: Stored, trouble: str) -> None:
    bucket, node = with_bucket.bucket_, with_bucket.job()
    assert node.put("/out/file", b"content").status_code == 200
    waiting = node.address("/out/second", b"second")
    if trouble == "down":
        with_bucket.stack.close()
    elif trouble == "RequestTimeTooSkewed":
        bucket.clock_ahead = timedelta(minutes=20)
    else:
        bucket.fails = trouble
    try:
        answer = node.ask("complete")
        error = refusal(answer, "storage_unavailable", 503)
        assert "nothing was lost" in error["message"]
        assert ("clock" in error["message"]) is (trouble == "RequestTimeTooSkewed")
        assert BUCKET not in error["message"], "what the operator set is not told to customers"
        assert int(answer.headers["retry-after"]) >= 1
        assert node.listed()["complete"] is False
        assert node.wish("/out/third", b"third").status_code == 200, "an address is made without the bucket"
        another = with_bucket.job()
    finally:
        bucket.fails, bucket.clock_ahead = None, timedelta()
        if trouble == "down":
            port = urlsplit(with_bucket.url).port or 0
            with_bucket.stack.enter_context(serving(bucket, port))
    url, checksum = waiting
    with_bucket.shop.http.put(url, content=b"second", headers={CHECKSUM: checksum})
    assert node.complete()["files"] == 2
    assert node.files() == {"/out/file": b"content", "/out/second": b"second"}
    node.end()
    another.end()


@pytest.mark.parametrize("checksums", [True, False], ids=["with checksums", "without"])
def test_what_the_bucket_holds_otherwise_is_left_out_and_told(with_bucket: Stored, checksums: bool) -> None:
    bucket, node = with_bucket.bucket_, with_bucket.job()
    bucket.forgets_checksums = not checksums
    try:
        for name in ("good", "tampered", "longer", "vanished"):
            assert node.put(f"/out/{name}", name.encode()).status_code == 200
        node.address("/out/never", b"never")
        with_bucket.shop.http.put(*node.address("/out/gone", b"gone")[:1])
        prefix = f"{PREFIX}/jobs/{node.job_id}"
        put = {
            name: with_bucket.key_of(node.job_id, f"out/{name}", name.encode())
            for name in ("tampered", "longer", "vanished")
        }
        tampered = base64.b64encode(hashlib.sha256(b"TAMPERED").digest()).decode()
        bucket.objects[put["tampered"]] = Held(b"TAMPERED", tampered if checksums else None)
        bucket.objects[put["longer"]] = Held(b"longer than it was", None)
        del bucket.objects[put["vanished"]]
        bucket.objects[f"{prefix}/strange"] = Held(b"strange", None)
        assert node.complete() == {"object": "compute.artifact_manifest", "files": 1, "truncated": False}
    finally:
        bucket.forgets_checksums = False
    assert node.files() == {"/out/good": b"good"}
    manifest = json.loads(bucket.objects[f"{prefix}/_manifest.json"].content)
    assert [(f["path"], f["size"], f["sha256"]) for f in manifest["files"]] == [
        ("/out/good", 4, sha256(b"good"))
    ]
    assert f"{PREFIX}/{manifest['files'][0]['key']}" in bucket.objects
    reasons = {one["name"]: one["reason"] for one in manifest["left_out"]}
    assert "hashes to" in reasons["/out/tampered"]
    assert "18 bytes; 6 were announced" in reasons["/out/longer"]
    for name in ("vanished", "never", "gone"):
        assert "never arrived" in reasons[f"/out/{name}"]
    assert f"jobs/{node.job_id}/strange" in reasons
    assert manifest["left_out_count"] == len(reasons) == 6
    assert node.put("/out/vanished", b"vanished").status_code == 200
    assert node.complete()["files"] == 2, "said again, the list is made anew"
    node.end()


def test_outputs_that_did_not_reach_the_bucket_whole_fail_the_job(with_bucket: Stored) -> None:
    customer = with_bucket.shop.customer()
    script = "echo good > /out/good; echo spoiled > /out/spoiled"
    request = body(spec__command=["bash", "-c", script], spec__outputs=[{"mount": "/out"}])
    with_bucket.bucket_.spoils = "spoiled"
    try:
        job_id = customer.submit(request).json()["id"]
        job = customer.ended(job_id)
    finally:
        with_bucket.bucket_.spoils = None
    assert (job["status"], job["error"]["code"]) == ("failed", "upload_failed")
    told = customer("GET", f"/jobs/{job_id}/logs").text
    assert "1 of its files did not reach the storage as they were" in told
    assert Node(with_bucket, customer, job_id).files() == {"/out/good": b"good\n"}


def test_what_a_bucket_says_is_not_repeated_in_a_jobs_log(with_bucket: Stored) -> None:
    customer = with_bucket.shop.customer()
    request = body(spec__command=["sh", "-c", "echo x > /out/x"], spec__outputs=[{"mount": "/out"}])
    bucket = with_bucket.bucket_
    known = bucket.keys.pop("AKIDEXAMPLE")
    bucket.keys["AKIDEXAMPLE"] = ("another secret", None)
    try:
        job_id = customer.submit(request).json()["id"]
        deadline = time.monotonic() + 60
        while "storage answered" not in (told := customer("GET", f"/jobs/{job_id}/logs").text):
            assert time.monotonic() < deadline, told
            time.sleep(0.1)
    finally:
        bucket.keys["AKIDEXAMPLE"] = known
    assert "the storage answered 403 SignatureDoesNotMatch" in told
    assert "X-Amz" not in told
    assert customer.ended(job_id)["error"]["code"] == "upload_failed"


# ── content ─────────────────────────────────────────────────────────────────────────────────────


@sky.function
def _doubled(content: bytes) -> bytes:
    return content + content


def test_large_arguments_and_results_of_calls_are_in_the_bucket(with_bucket: Stored) -> None:
    bucket, content = with_bucket.bucket_, os.urandom(400_000)
    with sky.Compute(nodes=1, url=with_bucket.shop.url, quiet=True) as compute:
        assert _doubled(content) >> compute == content + content
        kept = [held for key, held in list(bucket.objects.items()) if key.startswith(f"{CONTENT}/blobs/")]
        assert any(400_000 < len(held.content) < 500_000 for held in kept)
        assert any(len(held.content) > 800_000 for held in kept)
        bucket.fails = "SlowDown"
        try:
            with ThreadPoolExecutor(1) as pool:
                asked = len(bucket.asked)
                call = pool.submit(lambda: _doubled(content[1:]) >> compute)
                deadline = time.monotonic() + 40
                while len(bucket.asked) < asked + 2:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                bucket.fails = None
                assert call.result(60) == content[1:] + content[1:], "it was tried again until it was there"
        finally:
            bucket.fails = None


def test_without_storage_outputs_are_refused_and_everything_else_works(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("none")
    (home / "catalogue.yaml").write_text(CATALOGUE)
    given = {**SETTINGS, "SKY_CATALOGUE": str(home / "catalogue.yaml"), "SKY_ARTIFACTS": "none"}
    running = RunningDaemon(home, free_port(), environment=given)
    running.start()
    try:
        customer = Shop(running.url).customer()
        refusal(customer.submit(body(spec__outputs=[{"mount": "/out"}])), "outputs_unsupported", 501)
        job_id = customer.submit().json()["id"]
        refusal(customer("GET", f"/jobs/{job_id}/artifacts"), "not_implemented", 501)
        assert customer.ended(job_id)["status"] == "succeeded"
    finally:
        running.stop()
