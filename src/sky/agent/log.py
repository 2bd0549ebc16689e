"""The agent's own words: one line each on stderr, which whoever started the agent keeps.

Decides: the form of a line. Never: carries output of calls (that is reported), or secrets.
Follows: a node needs no logging library; the lines are for a person who looks into one machine; a line that
cannot be written, because the disk is full, is lost and nothing else is.
"""

from __future__ import annotations

import contextlib
import os
import time

STDERR = 2


def say(event: str, **fields: object) -> None:
    """Write ``event`` and its fields, with the time in UTC."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = "".join(f" {name}={value!r}" for name, value in fields.items())
    with contextlib.suppress(OSError):
        os.write(STDERR, f"{moment} agent {event}{told}\n".encode("utf-8", "backslashreplace"))
