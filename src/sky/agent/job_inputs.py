"""Downloads the inputs of a paid job into their folders.

Decides: which addresses may be asked (public ones, over https, unless the operator allows others), how large
and how slow a download may be, and how a failure is told. Never: repeats the query string of a source, which
may hold a signature; connects to another address than the one that was checked.
Follows: a file is under its name only once it is whole; what may pass is tried again, what cannot is not.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from pathlib import Path
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from sky.agent.job_node import JobNode, tell
from sky.kit import addresses, backoff
from sky.wire.steps import Failed, Input, Order

INPUT_BYTES_MAX = 100 * 1024**3
INPUT_SECONDS_MAX = 3_000
IDLE_S = 60.0
CONNECT_S = 15.0
REDIRECTS_MAX = 5
TRIES_MAX = 3
RETRY_LONGEST_S = 5.0
CHUNK_BYTES = 1024 * 1024
ADDRESSES_MAX = 8
_AGENT = "skyfleet"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_WORDS = {401: "it wants a login", 403: "it is not allowed, or no longer", 404: "it is not there"}


class _Refused(Exception):
    """A download that cannot succeed; the message says why."""


class _Again(Exception):
    """A download that failed and may succeed when tried again."""


def fetch(order: Order, node: JobNode) -> Failed | None:
    """Download every input; gives why one cannot be had."""
    taken: set[Path] = set()
    for one in order.inputs:
        name = file_name(one.source)
        target = node.mounted(order, one.mount) / name
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            return _failed(one.source, "its address does not end in a file name")
        if target in taken:
            return _failed(one.source, f"another input is {name!r} in {one.mount} too")
        taken.add(target)
        why = _fetch(one, target, private=order.private_inputs)
        if why is not None:
            return _failed(one.source, why)
    return None


def file_name(source: str) -> str:
    """What an input is called in its folder."""
    return unquote(urlsplit(source).path.rpartition("/")[2])


def shown(source: str) -> str:
    """A source without what may be secret in it."""
    parts = urlsplit(source)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _failed(source: str, why: str) -> Failed:
    message = f"the input {shown(source)} cannot be had: {why}"
    tell(message)
    return Failed("input_unavailable", message)


def _fetch(one: Input, target: Path, *, private: bool) -> str | None:
    tell(f"downloading {shown(one.source)} into {one.mount}")
    begun_s = time.monotonic()
    deadline_s = begun_s + INPUT_SECONDS_MAX
    part = target.with_name(f".{target.name[:200]}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, TRIES_MAX + 1):
        try:
            size = _download(one.source, part, deadline_s, private=private)
            part.replace(target)
        except _Refused as refused:
            return str(refused)
        except _Again as failed:
            if attempt == TRIES_MAX:
                return f"{failed} (tried {attempt} times)"
            tell(f"{failed}; trying again")
        except OSError as error:
            return f"it cannot be written here: {error.strerror or error}"
        else:
            tell(f"{target.name} has {size} bytes, after {time.monotonic() - begun_s:.1f} s")
            return None
        finally:
            part.unlink(missing_ok=True)
        time.sleep(backoff.delay_s(attempt, longest_s=RETRY_LONGEST_S))
    return "it was tried too often"


def _download(source: str, part: Path, deadline_s: float, *, private: bool) -> int:
    """The content of a source as a file; gives its size. Raises _Refused, _Again, OSError for the file."""
    for _ in range(REDIRECTS_MAX + 1):
        url = urlsplit(source)
        if url.scheme != "https" or not url.hostname:
            raise _Refused("it leads to an address that is not https")
        connection = _connected(url, private=private)
        try:
            answer = _asked(connection, url)
            if answer.status in _REDIRECTS and answer.headers["Location"]:
                source = urljoin(source, answer.headers["Location"])
                continue
            _check(answer.status)
            return _save(answer, part, deadline_s)
        finally:
            connection.close()
    raise _Refused(f"it leads from address to address more than {REDIRECTS_MAX} times")


def _check(status: int) -> None:
    if status == http.client.OK:
        return
    told = f"it was answered with {status}"
    if status in _WORDS:
        told += f": {_WORDS[status]}"
    raise _Again(told) if status in _AGAIN else _Refused(told)


def _asked(connection: http.client.HTTPConnection, url: SplitResult) -> http.client.HTTPResponse:
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    headers = {"User-Agent": _AGENT, "Accept-Encoding": "identity", "Accept": "*/*"}
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse()
    except UnicodeEncodeError:
        raise _Refused("its address has characters that must be written as %-codes") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Again(_plain(error)) from error


def _save(answer: http.client.HTTPResponse, part: Path, deadline_s: float) -> int:
    announced = answer.headers["Content-Length"]
    size_max = int(announced) if announced and announced.isdigit() else None
    if size_max is not None and size_max > INPUT_BYTES_MAX:
        raise _Refused(f"it has {size_max} bytes; an input may have {INPUT_BYTES_MAX} at most")
    size = 0
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with os.fdopen(fd, "wb") as file:
        while True:
            if time.monotonic() > deadline_s:
                raise _Refused(f"it took longer than {INPUT_SECONDS_MAX} s")
            try:
                chunk = answer.read1(CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise _Again(_plain(error)) from error
            if not chunk:
                break
            size += len(chunk)
            if size > INPUT_BYTES_MAX:
                raise _Refused(f"it has more than {INPUT_BYTES_MAX} bytes")
            file.write(chunk)
    if size_max is not None and size != size_max:
        raise _Again(f"it broke off after {size} of {size_max} bytes")
    return size


# ── where ───────────────────────────────────────────────────────────────────────────────────────


class _Pinned(http.client.HTTPSConnection):
    """A connection to one address, under the name whose address it is."""

    def __init__(self, name: str, port: int, address: str) -> None:
        self._tls = ssl.create_default_context()
        super().__init__(name, port, timeout=IDLE_S, context=self._tls)
        self._address = address

    def connect(self) -> None:
        """Connect to the address, and have it prove the name."""
        plain = socket.create_connection((self._address, self.port), timeout=CONNECT_S)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
            self.sock.settimeout(IDLE_S)
        except BaseException:
            plain.close()
            raise


def _connected(url: SplitResult, *, private: bool) -> _Pinned:
    """A connection to an allowed address of that host. Raises _Refused, _Again."""
    name = url.hostname or ""
    try:
        port = url.port or http.client.HTTPS_PORT
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (ValueError, UnicodeError):
        raise _Refused("its address names no host") from None
    except OSError as error:
        raise _Again(f"the name {name} cannot be resolved: {error.strerror or error}") from error
    there = list(dict.fromkeys(str(one[4][0]) for one in found))[:ADDRESSES_MAX]
    allowed = [address for address in there if private or addresses.is_public(address)]
    if not allowed:
        raise _Refused(f"{name} is at {', '.join(there)}, which is no public address")
    last = "no address answers"
    for address in allowed:
        connection = _Pinned(name, port, address)
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise _Refused(f"its certificate cannot be trusted: {error.verify_message}") from error
        except OSError as error:
            last = f"{name} cannot be reached: {_plain(error)}"
        else:
            return connection
    raise _Again(last)


def _plain(error: Exception) -> str:
    """An error of a connection, without where in the library it came from."""
    if isinstance(error, TimeoutError):
        return f"nothing came for {IDLE_S:g} s"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
