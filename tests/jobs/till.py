"""A console for tests: the reference console as a process, its operator, and customers with keys there.

Decides: how a test speaks to it: over HTTP, from outside. Never: looks into it.
"""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from tests.conftest import DIES_WITH_US, STARTER
from tests.jobs.shop import Customer, Shop

START_S = 60.0
TOKEN = "bridge-token-for-tests"


@dataclass
class Till:
    """A console at ``port`` that keeps its books in ``folder``, so that it can be started again."""

    folder: Path
    port: int
    http: httpx2.Client = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        headers = {"authorization": f"Bearer {TOKEN}"}
        self.http = httpx2.Client(base_url=self.url, headers=headers, timeout=20, trust_env=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """What a daemon must be told to ask it."""
        return {
            "SKY_ACCOUNTS_BACKEND": "console",
            "SKY_CONSOLE_URL": self.url,
            "SKY_CONSOLE_TOKEN": TOKEN,
        }

    def start(self) -> None:
        """Start it and wait until it listens."""
        books = str(self.folder / "books.json")
        command = [sys.executable, "-m", "sky.console.main", "--port", str(self.port), "--token", TOKEN]
        with open(self.folder / "console.log", "ab") as log:
            started = STARTER.submit(
                subprocess.Popen, [*DIES_WITH_US, *command, "--file", books], stdout=log, stderr=log
            )
            self.process = started.result()
        deadline = time.monotonic() + START_S
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "console.log").read_text()[-4000:])
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait(15)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What its operator asks."""
        answer = self.http.request(method, f"/console/v1{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def customer(self, shop: Shop, paid: str = "100") -> Customer:
        """A new customer with a balance and a key."""
        name = f"c-{secrets.token_hex(6)}"
        self.ask("PUT", f"/accounts/{name}", {"amount_usd": paid, "payment": name})
        return Customer(shop.http, self.ask("POST", f"/accounts/{name}/keys")["key"], name)

    def balance(self, customer: Customer) -> tuple[str, str]:
        """What a customer may spend, and what is held."""
        found = self.ask("PUT", f"/accounts/{customer.account}", {})
        return found["available_usd"], found["held_usd"]

    def holds(self, customer: Customer) -> dict[str, Any]:
        """The holds of a customer, after looking whether the books add up."""
        books = self.ask("GET", "/books")
        assert books["findings"] == []
        return {name: hold for name, hold in books["holds"].items() if hold["owner"] == customer.account}

    def strike(self, *faults: dict[str, Any]) -> None:
        """From now on these faults strike, and no others."""
        self.ask("PUT", "/faults", list(faults))

    def _listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False
