"""The lines that the description of the interface gives as examples, typed as they stand there.

They are lines for HTTPie, so HTTPie runs them. Only the port, and the names of things, are those of a daemon
and of things that are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import urllib.request
from pathlib import Path
from typing import Any

import cloudpickle
import lz4.frame
from tests.interop.conftest import RUN_S, Library, Ran

Answer = tuple[int, dict[str, str], Any]


def http(library: Library, line: str, given: Path | None = None) -> Answer:
    """Status, headers (names in lower case) and JSON body of the answer to ``http`` and these words."""
    words = shlex.split(line.replace(":7590/", f":{library.url.rpartition(':')[2]}/"))
    if given is None:
        # Where there is no terminal, HTTPie would take its standard input for the body.
        ran = library.run("http", "--ignore-stdin", "--print=hb", *words)
    else:
        with given.open() as content:
            process = library.start("http", "--print=hb", *words, stdin=content)
            out, err = process.communicate(timeout=RUN_S)
            ran = Ran(process.returncode, out, err)
    assert ran.code == 0, ran.err
    head, _, body = ran.out.partition("\n\n")
    status, *lines = head.splitlines()
    headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
    return int(status.split()[1]), headers, json.loads(body) if body.strip() else None


def test_a_change_names_the_revision_that_it_expects(library: Library) -> None:
    spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 1, "min": 0, "max": 8}}
    spec_file = library.home / "spec.json"
    spec_file.write_text(json.dumps(spec))
    key = f"k-{os.getpid()}"
    create = f"POST :7590/v1/computes Idempotency-Key:{key} spec:=@spec.json"
    status, headers, made = http(library, create)
    assert (status, headers["etag"]) == (201, f'"{made["revision"]}"')
    status, headers, again = http(library, create)
    assert (again["id"], headers["idempotency-replayed"]) == (made["id"], "true")
    spec_file.write_text(json.dumps({**spec, "nodes": {"desired": 2}}))
    status, _, refused = http(library, create)
    assert (status, refused["code"], refused["retryable"]) == (409, "idempotency_conflict", False)

    status, headers, _ = http(library, f"GET :7590/v1/computes/{made['id']}")
    change = f"PATCH :7590/v1/computes/{made['id']} If-Match:'{headers['etag']}'"
    status, after, changed = http(library, change + """ nodes:='{"desired": 0, "min": 0, "max": 8}'""")
    assert (status, changed["spec"]["nodes"]["desired"]) == (200, 0)
    assert after["etag"] != headers["etag"]
    status, _, refused = http(library, change + """ nodes:='{"desired": 8}'""")
    assert (status, refused["code"], refused["retryable"]) == (412, "revision_conflict", True)
    assert refused["request_id"]
    assert headers["etag"].strip('"') in json.dumps(refused["details"])

    status, _, _ = http(library, f"DELETE :7590/v1/computes/{made['id']} If-Match:'{after['etag']}'")
    assert status in {200, 202}


def test_content_goes_by_its_hash_and_a_task_names_it(library: Library, own_compute: str) -> None:
    payload = library.home / "payload.bin"
    names: list[str] = []
    for value in (eval("lambda a, b: a * b"), ((6, 7), {})):
        content = lz4.frame.compress(cloudpickle.dumps(value))
        payload.write_bytes(content)
        names.append(hashlib.sha256(content).hexdigest())
        status, _, _ = http(library, f"PUT :7590/v1/blobs/{names[-1]}", payload)
        assert status == 201
    function, arguments = names
    status, _, known = http(library, f"PUT :7590/v1/functions/{function} codec=cloudpickle-lz4")
    assert (status, known["sha256"]) == (201, function)
    line = f"POST :7590/v1/tasks function={function} args_sha256={arguments} compute={own_compute}"
    status, _, task = http(library, line)
    assert (status, task["dispatch"], task["args_sha256"]) == (201, "one", arguments)
    for _ in range(2):  # reading a result twice does not use it up
        with urllib.request.urlopen(
            f"{library.url}/v1/tasks/{task['id']}/result?wait=40", timeout=50
        ) as answer:
            assert cloudpickle.loads(lz4.frame.decompress(answer.read())) == 42


def test_health_in_three_lines(library: Library) -> None:
    assert http(library, "GET :7590/v1/health/live")[2]["live"] is True
    assert http(library, "GET :7590/v1/health/ready")[2] == {"ready": True}
    assert set(http(library, "GET :7590/v1/health/dependencies")[2].values()) == {"ok"}


def test_the_stream_of_events_is_a_get(library: Library, own_compute: str) -> None:
    port = library.url.rpartition(":")[2]
    line = ("--ignore-stdin", "--stream", "GET", f":{port}/v1/events", f"compute=={own_compute}")
    process = library.start("http", *line)
    try:
        assert process.stdout is not None
        seen: list[str] = []
        for text in iter(process.stdout.readline, ""):
            seen.append(text.strip())
            if text.startswith("event: compute.ready"):
                break
        assert "event: compute.created" in seen
        first = next(one for one in seen if one.startswith("data: "))
        assert json.loads(first.removeprefix("data: "))["type"] == "compute.state"
    finally:
        process.kill()
        process.communicate()
