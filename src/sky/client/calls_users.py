"""Every operation on users and their tokens, as values.

Decides: paths, headers and bodies below ``/users``. Never: opens a connection or waits. Follows: making or
rotating a token is never sent twice, because its answer is the only one that shows it.
"""

from __future__ import annotations

from urllib.parse import quote

from sky.client.request import IS_JSON, Call, as_json, as_nothing, encoder, getting, keyed, query_of
from sky.wire import users

ROOT = "/users"
TOKENS = f"{ROOT}/tokens"


def _at(name: str) -> str:
    return f"{ROOT}/{quote(name, safe='')}"


def _of(token: str) -> str:
    return f"{TOKENS}/{quote(token, safe='')}"


def get_me() -> Call[users.User]:
    """Who asks, and in which role."""
    return getting(f"{ROOT}/me", users.User)


def list_users(*, cursor: str | None = None, limit: int | None = None) -> Call[users.UserPage]:
    """Some users, oldest first."""
    return getting(ROOT, users.UserPage, query_of(cursor=cursor, limit=limit))


def get_user(name: str) -> Call[users.User]:
    """One user."""
    return getting(_at(name), users.User)


def create_user(create: users.UserCreate, key: str | None = None) -> Call[users.User]:
    """Make a user."""
    headers = keyed(key, IS_JSON)
    return Call("POST", ROOT, as_json(users.User), (), headers, encoder.encode(create))


def set_role(name: str, role: users.Role) -> Call[users.User]:
    """Give a user another role. Said twice, it is the same."""
    body = encoder.encode(users.UserPatch(role=role))
    return Call("PATCH", _at(name), as_json(users.User), (), (IS_JSON,), body)


def delete_user(name: str, *, dry_run: bool = False) -> Call[None]:
    """Forget a user, and refuse its tokens."""
    return Call("DELETE", _at(name), as_nothing, query_of(dry_run=dry_run or None), repeatable=dry_run)


def list_tokens(
    *, user: str | None = None, all_users: bool = False, cursor: str | None = None, limit: int | None = None
) -> Call[users.TokenPage]:
    """Some tokens, oldest first."""
    query = query_of(user=user, all_users=all_users or None, cursor=cursor, limit=limit)
    return getting(TOKENS, users.TokenPage, query)


def create_token(create: users.TokenCreate) -> Call[users.Token]:
    """Make a token. Never sent twice: the first may have been made, and would be seen by nobody."""
    body = encoder.encode(create)
    return Call("POST", TOKENS, as_json(users.Token), (), (IS_JSON,), body, repeatable=False)


def rotate_token(token: str, rotate: users.TokenRotate) -> Call[users.Token]:
    """Put a new token in the place of one. Never sent twice: the first may have been done."""
    body = encoder.encode(rotate)
    return Call("POST", f"{_of(token)}/rotate", as_json(users.Token), (), (IS_JSON,), body, repeatable=False)


def revoke_token(token: str, *, dry_run: bool = False) -> Call[users.Token]:
    """Refuse a token from now on. Said twice, it is the same."""
    return Call("DELETE", _of(token), as_json(users.Token), query_of(dry_run=dry_run or None))
