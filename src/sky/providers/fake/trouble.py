"""What a call to the cloud in memory may meet, beside what it asks for.

Decides: the kinds of trouble. Never: when they are met (``cloud`` does).
Follows: a test arranges one by its name, and a call that nothing was arranged for does what it should.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sky.providers.base import RefusedCode

Method = Literal["offers", "launch", "machines", "find", "terminate", "disks", "remove_disk"]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call is refused; nothing happens."""

    message: str = "the quota for this instance type is used up"
    code: RefusedCode = "quota"


@dataclass(frozen=True, slots=True)
class TryLater:
    """The call fails and nothing happens, but the caller cannot know that."""

    message: str = "the service is not available"
    after_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Vanish:
    """The call says that what it was about is gone; nothing happens."""

    message: str = "the offer was withdrawn"


@dataclass(frozen=True, slots=True)
class Delay:
    """The call takes ``seconds`` longer, on the event loop's time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The call does what it should and then fails, as when a connection breaks."""

    after_s: float = 1.0


Behaviour = Refuse | TryLater | Vanish | Delay | LoseAnswer


@dataclass(frozen=True, slots=True)
class Chaos:
    """Chances from 0 to 1 that a call which nothing was arranged for meets each kind of trouble."""

    seed: int
    refuse: float = 0.0
    again: float = 0.0
    lose: float = 0.0
    methods: tuple[Method, ...] = ("offers", "launch", "machines", "find", "terminate")
