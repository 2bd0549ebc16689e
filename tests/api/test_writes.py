"""Writes that are repeated, that race, and that name what they change.

Decides: what a client may rely on when answers are lost and others write too.
Never: looks at the database, but where it stands for another daemon that writes there.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import pytest
from tests.databases import IN_A_FILE
from tests.proof import record


def test_the_same_request_under_a_key_is_answered_as_the_first_time(
    api: Any, tools: Any, fresh_name: str
) -> None:
    body = {"spec": tools.idle_spec(), "name": fresh_name}
    first = api("POST", "/v1/computes", body, idempotency_key=fresh_name)
    again = api("POST", "/v1/computes", body, idempotency_key=fresh_name)
    assert (first.status, again.status) == (201, 200)
    assert again.json["id"] == first.json["id"]
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert first.headers["location"] == again.headers["location"] == f"/v1/computes/{first.json['id']}"
    assert api("GET", first.headers["location"]).status == 200
    other = {"spec": tools.idle_spec(ttl=5), "name": fresh_name}
    api("POST", "/v1/computes", other, idempotency_key=fresh_name).error(409, "idempotency_conflict")
    api.delete(first.json["id"])


@IN_A_FILE
def test_a_key_is_kept_for_seven_days(api: Any, tools: Any, daemon: Any, fresh_name: str) -> None:
    body = {"spec": tools.idle_spec()}
    first = api("POST", "/v1/computes", body, idempotency_key=fresh_name)

    def older(hours: int) -> None:
        with closing(sqlite3.connect(daemon.home / "sky.db", timeout=60)) as other:
            past = (hours * 3_600_000_000, f"%{fresh_name}")
            changed = other.execute(
                "UPDATE idempotency SET created_us = created_us - ? WHERE key LIKE ?", past
            )
            assert changed.rowcount == 1
            other.commit()

    older(7 * 24 - 1)
    again = api("POST", "/v1/computes", body, idempotency_key=fresh_name)
    assert (again.status, again.json["id"]) == (200, first.json["id"])
    older(2)
    anew = api("POST", "/v1/computes", body, idempotency_key=fresh_name)
    assert anew.status == 201
    assert anew.json["id"] != first.json["id"]
    for made in (first, anew):
        api.delete(made.json["id"])


def test_keys_of_different_operations_do_not_meet(api: Any, tools: Any, idle: Any, fresh_name: str) -> None:
    api("POST", "/v1/computes", {"spec": tools.idle_spec()}, idempotency_key=fresh_name)
    answer = api("DELETE", f"/v1/computes/{idle['id']}", idempotency_key=fresh_name, if_match="*")
    assert answer.status == 202


def test_a_refused_request_leaves_its_key_free(api: Any, tools: Any, fresh_name: str) -> None:
    wrong = {"spec": tools.idle_spec(specs=[{"provider": {"kind": "nowhere"}}])}
    api("POST", "/v1/computes", wrong, idempotency_key=fresh_name).error(422, "unsupported_provider")
    right = api("POST", "/v1/computes", {"spec": tools.idle_spec()}, idempotency_key=fresh_name)
    assert right.status == 201
    api.delete(right.json["id"])


def test_twenty_at_once_under_one_key_have_one_effect(api: Any, tools: Any, fresh_name: str) -> None:
    body = {"spec": tools.idle_spec(), "name": fresh_name}

    def send(_: int) -> Any:
        return api("POST", "/v1/computes", body, idempotency_key=fresh_name)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(send, range(20)))
    assert sorted(a.status for a in answers) == [200] * 19 + [201]
    assert len({a.json["id"] for a in answers}) == 1
    record(requests=len(answers), computes=1)
    api.delete(answers[0].json["id"])


def test_twenty_at_once_without_a_key_leave_one_with_the_name(api: Any, tools: Any, fresh_name: str) -> None:
    def send(_: int) -> Any:
        return api("POST", "/v1/computes", {"spec": tools.idle_spec(), "name": fresh_name})

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(send, range(20)))
    made = [a for a in answers if a.status == 201]
    assert len(made) == 1
    for answer in answers:
        if answer is not made[0]:
            assert answer.error(409, "name_taken")["details"]["compute"] == made[0].json["id"]
    api.delete(made[0].json["id"])


def test_a_name_whose_machines_are_given_back_is_told_to_come_again(
    api: Any, tools: Any, fresh_name: str
) -> None:
    first = api.create(tools.local_spec(nodes={"desired": 1}), fresh_name)
    path = f"/v1/computes/{first['id']}"
    tools.until(lambda: api("GET", path).json["status"]["state"] == "ready", "it was ready")
    [node] = api("GET", f"{path}/nodes").json["items"]
    agent = node["provider_binding"]["pid"]
    os.kill(agent, signal.SIGSTOP)  # or it might be gone before anybody has asked again
    told: list[Any] = []

    def again() -> Any:
        told.append(api("POST", "/v1/computes", {"spec": tools.idle_spec(), "name": fresh_name}))
        return told[-1].json if told[-1].status == 201 else None

    try:
        assert api("DELETE", path, if_match="*").status == 202
        assert again() is None
    finally:
        with suppress(ProcessLookupError):
            os.kill(agent, signal.SIGCONT)
    made = tools.until(again, "the name was free")
    for answer in told[:-1]:
        error = answer.error(409, "release_pending")
        assert error["retryable"]
        assert error["details"] == {"name": fresh_name, "compute": first["id"]}
    api.delete(made["id"])


def test_a_name_is_free_again_after_the_deletion(api: Any, tools: Any, fresh_name: str) -> None:
    first = api.create(tools.idle_spec(), fresh_name)
    api.delete(first["id"])

    def again() -> Any:
        answer = api("POST", "/v1/computes", {"spec": tools.idle_spec(), "name": fresh_name})
        return answer if answer.status == 201 else None

    second = tools.until(again, "the name was free").json
    assert second["id"] != first["id"]
    assert api("GET", f"/v1/computes/{fresh_name}").json["id"] == second["id"]
    assert api("GET", f"/v1/computes/{first['id']}").json["status"]["state"] == "deleted"
    api.delete(second["id"])


def test_a_change_names_the_revision_it_expects(api: Any, idle: dict[str, Any]) -> None:
    path, body = f"/v1/computes/{idle['id']}", {"nodes": {"desired": 0, "min": 0, "max": 3}}
    tag = api("GET", path).headers["etag"]
    assert tag == f'"{idle["revision"]}"'
    missing = api("PATCH", path, body).error(428)
    assert missing["details"]["field"] == "If-Match"
    changed = api("PATCH", path, body, if_match=tag)
    assert changed.status == 200
    assert changed.json["spec"]["nodes"]["max"] == 3
    assert changed.headers["etag"] != tag
    stale = api("PATCH", path, body, if_match=tag).error(412)
    assert stale["retryable"] is True
    assert stale["details"]["if_match"] == tag.strip('"')
    assert api("PATCH", path, body, if_match="*").status == 200
    api("DELETE", path, if_match=tag).error(412)
    api("DELETE", path).error(428)


@pytest.mark.parametrize(
    "tag", ['W/"1"', "1", '"x"', '""', '"1", "2"', '"-1"', '"' + "9" * 40 + '"', "garbage"]
)
def test_an_if_match_that_is_none_is_refused(api: Any, idle: dict[str, Any], tag: str) -> None:
    body = {"nodes": {"desired": 0, "min": 0, "max": 3}}
    error = api("PATCH", f"/v1/computes/{idle['id']}", body, if_match=tag).error(400)
    assert error["details"]["field"] == "If-Match"


def test_what_loops_observe_never_makes_a_tag_stale(api: Any, ready: dict[str, Any]) -> None:
    path = f"/v1/computes/{ready['id']}"
    found = api("GET", path)
    assert found.json["status"]["nodes_ready"] == 2
    answer = api("PATCH", path, {"nodes": {"desired": 2}}, if_match='"1"')
    assert answer.status == 200


def test_one_of_many_writers_wins_each_revision(api: Any, idle: dict[str, Any]) -> None:
    path, tag = f"/v1/computes/{idle['id']}", api("GET", f"/v1/computes/{idle['id']}").headers["etag"]

    def send(high: int) -> int:
        return api("PATCH", path, {"nodes": {"desired": 0, "min": 0, "max": high}}, if_match=tag).status

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(send, range(1, 9)))
    assert sorted(statuses) == [200] + [412] * 7


def test_a_lease_has_one_holder(api: Any, idle: dict[str, Any]) -> None:
    path = f"/v1/computes/{idle['id']}/lease"
    mine = api("PUT", path, {"owner": "me", "ttl_seconds": 60})
    assert (mine.status, mine.json["owner"]) == (200, "me")
    held = api("PUT", path, {"owner": "you", "ttl_seconds": 60}).error(409, "lease_held")
    assert held["retryable"] is True
    assert api("PUT", path, {"owner": "me", "ttl_seconds": 90}).json["expires_at"] > mine.json["expires_at"]
    assert idle["id"] in [c["id"] for c in api("GET", "/v1/computes?owned=true&limit=500").json["items"]]
    api("DELETE", f"{path}?owner=you").error(409, "lease_held")
    assert api("DELETE", path).status == 204
    assert api("DELETE", path).status == 204
    assert idle["id"] in [c["id"] for c in api("GET", "/v1/computes?owned=false&limit=500").json["items"]]
    api("PUT", path, {"owner": "", "ttl_seconds": 60}).error(400)
    api("PUT", path, {"owner": "me", "ttl_seconds": 0}).error(400)


def test_a_generation_freezes_the_spec(api: Any, idle: dict[str, Any]) -> None:
    path = f"/v1/computes/{idle['id']}/generations"
    assert api("POST", path, {}).error(428)["details"]["field"] == "If-Match"
    api("POST", path, {}, if_match='"999"').error(412)
    made = api("POST", path, {}, if_match="*")
    assert (made.status, made.json["number"]) == (202, 2)
    assert api("GET", made.headers["location"]).json["hash"] == made.json["hash"]
    assert [g["number"] for g in api("GET", path).json["items"]] == [2, 1]
    api("POST", path, {"source": 9}, if_match="*").error(404)
    api("POST", path, {}).error(428)


def test_a_provider_comes_and_goes(api: Any, tools: Any, fresh_name: str) -> None:
    body = {"kind": "local", "name": fresh_name}
    made = api("POST", "/v1/providers", body, idempotency_key=fresh_name)
    assert made.status == 201
    assert api("POST", "/v1/providers", body, idempotency_key=fresh_name).status == 200
    api("POST", "/v1/providers", body).error(409, "name_taken")
    offers = api("GET", f"/v1/offers?provider={fresh_name}&refresh=true").json["items"]
    assert {offer["provider_name"] for offer in offers} == {fresh_name}
    user = api.create(tools.idle_spec(specs=[{"provider": {"kind": fresh_name}}]))
    api("DELETE", f"/v1/providers/{fresh_name}").error(409, "provider_in_use")
    api.delete(user["id"])

    def gone() -> bool:
        return api("DELETE", f"/v1/providers/{fresh_name}").status == 204

    tools.until(gone, "the provider was removed")
    api("GET", f"/v1/providers/{fresh_name}").error(404)


@IN_A_FILE
def test_who_comes_second_is_told_to_come_again(api: Any, tools: Any, idle: Any, daemon: Any) -> None:
    function, arguments = tools.packed(print), tools.packed(((), {}))
    api("PUT", f"/v1/functions/{tools.sha256(function)}", function, content_type="application/octet-stream")
    api("PUT", f"/v1/blobs/{tools.sha256(arguments)}", arguments, content_type="application/octet-stream")
    names = {"function": tools.sha256(function), "args_sha256": tools.sha256(arguments)}
    task = api("POST", "/v1/tasks", {"compute": idle["id"], **names}).json["id"]
    with closing(sqlite3.connect(daemon.home / "sky.db", timeout=60, isolation_level=None)) as other:
        # As when another daemon writes the row between our reading and our writing of it.
        other.execute(
            f"CREATE TRIGGER earlier BEFORE UPDATE ON tasks WHEN NEW.id = '{task}' "
            "BEGIN SELECT RAISE(IGNORE); END"
        )
        try:
            refused = api("DELETE", f"/v1/tasks/{task}")
        finally:
            other.execute("DROP TRIGGER earlier")
    assert refused.error(503, "busy")["retryable"] is True
    assert refused.headers["retry-after"] == "1"
    assert api("GET", f"/v1/tasks/{task}").json["state"] == "queued"
    assert api("DELETE", f"/v1/tasks/{task}").json["state"] == "cancelled"
