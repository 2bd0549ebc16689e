"""Which server is meant, for every face: by a parameter, the environment or a login; else this user's own.

Decides: the order of those, which token goes with an address, and what an address must look like.
Never: asks a server, or starts one; sends a stored token to another server than the one it was stored for.
Follows: the login is one file of mode 0600 in the state folder, written whole or not at all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from sky.client.exceptions import InvalidArgument, InvalidEndpointError

URL_VARIABLES = ("SKY_URL", "SKY_API_ENDPOINT", "SKYPILOT_API_SERVER_ENDPOINT")
"""Environment variables that name a server; the first that is set counts."""
TOKEN_VARIABLES = ("SKY_TOKEN", "SKYPILOT_SERVICE_ACCOUNT_TOKEN")
LOGIN_FILE = "login.json"
SERVICE_MARK = "sky_"


@dataclass(frozen=True, slots=True)
class Named:
    """A server that is named; ``url`` None: none is. ``by`` and ``token_by``: what names it and its token."""

    url: str | None
    token: str | None
    by: str
    token_by: str

    @property
    def undo(self) -> str:
        """What to do so that this server is no longer meant."""
        return f"unset {self.by}" if self.by.isupper() else "`sky api logout`"


class Login(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ``sky api login`` keeps."""

    endpoint: str
    token: str | None = None


_logins = msgspec.json.Decoder(Login)


def home_dir(home: str | os.PathLike[str] | None = None) -> Path:
    """The state folder: the one given, else SKY_HOME, else ``~/.sky``. Absolute; need not exist."""
    chosen = home or os.environ.get("SKY_HOME") or "~/.sky"
    return Path(chosen).expanduser().absolute()


def named(home: Path, url: str | None = None, token: str | None = None) -> Named:
    """The server that is meant: the one given, else the environment's, else the login's.

    ``token``: None for what the environment or the login has; an empty one is none.
    Raises InvalidEndpointError for a login file that cannot be read.
    """
    by = "url"
    if not url:
        by = next((name for name in URL_VARIABLES if os.environ.get(name)), "")
        url = os.environ[by] if by else None
    origin = "token"
    if token is None:
        origin = next((name for name in TOKEN_VARIABLES if name in os.environ), "")
        token = os.environ[origin] if origin else None
    login = None if url and token is not None else stored(home)
    if login is not None:
        if not url:
            url, by = login.endpoint, str(home / LOGIN_FILE)
        if token is None and url.rstrip("/") == login.endpoint:
            token, origin = login.token, str(home / LOGIN_FILE)
    return Named(url, token or None, by, origin)


def stored(home: Path) -> Login | None:
    """What was logged in to; None: nothing. Raises InvalidEndpointError for a file that cannot be read."""
    path = home / LOGIN_FILE
    try:
        return _logins.decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError) as error:
        msg = f"{path} cannot be read ({error}): log in again with `sky api login -e URL`, or remove it"
        raise InvalidEndpointError(msg) from error


def store(home: Path, login: Login) -> Path:
    """Keep a login; returns where."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = home / LOGIN_FILE
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(login))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return path


def forget(home: Path) -> Login | None:
    """Forget a login; returns what it was."""
    login = stored(home)
    (home / LOGIN_FILE).unlink(missing_ok=True)
    return login


def checked_url(endpoint: str) -> str:
    """The address of a server, without a trailing slash. Raises InvalidEndpointError."""
    text = endpoint.strip()
    try:
        where = urlsplit(text)
        wrong = where.scheme not in ("http", "https") or not where.hostname or (where.port or 1) < 1
    except ValueError:
        wrong = True
    if wrong:
        guess = text.partition("://")[2] or text or "server.example.com"
        msg = f"{endpoint!r} is not the address of a server: write it with http:// or https://, such as"
        raise InvalidEndpointError(f"{msg} https://{guess.lstrip('/') or 'server.example.com'}")
    return text.rstrip("/")


def checked_token(token: str) -> str:
    """A service-account token. Raises InvalidArgument; the token itself is never repeated."""
    if not token.startswith(SERVICE_MARK) or not token.isascii() or any(c.isspace() for c in token):
        msg = f"a service-account token begins with {SERVICE_MARK!r} and has no spaces, and this one does not"
        raise InvalidArgument(f"{msg}: have an admin of the server make one")
    return token
