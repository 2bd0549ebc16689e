"""What must be refused, and how: one object, the field, its value, and what would be right.

Decides: the table of wrong requests that the peers of this product accept or break on.
Never: looks at a row; a refusal that wrote something shows in the lists.
"""

from __future__ import annotations

from typing import Any

import pytest

HUGE = 10**30
MISSING = "0" * 64


def spec(**more: Any) -> dict[str, Any]:
    return {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 1}, **more}


def machine(**more: Any) -> dict[str, Any]:
    return {"provider": {"kind": "local"}, **more}


COMPUTES: dict[str, tuple[dict[str, Any], int, str | None]] = {
    "no spec": ({}, 400, "spec"),
    "nodes negative": ({"spec": spec(nodes={"desired": -1})}, 400, "spec.nodes.desired"),
    "nodes none by mistake": ({"spec": spec(nodes={"desired": 0})}, 400, None),
    "nodes absurd": ({"spec": spec(nodes={"desired": 10**9})}, 400, "spec.nodes.desired"),
    "nodes huge": ({"spec": spec(nodes={"desired": HUGE})}, 400, "spec.nodes.desired"),
    "nodes half": ({"spec": spec(nodes={"desired": 1.5})}, 400, "spec.nodes.desired"),
    "nodes true": ({"spec": spec(nodes={"desired": True})}, 400, "spec.nodes.desired"),
    "nodes text": ({"spec": spec(nodes={"desired": "2"})}, 400, "spec.nodes.desired"),
    "min over max": ({"spec": spec(nodes={"desired": 2, "min": 3, "max": 1})}, 400, None),
    "desired over max": ({"spec": spec(nodes={"desired": 5, "min": 1, "max": 2})}, 400, None),
    "no specs": ({"spec": spec(specs=[])}, 400, None),
    "unknown provider": ({"spec": spec(specs=[{"provider": {"kind": "nowhere"}}])}, 422, None),
    "unknown plugin": ({"spec": spec(plugins=[{"kind": "nothing"}])}, 422, None),
    "unknown field on top": ({"spec": spec(), "nme": "x"}, 400, "nme"),
    "unknown field in spec": ({"spec": spec(imge={})}, 400, "spec.imge"),
    "unknown field in image": ({"spec": spec(image={"pipp": []})}, 400, "spec.image.pipp"),
    "unknown field in a machine": ({"spec": spec(specs=[machine(gpu="A100")])}, 400, "spec.specs[0].gpu"),
    "second machine wrong": (
        {"spec": spec(specs=[machine(), machine(cpus=0)])},
        400,
        "spec.specs[1].cpus",
    ),
    "ttl negative": ({"spec": spec(ttl=-1)}, 400, "spec.ttl"),
    "cost negative": ({"spec": spec(specs=[machine(max_hourly_cost=-0.1)])}, 400, None),
    "timeout negative": ({"spec": spec(options={"provision_timeout": -1})}, 400, None),
    "retries negative": ({"spec": spec(retry={"safe_retries": -1})}, 400, "spec.retry.safe_retries"),
    "concurrency none": ({"spec": spec(worker={"concurrency": 0})}, 400, "spec.worker.concurrency"),
    "executor unknown": ({"spec": spec(worker={"executor": "fork"})}, 400, "spec.worker.executor"),
    "selection unknown": ({"spec": spec(selection="best")}, 400, "spec.selection"),
    "env not text": ({"spec": spec(image={"env": {"A": 1}})}, 400, None),
    "name empty": ({"spec": spec(), "name": ""}, 400, "name"),
    "name huge": ({"spec": spec(), "name": "x" * 10_000}, 400, "name"),
    "name with slash": ({"spec": spec(), "name": "a/b"}, 400, "name"),
    "name with newline": ({"spec": spec(), "name": "a\nb"}, 400, "name"),
    "name with newline at its end": ({"spec": spec(), "name": "ab\n"}, 400, "name"),
    "name with markup": ({"spec": spec(), "name": "<b>x</b>"}, 400, "name"),
    "name like an id": ({"spec": spec(), "name": "cmp_x"}, 400, None),
    "name a number": ({"spec": spec(), "name": 7}, 400, "name"),
    "credential by its name": (
        {"spec": spec(image={"env": {"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}})},
        422,
        None,
    ),
    "credential by its shape": (
        {"spec": spec(image={"env": {"SETTING": "ghp_" + "a1B2" * 9}})},
        422,
        None,
    ),
    "volumes on local": ({"spec": spec(volumes=[{"bucket": "b", "mount": "/m"}])}, 422, None),
}


@pytest.mark.parametrize("case", COMPUTES, ids=str)
def test_a_wrong_compute_is_refused_and_nothing_is_written(api: Any, case: str) -> None:
    body, status, field = COMPUTES[case]
    before = {c["id"] for c in api("GET", "/v1/computes?limit=500").json["items"]}
    error = api("POST", "/v1/computes", body).error(status)
    if field is not None:
        assert error["details"]["field"] == field
        assert field in error["message"]
        assert error["details"]["expected"]
    after = {c["id"] for c in api("GET", "/v1/computes?limit=500").json["items"]}
    assert after - before == set()


def test_what_a_text_has_to_be_is_said_in_words(api: Any, idle: dict[str, Any]) -> None:
    named = api("POST", "/v1/computes", {"spec": spec(), "name": "a/b"}).error(400)
    assert "name must be 1 to 63 letters, digits, dots" in named["message"]
    body = {"compute": idle["id"], "function": "abc", "args_inline": ""}
    hashed = api("POST", "/v1/tasks", body).error(400)
    assert "function must be 64 hexadecimal digits" in hashed["message"]


TASKS: dict[str, tuple[dict[str, Any], int]] = {
    "no compute": ({"function": MISSING}, 400),
    "unknown compute": ({"compute": "nobody", "function": MISSING, "args_inline": ""}, 404),
    "unknown function": ({"compute": "$", "function": MISSING, "args_inline": ""}, 404),
    "function no hash": ({"compute": "$", "function": "abc", "args_inline": ""}, 400),
    "args not base64": ({"compute": "$", "function": MISSING, "args_inline": "*"}, 400),
    "rank negative": ({"compute": "$", "function": MISSING, "args_inline": "", "rank": -1}, 400),
    "timeout negative": (
        {"compute": "$", "function": MISSING, "args_inline": "", "timeout_seconds": -5},
        400,
    ),
    "timeout none": ({"compute": "$", "function": MISSING, "args_inline": "", "timeout_seconds": 0}, 400),
    "dispatch unknown": ({"compute": "$", "function": MISSING, "args_inline": "", "dispatch": "two"}, 400),
    "unknown field": ({"compute": "$", "function": MISSING, "args_inline": "", "prio": 1}, 400),
}


@pytest.mark.parametrize("case", TASKS, ids=str)
def test_a_wrong_task_is_refused(api: Any, idle: dict[str, Any], case: str) -> None:
    body, status = TASKS[case]
    body = {key: idle["id"] if value == "$" else value for key, value in body.items()}
    api("POST", "/v1/tasks", body).error(status)
    assert api("GET", f"/v1/tasks?compute={idle['id']}").json["items"] == []


def test_arguments_come_in_exactly_one_form(api: Any, idle: dict[str, Any], tools: Any) -> None:
    code = tools.packed(abs)
    name = tools.sha256(code)
    assert api("PUT", f"/v1/functions/{name}", code, content_type="application/octet-stream").status in {
        200,
        201,
    }
    call = {"compute": idle["id"], "function": name}
    api("POST", "/v1/tasks", call).error(400)
    api("POST", "/v1/tasks", {**call, "args_inline": "", "args_sha256": name}).error(400)
    api("POST", "/v1/tasks", {**call, "args_sha256": MISSING}).error(404)
    error = api("POST", "/v1/tasks", {**call, "args_inline": "", "rank": 5}).error(400)
    assert error["details"]["field"] == "rank"
    api("POST", "/v1/tasks", {**call, "args_inline": "", "dispatch": "all"}).error(
        409, "compute_not_connected"
    )


PROVIDERS: dict[str, tuple[dict[str, Any], int]] = {
    "unknown kind": ({"kind": "nowhere", "name": "p1"}, 422),
    "unknown configuration": ({"kind": "local", "name": "p1", "config": {"speed": 9}}, 400),
    "unknown credential": ({"kind": "local", "name": "p1", "credentials": {"key": "k"}}, 400),
    "credential in configuration": ({"kind": "local", "name": "p1", "config": {"api_key": "abc"}}, 422),
    "no name": ({"kind": "local"}, 400),
    "name with newline at its end": ({"kind": "local", "name": "p1\n"}, 400),
    "credential no text": ({"kind": "local", "name": "p1", "credentials": {"key": {"a": "sekret"}}}, 400),
}


@pytest.mark.parametrize("case", PROVIDERS, ids=str)
def test_a_wrong_provider_is_refused_and_its_secrets_are_not_repeated(api: Any, case: str) -> None:
    body, status = PROVIDERS[case]
    answer = api("POST", "/v1/providers", body)
    answer.error(status)
    assert b"sekret" not in answer.content
    assert "p1" not in [p["name"] for p in api("GET", "/v1/providers").json["items"]]


BODIES: dict[str, tuple[bytes, str | None, int]] = {
    "not JSON": (b'{"spec": {,}', "application/json", 400),
    "nothing": (b"", "application/json", 400),
    "cut off": (b'{"spec": {"specs": [', "application/json", 400),
    "not UTF-8": (b'{"name": "\xff\xfe"}', "application/json", 400),
    "half a surrogate": (b'{"name": "\\ud800"}', "application/json", 400),
    "very deep": (b"[" * 200_000, "application/json", 400),
    "deep where anything goes": (
        b'{"kind":"local","name":"p","config":' + b'{"a":' * 100_000,
        "application/json",
        400,
    ),
    "a list": (b"[]", "application/json", 400),
    "a number": (b"1e999", "application/json", 400),
    "text": (b'{"spec": {}}', "text/plain", 415),
    "a form": (b"spec=1", "application/x-www-form-urlencoded", 415),
    "no type": (b'{"spec": {}}', None, 415),
}


@pytest.mark.parametrize("case", BODIES, ids=str)
@pytest.mark.parametrize("path", ["/v1/computes", "/v1/providers", "/v1/tasks"])
def test_a_body_that_is_none_is_refused(api: Any, case: str, path: str) -> None:
    body, media, status = BODIES[case]
    headers = {} if media is None else {"content_type": media}
    error = api("POST", path, body, **headers).error(status)
    assert error["details"]["expected"]


def test_broken_json_is_told_where(api: Any) -> None:
    error = api("POST", "/v1/computes", b'{"a": 1,}', content_type="application/json").error(400)
    assert error["details"]["position"] == 8


def test_a_body_over_its_limit_is_refused(api: Any) -> None:
    body = b'{"name": "' + b"x" * (9 * 1024 * 1024) + b'"}'
    error = api("POST", "/v1/computes", body, content_type="application/json").error(413)
    assert error["details"]["limit_bytes"] == 8 * 1024 * 1024


QUERIES: dict[str, tuple[str, str]] = {
    "limit none": ("/v1/computes?limit=0", "limit"),
    "limit negative": ("/v1/computes?limit=-1", "limit"),
    "limit large": ("/v1/computes?limit=501", "limit"),
    "limit absurd": (f"/v1/tasks?limit={10**9}", "limit"),
    "limit huge": (f"/v1/functions?limit={HUGE}", "limit"),
    "limit text": ("/v1/computes?limit=ten", "limit"),
    "limit twice": ("/v1/computes?limit=1&limit=2", "limit"),
    "limit empty": ("/v1/computes?limit=", "limit"),
    "cursor garbage": ("/v1/computes?cursor=garbage", "cursor"),
    "cursor of another list": ("/v1/computes?cursor=tasks.5", "cursor"),
    "cursor huge": (f"/v1/computes?cursor=computes.{HUGE}", "cursor"),
    "cursor with newline": ("/v1/computes?cursor=computes.5%0A", "cursor"),
    "state unknown": ("/v1/computes?state=sleeping", "state"),
    "owned maybe": ("/v1/computes?owned=maybe", "owned"),
    "unknown": ("/v1/computes?lmit=5", "lmit"),
    "unknown where there is none": ("/v1/health/ready?verbose=1", "verbose"),
    "not UTF-8": ("/v1/computes?cursor=%ff", "query"),
    "wait long": (f"/v1/tasks/tsk_x/result?wait={HUGE}", "wait"),
    "wait negative": ("/v1/tasks/tsk_x/result?wait=-1", "wait"),
    "price not a number": ("/v1/offers?max_price=nan", "max_price"),
    "price endless": ("/v1/offers?max_price=inf", "max_price"),
    "events unknown": ("/v1/events?types=compute.exploded", "types"),
    "events from the future": (f"/v1/events?after={2**61}", "after"),
    "events huge": (f"/v1/events?after={HUGE}", "after"),
    "events text": ("/v1/events?after=now", "after"),
    "no command": ("/v1/computes/x/files", "path"),
    "port none": ("/v1/computes/x/files/content?path=", "path"),
}


@pytest.mark.parametrize("case", QUERIES, ids=str)
def test_a_wrong_query_is_refused(api: Any, case: str) -> None:
    path, field = QUERIES[case]
    error = api("GET", path).error(400)
    assert error["details"]["field"] == field
    assert error["details"]["expected"]


def test_a_mistyped_parameter_is_told_what_is_near(api: Any) -> None:
    error = api("GET", "/v1/computes?limt=5").error(400)
    assert "did you mean limit" in error["message"]
    assert "cursor" in error["details"]["known"]


def test_a_mistyped_field_is_told_what_is_near(api: Any) -> None:
    error = api("POST", "/v1/computes", {"spec": spec(imge={})}).error(400)
    assert "did you mean image" in error["message"]


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 30, "5 "])
def test_a_wrong_last_event_id_is_refused(api: Any, last: str) -> None:
    answer = api("GET", "/v1/events", last_event_id=last + "x" if last.endswith(" ") else last)
    answer.error(400)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/computes/nobody",
        "/v1/computes/cmp_nobody",
        "/v1/computes/nobody/nodes",
        "/v1/computes/nobody/generations",
        "/v1/computes/nobody/files?path=x",
        "/v1/tasks/nobody",
        "/v1/tasks/nobody/result",
        "/v1/tasks/nobody/stream",
        "/v1/tasks/nobody/executions/1",
        "/v1/providers/nobody",
        f"/v1/blobs/{MISSING}",
        f"/v1/functions/{MISSING}",
        "/v1/offers?provider=nobody",
        "/v1/events?compute=nobody",
        "/v1/tasks?compute=nobody",
        "/v1/nothing",
        "/v2/computes",
        "/",
        "/v1/computes/" + "x" * 5000,
        "/v1/computes/%00",
        "/v1/computes/..%2f..%2fetc",
    ],
)
def test_what_is_not_there_is_not_found(api: Any, path: str) -> None:
    api("GET", path).error(404)


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", str(HUGE)])
def test_a_wrong_number_in_a_path_is_refused(api: Any, idle: dict[str, Any], number: str) -> None:
    api("GET", f"/v1/computes/{idle['id']}/generations/{number}").error(400)


@pytest.mark.parametrize("name", ["abc", "Z" * 64, "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "%0A"])
def test_a_hash_is_64_digits(api: Any, name: str) -> None:
    api("GET", f"/v1/blobs/{name}").error(400)
    api("PUT", f"/v1/blobs/{name}", b"x", content_type="application/octet-stream").error(400)


def test_a_method_that_a_path_does_not_take_is_told_which_it_does(api: Any) -> None:
    answer = api("DELETE", "/v1/computes")
    answer.error(405)
    assert {"GET", "HEAD", "POST"} <= {name.strip() for name in answer.headers["allow"].split(",")}
    told = api("OPTIONS", "/v1/computes")
    assert told.status == 204
    assert told.headers["allow"] == "GET, HEAD, OPTIONS, POST"


@pytest.mark.parametrize("key", ["x" * 256, "", "a\tb"])
def test_a_key_has_1_to_255_printable_characters(api: Any, tools: Any, key: str) -> None:
    answer = api("POST", "/v1/computes", {"spec": tools.idle_spec()}, idempotency_key=key)
    assert answer.error(400)["details"]["field"] == "Idempotency-Key"


def test_head_is_answered_wherever_get_is_and_has_no_body(api: Any, idle: dict[str, Any]) -> None:
    document = api("GET", "/v1/openapi.json").json
    names = {"{compute_id}": idle["id"], "{number}": "1"}
    tried = 0
    for path, item in document["paths"].items():
        if "get" not in item or "{" in path.replace("{compute_id}", "").replace("{number}", ""):
            continue
        for part, name in names.items():
            path = path.replace(part, name)
        needed = [p for p in item["get"].get("parameters", ()) if p["required"] and p["in"] == "query"]
        if needed:
            continue
        tried += 1
        head = api("HEAD", path)
        assert head.status == 200, path
        assert head.content == b""
        if path != "/v1/events":
            assert head.headers["content-type"] == api("GET", path).headers["content-type"]
    assert tried >= 10
    missing = api("HEAD", "/v1/computes/nobody")
    assert (missing.status, missing.content) == (404, b"")


def test_a_request_id_is_echoed_when_it_is_sane(api: Any) -> None:
    assert api("GET", "/v1/health/live", request_id="mine-1").headers["request-id"] == "mine-1"
    assert api("GET", "/v1/nothing", request_id="mine-2").error(404)["request_id"] == "mine-2"
    for wrong in ("x" * 200, "a b", "<script>"):
        given = api("GET", "/v1/health/live", request_id=wrong).headers["request-id"]
        assert given.startswith("req_")
    first = api("GET", "/v1/health/live").headers["request-id"]
    assert first != api("GET", "/v1/health/live").headers["request-id"]
