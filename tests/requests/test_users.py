"""Users: what each role may ask of every route, whose clusters and requests are whose, and how a token lives
and ends."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from tests.folders import contents
from tests.requests.remote import DEADLINE_S, Reachable, ended, finished

from sky.api import app, dashboard, metrics
from sky.api.admin import accounts, catalogue, sold
from sky.api.requests import face
from sky.domain.user import NEEDS, ROLES, least_role, suffices
from sky.wire.v1.base import NAME_PATTERN

HANDLERS = (
    *app.PUBLIC,
    app.serve_document,
    app.serve_page,
    *dashboard.ROUTES,
    *metrics.ROUTES,
    *face.ROUTES,
    *accounts.ROUTES,
    *catalogue.ROUTES,
    *sold.ROUTES,
)
ROUTES = sorted({(method, path) for one in HANDLERS for method in one.http_methods for path in one.paths})


def plain(path: str) -> str:
    """A path as it is written in the table: without the types of its parts."""
    return re.sub(r":\w+}", "}", path)


@pytest.fixture(scope="module")
def people(reachable: Reachable) -> Iterator[dict[str, httpx2.Client]]:
    """One of each role, and somebody who does not say who it is."""
    clients = {role: reachable.as_(reachable.made(f"walks-{role}", role)) for role in ROLES}
    clients["nobody"] = reachable.as_()
    yield clients
    for client in clients.values():
        client.close()


def test_every_route_has_its_line_in_the_table() -> None:
    missing = [
        f"{method} {plain(path)}"
        for method, path in ROUTES
        if f"{method} {plain(path)}" not in NEEDS and not path.startswith(("/v1/", "/admin/"))
    ]
    assert missing == [], "each needs a line in sky.domain.user"
    routes = {f"{method} {plain(path)}" for method, path in ROUTES}
    assert {line for line in NEEDS if not line.endswith("/...")} - routes == set(), "there is no such route"


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=plain)
def test_every_route_is_for_its_role_and_those_above(
    people: dict[str, httpx2.Client], method: str, path: str
) -> None:
    least = least_role(method, plain(path))
    asked = re.sub(r"{[^}]*}", "nosuch", path)
    if least is not None:
        answer = people["nobody"].request(method, asked)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    for role in ROLES:
        if least is None or suffices(role, least):
            if role == "admin":
                continue  # may do everything, and some of that would be done
            assert people[role].request(method, asked).status_code not in (401, 403), role
        else:
            answer = people[role].request(method, asked)
            assert answer.status_code == 403, role
            assert answer.json()["details"]["least_role"] == least
            assert role in answer.json()["message"]


def test_a_path_that_is_not_there_is_told_as_that_to_everybody(people: dict[str, httpx2.Client]) -> None:
    for role in ROLES:
        answer = people[role].post("/launch_on_the_moon", json={})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), role


@pytest.mark.parametrize("path", ["//v1/computes", "/v1/computes/", "/v1//computes", "/users/", "//users"])
def test_no_way_of_writing_a_path_gets_around_a_role(people: dict[str, httpx2.Client], path: str) -> None:
    url = people["viewer"].base_url.copy_with(raw_path=path.encode())
    answer = people["viewer"].get(url)
    assert answer.status_code in (403, 404), answer.text
    assert people["nobody"].get(url).status_code == 401


# ── whose ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def ada(reachable: Reachable) -> Iterator[httpx2.Client]:
    with reachable.as_(reachable.made("ada")) as client:
        yield client


@pytest.fixture(scope="module")
def bob(reachable: Reachable) -> Iterator[httpx2.Client]:
    with reachable.as_(reachable.made("bob")) as client:
        yield client


@pytest.fixture(scope="module")
def eve(reachable: Reachable) -> Iterator[httpx2.Client]:
    with reachable.as_(reachable.made("eve", "viewer")) as client:
        yield client


@pytest.fixture(scope="module")
def hers(reachable: Reachable, ada: httpx2.Client) -> Iterator[tuple[str, str]]:
    """A cluster that ada launched, with a job that goes on; and the id of her request."""
    name = f"hers-{secrets.token_hex(3)}"
    task = {"run": "echo hello; sleep 600"}
    answer = ada.post("/launch", json={"cluster_name": name, "task": task})
    assert answer.status_code == 200, answer.text
    request_id = answer.json()["request_id"]
    assert ended(ada, request_id)["status"] == "SUCCEEDED"
    yield name, request_id
    with reachable.owner() as owner:
        owner.post("/down", json={"cluster_name": name, "all_users": True})


def test_what_is_somebody_elses_is_not_changed(hers: tuple[str, str], bob: httpx2.Client) -> None:
    name, _ = hers
    task = {"run": "true"}
    for asked, more in {
        "down": {},
        "stop": {},
        "start": {},
        "autostop": {"idle_minutes": 5, "down": True},
        "queue": {},
        "job_status": {},
        "cancel": {},
        "exec": {"task": task},
        "launch": {"task": task},
    }.items():
        record = finished(bob, asked, cluster_name=name, **more)
        assert (asked, record["status"]) == (asked, "FAILED")
        assert record["error"]["type"] == "ClusterOwnerIdentityMismatchError"
        assert "ada" in record["error"]["message"]
    refused = bob.post("/logs", json={"cluster_name": name, "follow": False})
    assert (refused.status_code, refused.json()["details"]["type"]) == (
        403,
        "ClusterOwnerIdentityMismatchError",
    )


def test_what_is_somebody_elses_is_seen_with_all_users(
    hers: tuple[str, str], bob: httpx2.Client, eve: httpx2.Client
) -> None:
    name, request_id = hers
    for who in (bob, eve):
        own = finished(who, "status")["result"]
        everybodys = finished(who, "status", all_users=True)["result"]
        assert name not in [one["name"] for one in own]
        assert name in [one["name"] for one in everybodys]
        [job] = finished(who, "queue", cluster_name=name, all_users=True)["result"]
        assert job["username"] == "ada"
        answer = who.post("/logs", json={"cluster_name": name, "follow": False, "all_users": True})
        assert answer.status_code == 200
        listed = who.get("/api/status", params={"all_status": True}).json()["items"]
        assert request_id not in [one["request_id"] for one in listed]
        listed = who.get("/api/status", params={"all_status": True, "all_users": True, "limit": 500}).json()
        [seen] = [one for one in listed["items"] if one["request_id"] == request_id]
        assert seen["user"] == "ada"
        assert seen["result"] is None, "what she was answered is hers"


def test_what_changes_everybodys_is_for_admins(hers: tuple[str, str], bob: httpx2.Client) -> None:
    name, _ = hers
    for asked, more in (("down", {}), ("stop", {}), ("cancel", {}), ("autostop", {"idle_minutes": 5})):
        answer = bob.post(f"/{asked}", json={"cluster_name": name, "all_users": True, **more})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), asked
        assert answer.json()["details"]["field"] == "all_users"
    assert bob.post("/api/cancel", json={"all_users": True}).status_code == 403


def test_a_request_of_somebody_else_is_not_there(hers: tuple[str, str], bob: httpx2.Client) -> None:
    _, request_id = hers
    for ref in (request_id, request_id[:22]):
        for path in ("/api/get", "/api/stream"):
            answer = bob.get(path, params={"request_id": ref})
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
        answer = bob.post("/api/cancel", json={"request_ids": [ref]})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert bob.post("/api/cancel", json={}).json()["request_ids"] == []


def test_an_admin_sees_it_and_takes_it_down(
    reachable: Reachable, hers: tuple[str, str], ada: httpx2.Client
) -> None:
    name, request_id = hers
    with reachable.as_(reachable.made("chief", "admin")) as chief:
        assert chief.get("/api/get", params={"request_id": request_id, "wait": 0}).json()["user"] == "ada"
        refused = finished(chief, "down", cluster_name=name)
        assert refused["error"]["type"] == "ClusterOwnerIdentityMismatchError", "without all_users"
        gone = chief.delete("/users/ada")
        assert gone.status_code == 400
        assert gone.json()["details"]["clusters"] == [name]
        assert finished(chief, "down", cluster_name=name, all_users=True)["status"] == "SUCCEEDED"
        assert name not in [one["name"] for one in finished(ada, "status")["result"]]


def test_only_the_daemons_own_user_speaks_for_others(reachable: Reachable, bob: httpx2.Client) -> None:
    as_ada = {"x-sky-user": "ada"}
    assert bob.get("/api/health", headers=as_ada).json()["user"]["name"] == "bob"
    with reachable.as_(reachable.made("speaks", "admin")) as admin:
        assert admin.get("/api/health", headers=as_ada).json()["user"]["name"] == "speaks"
    token = (reachable.home / "token").read_text().strip()
    with reachable.owner() as owner, reachable.as_(token) as with_daemons_token:
        for who in (owner, with_daemons_token):
            assert who.get("/api/health", headers=as_ada).json()["user"]["name"] == "ada"
            assert who.get("/api/health", headers={"x-sky-user": "a b"}).status_code == 400


# ── tokens ──────────────────────────────────────────────────────────────────────────────────────


def test_a_token_is_shown_once_and_kept_as_a_hash(reachable: Reachable) -> None:
    with reachable.owner() as owner:
        owner.post("/users", json={"name": "once", "role": "user"})
        made = owner.post("/users/tokens", json={"name": "ci", "user": "once"})
        assert made.headers["cache-control"] == "no-store"
        secret = made.json()["token"]
        assert re.fullmatch(r"sky_[0-9A-Za-z]{40}", secret)
        with reachable.as_(secret) as once:
            [listed] = once.get("/users/tokens").json()["items"]
    assert (listed["name"], listed["token"], listed["hint"]) == ("ci", None, secret[:9])
    files = dict(contents(reachable.home))
    assert reachable.home / "server.log" in files
    assert not [path for path, content in files.items() if secret.encode() in content]


def test_when_a_token_was_used_is_told(reachable: Reachable) -> None:
    secret = reachable.made("seen")
    with reachable.as_(secret) as seen, reachable.owner() as owner:
        assert owner.get("/users/tokens", params={"user": "seen"}).json()["items"][0]["last_used_at"] is None
        assert seen.get("/users/me").json()["name"] == "seen"
        until(lambda: owner.get("/users/tokens", params={"user": "seen"}).json()["items"][0]["last_used_at"])


def test_a_token_that_is_rotated_or_revoked_is_refused_at_once(reachable: Reachable) -> None:
    old = reachable.made("turns")
    with reachable.as_(old) as before:
        fresh = before.post("/users/tokens/main/rotate", json={}).json()["token"]
        assert fresh != old
        answer = before.get("/users/me")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    with reachable.as_(fresh) as after:
        assert after.get("/users/me").json()["name"] == "turns"
        assert after.delete("/users/tokens/main").json()["revoked_at"] is not None
        answer = after.get("/users/me")
        assert answer.status_code == 401
        assert "revoked" in answer.json()["message"]
    with reachable.owner() as owner:
        assert owner.post("/users/tokens", json={"name": "main", "user": "turns"}).status_code == 201


def test_a_token_ends_when_it_was_to(reachable: Reachable) -> None:
    secret = reachable.made("brief", expires_in_seconds=5)
    with reachable.as_(secret) as brief:
        assert brief.get("/users/me").status_code == 200
        until(lambda: brief.get("/users/me").status_code == 401)
        assert "expired at" in brief.get("/users/me").json()["message"]


def test_a_token_makes_none_that_outlives_it(reachable: Reachable) -> None:
    secret = reachable.made("passing", expires_in_seconds=600)
    with reachable.as_(secret) as passing:
        mine = passing.post("/users/tokens", json={"name": "as-long"}).json()
        other = passing.post("/users/tokens", json={"name": "less", "expires_in_seconds": 60}).json()
        assert other["expires_at"] < mine["expires_at"] is not None
        refused = passing.post("/users/tokens", json={"name": "more", "expires_in_seconds": 3600})
        assert (refused.status_code, refused.json()["details"]["field"]) == (400, "expires_in_seconds")
        with reachable.owner() as owner:
            lasting = {"name": "lasting", "user": "passing"}
            assert owner.post("/users/tokens", json=lasting).status_code == 201
        for name, wanted in (("lasting", 0), ("lasting", 3600), ("main", 3600)):
            more = {"expires_in_seconds": wanted} if wanted else {}
            refused = passing.post(f"/users/tokens/{name}/rotate", json=more)
            assert (refused.status_code, refused.json()["details"]["field"]) == (400, "expires_in_seconds")
        brief = passing.post("/users/tokens/lasting/rotate", json={"expires_in_seconds": 60}).json()
        assert brief["expires_at"] < mine["expires_at"]
        assert passing.post("/users/tokens/main/rotate", json={}).status_code == 200


def test_a_role_holds_at_once_and_a_token_may_have_less(reachable: Reachable) -> None:
    less = reachable.made("rises", "admin", "less", role="viewer")
    with reachable.owner() as owner, reachable.as_(less) as viewer:
        full = owner.post("/users/tokens", json={"name": "full", "user": "rises"}).json()["token"]
        with reachable.as_(full) as rises:
            assert rises.get("/users").status_code == 200
            assert viewer.get("/users").status_code == 403
            assert viewer.get("/users/me").json()["role"] == "viewer"
            refused = viewer.post("/users/tokens", json={"name": "more", "role": "admin"})
            assert (refused.status_code, refused.json()["details"]["field"]) == (400, "role")
            same = viewer.post("/users/tokens", json={"name": "same"})
            assert (same.status_code, same.json()["role"]) == (201, "viewer"), "no more than its maker"
            assert viewer.post("/users/tokens/full/rotate", json={}).status_code == 403
            owner.patch("/users/rises", json={"role": "user"})
            assert rises.get("/users").status_code == 403
            assert rises.get("/users/me").json()["role"] == "user"


def test_tokens_of_others_are_not_touched(reachable: Reachable, bob: httpx2.Client) -> None:
    secret = reachable.made("owns")
    with reachable.as_(secret) as owns:
        [theirs] = owns.get("/users/tokens").json()["items"]
        assert bob.delete(f"/users/tokens/{theirs['id']}").status_code == 404
        assert bob.post(f"/users/tokens/{theirs['id']}/rotate", json={}).status_code == 404
        assert bob.get("/users/tokens", params={"user": "owns"}).status_code == 403
        assert bob.get("/users/tokens", params={"all_users": True}).status_code == 403
        assert bob.post("/users/tokens", json={"name": "x", "user": "owns"}).status_code == 403
        assert owns.get("/users/me").status_code == 200


def test_a_user_who_is_removed_is_refused(reachable: Reachable) -> None:
    secret = reachable.made("leaves")
    with reachable.as_(secret) as leaves, reachable.owner() as owner:
        assert leaves.get("/users/me").status_code == 200
        assert owner.delete("/users/leaves").status_code == 204
        assert leaves.get("/users/me").status_code == 401
        answer = owner.get("/users/leavse")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_the_last_admin_with_a_name_stays_unless_the_owner_says_so(own_reachable: Reachable) -> None:
    with own_reachable.as_(own_reachable.made("only", "admin")) as only, own_reachable.owner() as owner:
        for answer in (only.patch("/users/only", json={"role": "user"}), only.delete("/users/only")):
            assert (answer.status_code, answer.json()["details"]["expected"]) == (400, "another admin")
        assert owner.patch("/users/only", json={"role": "user"}).status_code == 200


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "me", "tokens", "ä"])
def test_a_name_that_cannot_be_one_is_refused(reachable: Reachable, name: str) -> None:
    with reachable.owner() as owner:
        answer = owner.post("/users", json={"name": name})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "name")


def test_a_user_is_made_once_per_key(reachable: Reachable) -> None:
    with reachable.owner() as owner:
        key = {"idempotency-key": "make-twice"}
        first, again = (owner.post("/users", json={"name": "twice"}, headers=key) for _ in range(2))
        assert (first.status_code, again.status_code) == (201, 200)
        assert owner.post("/users", json={"name": "twice"}).status_code == 409


def test_a_token_that_is_refused_on_one_daemon_soon_is_on_another(
    reachable: Reachable, beside: Reachable
) -> None:
    secret = reachable.made("both")
    with beside.as_(secret) as there, reachable.as_(secret) as here:
        assert there.get("/users/me").json()["name"] == "both"
        assert here.delete("/users/tokens/main").status_code == 200
        since = time.monotonic()
        until(lambda: there.get("/users/me").status_code == 401)
        assert time.monotonic() - since < 30, "half a second, and what this computer takes"


def test_what_is_being_told_ends_with_its_token(reachable: Reachable) -> None:
    secret = reachable.made("listens", "admin")
    log = reachable.home / "server.log"
    with (
        reachable.as_(secret) as listens,
        reachable.owner() as owner,
        ThreadPoolExecutor(1) as pool,
        listens.stream("GET", "/api/server_logs", params={"follow": True, "tail": 1}) as answer,
    ):
        assert answer.status_code == 200
        lines = answer.iter_lines()
        next(lines)
        revoked = owner.delete("/users/tokens/" + token_id(owner, "listens"))
        assert revoked.status_code == 200
        ended = pool.submit(rest_of, lines)
        until(lambda: written(log, "something else") and ended.done())
        assert listens.get("/users/me").status_code == 401


def rest_of(lines: Iterator[str]) -> list[str]:
    """What is told until the connection ends."""
    told: list[str] = []
    try:
        told.extend(lines)
    except httpx2.TransportError:
        pass
    return told


def written(log: Any, text: str) -> bool:
    with open(log, "a", encoding="utf-8") as file:
        file.write(text + "\n")
    return True


def token_id(owner: httpx2.Client, user: str) -> str:
    return owner.get("/users/tokens", params={"user": user}).json()["items"][0]["id"]


def until(true: Any) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # real: another process does it


def test_a_key_of_one_user_is_not_that_of_another(ada: httpx2.Client, bob: httpx2.Client) -> None:
    key = {"idempotency-key": "the-same"}
    first, again = (ada.post("/status", json={}, headers=key).json()["request_id"] for _ in range(2))
    others = bob.post("/status", json={}, headers=key).json()["request_id"]
    assert first == again
    assert others != first


def test_a_cluster_without_a_name_is_given_one_that_can_be_said(reachable: Reachable) -> None:
    with reachable.as_(x_auth_request_email="linus+x@example.com") as linus, reachable.owner() as owner:
        linus.get("/users/me")
        owner.patch("/users/linus+x@example.com", json={"role": "user"})
        assert linus.post("/launch", json={"task": {"run": "true"}}).status_code == 200
        until(lambda: finished(linus, "status")["result"])
        [cluster] = finished(linus, "status")["result"]
        assert re.fullmatch(NAME_PATTERN, cluster["name"])
        finished(linus, "down", cluster_name=cluster["name"])
