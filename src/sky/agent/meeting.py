"""How the ranks of one broadcast call find each other, agree on a value, and learn who left.

Decides: the ports at which rank 0 is looked for, who belongs to the call (whoever knows its key), and how
long each waits. Never: carries anything of the user's; what it agrees on is where the user's library meets.
Follows: nobody has to be told a port: rank 0 takes the first free one of a few that follow from the key, and
a visitor of another call, at the same port by chance, is turned away. A rank that dies closes its
connection, so nobody waits for it longer than that takes; and every wait ends with the timeout.
"""

from __future__ import annotations

import errno
import hashlib
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec

PORTS = range(20_000, 30_000)
"""Below what systems hand out to outgoing connections."""
CANDIDATES = 16
GREET_S = 1.0
"""How long a stranger at the door may take to say who it is."""
ANSWER_S = 2.0
"""How long whoever is behind a port may take to say that it is the right one."""
ENTER_S = 10.0
"""How long the two may take after that."""
CONNECT_S = 3.0
ROUND_S = 0.1
WAIT_S_MIN = 0.01
LAST_WORDS_S = 0.2
"""How long a rank that failed waits for the reason why another did before."""
MESSAGE_BYTES_MAX = 4096
ERROR_CHARS_MAX = 500


def candidates(key: str) -> list[int]:
    """The ports at which the first rank of that call may be."""
    digest = hashlib.sha256(key.encode()).digest()
    numbers = (int.from_bytes(digest[at : at + 2], "big") for at in range(0, 2 * CANDIDATES, 2))
    return [PORTS[number % len(PORTS)] for number in numbers]


def listener_at(address: str, port: int = 0) -> socket.socket:
    """A socket that ranks can connect to, at no more interfaces than they need. Raises OSError."""
    host = address if address in ("127.0.0.1", "::1") else ""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((host, port), family=family)


class Meeting:
    """One rank's part in a broadcast call: ``place`` among ``size``, the first at ``address``.

    Use: make it (all have come), ``agree`` (all are ready), ``leave`` (all have ended, or one has failed).
    """

    def __init__(self, key: str, place: int, size: int, address: str, timeout_s: float) -> None:
        """Wait until all have come. Raises TimeoutError naming who did not."""
        self._key = key
        self.place = place
        self._size = size
        self._address = address
        self._timeout_s = timeout_s
        self._others: dict[int, socket.socket] = {}
        deadline = time.monotonic() + timeout_s
        try:
            if place == 0:
                self._host(deadline)
            else:
                self._others[0] = self._visit(deadline)
        except BaseException:
            self.close()
            raise

    def agree(self, value: Callable[[], Any]) -> Any:
        """What the first rank makes of ``value`` once all are ready. Raises TimeoutError, ConnectionError."""
        deadline = time.monotonic() + self._timeout_s
        if self.place:
            _say(self._others[0], {"ready": True})
            told = self._hear(0, deadline)
            return told["value"]
        for place in self._others:
            self._hear(place, deadline)
        made = value()
        for other in self._others.values():
            _say(other, {"value": made})
        return made

    def leave(self, error: BaseException | None) -> list[str]:
        """Say how it went here; gives what ranks that failed before have said.

        After a success the first rank waits for the others, because it keeps what they meet at.
        """
        said = "" if error is None else f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX]
        before = self._farewells(time.monotonic() + LAST_WORDS_S) if error is not None else []
        for other in self._others.values():
            try:
                _say(other, {"ended": said})
            except OSError:
                continue
        if error is None and self.place == 0:
            self._farewells(time.monotonic() + self._timeout_s)
        return before

    def close(self) -> None:
        """End every connection."""
        while self._others:
            self._others.popitem()[1].close()

    # ── parts ───────────────────────────────────────────────────────────────────────────────────

    def _host(self, deadline: float) -> None:
        with self._listen() as door:
            while len(self._others) < self._size - 1:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(self._missing())
                door.settimeout(left)
                try:
                    visitor, _ = door.accept()
                except TimeoutError:
                    continue
                self._greet(visitor)

    def _listen(self) -> socket.socket:
        for port in candidates(self._key):
            try:
                return listener_at(self._address, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(
            errno.EADDRINUSE,
            f"none of {CANDIDATES} ports from {PORTS.start} to {PORTS.stop - 1} is free on the first node",
        )

    def _greet(self, visitor: socket.socket) -> None:
        try:
            said = _hear(visitor, GREET_S)
            place = said.get("place")
            if said.get("key") != self._key or not isinstance(place, int) or not 0 < place < self._size:
                visitor.close()
                return
            _say(visitor, {"key": self._key})
            # One that has given up meanwhile must not count as here: it knocks again.
            _hear(visitor, ENTER_S)
            _say(visitor, {"in": True})
        except (OSError, ValueError):
            visitor.close()
            return
        # The attempt that came last is the one that runs.
        earlier = self._others.pop(place, None)
        if earlier is not None:
            earlier.close()
        self._others[place] = visitor

    def _visit(self, deadline: float) -> socket.socket:
        ports = candidates(self._key)
        while True:
            for port in ports:
                found = self._knock(port)
                if found is not None:
                    return found
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"the first rank of this call was not found at {self._address} within "
                        f"{self._timeout_s:g} s: it may be busy with other calls, or the ports "
                        f"{PORTS.start} to {PORTS.stop - 1} may be closed between the nodes"
                    )
            time.sleep(ROUND_S)

    def _knock(self, port: int) -> socket.socket | None:
        """The first rank, if it is behind that port."""
        try:
            door = socket.create_connection((self._address, port), timeout=CONNECT_S)
        except OSError:
            return None
        try:
            _say(door, {"key": self._key, "place": self.place})
            if _hear(door, ANSWER_S).get("key") == self._key:
                _say(door, {"here": True})
                _hear(door, ENTER_S)
                return door
        except (OSError, ValueError):
            door.close()
            return None
        door.close()
        return None

    def _hear(self, place: int, deadline: float) -> dict[str, Any]:
        try:
            return _hear(self._others[place], deadline - time.monotonic())
        except TimeoutError:
            message = f"rank {place} was not ready within {self._timeout_s:g} s"
            raise TimeoutError(message) from None
        except (OSError, ValueError):
            message = f"rank {place} left before every rank was ready; its own outcome says why"
            raise ConnectionError(message) from None

    def _missing(self) -> str:
        missing = [place for place in range(1, self._size) if place not in self._others]
        return (
            f"of {self._size} ranks, {', '.join(map(str, missing))} did not come to {self._address} within "
            f"{self._timeout_s:g} s: they may be busy with other calls, have failed before, or not reach it"
        )

    def _farewells(self, deadline: float) -> list[str]:
        """What others said when they failed, or that they are gone; waits until each has left."""
        found: list[str] = []
        for place, other in self._others.items():
            try:
                said = _hear(other, deadline - time.monotonic()).get("ended")
            except TimeoutError:
                continue
            except (OSError, ValueError):
                found.append(f"rank {place} is gone: its process ended, or its node cannot be reached")
                continue
            if said:
                found.append(f"rank {place} failed before: {said}")
        return found


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _say(other: socket.socket, message: dict[str, Any]) -> None:
    other.sendall(msgspec.json.encode(message) + b"\n")


def _hear(other: socket.socket, seconds: float) -> dict[str, Any]:
    """The next message. Raises OSError (TimeoutError after that long), and ValueError for what is none."""
    deadline = time.monotonic() + seconds
    line = bytearray()
    while not line.endswith(b"\n"):
        other.settimeout(max(WAIT_S_MIN, deadline - time.monotonic()))
        byte = other.recv(1)
        if not byte:
            raise ConnectionError("it is gone")
        line += byte
        if len(line) > MESSAGE_BYTES_MAX:
            raise ValueError("too long for a message")
        if time.monotonic() > deadline and not line.endswith(b"\n"):
            raise TimeoutError("a message did not end")
    try:
        return _decode(line)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
