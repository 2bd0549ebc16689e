"""Lists, page by page.

Decides: what a reader may rely on while rows come and go. Never: knows what a cursor means.
"""

from __future__ import annotations

from typing import Any


def walk(api: Any, path: str, limit: int) -> list[str]:
    """The ids of a whole list, read in pages."""
    found: list[str] = []
    cursor = None
    while True:
        more = "" if cursor is None else f"&cursor={cursor}"
        page = api("GET", f"{path}{'&' if '?' in path else '?'}limit={limit}{more}").json
        assert len(page["items"]) <= limit
        found += [item.get("id") or item["sha256"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def test_pages_make_the_list_newest_first(api: Any, tools: Any) -> None:
    def going() -> list[str]:
        items = api("GET", "/v1/computes?limit=500").json["items"]
        return [c["id"] for c in items if c["status"]["state"] == "deleting"]

    made = [api.create(tools.idle_spec())["id"] for _ in range(7)]
    tools.until(lambda: not going(), "what other tests have deleted is gone")
    whole = [c["id"] for c in api("GET", "/v1/computes?limit=500").json["items"]]
    assert walk(api, "/v1/computes", 3) == whole
    assert whole[:7] == made[::-1]
    for compute_id in made:
        api.delete(compute_id)


def test_a_cursor_survives_the_deletion_of_its_row(api: Any, tools: Any) -> None:
    made = [api.create(tools.idle_spec())["id"] for _ in range(6)]
    first = api("GET", "/v1/computes?limit=3").json
    assert [c["id"] for c in first["items"]] == made[:2:-1]
    named = first["items"][-1]["id"]
    api.delete(named)
    tools.until(
        lambda: api("GET", f"/v1/computes/{named}").json["status"]["state"] == "deleted", "it was deleted"
    )
    assert named not in [c["id"] for c in api("GET", "/v1/computes?limit=500").json["items"]]
    second = api("GET", f"/v1/computes?limit=3&cursor={first['next_cursor']}").json
    assert [c["id"] for c in second["items"]] == made[2::-1]
    for compute_id in made:
        api.delete(compute_id)


def test_new_rows_do_not_move_a_page(api: Any, tools: Any) -> None:
    made = [api.create(tools.idle_spec())["id"] for _ in range(4)]
    first = api("GET", "/v1/computes?limit=2").json
    late = api.create(tools.idle_spec())["id"]
    second = api("GET", f"/v1/computes?limit=2&cursor={first['next_cursor']}").json
    assert [c["id"] for c in second["items"]] == [made[1], made[0]]
    for compute_id in [*made, late]:
        api.delete(compute_id)


def test_functions_are_listed_in_pages(api: Any, tools: Any) -> None:
    for number in range(5):
        code = tools.packed(("function", number))
        answer = api(
            "PUT", f"/v1/functions/{tools.sha256(code)}", code, content_type="application/octet-stream"
        )
        assert answer.status in {200, 201}
    whole = walk(api, "/v1/functions", 500)
    assert len(whole) >= 5
    assert walk(api, "/v1/functions", 2) == whole


def test_deleted_computes_are_listed_when_asked_for(api: Any, tools: Any) -> None:
    gone = api.create(tools.idle_spec())["id"]
    api.delete(gone)

    def listed() -> bool:
        return gone in [c["id"] for c in api("GET", "/v1/computes?state=deleted&limit=500").json["items"]]

    tools.until(listed, "it was listed as deleted")
    assert gone not in [c["id"] for c in api("GET", "/v1/computes?limit=500").json["items"]]


def test_nodes_are_listed_by_rank(api: Any, ready: dict[str, Any]) -> None:
    path = f"/v1/computes/{ready['id']}/nodes"
    nodes = api("GET", f"{path}?include_terminal=false").json["items"]
    assert [node["rank"] for node in nodes] == [0, 1]
    assert walk(api, f"{path}?include_terminal=false", 1) == [node["id"] for node in nodes]
    one = api("GET", f"{path}/{nodes[1]['id']}")
    assert one.json == nodes[1]
    assert one.headers["etag"] == f'"{nodes[1]["revision"]}"'
    assert api("GET", f"{path}?generation=9").json["items"] == []


def test_offers_are_sorted_by_price(api: Any, ready: dict[str, Any]) -> None:
    del ready
    offers = api("GET", "/v1/offers?kind=local").json["items"]
    assert offers
    prices = [offer["price"] for offer in offers]
    assert prices == sorted(prices)
    assert api("GET", "/v1/offers?accelerator=H100").json["items"] == []
    api("GET", "/v1/offers?kind=nowhere").error(422, "unsupported_provider")


def test_a_page_has_fifty_unless_it_is_said_otherwise(api: Any, tools: Any, idle: dict[str, Any]) -> None:
    function, arguments = tools.packed(print), tools.packed(((), {}))
    api("PUT", f"/v1/functions/{tools.sha256(function)}", function, content_type="application/octet-stream")
    api("PUT", f"/v1/blobs/{tools.sha256(arguments)}", arguments, content_type="application/octet-stream")
    asked: list[str] = []
    for count in (1, 500):
        calls = [{"args_sha256": tools.sha256(arguments)}] * count
        body = {"compute": idle["id"], "function": tools.sha256(function), "calls": calls}
        body["correlation_id"] = idle["id"]
        asked += api("POST", "/v1/tasks/batch", body).json["tasks"]
    path = f"/v1/tasks?compute={idle['id']}"
    for limit, count in (("", 50), ("&limit=1", 1), ("&limit=500", 500)):
        page = api("GET", path + limit).json
        assert [task["id"] for task in page["items"]] == asked[::-1][:count]
        assert page["next_cursor"]
    rest = api("GET", f"{path}&limit=500&cursor={page['next_cursor']}").json
    assert ([task["id"] for task in rest["items"]], rest["next_cursor"]) == ([asked[0]], None)
    for wrong in ("0", "501", "-1", "many", ""):
        assert api("GET", f"{path}&limit={wrong}").error(400)["details"]["field"] == "limit"


def test_every_list_takes_a_page_of_up_to_five_hundred(api: Any) -> None:
    served = api("GET", "/v1/openapi.json").json["paths"]
    limits = {
        path: parameter["schema"]
        for path, methods in served.items()
        for parameter in methods.get("get", {}).get("parameters", ())
        if parameter["name"] == "limit"
    }
    del limits["/v1/tasks/outcomes"]
    long = {path for path, schema in limits.items() if schema.get("default") == 50}
    assert long == {"/v1/computes", "/v1/functions", "/v1/tasks"}, "what is short by nature comes whole"
    for path, schema in limits.items():
        bounds = schema if path in long else schema["anyOf"][0]
        assert (bounds["minimum"], bounds["maximum"]) == (1, 500), path
