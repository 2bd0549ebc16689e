"""Requests that ask something: which machines, what is enabled, what it costs, where it is; and files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import secrets
import tarfile
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conftest import RunningDaemon
from tests.requests.test_requests import DEADLINE_S, Api

TEXT = "0123456789abcdef"


@pytest.fixture(scope="module")
def api(daemon: RunningDaemon) -> Api:
    return Api(daemon.url)


@pytest.fixture(scope="module")
def cluster(api: Api) -> Iterator[str]:
    """A cluster that is up, with open ports, on which one job has printed a lot."""
    name = f"q-{secrets.token_hex(4)}"
    task = {
        "name": "two words",
        "num_nodes": 2,
        "setup": "echo set $SKY_NODE_RANK",
        "run": f"for i in $(seq 2000); do echo {TEXT} $SKY_NODE_RANK $i; done",
        "machines": [{"cpus": 1, "ports": ["8080", "9000-9001"]}],
    }
    api.do("launch", task=task, cluster_name=name)
    assert api.logs(name)[1]["end"] == "SUCCEEDED"
    yield name
    api.do("down", cluster_name=name)


def one(api: Api, *machines: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What optimizing one task tells."""
    task: dict[str, Any] = {"run": "true", "num_nodes": 3}
    if machines:
        task["machines"] = list(machines)
    [told] = api.do("optimize", tasks=[task], **more)
    return told


def refused(api: Api, *machines: dict[str, Any]) -> dict[str, Any]:
    """Why a task has no machines: the same for a question, a check, a dry run and a launch."""
    task = {"run": "true", "machines": list(machines)}
    error = api.fails("optimize", tasks=[task])
    for name, body in (
        ("validate", {"tasks": [task]}),
        ("launch", {"task": task, "cluster_name": "never", "dryrun": True}),
        ("launch", {"task": task, "cluster_name": "never"}),
    ):
        again = api.fails(name, **body)
        assert (again["type"], again["message"]) == (error["type"], error["message"]), name
    assert api.do("status", cluster_names=["never"]) == []
    return error


# ── machines ────────────────────────────────────────────────────────────────────────────────────


def test_the_cheapest_of_the_smallest_is_chosen_and_the_strongest_where_time_counts(api: Api) -> None:
    told = one(api)
    chosen, candidates = told["chosen"], told["candidates"]
    assert candidates[0] == chosen
    assert [c["chosen"] for c in candidates] == [True] + [False] * (len(candidates) - 1)
    assert chosen["cpus"] == min(c["cpus"] for c in candidates)
    assert all(c["infra"] == "local" and c["region"] == "local" for c in candidates)
    fast = one(api, minimize="TIME")["chosen"]
    assert fast["cpus"] == max(c["cpus"] for c in candidates)


def test_what_is_asked_of_a_machine_is_kept_to_the_letter(api: Api) -> None:
    sizes = {c["instance_type"]: c["cpus"] for c in one(api)["candidates"]}
    name, cpus = max(sizes.items(), key=lambda size: size[1])
    assert [c["instance_type"] for c in one(api, {"instance_type": name})["candidates"]] == [name]
    exact = one(api, {"cpus": 1, "cpus_exact": True})
    assert {c["cpus"] for c in exact["candidates"]} == {1}
    reasons = {p["reason"] for p in one(api, {"cpus": cpus})["passed_over"]}
    assert reasons == {f"has {few} cpus, {cpus} wanted" for few in sizes.values() if few < cpus}


@pytest.mark.parametrize(
    ("machine", "kind", "words"),
    [
        ({"accelerator": "A1000"}, "ResourcesUnavailableError", "did you mean 'A100'?"),
        ({"accelerator": "H100"}, "ResourcesUnavailableError", "no provider of this server offers H100"),
        ({"infra": "gpc"}, "ResourcesUnavailableError", "did you mean 'gcp'?"),
        ({"infra": "gcp"}, "ResourcesUnavailableError", "not enabled on this server"),
        ({"cpus": 4096}, "ResourcesUnavailableError", "cpus, 4096 wanted"),
        ({"region": "mars"}, "ResourcesUnavailableError", "'mars' is neither a region nor"),
        ({"infra": "local", "region": "mars"}, "ResourcesUnavailableError", "known: local"),
        ({"instance_type": "local-77"}, "ResourcesUnavailableError", "is no local-77"),
        ({"use_spot": True}, "ResourcesUnavailableError", "is not sold in the wanted market"),
        ({"zone": "a"}, "NotSupportedError", "zone: 'a'"),
        (
            {"zone": "a", "disk_tier": "high"},
            "NotSupportedError",
            "no zones and no tiers of disks; leave them out",
        ),
        ({"image": "docker:x"}, "NotSupportedError", "image: 'docker:x'"),
        ({"labels": {"a": "b"}}, "NotSupportedError", "labels: 'a'"),
        ({"disk_tier": "ultra"}, "NotSupportedError", "disk_tier: 'ultra'"),
        ({"ports": ["99999"]}, "InvalidTaskError", "ports: '99999'"),
        ({"ports": ["90-80"]}, "InvalidTaskError", "ports: '90-80'"),
    ],
)
def test_what_cannot_be_had_is_told_by_its_name(
    api: Api, machine: dict[str, Any], kind: str, words: str
) -> None:
    error = refused(api, machine)
    assert error["type"] == kind
    assert words in error["message"]


def test_an_alternative_that_cannot_be_had_is_passed_over_with_its_reason(api: Api) -> None:
    told = one(api, {"infra": "gpc"}, {"accelerator": "H100"}, {"cpus": 1})
    assert told["chosen"]["infra"] == "local"
    why = {p["what"]: p["reason"] for p in told["passed_over"]}
    assert "gcp" in why["infra 'gpc'"]


def test_a_provider_may_be_named_behind_its_kind(api: Api) -> None:
    name = f"spare-{secrets.token_hex(4)}"
    added = api.http.post("/v1/providers", json={"name": name, "kind": "local", "config": {}})
    assert added.status_code == 201, added.text
    try:
        told = one(api, {"infra": "local", "region": name})
        assert {c["infra"] for c in told["candidates"]} == {name}
        told = one(api, {"infra": "local", "region": name, "zone": "local"})
        assert {(c["infra"], c["region"]) for c in told["candidates"]} == {(name, "local")}
        error = refused(api, {"infra": "local", "region": name[:-1]})
        assert f"did you mean {name!r}?" in error["message"]
        assert [row["name"] for row in api.do("check", infra_list=[f"local/{name}"])] == [name]
        assert len(api.do("check", infra_list=["local/local", f"local/{name}"])) == 2
        error = api.fails("check", infra_list=[f"local/{name[:-1]}"])
        assert (error["type"], f"did you mean {name!r}?" in error["message"]) == ("InvalidCloudError", True)
    finally:
        assert api.http.delete(f"/v1/providers/{name}").status_code < 300


def test_a_dry_run_shows_the_machines_and_does_nothing(api: Api) -> None:
    asked = api.ask("launch", task={"run": "true"}, cluster_name="dry", dryrun=True)
    record = api.get(asked["request_id"])
    assert record["result"] == {"job_id": None, "handle": None}
    told = api.http.get("/api/stream", params={"request_id": asked["request_id"]}).text.splitlines()
    lines = [json.loads(line).get("text", "") for line in told]
    assert any(line.startswith("INFRA") and line.endswith("CHOSEN") for line in lines)
    assert next(line for line in lines if line.endswith("*")).startswith("local")
    assert api.do("status", cluster_names=["dry"]) == []


def test_a_launch_takes_the_strongest_where_time_counts(api: Api) -> None:
    name = f"t-{secrets.token_hex(4)}"
    strongest = one(api, minimize="TIME")["chosen"]["instance_type"]
    api.do("launch", task={}, cluster_name=name, optimize_target="TIME")
    [record] = api.do("status", cluster_names=[name])
    assert record["instance_type"] == strongest
    api.do("down", cluster_name=name)


def test_a_task_without_its_files_is_refused_before_anything_is_bought(api: Api) -> None:
    nothing = "0" * 64
    for task in (
        {"run": "true", "files": [{"target": ".", "sha256": nothing}]},
        {"run": "true", "storages": [{"name": "s", "target": "/x", "sha256": nothing}]},
    ):
        error = api.fails("validate", tasks=[{"run": "true"}, task])
        assert (error["type"], error["details"]["sha256"]) == ("InvalidTaskError", nothing)
        assert api.fails("launch", task=task, cluster_name="never")["type"] == "InvalidTaskError"
    assert api.do("validate", tasks=[{"run": "true"}]) is None


# ── what there is ───────────────────────────────────────────────────────────────────────────────


def test_accelerators_are_listed_with_their_prices_and_the_month_of_those(api: Api) -> None:
    listed = api.do("list_accelerators", name_filter="^(H100|A100)$", all_regions=True)
    assert set(listed) == {"H100", "A100"}
    for name, rows in listed.items():
        assert rows == sorted(rows, key=lambda row: row["accelerator_count"])
        for row in rows:
            assert row["accelerator_name"] == name
            assert row["price"] > 0
            assert (row["source"], len(row["as_of"])) == ("list", 7)
    few = api.do("list_accelerators", clouds=["aws"], quantity_filter=8, name_filter="V100$")
    assert {row["cloud"] for row in few["V100"]} == {"aws"}
    assert {row["accelerator_count"] for row in few["V100"]} == {8}
    places = [(row["instance_type"], row["region"]) for row in few["V100"]]
    assert len({kind for kind, _ in places}) == len(places)
    west = api.do("list_accelerators", region_filter="west", name_filter="t4", case_sensitive=False)
    assert all("west" in row["region"] for row in west["T4"])
    assert api.do("list_accelerators", name_filter="t4") == {}


def test_counts_are_of_gpus_unless_all_are_wanted(api: Api) -> None:
    counts = api.do("list_accelerator_counts")
    assert counts["V100"] == sorted(set(counts["V100"]))
    assert not any(name.startswith("tpu") for name in counts)
    assert any(name.startswith("tpu") for name in api.do("list_accelerator_counts", gpus_only=False))


@pytest.mark.parametrize("pattern", ["(", "(a+)+$", "a*a*a*a*", r"(a)\1", "(?=a)", "[" * 200])
def test_a_filter_that_is_wrong_or_could_take_for_ever_is_refused(api: Api, pattern: str) -> None:
    began = time.monotonic()
    for field in ("name_filter", "region_filter"):
        error = api.fails("list_accelerators", **{field: pattern})
        assert error["type"] == "InvalidArgument"
        assert error["details"]["field"] == field
    assert time.monotonic() - began < 30


def test_a_cloud_that_is_not_known_is_told_with_the_nearest(api: Api) -> None:
    error = api.fails("list_accelerators", clouds=["asw"])
    assert error["type"] == "InvalidCloudError"
    assert "'aws'" in error["message"]
    error = api.fails("check", infra_list=["lcoal"])
    assert error["type"] == "InvalidCloudError"
    assert "'local'" in error["message"]


def test_check_tries_each_provider_and_says_what_to_do(api: Api) -> None:
    before = time.time()
    rows = {row["infra"]: row for row in api.do("check", infra_list=["local", "gcp", "ssh"], verbose=True)}
    local, gcp = rows["local"], rows["gcp"]
    assert (local["enabled"], local["reason"]) == (True, None)
    assert local["checked_at"] >= before - 1
    assert local["regions"] == ["local"]
    assert not gcp["enabled"]
    assert "no provider of that kind" in gcp["reason"]
    assert rows["ssh"]["hint"].startswith("`sky provider add NAME --hosts FILE` adds the machines ")
    assert "`--credential NAME=VALUE` gives it any of: private_key, " in rows["ssh"]["hint"]
    assert api.do("enabled_clouds") == ["local"]
    assert api.do("enabled_clouds", expand=True) == ["local/local"]
    told = api.http.get("/enabled_clouds", params={"expand": "true"}).json()
    assert told["record"]["result"] == ["local/local"]


def test_open_ports_are_told_and_no_others(api: Api, cluster: str) -> None:
    assert api.do("endpoints", cluster_name=cluster) == {
        str(port): f"127.0.0.1:{port}" for port in (8080, 9000, 9001)
    }
    assert api.do("endpoints", cluster_name=cluster, port="9001") == {"9001": "127.0.0.1:9001"}
    error = api.fails("endpoints", cluster_name=cluster, port="22")
    assert error["type"] == "PortNotOpenError"
    assert "8080, 9000, 9001" in error["message"]


def test_what_a_cluster_and_its_jobs_are_is_told_in_short_and_what_it_costs(api: Api, cluster: str) -> None:
    [record] = api.do("status", cluster_names=[cluster], refresh="FORCE")
    assert (record["status"], record["resources_str"], record["cost"]) == ("UP", "2x[CPU:1+]", 0)
    assert record["resources"]["machines"] == [{"cpus": 1, "ports": ["8080", "9000-9001"]}]
    [job] = api.do("queue", cluster_name=cluster)
    assert job["resources"] == "2x[CPU:1+]"
    assert job["submitted_at"] <= job["start_at"] <= job["end_at"]
    assert job["log_path"].endswith(f"{cluster}/1")
    [cost] = [row for row in api.do("cost_report") if row["name"] == cluster]
    assert cost["machine_seconds"] >= cost["duration"] >= 0
    [[since, until]] = cost["usage_intervals"]
    assert (until, cost["status"]) == (None, "UP")
    assert record["launched_at"] - 1 <= since <= time.time()


# ── files ───────────────────────────────────────────────────────────────────────────────────────


def packed(**files: str) -> tuple[str, bytes]:
    """Files as an archive, and its hash."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    content = gzip.compress(raw.getvalue(), mtime=0)
    return hashlib.sha256(content).hexdigest(), content


def upload(api: Api, sha256: str, content: bytes) -> Any:
    headers = {"content-type": "application/gzip"}
    return api.http.post("/upload", params={"sha256": sha256}, content=content, headers=headers)


def test_an_upload_is_taken_once_and_held_against_its_hash(api: Api) -> None:
    sha256, content = packed(a=secrets.token_hex(8))
    for _ in range(2):
        answer = upload(api, sha256, content)
        assert (answer.status_code, answer.json()) == (200, {"sha256": sha256})
    wrong = upload(api, "1" * 64, content)
    assert (wrong.status_code, wrong.json()["code"]) == (400, "hash_mismatch")
    assert api.http.get(f"/v1/blobs/{'1' * 64}").status_code == 404
    assert upload(api, "short", content).status_code == 400


def test_a_storage_is_kept_under_its_name_and_one_that_is_not_persistent_goes_with_its_cluster(
    api: Api, cluster: str
) -> None:
    mine, fleeting = f"s-{secrets.token_hex(4)}", f"f-{secrets.token_hex(4)}"
    sha256, content = packed(words="kept words")
    upload(api, sha256, content)
    other = f"o-{secrets.token_hex(4)}"
    uses = [
        {"name": mine, "target": "~/kept", "sha256": sha256},
        {"name": fleeting, "target": "~/gone", "sha256": sha256, "persistent": False},
    ]
    run = "cat ~/kept/words ~/gone/words; echo; sleep 600"
    api.do("launch", task={"run": run, "storages": uses}, cluster_name=other)
    there = {row["name"]: row for row in api.do("storage_ls")}
    assert (there[mine]["persistent"], there[mine]["in_use"]) == (True, True)
    assert (there[fleeting]["persistent"], there[fleeting]["sha256"]) == (False, sha256)
    error = _delete(api, mine)
    assert error["type"] == "StorageError"
    assert "under way" in error["message"]
    deadline = time.monotonic() + DEADLINE_S
    while "(task) kept wordskept words" not in api.logs(other, follow=False)[0]:
        assert time.monotonic() < deadline
    api.do("down", cluster_name=other)
    while fleeting in {row["name"] for row in api.do("storage_ls")}:
        assert time.monotonic() < deadline
    again = {"name": mine, "target": "kept"}
    told = api.do("exec", task={"run": "cat kept/words", "storages": [again]}, cluster_name=cluster)
    assert "(task) kept words" in api.logs(cluster, told["job_id"])[0]
    assert _delete(api, mine) is None
    missing = _delete(api, mine)
    assert (missing["type"], missing["details"]) == ("StorageNotFoundError", {"storage": mine})
    gone = api.fails("exec", task={"run": "true", "storages": [again]}, cluster_name=cluster)
    assert gone["type"] == "StorageNotFoundError"


def _delete(api: Api, name: str) -> Any:
    """What deleting a storage fails with; None: it does not."""
    answer = api.http.post("/storage_delete", json={"name": name}).json()
    return api.get(answer["request_id"])["error"]


def test_logs_come_as_an_archive_of_files(api: Api, cluster: str) -> None:
    answer = api.http.post("/download_logs", json={"cluster_name": cluster, "job_ids": [1]})
    assert answer.status_code == 200
    files: dict[str, list[str]] = {}
    with tarfile.open(fileobj=io.BytesIO(answer.content), mode="r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            files[member.name] = content.read().decode().splitlines()
    folder = "1-two_words"
    assert set(files) == {
        f"{folder}/run.log",
        *(f"{folder}/{kind}-{rank}.log" for kind in ("setup", "rank") for rank in range(2)),
    }
    for rank in range(2):
        assert files[f"{folder}/setup-{rank}.log"] == [f"set {rank}"]
        assert files[f"{folder}/rank-{rank}.log"] == [f"{TEXT} {rank} {i}" for i in range(1, 2001)]
    assert sorted(files[f"{folder}/run.log"]) == sorted(api.logs(cluster, 1)[0])
    for body, kind in (
        ({"cluster_name": cluster, "job_ids": [77]}, "JobNotFoundError"),
        ({"cluster_name": "nosuch"}, "ClusterDoesNotExist"),
    ):
        missing = api.http.post("/download_logs", json=body)
        assert (missing.status_code, missing.json()["details"]["type"]) == (404, kind)


def test_a_log_that_is_read_in_pieces_has_each_line_once(api: Api, cluster: str) -> None:
    whole, _ = api.logs(cluster, 1)
    seen: list[str] = []
    after = 0
    while True:
        body = {"cluster_name": cluster, "job_id": 1}
        with api.http.stream("POST", "/logs", params={"after": after}, json=body) as answer:
            for piece, line in enumerate(answer.iter_lines(), 1):
                told = json.loads(line)
                if "end" in told:
                    assert seen == whole
                    return
                after = told["place"]
                seen += told["text"].split("\n")
                if piece == 3:
                    break
    raise AssertionError(seen)


def test_the_log_of_what_is_not_there_is_told_by_the_name_of_the_error(api: Api, cluster: str) -> None:
    for body, kind in (
        ({"cluster_name": cluster, "job_id": 77}, "JobNotFoundError"),
        ({"cluster_name": "nosuch"}, "ClusterDoesNotExist"),
    ):
        answer = api.http.post("/logs", json=body)
        assert (answer.status_code, answer.json()["details"]["type"]) == (404, kind)
