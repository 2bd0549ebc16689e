"""Webhooks: signed as the standard says, tried again, ended by 410, and never sent to a private address."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon, free_port
from tests.jobs.conftest import SETTINGS
from tests.jobs.shop import CATALOGUE, Customer, Shop, refusal
from tests.proof import record

DEADLINE_S = 60.0
ENDPOINTS = "/webhook_endpoints"


@dataclass
class Receiver:
    """Somebody who gets webhooks, and answers as told."""

    answers: list[int | str] = field(default_factory=list)
    """What to answer: statuses, ``redirect``, ``huge``, or ``late`` (200, once it ``may``); the last one
    again and again. None: 200."""
    may: threading.Event = field(default_factory=threading.Event)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def until(self, count: int) -> list[tuple[dict[str, str], bytes]]:
        """What came, once that much has."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.got) < count:
            assert time.monotonic() < deadline, self.got
            time.sleep(0.05)
        return self.got

    def types(self) -> list[str]:
        """The types of the events that came."""
        return [json.loads(body)["type"] for _, body in self.got]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    told = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            told.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            answer = told.answers.pop(0) if len(told.answers) > 1 else (told.answers or [200])[0]
            if answer == "late":
                told.may.wait(DEADLINE_S)
            if answer == "redirect":
                self.send_response(302)
                self.send_header("location", f"http://127.0.0.1:{told.port}/elsewhere")
                self.end_headers()
                return
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            if answer == "huge":
                try:
                    for _ in range(10_000):
                        self.wfile.write(b"x" * 1_000_000)
                except OSError:
                    return

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield told
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A seller whose webhooks may go to this computer."""
    home = tmp_path_factory.mktemp("telling")
    (home / "catalogue.yaml").write_text(CATALOGUE)
    settings = {
        **SETTINGS,
        "SKY_CATALOGUE": str(home / "catalogue.yaml"),
        "SKY_WEBHOOK_LOOPBACK": "true",
    }
    running = RunningDaemon(home, free_port(), environment=settings)
    running.start()
    yield Shop(running.url)
    running.stop()


def endpoint(customer: Customer, url: str, **more: Any) -> dict[str, Any]:
    """An endpoint, with its secret."""
    answer = customer("POST", ENDPOINTS, json={"url": url, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def deliveries(customer: Customer, webhook_id: str) -> list[dict[str, Any]]:
    """What was sent to an endpoint, oldest first."""
    return customer("GET", f"{ENDPOINTS}/{webhook_id}/deliveries").json()["data"][::-1]


def wait(look: Callable[[], Any]) -> Any:
    """What ``look`` sees, once it is something."""
    deadline = time.monotonic() + DEADLINE_S
    while not (seen := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return seen


def test_every_event_arrives_in_order_signed_and_once(telling: Shop, receiver: Receiver) -> None:
    customer = telling.customer()
    made = endpoint(customer, receiver.url)
    assert made["secret"].startswith("whsec_")
    job_id = customer.submit().json()["id"]
    customer.ended(job_id)
    got = receiver.until(5)
    verifier = Webhook(made["secret"])
    events = customer.events(job_id)
    for (headers, body), event in zip(got, events, strict=True):
        told = verifier.verify(body, headers)
        assert told == {**event, "sequence": told["sequence"]}
        assert headers["webhook-id"] == event["id"]
        with pytest.raises(WebhookVerificationError):
            verifier.verify(body + b" ", headers)
    sequences = [json.loads(body)["sequence"] for _, body in got]
    assert sequences == sorted(sequences)
    shown = customer("GET", f"{ENDPOINTS}/{made['id']}").json()
    assert "secret" not in shown
    # They arrived; that they did is written down after.
    wait(lambda: [d["state"] for d in deliveries(customer, made["id"])] == ["delivered"] * 5)
    assert len(receiver.got) == 5, "once"


def test_only_the_types_that_were_asked_for_arrive(telling: Shop, receiver: Receiver) -> None:
    customer = telling.customer()
    endpoint(customer, receiver.url, types=["job.succeeded"])
    customer.ended(customer.submit().json()["id"])
    receiver.until(1)
    assert receiver.types() == ["job.succeeded"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("job.suceeded", "there is no event 'job.suceeded'; did you mean 'job.succeeded'?"),
        ("everything", "there is no event 'everything'; known: billing.balance_exhausted, "),
    ],
)
def test_a_type_that_no_event_has_is_refused_rather_than_never_heard_of(
    telling: Shop, receiver: Receiver, wrong: str, said: str
) -> None:
    customer = telling.customer()
    made = endpoint(customer, receiver.url, types=["job.failed"])
    body = {"url": receiver.url, "types": ["job.queued", wrong]}
    for answer in (
        customer("POST", ENDPOINTS, json=body),
        customer("PATCH", f"{ENDPOINTS}/{made['id']}", json={"types": body["types"]}),
    ):
        refused = refusal(answer, "malformed_body", 400)
        assert refused["param"] == "types"
        assert said in refused["message"]
    [kept] = customer("GET", ENDPOINTS).json()["data"]
    assert kept["types"] == ["job.failed"]


def test_a_receiver_that_fails_gets_it_again_under_the_same_id(telling: Shop, receiver: Receiver) -> None:
    receiver.answers = [500, "late"]
    customer = telling.customer()
    made = endpoint(customer, receiver.url, types=["job.queued"])
    customer.submit()
    receiver.until(1)
    first = wait(lambda: [d for d in deliveries(customer, made["id"]) if d["attempts"]])
    assert (first[0]["state"], first[0]["last_status"]) == ("pending", 500)
    got = receiver.until(2)
    receiver.may.set()
    assert got[0][0]["webhook-id"] == got[1][0]["webhook-id"]
    [done] = wait(lambda: [d for d in deliveries(customer, made["id"]) if d["state"] == "delivered"])
    assert done["attempts"] == 2


def test_410_ends_it_and_it_can_be_begun_again_by_hand(telling: Shop, receiver: Receiver) -> None:
    receiver.answers = [410, 200]
    customer = telling.customer()
    made = endpoint(customer, receiver.url, types=["job.queued"])
    customer.submit()
    path = f"{ENDPOINTS}/{made['id']}"
    gone = wait(lambda: None if (w := customer("GET", path).json())["enabled"] else w)
    assert "410" in gone["disabled_reason"]
    customer.submit()
    assert customer("PATCH", path, json={"enabled": True}).json()["disabled_reason"] is None
    receiver.until(2)
    [lost] = wait(lambda: [d for d in deliveries(customer, made["id"]) if d["state"] == "failed"])
    answer = customer("POST", f"{path}/deliveries/{lost['id']}/redeliver")
    assert answer.status_code == 202
    receiver.until(3)
    assert receiver.got[0][0]["webhook-id"] == receiver.got[2][0]["webhook-id"]


def test_what_is_to_be_sent_again_while_it_is_being_sent_is(telling: Shop, receiver: Receiver) -> None:
    receiver.answers = ["late", 200]
    customer = telling.customer()
    made = endpoint(customer, receiver.url, types=["job.queued"])
    customer.submit()
    receiver.until(1)
    [sent] = deliveries(customer, made["id"])
    again = customer("POST", f"{ENDPOINTS}/{made['id']}/deliveries/{sent['id']}/redeliver")
    assert (again.status_code, again.json()["state"]) == (202, "pending")
    receiver.may.set()
    receiver.until(2)
    [done] = wait(lambda: [d for d in deliveries(customer, made["id"]) if d["state"] == "delivered"])
    assert (done["attempts"], done["last_status"]) == (1, 200)


def test_an_operator_sees_what_failed_sends_it_again_and_ends_it(
    telling: Shop, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers = [410, 200]
    customer = telling.customer()
    made = endpoint(customer, receiver.url, types=["job.queued"])["id"]
    customer.submit()
    wait(lambda: [d for d in deliveries(customer, made) if d["state"] == "failed"])
    account = telling.operate("GET", f"/accounts/{customer.account}")["name"]
    operator = Sky(tmp_path, tmp_path, SKY_URL=telling.url)
    webhook = ["admin", "webhook"]
    listed, shown, page, table, on, nowhere, none = operator.together(
        [
            [*webhook, "list", account, "-o", "json"],
            [*webhook, "show", made],
            [*webhook, "deliveries", made, "--state", "failed", "-o", "json"],
            [*webhook, "deliveries", made],
            [*webhook, "enable", made, "-o", "json"],
            [*webhook, "show", "whe_nowhere"],
            [*webhook, "deliveries", made, "--state", "delivered"],
        ]
    )
    assert [one["id"] for one in listed.check().json()["items"]] == [made]
    assert "410" in shown.check().out
    [lost] = page.check().json()["items"]
    assert lost["last_status"] == 410
    assert lost["id"] in table.check().out
    assert on.check().json()["enabled"] is True
    assert "sky admin webhook list" in nowhere.check(3).err
    assert none.check().out == ""
    again = operator("admin", "webhook", "redeliver", made, lost["id"], "-o", "json").check()
    assert again.json()["id"] == lost["id"]
    wait(lambda: [d for d in deliveries(customer, made) if d["state"] == "delivered"])
    off = operator("admin", "webhook", "disable", made).check()
    assert "operator" in off.out
    assert customer("GET", f"{ENDPOINTS}/{made}").json()["enabled"] is False


def test_a_redirect_is_not_followed_and_a_huge_answer_not_read(telling: Shop, receiver: Receiver) -> None:
    receiver.answers = ["redirect"]
    customer = telling.customer()
    made = endpoint(customer, receiver.url, types=["job.queued", "job.succeeded"])
    job_id = customer.submit().json()["id"]
    moved = wait(lambda: [d for d in deliveries(customer, made["id"]) if d["last_status"] == 302])
    assert moved[0]["state"] == "pending"
    receiver.answers = ["huge"]
    customer.ended(job_id)
    done = wait(lambda: [d for d in deliveries(customer, made["id"]) if d["state"] == "delivered"])
    assert done, "the answer that never ends was no obstacle"


def test_after_a_rotation_both_secrets_sign(telling: Shop, receiver: Receiver) -> None:
    customer = telling.customer()
    made = endpoint(customer, receiver.url, types=["job.queued"])
    rotated = customer("POST", f"{ENDPOINTS}/{made['id']}/rotate").json()
    assert rotated["secret"] != made["secret"]
    customer.submit()
    [(headers, body)] = receiver.until(1)
    for secret in (made["secret"], rotated["secret"]):
        assert Webhook(secret).verify(body, headers)["type"] == "job.queued"


def test_endpoints_are_each_owners_own_and_can_be_deleted(telling: Shop, receiver: Receiver) -> None:
    customer, other = telling.customer(), telling.customer()
    made = endpoint(customer, receiver.url)
    path = f"{ENDPOINTS}/{made['id']}"
    for method in ("GET", "DELETE"):
        refusal(other(method, path), "not_found", 404)
    assert other("GET", ENDPOINTS).json()["data"] == []
    assert customer("DELETE", path).json()["deleted"] is True
    refusal(customer("GET", path), "not_found", 404)
    customer.ended(customer.submit().json()["id"])
    assert receiver.got == []


@pytest.mark.parametrize(
    "url",
    [
        "http://example.test/hook",
        "https://127.0.0.1/hook",
        "https://10.0.0.1/hook",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/hook",
        "https://[::ffff:127.0.0.1]/hook",
        "https://localhost/hook",
        "https://localhost./hook",
        "https://127。0。0。1/hook",
        "https://①②⑦.0.0.1/hook",
        "https://2130706433/hook",
        "https://127.1/hook",
        "https://0x7f.1/hook",
        "https://[64:ff9b::7f00:1]/hook",
        "https://user:pass@example.test/hook",
        "ftp://example.test/hook",
        "nonsense",
        "https://example.test/" + "x" * 3_000,
    ],
)
def test_an_address_that_is_not_public_cannot_be_named(customer: Customer, url: str) -> None:
    assert refusal(customer("POST", ENDPOINTS, json={"url": url}), "invalid_url", 400)["param"] == "url"


def test_a_name_that_leads_to_a_private_address_is_never_connected_to(
    customer: Customer, receiver: Receiver
) -> None:
    made = endpoint(customer, f"https://{socket.gethostname()}:{receiver.port}/hook", types=["job.queued"])
    customer.submit()
    tried = wait(lambda: [d for d in deliveries(customer, made["id"]) if d["attempts"]])
    assert tried[0]["state"] == "pending"
    assert "no public address" in tried[0]["last_error"]
    assert receiver.got == []


def ended(shop: Shop, webhook_id: str) -> list[datetime]:
    """When the last try of each message to an endpoint was over, as its operator is told."""
    items = shop.operate("GET", f"/webhooks/{webhook_id}/deliveries")["items"]
    return [datetime.fromisoformat(one["tried_at"]) for one in items if one["tried_at"] is not None]


def test_many_endpoints_that_hang_keep_no_other_customer_waiting(telling: Shop, receiver: Receiver) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        hanging = [telling.customer() for _ in range(9)]
        hooks = [[endpoint(one, url)["id"] for _ in range(8)] for one in hanging]
        for one in hanging:
            assert one.submit().status_code == 201
        customer = telling.customer()
        mine = endpoint(customer, receiver.url, types=["job.queued"])["id"]
        assert customer.submit().status_code == 201
        assert receiver.until(1)
        [had] = wait(lambda: ended(telling, mine))
        given_up = [moment for ids in hooks for hook in ids for moment in ended(telling, hook)]
        assert all(moment > had for moment in given_up), "those that hang were still waited for"
        record(endpoints_that_hang=sum(map(len, hooks)), others_kept_waiting=0)
        for one, ids in zip(hanging, hooks, strict=True):
            for hook in ids:
                assert one("DELETE", f"{ENDPOINTS}/{hook}").status_code in (200, 204)
