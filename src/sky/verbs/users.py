"""Users and their tokens: make, change and remove a user; make, rotate and revoke a token.

Decides: what each writes, and who may touch whose tokens. Never: keeps or shows a token twice.
Follows: nobody gives more than they have: a token may do no more than its maker, nor than its user; the last
admin who has a name stays one, unless the daemon's own user says otherwise.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from typing import Any

from sky.domain.errors import Forbidden, InvalidRequest, NameTaken, NotFound
from sky.domain.user import ADMIN, NAME, NAME_EXPECTED, RESERVED, Caller, Role, lesser, suffices
from sky.kit import ids
from sky.kit.clock import SECOND_US
from sky.kit.nearby import hint
from sky.store.rows import users
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs.spec_rules import invalid

PREFIX = "sky_"
TOKEN_CHARS = 40
HINT_CHARS = 9
NAMES_MAX = 500
_ALPHABET = string.digits + string.ascii_letters
_TOKEN = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{TOKEN_CHARS}}}")


def create(tx: Tx, name: str, role: Role) -> str:
    """Make a user; returns its name."""
    if not NAME.fullmatch(name):
        raise invalid("name", name[:80], NAME_EXPECTED)
    if name in RESERVED:
        raise invalid("name", name, f"another name; {' and '.join(sorted(RESERVED))} mean something else")
    if users.find(tx.connection, name) is not None:
        msg = f"there is a user {name!r} already; `sky user role {name} {role}` gives it another role"
        raise NameTaken(msg, details={"name": name})
    users.add(tx, name, role)
    return name


def find(tx: Tx, name: str) -> Row:
    """The user of that name. Raises NotFound."""
    row = users.find(tx.connection, name)
    if row is None:
        known = [one["name"] for one in users.page(tx.connection, 0, NAMES_MAX)]
        msg = f"there is no user {name!r}; {hint(name, known)}. `sky user list` shows those there are"
        raise NotFound(msg, details={"user": name})
    return row


def set_role(tx: Tx, name: str, role: Role, caller: Caller) -> str:
    """Give a user another role, which holds for its tokens too; returns its name."""
    row = find(tx, name)
    if row["role"] == ADMIN and role != ADMIN:
        _not_the_last(tx, name, caller)
    if row["role"] != role:
        users.set_role(tx, name, role)
    return name


def remove(tx: Tx, name: str, caller: Caller) -> None:
    """Forget a user, and refuse its tokens from now on. Refused while it has clusters."""
    row = find(tx, name)
    owned = users.clusters_of(tx.connection, name, NAMES_MAX)
    if owned:
        msg = f"user {name!r} has clusters: {', '.join(owned[:5])}; take them down first with `sky down`"
        details = {"field": "user", "value": name, "expected": "a user without clusters", "clusters": owned}
        raise InvalidRequest(msg, details=details)
    if row["role"] == ADMIN:
        _not_the_last(tx, name, caller)
    users.remove(tx, name)


def _not_the_last(tx: Tx, name: str, caller: Caller) -> None:
    if caller.speaks_for_others or users.admins(tx.connection) != [name]:
        return
    msg = (
        f"{name!r} is the last admin who has a name; make another first: `sky user create NAME --role admin`"
    )
    raise InvalidRequest(msg, details={"field": "user", "value": name, "expected": "another admin"})


def first_seen(tx: Tx, name: str, role: Role) -> Row:
    """The user of that name, who is made with ``role`` where there is none yet."""
    row = users.find(tx.connection, name)
    if row is None:
        users.add(tx, name, role)
        row = find(tx, name)
    return row


# ── tokens ──────────────────────────────────────────────────────────────────────────────────────


def create_token(
    tx: Tx, caller: Caller, name: str, user: str | None, role: Role | None, seconds: int | None, token: str
) -> str:
    """Keep a token of a user; returns its id. ``token`` is the token itself, of which the hash is kept."""
    whose = user or caller.name
    if whose != caller.name and not caller.admin:
        raise _not_yours(caller, f"tokens of {whose!r}")
    owner = first_seen(tx, whose, caller.role) if whose == caller.name else find(tx, whose)
    most = lesser(owner["role"], caller.role)
    if role is not None and not suffices(most, role):
        raise invalid("role", role, f"{most} or less, which is all that its user or its maker may do")
    if users.named(tx.connection, whose, name) is not None:
        msg = f"user {whose!r} has a token {name!r} already; `sky token rotate {name}` makes it anew"
        raise NameTaken(msg, details={"name": name, "user": whose})
    token_id = ids.new("user_token")
    row = {
        "id": token_id,
        "user_name": whose,
        "name": name,
        "role": role if role is not None or most == owner["role"] else most,
        "sha256": hash_of(token),
        "hint": token[:HINT_CHARS],
        "created_us": tx.now_us,
        "expires_us": _end_of(tx, caller, seconds),
    }
    users.add_token(tx, row)
    return token_id


def _end_of(tx: Tx, caller: Caller, seconds: int | None) -> int | None:
    """When a new token ends: no later than the one that it was made with."""
    last_us = _end_of_own(tx, caller)
    if seconds is None:
        return last_us
    return _no_later(tx, seconds, tx.now_us + seconds * SECOND_US, last_us)


def _end_of_own(tx: Tx, caller: Caller) -> int | None:
    """When the token ends with which a caller came."""
    mine = None if caller.token_id is None else users.token(tx.connection, caller.token_id)
    return None if mine is None else mine["expires_us"]


def _no_later(tx: Tx, seconds: int | None, end_us: int | None, last_us: int | None) -> int | None:
    """The end of a token, where that is no later than the last that it may have. Raises InvalidRequest."""
    if last_us is None or (end_us is not None and end_us <= last_us):
        return end_us
    left = max(1, (last_us - tx.now_us) // SECOND_US)
    raise invalid("expires_in_seconds", seconds, f"{left} or less: it cannot outlive the token that makes it")


def rotate_token(tx: Tx, caller: Caller, ref: str, seconds: int | None, token: str) -> str:
    """Put another token in a token's place, good for as long as the old one was, or for ``seconds``: the old
    one is refused from now on. Another than the caller's own ends no later than that. Returns its id."""
    row = find_token(tx, caller, ref)
    if row["revoked_us"] is not None:
        msg = f"token {row['name']!r} is revoked, which is final; make another one: `sky token create NAME`"
        raise InvalidRequest(msg, details={"field": "token", "value": ref, "expected": "one in force"})
    effective = lesser(find(tx, row["user_name"])["role"], row["role"])
    if not suffices(caller.role, effective):
        raise _not_yours(caller, f"tokens of role {effective}")
    again_us = row["expires_us"]
    if again_us is not None:
        again_us += tx.now_us - (row["rotated_us"] or row["created_us"])
    end_us = again_us if seconds is None else tx.now_us + seconds * SECOND_US
    last_us = again_us if row["id"] == caller.token_id else _end_of_own(tx, caller)
    values: dict[str, Any] = {
        "sha256": hash_of(token),
        "hint": token[:HINT_CHARS],
        "rotated_us": tx.now_us,
        "used_us": None,
        "expires_us": _no_later(tx, seconds, end_us, last_us),
    }
    users.change_token(tx, row["id"], **values)
    return row["id"]


def revoke_token(tx: Tx, caller: Caller, ref: str) -> str:
    """Refuse a token from now on; said twice, it is the same. Returns its id."""
    row = find_token(tx, caller, ref)
    if row["revoked_us"] is None:
        users.change_token(tx, row["id"], revoked_us=tx.now_us)
    return row["id"]


def find_token(tx: Tx, caller: Caller, ref: str) -> Row:
    """The caller's token of that name, or any of theirs by its id; an admin's may be anybody's.
    Raises NotFound: whoever may not touch a token is not told whether it is there."""
    row = users.named(tx.connection, caller.name, ref) or users.token(tx.connection, ref)
    if row is None or (row["user_name"] != caller.name and not caller.admin):
        known = [one["name"] for one in users.tokens(tx.connection, caller.name, 0, NAMES_MAX)]
        msg = f"you have no token {ref!r}; {hint(ref, known)}. `sky token list` shows those there are"
        if caller.admin:
            msg += ", and with --all-users everybody's: another's is named by its id"
        raise NotFound(msg, details={"token": ref})
    return row


def _not_yours(caller: Caller, what: str) -> Forbidden:
    msg = f"{caller.name!r} has the role {caller.role}; {what} are for an admin to make"
    return Forbidden(msg, details={"user": caller.name, "role": caller.role, "least_role": ADMIN})


def new_token() -> str:
    """A fresh token, to be shown once."""
    return PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(TOKEN_CHARS))


def is_token(text: str) -> bool:
    """Whether ``text`` has the shape of a token of a user."""
    return _TOKEN.fullmatch(text) is not None


def hash_of(token: str) -> str:
    """What is kept of a token. It has 238 bits of chance, so that a fast hash hides it."""
    return hashlib.sha256(token.encode()).hexdigest()
