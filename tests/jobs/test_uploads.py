"""What jobs are given and what they leave: inputs over https, and outputs of every kind of file."""

from __future__ import annotations

import hashlib
import heapq
import os
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.conftest import Boxed
from tests.jobs.secure import CONTENT
from tests.jobs.shop import Customer, body
from tests.jobs.test_containers import inside, log, submitted

from sky.agent import job_upload
from sky.agent.job_node import JobNode
from sky.wire.steps import Order


def here(script: str, **more: Any) -> dict[str, Any]:
    """A job that runs a script as a process of its node."""
    return body(spec__command=["bash", "-c", script], **more)


def artifacts(customer: Customer, job_id: str) -> dict[str, dict[str, Any]]:
    """A job's files, by path; each is what its hash says."""
    listed = customer("GET", f"/jobs/{job_id}/artifacts").json()
    assert listed["complete"]
    return {file["path"]: file for file in listed["data"]}


def content(customer: Customer, file: dict[str, Any]) -> bytes:
    answer = customer.http.get(file["url"])
    assert answer.status_code == 200
    assert hashlib.sha256(answer.content).hexdigest() == file["sha256"]
    assert len(answer.content) == file["size"]
    rest = customer.http.get(file["url"], headers={"range": "bytes=1-"})
    if file["size"] > 1:
        assert (rest.status_code, rest.content) == (206, answer.content[1:])
        assert rest.headers["content-range"] == f"bytes 1-{file['size'] - 1}/{file['size']}"
    return answer.content


# ── inputs ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("boxed_in", [True, False], ids=["container", "process"])
def test_inputs_are_there_and_outputs_are_kept(boxed: Boxed, boxed_in: bool) -> None:
    customer = boxed.shop.customer()
    script = (
        'cat /in/words.txt /in/deep/"two words.txt" > /out/text && mkdir -p /out/a/b && echo x > /out/a/b/c'
    )
    spec = {
        "spec__inputs": [
            {"source": f"{boxed.inputs}/words.txt?signature=not-to-be-shown", "mount": "/in"},
            {"source": f"{boxed.inputs}/two%20words.txt", "mount": "/in/deep/"},
            {"source": f"{boxed.inputs}/moved.txt", "mount": "/elsewhere/in"},
        ],
        "spec__outputs": [{"mount": "/out"}, {"mount": "/out/a"}, {"mount": "/never/written"}],
    }
    job_id = submitted(customer, inside(boxed, script, **spec) if boxed_in else here(script, **spec))
    job = customer.ended(job_id)
    text = log(customer, job_id)
    assert job["status"] == "succeeded", text
    assert "signature" not in text
    assert f"words.txt has {len(CONTENT)} bytes" in text
    files = artifacts(customer, job_id)
    assert set(files) == {"/out/text", "/out/a/b/c"}
    assert content(customer, files["/out/text"]) == CONTENT * 2
    for place in ("/in", "/out", "/elsewhere", "/never"):
        assert not Path(place).exists(), "a job changes nothing of its machine"


def test_an_input_that_cannot_be_had_is_named_and_costs_nothing(boxed: Boxed) -> None:
    customer = boxed.shop.customer()
    wanted = {
        "absent.txt": "404",
        "forbidden.txt": "403",
        "plain.txt": "not https",
        "ring.txt": "address to address",
        "short.txt": "broke off",
    }

    def source(name: str) -> dict[str, Any]:
        return {"spec__inputs": [{"source": f"{boxed.inputs}/{name}?key=hidden-value", "mount": "/in"}]}

    jobs = {name: submitted(customer, here("true", **source(name))) for name in wanted}
    for name, words in wanted.items():
        job = customer.ended(jobs[name])
        assert (job["status"], job["error"]["code"]) == ("failed", "input_unavailable")
        assert f"{boxed.inputs}/{name}" in job["error"]["message"]
        assert words in job["error"]["message"]
        assert "hidden-value" not in str(job["error"]) + log(customer, jobs[name])
        assert job["usage"]["settled_cost_usd"] == "0.000000"


def test_an_input_at_no_public_address_is_not_asked_for(customer: Customer) -> None:
    names = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "169.254.169.254": "169.254.169.254"}
    jobs = {
        name: submitted(
            customer, here("true", spec__inputs=[{"source": f"https://{name}:9/x", "mount": "/in"}])
        )
        for name in names
    }
    for name, address in names.items():
        job = customer.ended(jobs[name])
        assert job["error"]["code"] == "input_unavailable"
        assert "no public address" in job["error"]["message"]
        assert address in job["error"]["message"]


# ── outputs ─────────────────────────────────────────────────────────────────────────────────────

ODD = r"""
cd /out; echo plain > plain; : > empty; echo s > 'a b;$(x)&é'; echo h > .hidden
mkdir -p deep/er; echo d > deep/er/file; chmod 0 deep/er/file
ln -s /etc/passwd link; ln -s / root; ln plain hard; mkfifo pipe; ln -s plain near
printf x > "$(printf 'not\377utf')"
"""


def test_every_regular_file_is_kept_and_nothing_else(boxed: Boxed) -> None:
    customer = boxed.shop.customer()
    outputs = {"spec__outputs": [{"mount": "/out"}]}
    jobs = [
        submitted(customer, inside(boxed, f"{ODD}exit 3", **outputs)),
        submitted(customer, here(f"{ODD}rm not*", **outputs)),
        submitted(customer, here("echo x > /out/x; rm -r /out/x; exit 0", **outputs)),
    ]
    first, second, third = [customer.ended(job_id) for job_id in jobs]
    assert (first["status"], first["error"]["code"]) == ("failed", "command_failed"), "its own failure counts"
    assert second["status"] == third["status"] == "succeeded", (second["error"], log(customer, jobs[1]))
    kept = {"plain", "empty", "a b;$(x)&é", ".hidden", "deep/er/file", "hard"}
    for job_id in jobs[:2]:
        files = artifacts(customer, job_id)
        assert set(files) == {f"/out/{name}" for name in kept}
        assert content(customer, files["/out/plain"]) == content(customer, files["/out/hard"]) == b"plain\n"
    assert r"not\udcffutf is not kept: its name is not UTF-8" in log(customer, jobs[0])
    assert artifacts(customer, jobs[2]) == {}


def test_a_file_that_cannot_be_kept_fails_the_job_and_is_named(boxed: Boxed) -> None:
    customer = boxed.shop.customer()
    job_id = submitted(
        customer,
        here(f"truncate -s {5 * 1024**3 + 1} /out/large; echo x > /out/x", spec__outputs=[{"mount": "/out"}]),
    )
    job = customer.ended(job_id)
    assert (job["status"], job["error"]["code"]) == ("failed", "upload_failed")
    assert "/out/large" in job["error"]["message"]
    assert set(artifacts(customer, job_id)) == {"/out/x"}
    boxed.shop.audit()


BY_HAND = r"""
set -eu
file=$UNIFY_COMPUTE_ROOT/out/early; echo from inside > "$file"
sum=$(sha256sum "$file"); sum=${sum%% *}
url=$UNIFY_COMPUTE_ARTIFACTS_URL
ask() { curl -sS -H "Authorization: Bearer $UNIFY_COMPUTE_ARTIFACTS_TOKEN" "$@"; }
wish() { ask -d path="$1" -d size="$2" -d sha256="$sum" "$url/uploads" "${@:3}"; }
read -r place checksum < <(wish /out/early 12)
curl -sS -f -o /dev/null -T "$file" -H "x-amz-checksum-sha256: $checksum" "$place"
curl -sS -o /dev/null -w 'again %{http_code}\n' -T "$file" -H "x-amz-checksum-sha256: $checksum" "$place"
for size in 5368709120 5368709121; do
  wish /out/x $size -o /dev/null -w "$size %{http_code}\n"
done
wish /etc/x 1 -o /dev/null -w 'outside %{http_code}\n'
ask -f -o /dev/null -X POST "$url/complete"
echo "mine is $UNIFY_COMPUTE_ARTIFACTS_TOKEN at $place and https://b.example/x?X-Amz-Signature=abcdef&a=1"
root=${url%/compute/*}
echo elsewhere $(ask -o /dev/null -w '%{http_code}' "$root/v1/computes" || echo none)
"""


@pytest.mark.parametrize("boxed_in", [True, False], ids=["container", "process"])
def test_a_command_uploads_with_bash_and_curl_alone(boxed: Boxed, boxed_in: bool) -> None:
    customer = boxed.shop.customer()
    spec: dict[str, Any] = {"spec__outputs": [{"mount": "/out"}]}
    if boxed_in:
        spec |= {"spec__command": ["bash", "-c", BY_HAND]}
    job_id = submitted(customer, inside(boxed, "", **spec) if boxed_in else here(BY_HAND, **spec))
    job = customer.ended(job_id)
    text = log(customer, job_id)
    assert job["status"] == "succeeded", text
    lines = text.splitlines()
    for line in ("again 409", "5368709120 200", "5368709121 413", "outside 400"):
        assert line in lines, text
    [mine] = [line for line in lines if line.startswith("mine is ")]
    hidden = "mine is *** at http://127.0.0.1:PORT/compute/v1/files/***/early and https://b.example/x?X-Amz-Signature=***&a=1"
    assert mine == hidden.replace("PORT", str(boxed.daemon.port)), "nobody can upload with what is in a log"
    if boxed_in:
        assert "elsewhere 404" in lines or "elsewhere 501" in lines, "the daemon's other faces are not there"
    [file] = artifacts(customer, job_id).values()
    assert content(customer, file) == b"from inside\n"


def test_many_files_are_kept_and_of_too_many_the_first(boxed: Boxed, tmp_path: Path) -> None:
    customer = boxed.shop.customer()
    count = 300
    job_id = submitted(
        customer,
        here(f"cd /out; for n in $(seq {count}); do echo $n > f$n; done", spec__outputs=[{"mount": "/out"}]),
    )
    assert customer.ended(job_id)["status"] == "succeeded"
    assert f"uploaded {count} file" in log(customer, job_id)
    node = JobNode(tmp_path, "node", "boot", "http://127.0.0.1:9", None)
    order = Order(
        job="job_x",
        image="local",
        command=("true",),
        env={},
        inputs=(),
        outputs=("/out", "/out/b"),
        max_runtime_seconds=1,
        cpus=1,
        memory_gb=1,
        gpu_count=0,
        upload_token="",
        host_allowed=True,
    )
    for folder in ("b", "a"):
        node.mounted(order, f"/out/{folder}").mkdir(parents=True)
        for number in range(job_upload.FILES_MAX // 2 + 10):
            os.close(os.open(node.mounted(order, f"/out/{folder}") / f"{number:05}", os.O_CREAT))
    found = heapq.nsmallest(job_upload.FILES_MAX + 1, job_upload.files(order, node))
    assert len(found) == job_upload.FILES_MAX + 1, "one more is asked for, so that the list says it is cut"
    assert found[0][0] == "/out/a/00000"
    assert found[-1][0] == "/out/b/04990"
