"""Users and their tokens: who may come in, and in which role.

Decides: nothing; ``verbs/users`` does. Never: shows a token but in the answer that made it. Follows: whoever
asks makes, rotates and revokes their own tokens, and an admin everybody's.
"""

from __future__ import annotations

from typing import Annotated

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import Ask, Limit, TrialQuery, made, nothing, operation, reply
from sky.api.reading import Query
from sky.domain.errors import Forbidden, IdempotencyConflict, InvalidRequest, NameTaken, NotFound
from sky.store.rows import users as rows
from sky.store.tx import Tx
from sky.store.views import users as views
from sky.store.views.paging import DEFAULT_ITEMS
from sky.verbs import users as verbs
from sky.wire import users as wire

TAG = "Users"
ROOT = "/users"
TOKENS = f"{ROOT}/tokens"
Cursor = Annotated[str, Meta(max_length=64, description="next_cursor of the page before.")]


class PageQuery(Query, frozen=True):
    """Which part of a list is wanted."""

    cursor: Cursor | None = None
    limit: Limit = DEFAULT_ITEMS


class TokensQuery(Query, frozen=True):
    """Whose tokens, and which part of the list."""

    cursor: Cursor | None = None
    limit: Limit = DEFAULT_ITEMS
    user: Annotated[wire.UserName, Meta(description="Whose; the caller's own otherwise.")] | None = None
    all_users: bool = False


@operation("GET", f"{ROOT}/me", tag=TAG, answers=wire.User)
async def get_me(ask: Ask) -> ASGIResponse:
    """Tell who asks, and in which role."""
    caller = ask.caller
    row = await ask.unit.db.read(lambda c: rows.find(c, caller.name))
    since = None if row is None else views.user(row).created_at
    return reply(wire.User(name=caller.name, role=caller.role, created_at=since))


@operation("GET", ROOT, tag=TAG, answers=wire.UserPage)
async def list_users(ask: Ask, query: PageQuery) -> ASGIResponse:
    """List users, oldest first."""
    return reply(await ask.unit.db.read(lambda c: views.page(c, cursor=query.cursor, limit=query.limit)))


@operation(
    "POST",
    ROOT,
    tag=TAG,
    answers=wire.User,
    status=201,
    also=[200],
    keyed=True,
    errors=[NameTaken, IdempotencyConflict],
)
async def create_user(ask: Ask, body: wire.UserCreate) -> ASGIResponse:
    """Make a user."""
    user, replayed = await ask.once(lambda tx: verbs.create(tx, body.name, body.role), _user, body)
    return made(user, f"{ROOT}/{user.name}", replayed)


@operation("GET", f"{ROOT}/{{name}}", tag=TAG, answers=wire.User, errors=[NotFound])
async def get_user(ask: Ask, name: str) -> ASGIResponse:
    """Show a user."""
    return reply(await ask.unit.db.write(lambda tx: _user(tx, name)))


@operation("PATCH", f"{ROOT}/{{name}}", tag=TAG, answers=wire.User, errors=[NotFound, InvalidRequest])
async def change_user(ask: Ask, name: str, body: wire.UserPatch) -> ASGIResponse:
    """Give a user another role. It holds for all of its tokens, at once."""
    caller = ask.caller
    role = body.role
    return reply(await ask.unit.db.write(lambda tx: _user(tx, verbs.set_role(tx, name, role, caller))))


@operation("DELETE", f"{ROOT}/{{name}}", tag=TAG, status=204, errors=[NotFound, InvalidRequest])
async def delete_user(ask: Ask, name: str, query: TrialQuery) -> ASGIResponse:
    """Forget a user and refuse its tokens. Refused while the user has clusters."""
    caller = ask.caller
    await ask.write(lambda tx: verbs.remove(tx, name, caller), dry_run=query.dry_run)
    return nothing()


@operation("GET", TOKENS, tag=TAG, answers=wire.TokenPage, errors=[Forbidden])
async def list_tokens(ask: Ask, query: TokensQuery) -> ASGIResponse:
    """List tokens, oldest first: the caller's own, or for an admin another's, or everybody's."""
    caller = ask.caller
    whose = None if query.all_users else query.user or caller.name
    if whose != caller.name and not caller.admin:
        msg = f"{caller.name!r} has the role {caller.role}; tokens of others are for an admin to see"
        raise Forbidden(msg, details={"user": caller.name, "role": caller.role, "least_role": "admin"})
    page = await ask.unit.db.read(lambda c: views.tokens(c, whose, cursor=query.cursor, limit=query.limit))
    return reply(page)


@operation("POST", TOKENS, tag=TAG, answers=wire.Token, status=201, errors=[Forbidden, NameTaken, NotFound])
async def create_token(ask: Ask, body: wire.TokenCreate) -> ASGIResponse:
    """Make a token. Its text is in this answer, and can never be had again."""
    caller, secret = ask.caller, verbs.new_token()

    def verb(tx: Tx) -> wire.Token:
        token_id = verbs.create_token(
            tx, caller, body.name, body.user, body.role, body.expires_in_seconds, secret
        )
        return _token(tx, token_id, secret)

    token = await ask.unit.db.write(verb)
    return reply(token, 201, location=f"{TOKENS}/{token.id}", cache_control="no-store")


@operation("POST", f"{TOKENS}/{{token}}/rotate", tag=TAG, answers=wire.Token, errors=[Forbidden, NotFound])
async def rotate_token(ask: Ask, token: str, body: wire.TokenRotate) -> ASGIResponse:
    """Put a new token in the place of one, which is refused from then on. `token`: its id, or the name of one
    of the caller's own."""
    caller, secret = ask.caller, verbs.new_token()

    def verb(tx: Tx) -> wire.Token:
        return _token(tx, verbs.rotate_token(tx, caller, token, body.expires_in_seconds, secret), secret)

    return reply(await ask.unit.db.write(verb), cache_control="no-store")


@operation("DELETE", f"{TOKENS}/{{token}}", tag=TAG, answers=wire.Token, errors=[NotFound])
async def revoke_token(ask: Ask, token: str, query: TrialQuery) -> ASGIResponse:
    """Revoke a token: it is refused at its next request. `token`: its id, or the name of one of the caller's
    own."""
    caller = ask.caller

    def verb(tx: Tx) -> wire.Token:
        return _token(tx, verbs.revoke_token(tx, caller, token))

    return reply(await ask.write(verb, dry_run=query.dry_run))


def _user(tx: Tx, name: str) -> wire.User:
    return views.user(verbs.find(tx, name))


def _token(tx: Tx, token_id: str, secret: str | None = None) -> wire.Token:
    row = rows.token(tx.connection, token_id)
    if row is None:
        msg = f"there is no token {token_id!r}"
        raise NotFound(msg, details={"token": token_id})
    return views.token(row, secret)


ROUTES = (
    get_me,
    list_users,
    create_user,
    get_user,
    change_user,
    delete_user,
    list_tokens,
    create_token,
    rotate_token,
    revoke_token,
)
