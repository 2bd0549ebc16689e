"""Names for rows: a prefix that says what it is and a body that no two processes share.

Decides: the shape of an id. Never: ordering; rows are ordered by a database integer, since clocks step.
Follows: an id can be chosen before the row exists, which is what makes outside effects repeatable.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_BODY_CHARS = 26
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(10 * (_BODY_CHARS // 2 - 1), -1, -10)
PREFIXES = {
    "compute": "cmp_",
    "node": "nod_",
    "task": "tsk_",
    "execution": "exe_",
    "provider": "prv_",
    "offer": "ofr_",
    "event": "evt_",
    "rendezvous": "rdv_",
    "account": "acc_",
    "key": "key_",
    "job": "job_",
    "job_event": "evt_",
    "webhook": "whe_",
    "delivery": "whd_",
    "request": "req_",
    "cluster": "clu_",
    "cluster_job": "cjb_",
    "user_token": "utk_",
    "installation": "ins_",
}
_CAPITALS = frozenset({"job", "job_event"})
"""Nouns whose ids are promised in capitals."""


def _fresh() -> int:
    return ((time.time_ns() // 1_000_000) << 80) | secrets.randbits(80)


_source = [_fresh]


@contextmanager
def numbered(numbers: Callable[[], int]) -> Generator[None]:
    """Within this, ids are made from ``numbers`` (128 bits each): a simulation that is told again gives the
    same ones."""
    _source.append(numbers)
    try:
        yield
    finally:
        _source.pop()


def new(noun: str) -> str:
    """A fresh id for ``noun``: its prefix and 26 characters, 48 bits of time and 80 of chance."""
    number = _source[-1]()
    pairs = [_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS]
    body = "".join(pairs)
    return PREFIXES[noun] + (body.upper() if noun in _CAPITALS else body)


def is_id(text: str) -> bool:
    """Whether ``text`` has the shape of an id of any noun, so that it cannot be taken as a name."""
    return text.startswith(tuple(PREFIXES.values()))
