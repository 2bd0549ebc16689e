"""Servers that others reach: TLS, a proxy in front, and what is asked of whoever comes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from tests import commands
from tests.requests.remote import DEADLINE_S, Reachable, certificates, ended

from sky.client import calls_users
from sky.client.errors import DaemonUnreachable, InvalidRequest
from sky.client.http import Http
from sky.client.http_async import AsyncHttp
from sky.server.doors import opened
from sky.server.settings import SettingsError, load

AT_ONCE_S = 30.0
"""Below the minute for which a server that is away is waited for."""


def test_both_clients_speak_tls_to_a_server_whose_authority_they_know(
    reachable: Reachable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_CA_FILE", str(reachable.ca))
    token = reachable.made("tls")
    http = Http(reachable.url, token=token)
    assert http.send(calls_users.get_me()).name == "tls"
    assert http.send(calls_users.get_me()).name == "tls", "over the same connection"
    http.close()

    async def ask() -> str:
        async with AsyncHttp(reachable.url, token=token) as client:
            return (await client.send(calls_users.get_me())).name

    assert asyncio.run(ask()) == "tls"


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)  # real: another process does it


def test_a_renewed_certificate_is_shown_without_a_restart(reachable: Reachable, tmp_path: Path) -> None:
    """First its file, and then its key's: what does not belong together is not taken. Who asks for an address
    names no server, and is shown it too."""
    files = [Path(reachable.environment[name]) for name in ("SKY_TLS_CERT", "SKY_TLS_KEY")]
    before = [file.read_bytes() for file in files]
    port = int(reachable.url.rpartition(":")[2])

    def shown(host: str) -> str:
        told = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        told.check_hostname, told.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            told.wrap_socket(plain, server_hostname=host) as tls,
        ):
            return ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True) or b"")

    def put(file: Path, content: bytes) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.replace(file)

    old, (_, cert, key) = shown("localhost"), certificates(tmp_path)
    log = reachable.home / "server.log"
    try:
        put(files[0], cert.read_bytes())
        until(lambda: b"certificate.kept" in log.read_bytes(), "it is told that they do not belong together")
        assert shown("localhost") == old
        put(files[1], key.read_bytes())
        until(lambda: shown("localhost") == cert.read_text(), "the new one is shown")
        assert shown("127.0.0.1") == cert.read_text()
    finally:
        for file, content in zip(files, before, strict=True):
            put(file, content)
    until(lambda: shown("localhost") == old, "and the one before again")


def test_a_certificate_of_a_stranger_is_told_at_once(reachable: Reachable) -> None:
    began = time.monotonic()
    http = Http(reachable.url)
    with pytest.raises(DaemonUnreachable, match=r"certificate is not believed.*SKY_CA_FILE"):
        http.send(calls_users.get_me())

    async def ask() -> None:
        async with AsyncHttp(reachable.url) as client:
            await client.send(calls_users.get_me())

    with pytest.raises(DaemonUnreachable, match=r"certificate is not believed.*SKY_CA_FILE"):
        asyncio.run(ask())
    assert time.monotonic() - began < AT_ONCE_S


def test_an_address_with_the_wrong_scheme_is_told_at_once(
    reachable: Reachable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_CA_FILE", str(reachable.ca))
    http = Http(reachable.local.replace("http:", "https:"))
    with pytest.raises(DaemonUnreachable, match="does not speak TLS"):
        http.send(calls_users.get_me())
    monkeypatch.setenv("SKY_CA_FILE", str(reachable.home / "nosuch.pem"))
    with pytest.raises(InvalidRequest, match=r"SKY_CA_FILE=.*nosuch.pem cannot be used"):
        Http(reachable.url)


def test_a_password_in_an_address_is_sent_and_not_shown(beside: Reachable) -> None:
    url = beside.url.replace("//", "//me:hidden-word@")
    http = Http(url, patience_s=0)
    assert "hidden-word" not in http.url
    with pytest.raises(Exception, match="only tokens are known here"):
        http.send(calls_users.get_me())


def test_where_others_may_come_nobody_is_let_in_for_who_they_are(reachable: Reachable) -> None:
    with reachable.as_() as nobody, reachable.owner() as owner:
        assert owner.get("/users/me").json()["role"] == "admin"
        for path in ("/users/me", "/v1/computes", "/v1/health/live", "/api/status"):
            answer = nobody.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), path
            assert "sky token create" in answer.json()["message"]
        token = (reachable.home / "token").read_text().strip()
        assert nobody.get("/v1/computes", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_health_needs_no_token_and_tells_who_brings_one(reachable: Reachable) -> None:
    with reachable.as_() as nobody, reachable.as_(reachable.made("well", "viewer")) as well:
        told = nobody.get("/api/health").json()
        assert told["status"] == "healthy"
        assert told["user"] is None
        assert told["basic_auth_enabled"] is True
        assert well.get("/api/health").json()["user"] == {"id": "well", "name": "well", "role": "viewer"}
        for wrong in ("Bearer sky_nosuch", "Bearer sky_" + "x" * 40, "Bearer x", "Basic eDp5"):
            answer = nobody.get("/api/health", headers={"authorization": wrong})
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), wrong


def test_a_page_of_another_site_is_refused_where_others_may_come(reachable: Reachable) -> None:
    token = reachable.made("page")
    with reachable.as_(token) as page:
        host = page.base_url.netloc.decode()
        assert page.get("/users/me", headers={"origin": f"https://{host}"}).status_code == 200
        assert page.get("/users/me", headers={"origin": "https://evil.example"}).status_code == 403
        renamed = {"host": "sky.example.com", "origin": "https://sky.example.com"}
        assert page.get("/users/me", headers=renamed).status_code == 200


def test_whom_a_proxy_names_becomes_a_user(reachable: Reachable) -> None:
    with (
        reachable.as_(x_auth_request_email="grace@example.com") as grace,
        reachable.owner() as owner,
    ):
        assert grace.get("/users/me").json()["role"] == "viewer", "the role that is set for them"
        assert owner.get("/users/grace@example.com").json()["role"] == "viewer"
        owner.patch("/users/grace@example.com", json={"role": "user"})
        assert grace.get("/users/me").json()["role"] == "user"
        secret = grace.post("/users/tokens", json={"name": "laptop"}).json()["token"]
        own = {"authorization": f"Bearer {secret}", "x-auth-request-email": "somebody@example.com"}
        assert grace.get("/users/me", headers=own).json()["name"] == "grace@example.com", "a token counts"
        strange = grace.get("/users/me", headers={"x-auth-request-email": "a b"})
        assert strange.status_code == 401
        as_owner = owner.get("/users/me", headers={"x-auth-request-email": "eve@example.com"}).json()
        assert as_owner["role"] == "admin"
        assert owner.get("/users/eve@example.com").status_code == 404


def test_a_proxy_that_is_elsewhere_than_was_said_is_not_believed(beside: Reachable) -> None:
    with beside.as_(x_auth_request_email="mallory@example.com") as mallory, beside.owner() as owner:
        assert mallory.get("/users/me").status_code == 401
        assert owner.get("/users/mallory@example.com").status_code == 404


def test_the_log_of_the_server_is_told_to_admins_elsewhere(own_reachable: Reachable) -> None:
    """Of one that does nothing else, and so writes nothing between our lines."""
    with own_reachable.as_(own_reachable.made("reads", "admin")) as reads:
        with open(own_reachable.home / "server.log", "a", encoding="utf-8") as log:
            log.write("first line\nsecond line\nhalf")
        lines = [json.loads(x) for x in reads.get("/api/server_logs?tail=3").text.splitlines()]
        assert [line["text"] for line in lines] == ["first line", "second line", "half"]
        after = reads.get("/api/server_logs", params={"after": lines[0]["place"]}).text.splitlines()
        assert [json.loads(x)["text"] for x in after][:1] == ["second line"]
        assert reads.get("/api/server_logs?tail=0").text == ""


def test_the_commands_of_users_and_tokens(reachable: Reachable, tmp_path: Path) -> None:
    at_home = {"SKY_HOME": str(reachable.home)}
    assert sky(at_home, "user", "create", "cli", "--role", "viewer").returncode == 0
    again = sky(at_home, "user", "create", "cli")
    assert again.returncode == 4
    assert "sky user role cli user" in again.stderr
    token = sky(at_home, "token", "create", "laptop", "--user", "cli", "--expires", "1h").stdout.strip()
    elsewhere = {"SKY_HOME": str(tmp_path), "SKY_CA_FILE": str(reachable.ca)}
    unknown = sky(
        {"SKY_HOME": str(tmp_path)}, "api", "login", "-e", reachable.url, "--token", "-", told=token
    )
    assert unknown.returncode == 5
    assert "name the certificate of who signed it in SKY_CA_FILE" in unknown.stderr
    assert sky(elsewhere, "api", "login", "-e", reachable.url, "--token", "-", told=token).returncode == 0
    me = json.loads(sky(elsewhere, "user", "me", "-o", "json").stdout)
    assert (me["name"], me["role"]) == ("cli", "viewer")
    refused = sky(elsewhere, "user", "list")
    assert refused.returncode == 4
    assert "takes the role admin" in refused.stderr
    assert refused.stderr.splitlines()[1] == "hint: an admin gives it with `sky user role cli admin`"
    of_another = sky(at_home, "token", "revoke", "laptop", "--yes")
    assert of_another.returncode == 3
    assert "another's is named by its id" in of_another.stderr.splitlines()[1]
    listed = json.loads(sky(elsewhere, "token", "list", "-o", "json").stdout)["items"]
    assert [one["name"] for one in listed] == ["laptop"]
    fresh = sky(elsewhere, "token", "rotate", "laptop").stdout.strip()
    assert sky(elsewhere, "user", "me").returncode == 4, "the old one is refused"
    elsewhere |= {"SKY_URL": reachable.url, "SKY_TOKEN": fresh}
    assert sky(elsewhere, "token", "revoke", "laptop", "--yes").returncode == 0
    assert sky(at_home, "user", "delete", "cli", "--yes").returncode == 0
    assert "cli" not in sky(at_home, "user", "list").stdout
    missing = sky(at_home, "user", "role", "cil", "admin")
    assert missing.returncode == 3


def sky(environment: dict[str, str], *words: str, told: str = "") -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SKY")}
    return commands.sky(*words, environment=ours | {"SKY_HOME": "/nonexistent"} | environment, stdin=told)


# ── what is refused before anything is opened ───────────────────────────────────────────────────


def test_an_address_for_others_takes_tls_or_a_proxy(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "sky.example.com"):
        with pytest.raises(SettingsError, match=r"host: .* --tls-cert and --tls-key, or --behind-proxy"):
            load({"home": str(tmp_path), "host": host}, {})
        assert load({"home": str(tmp_path), "host": host, "behind_proxy": "true"}, {}).public
        both = {"home": str(tmp_path), "host": host, "tls_cert": "c.pem", "tls_key": "k.pem"}
        assert load(both, {}).public
    assert not load({"home": str(tmp_path)}, {}).public


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("tls_key", {"tls_cert": "c.pem"}),
        ("tls_cert", {"tls_key": "k.pem"}),
        ("proxies", {"behind_proxy": "true", "proxies": "10.0.0.1/33"}),
        ("proxies", {"behind_proxy": "true", "proxies": " , "}),
        ("names", {"names": "https://sky.example.com"}),
        ("default_role", {"default_role": "root"}),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(tmp_path: Path, name: str, given: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=name):
        load({"home": str(tmp_path), **given}, {})


def test_a_certificate_that_cannot_be_used_is_told_before_anything_is_served(tmp_path: Path) -> None:
    _, cert, _ = certificates(tmp_path)
    _, _, other_key = certificates(tmp_path_of(tmp_path, "other"))
    for key in (other_key, tmp_path / "nosuch.pem"):
        given = {"home": str(tmp_path), "port": "0", "tls_cert": str(cert), "tls_key": str(key)}
        with pytest.raises(SettingsError) as refused, opened(load(given, {})):
            pytest.fail("it is served")
        assert str(refused.value).startswith(f"tls_cert {cert} and tls_key {key} cannot be used")


def tmp_path_of(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


def test_requests_under_way_survive_a_server_that_is_stopped(own_reachable: Reachable) -> None:
    """A stop drains: what was acknowledged goes on under its id when the next one is up."""
    with own_reachable.owner() as owner:
        task = {"run": "sleep 1; echo done"}
        made = owner.post("/launch", json={"cluster_name": "drains", "task": task})
        request_id = made.json()["request_id"]
    own_reachable.process.terminate()
    assert own_reachable.process.wait(DEADLINE_S) == 0
    own_reachable.start()
    with own_reachable.owner() as owner:
        record = ended(owner, request_id)
        assert record["status"] == "SUCCEEDED", record
        owner.post("/down", json={"cluster_name": "drains"})


def test_the_wire_is_encrypted(reachable: Reachable) -> None:
    with httpx2.Client(trust_env=False) as plain, pytest.raises(httpx2.TransportError):
        plain.get(reachable.url.replace("https:", "http:") + "/api/health")
