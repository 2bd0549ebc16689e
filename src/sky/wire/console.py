"""What a seller asks of the console that keeps its customers' keys and balances, and what that answers.

Decides: the paths and shapes of the bridge (``docs/console.md`` describes it for whoever builds a console).
Never: a secret beside the key that is asked about. Follows: status 200 means that the console has decided,
and ``status`` says what; whatever else comes back decides nothing, and the same question is asked again.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

VERIFY = "/bridge/v1/keys/verify"
BALANCE = "/bridge/v1/balance"
HOLDS = "/bridge/v1/holds"

Owner = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$")]
KeyName = Annotated[str, Meta(pattern=r"^[!-~]{1,40}$")]
Usd = Annotated[str, Meta(pattern=r"^[0-9]{1,12}\.[0-9]{6}$")]
Reference = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_:-]{1,80}$")]
Refusal = Literal["insufficient_balance", "account_disabled", "account_suspended"]


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A shape of the bridge. Fields that are not known are passed over: a console may say more."""


class KeyQuestion(_Part, frozen=True):
    """Whose key is this?"""

    key: str


class KeyAnswer(_Part, frozen=True):
    """``owner`` and ``key`` name the account and the key, and are there when ``status`` is ``active``.
    ``invalid``: unknown, disabled, revoked or expired."""

    status: Literal["active", "invalid", "account_disabled", "account_suspended"]
    owner: Owner | None = None
    key: KeyName | None = None
    scopes: tuple[Literal["read", "jobs"], ...] = ("read", "jobs")


class BalanceQuestion(_Part, frozen=True):
    """What does this account have?"""

    owner: Owner


class BalanceAnswer(_Part, frozen=True):
    """What may be spent, and what is held."""

    available_usd: Usd
    held_usd: Usd


class HoldOrder(_Part, frozen=True):
    """Hold so much of an account under our ``reference``, once however often this is said."""

    reference: Reference
    owner: Owner
    amount_usd: Usd


class ExtendOrder(_Part, frozen=True):
    """Hold so much more; ``extension`` names this very addition, and counts once."""

    extension: Reference
    amount_usd: Usd


class HoldAnswer(_Part, frozen=True):
    """``held``: it is. ``over``: that hold was settled or released before, and nothing more is held for it.
    A refusal changes nothing, and the same may be asked again later."""

    status: Literal["held", "over"] | Refusal
    balance_usd: Usd | None = None


class SettleOrder(_Part, frozen=True):
    """Charge so much of a hold, and return the rest; 0: all of it returns."""

    charge_usd: Usd


class OverAnswer(_Part, frozen=True):
    """``settled``: it is, with ``charge_usd``. ``released``: it is. ``unknown``: there is no such hold;
    ``conflict``: it has ended otherwise before, with ``charge_usd``."""

    status: Literal["settled", "released", "unknown", "conflict"]
    charge_usd: Usd | None = None
