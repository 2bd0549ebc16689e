"""Looks after one container of a paid job. Run as a script, with the standard library alone.

Decides: what the container's network lacks (the addresses at which clouds hand out credentials) and has (a
way to put the job's files, and nothing else, to a daemon of this computer). Never: dies with the worker that
started it, or stays when its container is gone for good.
Follows: it reads lines: ``guard`` closes off a network before anything runs in it, ``memory`` asks whether
memory ran out, ``made`` says that the container is there, and ``done`` that it is removed. When nobody can
say anything any more, it removes the container itself.

    job_keeper.py NAME-OF-ENGINE PROGRAM CONTAINER
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import ipaddress
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

CLONE_NEWNET = 0x40000000
METADATA = (
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "100.100.100.200",
    "168.63.129.16",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
)
RTM_NEWROUTE, NLM_FLAGS = 24, 0x0001 | 0x0004 | 0x0100 | 0x0400
RTN_UNREACHABLE, RT_TABLE_MAIN, RTPROT_STATIC, RTA_DST = 7, 254, 4, 1
ANSWER_BYTES = 4_096
REMOVE_SECONDS_MAX = 60
PAUSES_S = (0.0, 1.0, 3.0, 10.0, 30.0)
"""Before each try to remove the container; what was just being made may be there only at a later one."""
IDLE_S = 60
CHUNK_BYTES = 256 * 1024
UPLOADS_MAX = 16
HEADERS = ("authorization", "content-type", "x-amz-checksum-sha256")
_libc = ctypes.CDLL(None, use_errno=True)


# ── the network ─────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def inside(pid: int) -> Generator[None]:
    """This thread in the network of another process. Raises OSError."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        theirs = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter(theirs)
        finally:
            os.close(theirs)
        try:
            yield
        finally:
            enter(own)
    finally:
        os.close(own)


def enter(fd: int) -> None:
    """Raises OSError."""
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def close_off(address: str) -> None:
    """Make an address unreachable in the network that this thread is in. Raises OSError."""
    ip = ipaddress.ip_address(address)
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    if ip.version == 6 and not Path("/proc/thread-self/net/if_inet6").exists():
        return
    route = struct.pack(
        "=BBBBBBBBI", family, ip.max_prefixlen, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 0, RTN_UNREACHABLE, 0
    )
    target = struct.pack("=HH", 4 + len(ip.packed), RTA_DST) + ip.packed
    body = route + target
    message = struct.pack("=IHHII", 16 + len(body), RTM_NEWROUTE, NLM_FLAGS, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.settimeout(IDLE_S)
        link.send(message)
        answer = link.recv(ANSWER_BYTES)
    (number,) = struct.unpack_from("=i", answer, 16)
    if number:
        raise OSError(-number, f"route to {address}: {os.strerror(-number)}")


# ── memory ──────────────────────────────────────────────────────────────────────────────────────


class Memory:
    """Whether processes of a container were killed for want of memory, where engines do not notice: with the
    first version of control groups."""

    def __init__(self, pid: int) -> None:
        """Listen. Raises OSError, ValueError where there is nothing to listen to."""
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
        [path] = [line.split(":", 2)[2] for line in groups if line.split(":", 2)[1] == "memory"]
        self._folder = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
        self._events = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        control = os.open(self._folder / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            (self._folder / "cgroup.event_control").write_text(f"{self._events} {control}", encoding="ascii")
        finally:
            os.close(control)

    def ran_out(self) -> bool:
        """Whether it did; asked once."""
        there = self._folder.exists()
        try:
            count = os.eventfd_read(self._events)
        except BlockingIOError:
            return False
        # The end of the group is an event too.
        return count > (0 if there else 1)


# ── uploads ─────────────────────────────────────────────────────────────────────────────────────


class Uploads(ThreadingHTTPServer):
    """A server inside of the container's network that passes on what puts the job's files."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, job: str, port: int, url_file: str) -> None:
        super().__init__(("", 0), _Upload, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()
        self.server_name, self.server_port = "localhost", port
        self.slots = threading.BoundedSemaphore(UPLOADS_MAX)
        self._port = port
        self._url_file = url_file
        job = re.escape(job)
        root = r"/compute/v1/"
        self.allowed = re.compile(
            rf"{root}(?:internal/jobs/{job}/artifacts/(?:uploads|complete)|files/[^/?#]+/[^/?#]+)"
        )

    def upstream(self) -> http.client.HTTPConnection:
        """The daemon, where it is now."""
        port = self._port
        with contextlib.suppress(OSError, ValueError, KeyError):
            told: dict[str, str] = json.loads(Path(self._url_file).read_bytes())
            port = urlsplit(told["url"]).port or port
        return http.client.HTTPConnection("127.0.0.1", port, timeout=IDLE_S)

    def handle_error(self, request: object, client_address: object) -> None:
        """A command that breaks off is no news."""


class _Upload(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S

    def do_POST(self) -> None:
        """Ask where a file may be put; say that all are there."""
        self._pass_on("POST")

    def do_PUT(self) -> None:
        """Put a file."""
        self._pass_on("PUT")

    def _pass_on(self, method: str) -> None:
        server = cast("Uploads", self.server)
        length = self.headers.get("content-length", "0")
        if not server.allowed.fullmatch(self.path) or not length.isdigit():
            self.close_connection = True
            self.send_error(404 if length.isdigit() else 411)
            return
        headers = {name: self.headers[name] for name in HEADERS if name in self.headers}
        with server.slots, contextlib.closing(server.upstream()) as daemon:
            try:
                daemon.request(
                    method,
                    self.path,
                    body=self._body(int(length)),
                    headers={**headers, "content-length": length},
                )
                answer = daemon.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                self.close_connection = True
                self.send_error(502)
                return
        self.send_response(answer.status)
        self.send_header("content-type", answer.headers.get("content-type", "text/plain"))
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _body(self, left: int) -> Iterator[bytes]:
        while left:
            chunk = self.rfile.read(min(CHUNK_BYTES, left))
            if not chunk:
                raise OSError("the command broke off")
            left -= len(chunk)
            yield chunk


# ── its life ────────────────────────────────────────────────────────────────────────────────────


def guard(pid: int, port: int, job: str, url_file: str) -> None:
    """Close off the network of a process, and let it put files. Raises OSError."""
    listener = None
    with inside(pid):
        for address in METADATA:
            close_off(address)
        if port:
            listener = socket.create_server(("127.0.0.1", port))
    if listener is not None:
        server = Uploads(listener, job, port, url_file)
        threading.Thread(target=server.serve_forever, daemon=True).start()


def remove(engine: str, program: str, name: str, *, made: bool) -> None:
    """Remove the container, as often as it takes; one that was not ``made`` yet may still come."""
    words = ["rm", "--force", "--time", "0", "--ignore"] if engine == "podman" else ["rm", "--force"]
    for pause_s in PAUSES_S:
        time.sleep(pause_s)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [program, *words, name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=REMOVE_SECONDS_MAX,
                check=False,
            )
            if made and done.returncode == 0:
                return


def main(arguments: list[str]) -> int:
    """Serve until told that all is done, or until nobody is there to tell."""
    engine, program, name = arguments
    if os.fork():
        return 0
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    made, memory = False, None
    for line in sys.stdin.buffer:
        word, *rest = line.decode("utf-8", "replace").rstrip("\n").split(" ", 4)
        if word == "done":
            os._exit(0)
        said, made = "ok", True
        try:
            if word == "guard":
                with contextlib.suppress(OSError, ValueError):
                    memory = Memory(int(rest[0]))
                guard(int(rest[0]), int(rest[1]), rest[2], rest[3])
            elif word == "memory" and memory is not None and memory.ran_out():
                said = "ran out"
        except OSError as error:
            said = str(error).replace("\n", " ")
        with contextlib.suppress(OSError):
            os.write(1, f"{said}\n".encode())
    remove(engine, program, name, made=made)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
