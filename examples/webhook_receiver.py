"""A receiver of webhooks: checks who speaks, answers at once, and hears of each event once.

Decides: what a message has to be to be believed (signed with the endpoint's secret, as Standard Webhooks say,
and not old), and that one which came before is dropped, by its id. What is to be done is done from a queue,
after the answer. To have something to hear of, it is a customer as in ``paid_job.py``, and has a job run.
Never: believes a body that it has not checked. Follows: it needs standardwebhooks here (pip install).

The daemon has to let webhooks go to its own computer, and commands run there:

    SKY_WEBHOOK_LOOPBACK=true SKY_ALLOW_HOST_JOBS=true scripts/with_daemon examples/webhook_receiver.py
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

import sky
from paid_job import SKU, Operator

BODY_BYTES_MAX = 65_536
WAITING_MAX = 1_000
WAIT_S = 60
LAST = "job.succeeded"


class Receiver(ThreadingHTTPServer):
    """Listens on this computer, at a port that is free. ``register`` is told where, and gives the secret."""

    def __init__(self, register: Callable[[str], str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook"
        self.verifier = Webhook(register(self.url))
        self.events: queue.Queue[dict[str, Any]] = queue.Queue(WAITING_MAX)
        self.seen: set[str] = set()  # to last as long as the sender tries again, keep it on disk
        self.one_at_a_time = threading.Lock()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Believe a message or not; the status that says so."""
        try:
            event = self.verifier.verify(body, headers)
        except (WebhookVerificationError, ValueError):
            return 401
        with self.one_at_a_time:
            if headers["webhook-id"] not in self.seen:
                if self.events.full():
                    return 503  # the sender comes again
                self.events.put(event)
                self.seen.add(headers["webhook-id"])
        return 204


class Handler(BaseHTTPRequestHandler):
    """One message."""

    timeout = 10

    def do_POST(self) -> None:
        length, status = self.headers.get("content-length", ""), 413
        if length.isdecimal() and int(length) <= BODY_BYTES_MAX and isinstance(self.server, Receiver):
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = self.server.take(headers, self.rfile.read(int(length)))
        self.send_response(status)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: who works on an event prints it."""


def hear(receiver: Receiver, jobs: sky.Jobs) -> None:
    """Have a job run, and print what is heard of it."""
    job = jobs.submit(sku=SKU, image="local", command=["uname", "-s"], max_runtime_seconds=60)
    while (event := receiver.events.get(timeout=WAIT_S))["type"] != LAST:
        print(f"{event['sequence']}: {event['type']}")
    print(f"{event['sequence']}: {LAST}: {job.id} for ${event['data']['settled_cost_usd']}")
    stamps = {"webhook-id": "evt_0", "webhook-timestamp": str(int(time.time()))}
    forged = httpx2.post(receiver.url, json=event, headers={**stamps, "webhook-signature": "v1,"})
    print(f"a forged message is answered with {forged.status_code}")


def main() -> None:
    with sky.Jobs() as anyone:
        url = anyone.url
    with Operator(url).customer() as key, sky.Jobs(url, key) as jobs:
        endpoints, mine = f"{url}/compute/v1/webhook_endpoints", {"authorization": f"Bearer {key}"}

        def register(place: str) -> str:
            answer = httpx2.post(endpoints, json={"url": place}, headers=mine)
            if answer.is_error:
                sys.exit(f"stopped: {place} cannot be told: {answer.text}")
            return answer.json()["secret"]

        with Receiver(register) as receiver:
            threading.Thread(target=receiver.serve_forever, daemon=True).start()
            hear(receiver, jobs)
            receiver.shutdown()


if __name__ == "__main__":
    try:
        main()
    except sky.SkyError as refused:
        sys.exit(f"stopped: {refused}")
    except KeyboardInterrupt:
        sys.exit(130)
