"""Every code of refusal is reached over HTTP by a test.

Decides: that no code is published that nobody has ever seen, and none is added without its test. The codes
that the other tests of this folder do not need are reached here. Never: counts a code that only a message
has. Follows: ``ELSEWHERE`` may only shrink.
"""

from __future__ import annotations

import ast
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.databases import IN_A_FILE
from tests.jobs.conftest import SETTINGS
from tests.jobs.shop import CATALOGUE, DEADLINE_S, ROOT, Customer, Shop, body, refusal

from sky.domain.job_errors import CODES
from sky.server.keys import Keys
from sky.wire.jobs import FILE_BYTES_MAX, FILES_MAX

HERE = Path(__file__).parent
A_SHA256 = "0" * 64
TEMPLATE = """
id: hello
title: Hello
description: Says so.
image: local
command: [echo, hello]
sku: cpu
max_runtime_seconds: 60
"""
MIB = 1024**2

# Codes that a test reaches without their name, and where.
ELSEWHERE = {
    "account_disabled": "test_console.py:test_an_account_that_may_not_spend_is_refused_everywhere",
}


@pytest.fixture
def node(selling: RunningDaemon, shop: Shop) -> Iterator[Node]:
    """The node of a job that is under way and has an output."""
    customer = shop.customer()
    wanted = body(
        spec__command=["sleep", "600"], spec__outputs=[{"mount": "/out"}], spec__max_runtime_seconds=900
    )
    made = customer.submit(wanted)
    yield Node(shop, Keys(selling.home), made.json()["id"])
    customer("POST", f"/jobs/{made.json()['id']}/cancel")


MANY_BYTES = "".join(chr(0x4E00 + number * 7_919 % 20_000) for number in range(1_020))
"""Each of three bytes in UTF-8, and none like the one before, so that nothing makes them shorter."""


class Node:
    """What a node asks for the files of its job."""

    def __init__(self, shop: Shop, keys: Keys, job_id: str) -> None:
        self.shop, self.keys, self.job_id = shop, keys, job_id

    def wish(self, token: str | None = None, **other: Any) -> httpx2.Response:
        """Ask where a file may be put."""
        bearer = self.keys.job_token(self.job_id) if token is None else token
        form = {"path": "/out/file", "size": "1", "sha256": A_SHA256, **other}
        return self.shop.http.post(
            f"{ROOT}/internal/jobs/{self.job_id}/artifacts/uploads",
            headers={"authorization": f"Bearer {bearer}"},
            data={name: value for name, value in form.items() if value is not None},
        )

    def send(self, form: bytes) -> httpx2.Response:
        """Ask so, as it stands."""
        return self.shop.http.post(
            f"{ROOT}/internal/jobs/{self.job_id}/artifacts/uploads",
            headers={
                "authorization": f"Bearer {self.keys.job_token(self.job_id)}",
                "content-type": "application/x-www-form-urlencoded",
            },
            content=form,
        )


@pytest.mark.parametrize(
    ("code", "status", "param", "wish"),
    [
        ("invalid_path", 400, "path", {"path": None}),
        ("invalid_path", 400, "path", {"path": "/out"}),
        ("invalid_path", 400, "path", {"path": "/outside/file"}),
        ("invalid_path", 400, "path", {"path": "/out/" + "x" * 1_020}),
        ("invalid_path", 400, "path", {"path": "/out/" + MANY_BYTES[:1_000]}),
        ("invalid_size", 400, "size", {"size": None}),
        ("invalid_size", 400, "size", {"size": "-1"}),
        ("invalid_size", 400, "size", {"size": "1e3"}),
        ("file_too_large", 413, "size", {"size": str(FILE_BYTES_MAX + 1)}),
        ("invalid_sha256", 400, "sha256", {"sha256": None}),
        ("invalid_sha256", 400, "sha256", {"sha256": "A" * 64}),
        ("invalid_upload_token", 401, None, {"token": "another"}),
    ],
)
def test_an_upload_that_cannot_be_is_refused_by_its_field(
    node: Node, code: str, status: int, param: str | None, wish: dict[str, Any]
) -> None:
    assert refusal(node.wish(**wish), code, status).get("param") == param
    assert node.wish(size=str(FILE_BYTES_MAX)).status_code == 200, "five gibibytes are not too many"


def test_the_longest_path_is_taken_in_any_script(node: Node) -> None:
    for path in ("/out/" + "x" * 1_019, "/out/" + MANY_BYTES[:681]):
        assert node.wish(path=path).status_code == 200, len(path.encode())


def test_a_path_that_is_no_text_is_refused_or_written_as_text(node: Node) -> None:
    form = b"size=1&sha256=" + A_SHA256.encode() + b"&path=%2Fout%2F%ED%A0%80%FF%00"
    assert node.send(form).status_code == 400
    assert node.send(form.removesuffix(b"%00")).status_code in (200, 400)


def test_a_job_without_outputs_uploads_nothing(
    selling: RunningDaemon, shop: Shop, customer: Customer
) -> None:
    job_id = customer.submit(body(spec__command=["sleep", "600"])).json()["id"]
    refusal(Node(shop, Keys(selling.home), job_id).wish(), "no_outputs", 400)
    assert customer("POST", f"/jobs/{job_id}/cancel").status_code == 202


def test_an_address_takes_what_was_announced_for_it(node: Node) -> None:
    url, checksum = node.wish().text.split()
    refusal(node.shop.http.put(url, content=b"1"), "invalid_sha256", 400)
    headers = {"x-amz-checksum-sha256": checksum}
    refusal(node.shop.http.put(url, content=b"12", headers=headers), "invalid_size", 400)
    refusal(node.shop.http.put(url, content=b"1", headers=headers), "invalid_sha256", 400)
    refusal(node.shop.http.get(url), "invalid_upload_token", 401)


def test_a_body_that_is_too_large_is_told(customer: Customer) -> None:
    refusal(customer.submit(body(metadata={"much": "x" * MIB})), "body_too_large", 413)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A seller whose database these tests may write to."""
    home = tmp_path_factory.mktemp("own")
    (home / "catalogue.yaml").write_text(CATALOGUE)
    (home / "templates").mkdir()
    (home / "templates" / "hello.yaml").write_text(TEMPLATE)
    files = {"SKY_CATALOGUE": str(home / "catalogue.yaml"), "SKY_TEMPLATES": str(home / "templates")}
    environment = {**SETTINGS, **files}
    running = RunningDaemon(home, free_port(), environment=environment)
    running.start()
    yield running
    running.stop()


def write(daemon: RunningDaemon, statement: str, rows: Sequence[tuple[Any, ...]] = ((),)) -> None:
    with closing(sqlite3.connect(daemon.home / "sky.db", timeout=20)) as database, database:
        database.executemany(statement, rows)


@IN_A_FILE
def test_one_file_more_than_are_kept_is_refused(own: RunningDaemon) -> None:
    shop = Shop(own.url)
    customer = shop.customer()
    job_id = customer.submit(body(spec__command=["sleep", "600"], spec__outputs=[{"mount": "/out"}])).json()[
        "id"
    ]
    node = Node(shop, Keys(own.home), job_id)
    assert node.wish(path="/out/first").status_code == 200
    columns = "job_id, path, size_bytes, sha256, allowed_us"
    rows = [(job_id, f"/out/{number}", 1, A_SHA256, 1) for number in range(FILES_MAX - 1)]
    write(own, f"INSERT INTO artifacts ({columns}) VALUES (?, ?, ?, ?, ?)", rows)
    refusal(node.wish(path="/out/one-more"), "too_many_files", 409)
    assert node.wish(path="/out/first").status_code == 200, "one of those that are kept"
    assert customer("POST", f"/jobs/{job_id}/cancel").status_code == 202
    customer.ended(job_id)


@IN_A_FILE
def test_a_token_is_good_for_the_longest_runtime_and_two_hours_from_the_start(own: RunningDaemon) -> None:
    shop = Shop(own.url)
    customer = shop.customer()
    runs_s = 900
    wanted = body(
        spec__command=["sleep", "600"], spec__outputs=[{"mount": "/out"}], spec__max_runtime_seconds=runs_s
    )
    job_id = customer.submit(wanted).json()["id"]
    customer.until(job_id, lambda job: job["status"] == "running")
    node, two_hours_us = Node(shop, Keys(own.home), job_id), 2 * 3_600 * 1_000_000
    write(own, "UPDATE jobs SET created_us = created_us - ? WHERE id = ?", [(5 * two_hours_us, job_id)])
    assert node.wish().status_code == 200, "it waited long for its machine"
    write(own, "UPDATE jobs SET started_us = started_us - ? WHERE id = ?", [(two_hours_us, job_id)])
    assert node.wish().status_code == 200, "it has its longest runtime beside"
    write(own, "UPDATE jobs SET started_us = started_us - ? WHERE id = ?", [(runs_s * 1_000_000, job_id)])
    refusal(node.wish(), "invalid_upload_token", 401)
    assert customer("POST", f"/jobs/{job_id}/cancel").status_code == 202


@IN_A_FILE
def test_a_failure_of_ours_has_the_one_shape_and_tells_nothing_of_the_inside(own: RunningDaemon) -> None:
    customer = Shop(own.url).customer()
    write(own, "ALTER TABLE job_events RENAME TO elsewhere")
    try:
        error = refusal(customer.submit(), "internal_error", 500)
    finally:
        write(own, "ALTER TABLE elsewhere RENAME TO job_events")
    assert error["type"] == "internal_error"
    assert "job_events" not in error["message"]
    assert "req_" in error["message"]
    assert customer("GET", "/jobs").json()["data"] == [], "nothing was submitted"
    assert customer("GET", "/balance").json()["held_usd"] == "0.000000", "and nothing is held"


@IN_A_FILE
def test_a_log_that_cannot_be_read_is_told_and_not_cut(own: RunningDaemon) -> None:
    customer = Shop(own.url).customer()
    job_id = customer.submit(body(spec__command=["echo", "hello"])).json()["id"]
    assert customer.ended(job_id)["status"] == "succeeded"
    of_job = "task_id IN (SELECT run_task FROM jobs WHERE id = ?) AND name = 'node.console'"
    write(own, f"UPDATE events SET payload = '?' || payload WHERE {of_job}", [(job_id,)])
    for query in ({}, {"follow": "true"}):
        answer = customer("GET", f"/jobs/{job_id}/logs", params=query)
        assert job_id in refusal(answer, "logs_unavailable", 503)["message"]
        assert answer.headers["retry-after"]
    write(own, f"UPDATE events SET payload = substr(payload, 2) WHERE {of_job}", [(job_id,)])
    assert customer("GET", f"/jobs/{job_id}/logs").text == "hello\n"
    write(own, "ALTER TABLE events RENAME TO elsewhere")
    try:
        refusal(customer("GET", f"/jobs/{job_id}/logs"), "logs_unavailable", 503)
    finally:
        write(own, "ALTER TABLE elsewhere RENAME TO events")


@IN_A_FILE
def test_a_key_whose_account_is_gone_opens_nothing(own: RunningDaemon) -> None:
    customer = Shop(own.url).customer()
    write(own, "UPDATE accounts SET id = 'gone' WHERE id = ?", [(customer.account,)])
    refusal(customer.submit(), "owner_unresolved", 500)
    refusal(customer("GET", "/jobs"), "owner_unresolved", 500)
    write(own, "UPDATE accounts SET id = ? WHERE id = 'gone'", [(customer.account,)])
    assert customer("GET", "/jobs").status_code == 200


@IN_A_FILE
@pytest.mark.parametrize(
    ("column", "kept"),
    [("limits", "{"), ("limits", '{"max_active_jobs": "many"}'), ("caps", '{"day_micro": "much"}')],
)
def test_limits_that_cannot_be_read_let_no_job_through(own: RunningDaemon, column: str, kept: str) -> None:
    customer = Shop(own.url).customer()
    write(own, f"UPDATE accounts SET {column} = ? WHERE id = ?", [(kept, customer.account)])
    refusal(customer.submit(), "quota_check_failed", 500)
    refusal(customer("POST", "/jobs:estimate", json=body()), "quota_check_failed", 500)
    assert customer("GET", "/jobs").json()["data"] == [], "nothing was submitted"
    write(own, f"UPDATE accounts SET {column} = NULL WHERE id = ?", [(customer.account,)])
    assert customer("GET", "/balance").json()["held_usd"] == "0.000000", "and nothing is held"


def put(file: Path, text: str) -> None:
    """Write a file so that nobody reads half of it."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


def test_a_template_whose_file_breaks_is_not_used_and_spoils_no_other(own: RunningDaemon) -> None:
    shop = Shop(own.url)
    customer, file = shop.customer(), own.home / "templates" / "hello.yaml"

    def submitted() -> httpx2.Response:
        return customer.submit({"template": "hello"})

    def until(status: int) -> httpx2.Response:
        deadline = time.monotonic() + DEADLINE_S
        while (answer := submitted()).status_code != status:
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.1)
        return answer

    assert submitted().status_code == 201
    put(file, TEMPLATE.replace("image:", "imagge:"))
    error = refusal(until(500), "template_resolution_failed", 500)
    assert (error["param"], "imagge" in error["message"]) == ("template", False)
    warned = shop.operate("GET", "/catalogue")["warnings"]
    assert any("hello.yaml:5: imagge: there is no such field" in text for text in warned)
    assert customer.submit({"template": "greet"}).status_code == 201
    put(file, TEMPLATE)
    until(201)


# ── all of them ─────────────────────────────────────────────────────────────────────────────────


def test_every_code_is_reached_by_a_test() -> None:
    named: set[str] = set()
    tests: set[str] = set()
    for path in sorted(HERE.glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tests |= {f"{path.name}:{n.name}" for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        lists = [n for n in tree.body if isinstance(n, ast.Assign) and path == Path(__file__)]
        skipped = {id(inner) for outer in lists for inner in ast.walk(outer)}
        named |= {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped
        }
    assert set(CODES) - named == {*ELSEWHERE}, "a code without a test, or one that has got its test"
    assert set(ELSEWHERE.values()) <= tests
