"""Who asks for a request, and for whom.

Decides: in whose name a request is, and whether what is asked reaches beyond that. Never: lets anybody in
(the door did). Follows: whoever speaks for others says so in a header, which is believed of the daemon's own
user and of its token alone; what changes something of everybody's is for admins.
"""

from __future__ import annotations

from sky.api.operation import Ask
from sky.domain.errors import Forbidden, InvalidRequest
from sky.domain.user import ADMIN, NAME, NAME_EXPECTED
from sky.wire import requests as wire


def user_of(ask: Ask) -> str:
    """In whose name this is asked. Raises InvalidRequest."""
    caller = ask.caller
    given = ask.header(wire.USER_HEADER.encode())
    if given is None or not caller.speaks_for_others:
        return caller.name
    if not NAME.fullmatch(given):
        msg = f"{wire.USER_HEADER} must be {NAME_EXPECTED}; it is {given[:80]!r}"
        raise InvalidRequest(
            msg, details={"field": wire.USER_HEADER, "value": given[:80], "expected": NAME_EXPECTED}
        )
    return given


def only_admins_for_all(ask: Ask, wanted: bool) -> None:
    """Refuse to change what is everybody's, unless an admin asks for it. Raises Forbidden."""
    caller = ask.caller
    if wanted and not caller.admin:
        msg = (
            f"{caller.name!r} has the role {caller.role}, and only an admin changes what belongs to others; "
            "leave all_users out to change your own"
        )
        details = {"field": "all_users", "user": caller.name, "role": caller.role, "least_role": ADMIN}
        raise Forbidden(msg, details=details)
