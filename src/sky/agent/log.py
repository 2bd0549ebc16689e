"""The agent's own words: one line each on stderr, which whoever started the agent keeps.

Decides: the form of a line. Never: carries output of calls (that is reported), or secrets.
Follows: a node needs no logging library; the lines are for a person who looks into one machine.
"""

from __future__ import annotations

import sys
import time


def say(event: str, **fields: object) -> None:
    """Write ``event`` and its fields, with the time in UTC."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = "".join(f" {name}={value!r}" for name, value in fields.items())
    sys.stderr.write(f"{moment} agent {event}{told}\n")
    sys.stderr.flush()
