"""A real browser without a screen, spoken to over its own protocol.

Decides: how a page is opened, asked and looked at, and what counts as an error of it. Never: reaches beyond
this computer. Follows: whatever a page logs as an error, or a policy forbids, is kept and can be asserted on;
a browser ends when the process does that started it.
"""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from tests.conftest import DIES_WITH_US, STARTER
from websockets.sync.client import ClientConnection, connect

DEADLINE_S = 60.0
COMMAND = (
    "chromium",
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-proxy-server",
    "--window-size=1280,900",
    "--font-render-hinting=none",
    "--disable-lcd-text",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)
PHONE = {"width": 360, "height": 720, "deviceScaleFactor": 2, "mobile": True}
SHOWN = "!!document.querySelector('main h1') && !document.querySelector('main[aria-busy]')"
CHANGED = "net::ERR_NETWORK_CHANGED"
"""What a browser gives up with when the computer gets or loses a network, as it does with each container."""
DESK = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}


class Browser:
    """A browser with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "browser.log"
        with open(self._log, "wb") as log:
            started = STARTER.submit(
                subprocess.Popen,
                [*DIES_WITH_US, *COMMAND, f"--user-data-dir={folder / 'profile'}", "about:blank"],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self._process = started.result()
        told = folder / "profile" / "DevToolsActivePort"
        deadline = time.monotonic() + DEADLINE_S
        while not (told.is_file() and told.read_text().count("\n") >= 1):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self._log.read_text()[-2000:])
            time.sleep(0.02)
        self._url = f"http://127.0.0.1:{told.read_text().splitlines()[0]}"

    def tab(self, url: str) -> Tab:
        """A new tab for the daemon at ``url``."""
        made = httpx2.put(f"{self._url}/json/new?about:blank", trust_env=False, timeout=DEADLINE_S).json()
        return Tab(
            connect(made["webSocketDebuggerUrl"], max_size=None, proxy=None, legacy=True, close_timeout=1),
            url,
        )

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass
class Tab:
    """A tab, and what went wrong in it."""

    line: ClientConnection
    url: str
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    interrupted: bool = False
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        """Ask something of the browser; its answer."""
        number = next(self._numbers)
        self.line.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            told = json.loads(self.line.recv(timeout=DEADLINE_S))
            if told.get("id") == number:
                assert "error" not in told, told["error"]
                return told["result"]
            self._heed(told)

    def _heed(self, told: dict[str, Any]) -> None:
        params = told.get("params", {})
        match told["method"]:
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                self.errors.append(" ".join(str(one.get("value", one)) for one in params["args"]))
            case "Log.entryAdded" if CHANGED in params["entry"]["text"]:
                self.interrupted = True
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                entry = params["entry"]
                self.errors.append(f"{entry['text']} {entry.get('url', '')}")
            case "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.errors.append(f"a dialog: {params['message']}")

    def run(self, script: str) -> Any:
        """What an expression of the page is, awaited where it is a promise."""
        told = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, script: str, wanted: Callable[[Any], bool] = bool) -> Any:
        """What an expression is, once it is as wanted."""
        deadline = time.monotonic() + DEADLINE_S
        while not wanted(found := self.run(script)):
            assert time.monotonic() < deadline, (script, found, self.text(), self.errors)
            time.sleep(0.03)
        return found

    def open(self, page: str = "") -> None:
        """Load a page of the dashboard from anew, and wait until it has shown what it has to show."""
        self.interrupted = True
        while self.interrupted:
            self.interrupted = False
            self.send("Page.navigate", url=f"{self.url}/dashboard/{page}")
            self.until(f"!!({SHOWN})", lambda shown: shown or self.interrupted)

    def go(self, page: str) -> None:
        """Go to a page as a link does."""
        self.run(
            f"(() => {{ const a = document.createElement('a'); a.href = '/dashboard/{page}'; "
            "document.body.append(a); a.click(); a.remove(); })()"
        )
        self.shown()

    def press(self, text: str) -> None:
        """Press the button that says that."""
        find = (
            f"[...document.querySelectorAll('button')].find((one) => one.textContent === {json.dumps(text)})"
        )
        self.until(f"!!{find}")
        self.run(f"{find}.click()")

    def shown(self) -> None:
        """Wait until a view has shown itself."""
        self.until(SHOWN)

    def text(self) -> str:
        """What the page says."""
        return self.run("document.querySelector('main')?.innerText ?? document.body?.innerText ?? ''")

    def says(self, words: str) -> str:
        """Wait until the page says that."""
        return self.until("document.body.innerText", lambda text: words in text)

    def screen(self, size: dict[str, Any]) -> None:
        """Have the screen of that size."""
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def connected(self, whether: bool) -> None:
        """Have it reach the daemon, or not."""
        slow = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.send("Network.emulateNetworkConditions", offline=not whether, **slow)

    def zone(self, name: str) -> None:
        """Have the reader be in a time zone, from the next page that is opened."""
        self.send("Emulation.setTimezoneOverride", timezoneId=name)

    def scheme(self, word: str) -> None:
        """Have the reader prefer light or dark."""
        features = [{"name": "prefers-color-scheme", "value": word}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def picture(self, file: Path) -> None:
        """The page as it looks."""
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """Close it."""
        self.line.send(json.dumps({"id": next(self._numbers), "method": "Page.close", "params": {}}))
        self.line.close()
