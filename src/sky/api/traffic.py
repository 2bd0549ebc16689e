"""What is counted of the requests that this process answers.

Decides: by what they are told apart: method, route and status. Never: keeps a path as it was asked for,
which names somebody's things. Follows: a request counts when its answer begins, so a stream is no slow
request; what is refused at the door, or is nowhere, has no route and counts as ``other``.
"""

from __future__ import annotations

from collections.abc import Iterator

from sky.kit.meters import OTHER, Counter, Family, Histogram, gauge

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Traffic:
    """The requests of one process."""

    def __init__(self) -> None:
        self.open = 0
        self._answers = Counter(
            "sky_http_requests_total",
            "Requests by what they were answered with; without a route: refused at the door, or nowhere.",
            ("method", "route", "status"),
        )
        self._seconds = Histogram(
            "sky_http_request_seconds",
            "From a request's head to the head of its answer; some routes wait for what they are asked.",
            ("method", "route"),
        )

    def answered(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """The answer to a request begins."""
        method = method if method in METHODS else OTHER
        route = route or OTHER
        self._answers.add(method, route, str(status))
        self._seconds.add(seconds, method, route)

    def families(self) -> Iterator[Family]:
        """As it stands."""
        yield self._answers.family()
        yield self._seconds.family()
        yield gauge("sky_http_requests_open", "Requests whose answer has not ended; streams too.", self.open)
