"""What is too large, too long or too many for a request: refused by name, before anything is asked for."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from tests.conftest import RunningDaemon
from tests.requests.test_requests import Api


@pytest.fixture
def api(daemon: RunningDaemon) -> Api:
    return Api(daemon.url)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/job_status", {"cluster_name": "c", "job_ids": [2**63]}, "job_ids[0]"),
        ("/job_status", {"cluster_name": "c", "job_ids": [1] * 1_001}, "job_ids"),
        ("/cancel", {"cluster_name": "c", "job_ids": [2**70]}, "job_ids[0]"),
        ("/logs", {"cluster_name": "c", "job_id": 2**63}, "job_id"),
        ("/logs", {"cluster_name": "c", "tail": 2**63}, "tail"),
        ("/logs?after=9223372036854775808", {"cluster_name": "c"}, "after"),
        ("/download_logs", {"cluster_name": "c", "job_ids": [2**63]}, "job_ids[0]"),
        ("/down", {"cluster_name": "c" * 65}, "cluster_name"),
        ("/status", {"cluster_names": ["c" * 65]}, "cluster_names[0]"),
        ("/status", {"cluster_names": ["c"] * 1_001}, "cluster_names"),
        ("/check", {"infra_list": ["x"] * 1_001}, "infra_list"),
        ("/stop", {"cluster_name": "c", "graceful": True, "graceful_timeout": 2**60}, "graceful_timeout"),
        ("/api/cancel", {"request_ids": [""]}, "request_ids[0]"),
        ("/api/cancel", {"request_ids": ["abcd"] * 501}, "request_ids"),
    ],
)
def test_what_is_beyond_any_use_is_refused_by_name(
    api: Api, path: str, body: dict[str, Any], field: str
) -> None:
    answer = api.http.post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), answer.text
    assert answer.json()["details"]["field"] == field


def test_a_reader_cannot_go_on_behind_every_place(api: Api) -> None:
    record = api.ask("status")
    query = {"request_id": record["request_id"], "after": 2**63}
    answer = api.http.get("/api/stream", params=query)
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "after")
    last = api.http.get("/api/stream", params={**query, "after": 2**63 - 1})
    assert last.json()["end"]["status"] == "SUCCEEDED"


def test_a_script_that_no_shell_can_be_given_fails_with_the_reason(api: Api) -> None:
    cluster = f"c-{secrets.token_hex(4)}"
    task = {"run": "echo \0", "machines": [{"infra": "local"}]}
    api.do("launch", cluster_name=cluster, task=task)
    _, end = api.logs(cluster)
    [job] = api.do("queue", cluster_name=cluster)
    api.do("down", cluster_name=cluster)
    assert (end["end"], job["exit_codes"]) == ("FAILED", [126])
    assert "bash cannot be started: embedded null byte" in job["error"]
