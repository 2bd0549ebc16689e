"""What is measured: a daemon in a folder of its own, started for one round and ended after it.

Decides: how ours and a peer with the same interface are started and spoken to outside of the timed part.
Never: times anything. Follows: both are given the same requests; only the bodies' dialects differ.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_S = 180.0
ANSWER_S = 60.0
POLL_S = 0.005


def processes_under(mark: str) -> list[int]:
    """Live processes that have ``mark`` in their environment or command line, this one left out."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in told and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def processes_of_session(session: int) -> list[int]:
    """Live processes of the session that one began."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def memory_mb(pids: list[int]) -> float:
    """Proportional set size: shared pages are counted once."""
    total_kb = 0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total_kb += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total_kb / 1024


@dataclass
class Target:
    """A daemon that answers. ``home`` is its state folder, and its mark in the process table."""

    name: str
    home: Path
    url: str
    ready_s: float
    process: subprocess.Popen[bytes]
    compute_body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """One request outside of the timed part. Bytes go as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/vnd.skyward.blob" if isinstance(body, bytes) else "application/json"
        sent = {"Content-Type": kind, "Idempotency-Key": secrets.token_hex(), **self.headers, **headers}
        request = urllib.request.Request(self.url + path, data=content, method=method, headers=sent)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=ANSWER_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as refused:
            raise SystemExit(f"{self.name} {method} {path}: {refused.code} {refused.read()!r}") from refused
        return json.loads(text) if text[:1] in (b"{", b"[") else text

    def pids(self) -> list[int]:
        """The server and all that came of it: also what has written a title over its environment, as workers
        of skypilot's do, by its session."""
        return sorted({*processes_under(str(self.home)), *processes_of_session(self.process.pid)})

    def server_pids(self) -> list[int]:
        """The daemon and what it started, without the nodes."""
        nodes = f"{self.home}/nodes"
        return [
            pid
            for pid in self.pids()
            if nodes not in Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        ]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        shutil.rmtree(self.home, ignore_errors=True)


def wait_live(url: str, process: subprocess.Popen[bytes], log: Path, path: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline_s = time.perf_counter() + START_S
    while time.perf_counter() < deadline_s:
        try:
            opener.open(f"{url}{path}", timeout=ANSWER_S).close()
        except (urllib.error.URLError, OSError):
            if process.poll() is not None:
                break
            time.sleep(POLL_S)
        else:
            return
    said = log.read_text(errors="replace")[-2000:]
    raise SystemExit(f"nobody answers at {url}{path}; {log} said:\n{said}")


def start_ours(python: str, port: int) -> Target:
    home = Path(tempfile.mkdtemp(prefix="sky-bench-"))
    command = [python, "-m", "sky.server.main", "--home", str(home), "--port", str(port)]
    body = {"spec": {"specs": [{"provider": {"kind": "bench"}}], "nodes": {"desired": 0, "min": 0, "max": 1}}}
    target = start("skyfleet", command, {"SKY_HOME": str(home), "SKY_FAKE_PROVIDER": "1"}, home, port, body)
    target.ask("POST", "/v1/providers", {"kind": "fake", "name": "bench"})
    return target


def restart_ours(python: str, ended: Target) -> Target:
    """A new daemon on the folder, and at the address, of one that has ended."""
    command = [python, "-m", "sky.server.main", "--home", str(ended.home), "--port", str(ended.address[1])]
    more = {"SKY_HOME": str(ended.home), "SKY_FAKE_PROVIDER": "1"}
    return start("skyfleet", command, more, ended.home, ended.address[1], ended.compute_body)


def start_skyward(python: str, port: int) -> Target:
    home = Path(tempfile.mkdtemp(prefix="skyward-bench-"))
    sky = str(Path(python).with_name("sky"))
    command = [
        sky,
        "server",
        "start",
        "--foreground",
        "--port",
        str(port),
        "--database",
        str(home / "db.sqlite"),
    ]
    body = {"spec": {"specs": [{"provider": {"kind": "fake"}}], "nodes": {"initial": 0, "min": 0, "max": 1}}}
    return start("skyward", command, {"HOME": str(home)}, home, port, body)


def start(
    name: str,
    command: list[str],
    more: dict[str, str],
    home: Path,
    port: int,
    body: dict[str, Any],
    live: str = "/v1/health/live",
) -> Target:
    url = f"http://127.0.0.1:{port}"
    began_s = time.perf_counter()
    log = home / "bench.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=home,
        )
    target = Target(name, home, url, 0.0, process, body)
    try:
        wait_live(url, process, log, live)
    except BaseException:
        target.stop()
        raise
    target.ready_s = time.perf_counter() - began_s
    return target
