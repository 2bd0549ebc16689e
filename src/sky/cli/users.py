"""``sky user`` and ``sky token``: who may use a server, in which role, and by which tokens.

Decides: how a token is shown, once. Never: keeps a token; asks who somebody is (the server knows).
Follows: ``TOKEN=$(sky token create ci)`` works.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.app import DryRun, Output, Yes, command, noun
from sky.cli.asking import confirm
from sky.cli.computes import LIST_ITEMS, check_limit, tell_more
from sky.cli.connection import PAGE_ITEMS, Api, creating, reading
from sky.cli.definition import seconds
from sky.cli.output import Cell
from sky.client import calls_users as calls
from sky.wire import users

app = noun("user", "sky user create ada", "sky user role ada admin", "sky user list")
token_app = noun("token", "sky token create ci --expires 30d", "sky token list", "sky token revoke ci")

User = Annotated[str, Parameter(name="USER", help="Name of the user.")]
TokenName = Annotated[str, Parameter(name="TOKEN", help="Name of one of your tokens, or id of any.")]
Expires = Annotated[str | None, Parameter(metavar="TIME", help="Good for so long: 12h, 30d [for ever].")]
Items = Annotated[int, Parameter(name="--limit", help="How many at most.")]
STYLES = {"admin": "busy", "user": "good", "viewer": ""}


@command(app, "sky user list", "sky user list -o json", name="list", instead=("ls", "show"))
def list_(*, limit: Items = LIST_ITEMS, output_: Output = "table") -> int:
    """List users, oldest first."""
    check_limit(limit)
    with reading() as api:
        found = list(itertools.islice(_users(api), limit + 1))
    shown = tuple(found[:limit])
    if output_ == "json":
        output.json(users.UserPage(items=shown))
    elif not shown:
        output.note("there are no users yet, only the daemon's own; `sky user create NAME` makes one")
    else:
        rows = ((user.name, _role(user.role), render.ago(user.created_at)) for user in shown)
        output.table(("NAME", "ROLE", "AGE"), rows, flexible=("NAME",))
    tell_more(len(found) > limit, limit)
    return 0


@command(app, "sky user me", "sky user me -o json", instead=("whoami", "get"))
def me(*, output_: Output = "table") -> int:
    """Tell who you are to the server, and in which role."""
    with reading() as api:
        _tell(api.send(calls.get_me()), output_)
    return 0


@command(
    app,
    "sky user create ada",
    "sky user create bob@example.com --role viewer",
    instead=("add", "new", "make"),
)
def create(
    name: User,
    /,
    *,
    role: Annotated[
        users.Role, Parameter(help="viewer: looks; user: has clusters; admin: does everything.")
    ] = "user",
    output_: Output = "table",
) -> int:
    """Make a user, who comes in by a token: `sky token create NAME --user USER`."""
    with creating() as api:
        _tell(api.send(calls.create_user(users.UserCreate(name=name, role=role))), output_)
    return 0


@command(app, "sky user role ada admin", instead=("set-role", "promote", "update"))
def role(
    name: User,
    role: Annotated[users.Role, Parameter(name="ROLE", help="viewer, user or admin.")],
    /,
    *,
    output_: Output = "table",
) -> int:
    """Give a user another role, at once and for all of its tokens."""
    with reading() as api:
        _tell(api.send(calls.set_role(name, role)), output_)
    return 0


@command(app, "sky user delete ada", "sky user delete ada --yes", instead=("remove", "rm"))
def delete(name: User, /, *, yes: Yes = False, dry_run: DryRun = False, output_: Output = "table") -> int:
    """Forget a user and refuse its tokens. Refused while the user has clusters."""
    if dry_run:
        with reading() as api:
            user = api.send(calls.get_user(name))
            api.send(calls.delete_user(name, dry_run=True))
        _tell(user, output_)
        output.note("this was a dry run: this user would be deleted, and was not")
        return 0
    if not yes:
        confirm(f"Delete user {name}, and refuse its tokens?", "nothing was deleted")
    with reading() as api:
        api.send(calls.delete_user(name))
    if output_ == "json":
        output.json({"deleted": name})
    else:
        output.note(f"user {name} is gone, and its tokens are refused")
    return 0


def _tell(user: users.User, output_: str) -> None:
    if output_ == "json":
        output.json(user)
    else:
        output.pairs([("name", user.name), ("role", _role(user.role)), ("age", render.ago(user.created_at))])


def _role(role: str) -> Cell:
    return Cell(role, STYLES[role])


# ── tokens ──────────────────────────────────────────────────────────────────────────────────────


@command(
    token_app,
    "sky token create ci --expires 30d",
    "sky token create laptop --user ada",
    "SKY_TOKEN=$(sky token create dashboard --role viewer)",
    name="create",
    instead=("add", "new", "make"),
)
def create_token(
    name: Annotated[str, Parameter(name="NAME", help="What it is for.")],
    /,
    *,
    user: Annotated[str | None, Parameter(help="Whose it is; for admins [yours].")] = None,
    role: Annotated[users.Role | None, Parameter(help="What it may do at most [what its user may].")] = None,
    expires: Expires = None,
    output_: Output = "table",
) -> int:
    """Make a token and print it. It is shown now and never again."""
    wanted = users.TokenCreate(name=name, user=user, role=role, expires_in_seconds=_seconds(expires))
    with creating() as api:
        _show(api.send(calls.create_token(wanted)), output_)
    return 0


@command(token_app, "sky token rotate ci", name="rotate", instead=("renew",))
def rotate(token: TokenName, /, *, expires: Expires = None, output_: Output = "table") -> int:
    """Make a token anew and print it: the old one is refused from then on."""
    wanted = users.TokenRotate(expires_in_seconds=_seconds(expires))
    with reading() as api:
        _show(api.send(calls.rotate_token(token, wanted)), output_)
    return 0


@command(
    token_app,
    "sky token revoke ci",
    "sky token revoke ci --yes",
    name="revoke",
    instead=("delete", "remove", "rm"),
)
def revoke(
    token: TokenName, /, *, yes: Yes = False, dry_run: DryRun = False, output_: Output = "table"
) -> int:
    """Refuse a token from its next request on. Said twice, it is the same."""
    if not yes and not dry_run:
        confirm(f"Revoke {token}? Whoever has it is refused at once.", "nothing was revoked")
    with reading() as api:
        revoked = api.send(calls.revoke_token(token, dry_run=dry_run))
    whose = f"{revoked.name} of {revoked.user}"
    if output_ == "json":
        output.json(revoked)
    elif dry_run:
        output.say(f"{whose} ({revoked.hint}…) would be revoked")
    else:
        output.note(f"{whose} is revoked")
    if dry_run:
        output.note("this was a dry run: nothing was revoked")
    return 0


@command(
    token_app,
    "sky token list",
    "sky token list --all-users",
    "sky token list --user ada -o json",
    name="list",
    instead=("ls", "show", "get"),
)
def list_tokens(
    *,
    user: Annotated[str | None, Parameter(help="Whose; for admins [yours].")] = None,
    all_users: Annotated[
        bool, Parameter(name=["--all-users", "-u"], negative=(), help="Everybody's; for admins.")
    ] = False,
    limit: Items = LIST_ITEMS,
    output_: Output = "table",
) -> int:
    """List tokens, oldest first: your own, unless told otherwise."""
    check_limit(limit)
    with reading() as api:
        found = list(itertools.islice(_tokens(api, user, all_users), limit + 1))
    shown = tuple(found[:limit])
    if output_ == "json":
        output.json(users.TokenPage(items=shown))
    elif not shown:
        whose = "there are no tokens" if all_users else f"{user} has none" if user else "you have no tokens"
        more = "" if all_users or user else ", --all-users lists everybody's"
        output.note(f"{whose}; `sky token create NAME` makes one{more}")
    else:
        headings = ("NAME", "USER", "TOKEN", "ROLE", "AGE", "USED", "STATE", "ID")
        output.table(headings, map(_row, shown), flexible=("NAME", "USER"))
    tell_more(len(found) > limit, limit)
    return 0


def _row(token: users.Token) -> tuple[object, ...]:
    now = datetime.now().astimezone()
    if token.revoked_at is not None:
        state = Cell("revoked", "bad")
    elif token.expires_at is None:
        state = Cell("good", "good")
    elif token.expires_at <= now:
        state = Cell("expired", "bad")
    else:
        state = Cell(f"until {token.expires_at.astimezone():%Y-%m-%d %H:%M}", "busy")
    made, used = render.ago(token.rotated_at or token.created_at), render.ago(token.last_used_at)
    return token.name, token.user, f"{token.hint}…", token.role or "", made, used, state, token.id


def _show(token: users.Token, output_: str) -> None:
    if output_ == "json":
        output.json(token)
    else:
        output.say(token.token or "")
        output.note(f"this is {token.name} of {token.user}; keep it now, it is never shown again")


def _seconds(expires: str | None) -> int | None:
    return None if expires is None else seconds(expires, "--expires")


def _users(api: Api) -> Iterator[users.User]:
    cursor = None
    while True:
        page = api.send(calls.list_users(cursor=cursor, limit=PAGE_ITEMS))
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _tokens(api: Api, user: str | None, all_users: bool) -> Iterator[users.Token]:
    cursor = None
    while True:
        page = api.send(calls.list_tokens(user=user, all_users=all_users, cursor=cursor, limit=PAGE_ITEMS))
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return
