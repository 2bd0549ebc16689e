"""Archives of several users: whoever only knows the hash of somebody's files is not given them."""

from __future__ import annotations

import gzip
import hashlib
import secrets
from typing import Any

import httpx2
from tests.requests.remote import Reachable, finished

GZIP = {"content-type": "application/gzip"}


def upload(client: httpx2.Client, sha256: str, content: bytes) -> httpx2.Response:
    return client.post("/upload", params={"sha256": sha256}, content=content, headers=GZIP)


def asked_with(client: httpx2.Client, name: str, task: dict[str, Any]) -> Any:
    """The refusal of a request with this task."""
    body = {"tasks": [task]} if name == "validate" else {"task": task, "cluster_name": "bobs"}
    refused = client.post(f"/{name}", json=body)
    assert (refused.status_code, refused.json()["details"]["type"]) == (404, "InvalidTaskError"), refused.text
    return refused.json()


def test_a_hash_alone_does_not_give_the_files_of_others(reachable: Reachable) -> None:
    content = gzip.compress(b"files of ann " + secrets.token_bytes(16), mtime=0)
    sha256 = hashlib.sha256(content).hexdigest()
    ann = reachable.as_(reachable.made("ann-archives"))
    bob = reachable.as_(reachable.made("bob-archives"))
    assert upload(ann, sha256, content).json() == {"sha256": sha256}
    assert upload(ann, sha256, b"").json() == {"sha256": sha256}, "her own is not read again"

    task: dict[str, Any] = {"run": "true", "machines": [{"infra": "local"}]}
    for kind, more in (("files", {}), ("storages", {"name": "s"})):
        for name in ("launch", "exec", "validate"):
            told = [
                asked_with(bob, name, {**task, kind: [{"target": "x", "sha256": one, **more}]})
                for one in (sha256, "0" * 64)
            ]
            assert told[0]["details"]["field"] == f"{kind}[0]"
            assert told[0]["message"].replace(sha256, "") == told[1]["message"].replace("0" * 64, "")
    asked = upload(bob, sha256, b"")
    assert (asked.status_code, asked.json()["code"]) == (400, "hash_mismatch")

    assert upload(bob, sha256, content).status_code == 200
    own = {**task, "files": [{"target": "x", "sha256": sha256}]}
    assert finished(bob, "validate", tasks=[own])["status"] == "SUCCEEDED"
    assert finished(reachable.owner(), "validate", tasks=[own])["status"] == "SUCCEEDED"
