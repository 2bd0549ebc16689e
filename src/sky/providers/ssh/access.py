"""Logging in to one host, by way of others: whose keys are tried, and which host key is believed.

Decides: that a host key is one that was told (``host_key``, ``known_hosts``), or the one that was shown
first. Never: puts a password or a key into a message, or waits without an end.
Follows: every way in which a login fails is told with the host's name, what was tried, and what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import asyncssh
import msgspec

from sky.providers.ssh.failure import HostFailure
from sky.providers.ssh.records import Records
from sky.wire.hosts import Place, SshConfig

SILENCES_MAX = 3
"""So many unanswered questions whether it is still there end a connection."""
KEY_KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
_KEYS, _PASSWORDS, _PASSPHRASES = (
    ("private_key", "private_keys"),
    ("password", "passwords"),
    ("passphrase", "passphrases"),
)
CREDENTIALS = (*_KEYS, *_PASSPHRASES, *_PASSWORDS)
_UNREACHABLE = (OSError, asyncssh.Error, asyncssh.ChannelListenError, TimeoutError)


class Access:
    """How the hosts of one pool are logged in to. Raises HostFailure."""

    def __init__(self, config: SshConfig, credentials: Mapping[str, str], records: Records) -> None:
        self._config = config
        self._records = records
        self._private_keys = _of_all(credentials, *_KEYS)
        self._passphrases = _of_all(credentials, *_PASSPHRASES)
        self._passwords = _of_all(credentials, *_PASSWORDS)
        self._opened: dict[str, asyncssh.SSHKey] = {}
        self._known = _known_hosts(config.known_hosts)

    async def connect(self, way: tuple[Place, ...]) -> Login:
        """Log in to the last place of ``way``, through the others. Raises HostFailure."""
        seconds = self._config.connect_seconds
        async with AsyncExitStack() as opened:
            before: asyncssh.SSHClientConnection | None = None
            for place in way:
                key = _Shown(self._trusted(place))
                identity = await self._identity(place)
                try:
                    async with asyncio.timeout(seconds):
                        before = await self._log_in(place, key, identity, before)
                except _UNREACHABLE as error:
                    raise self._failed(place, way, key, error) from error
                opened.callback(before.abort)
                self._keep(place, key)
            kept = opened.pop_all()
        if before is None:
            raise HostFailure("there is no way to nowhere", code="invalid_request")
        return Login(before, kept)

    async def _log_in(
        self,
        place: Place,
        key: _Shown,
        identity: dict[str, Any],
        tunnel: asyncssh.SSHClientConnection | None,
    ) -> asyncssh.SSHClientConnection:
        config = self._config
        options: dict[str, Any] = {
            "port": place.port,
            "config": None,
            "client_factory": lambda: key,
            "known_hosts": (list(key.trusted), [], []),
            "server_host_key_algs": key.kinds(),
            "connect_timeout": config.connect_seconds,
            "login_timeout": config.connect_seconds,
            "keepalive_interval": config.keepalive_seconds,
            "keepalive_count_max": SILENCES_MAX,
            "compression_algs": ["none"],
            **identity,
        }
        if place.user is not None:
            options["username"] = place.user
        if tunnel is not None:
            options["tunnel"] = tunnel
        return await asyncssh.connect(place.address, **options)

    async def _identity(self, place: Place) -> dict[str, Any]:
        """What is tried to be let in."""
        password = _for(self._passwords, place)
        text = _for(self._private_keys, place)
        own = self._config.own_keys and password is None and text is None
        options: dict[str, Any] = {"password": password}
        if not own:
            options |= {"agent_path": None, "client_keys": None}
        if text is not None:
            if text not in self._opened:
                # A passphrase is made slow to try.
                self._opened[text] = await asyncio.to_thread(self._private_key, place, text)
            options["client_keys"] = [self._opened[text]]
        return options

    def _private_key(self, place: Place, text: str) -> asyncssh.SSHKey:
        try:
            return asyncssh.import_private_key(text.strip() + "\n", _for(self._passphrases, place))
        except asyncssh.KeyImportError as error:
            locked = "passphrase" in str(error).lower()
            why = "needs its passphrase, or another one" if locked else "is none that can be read"
            msg = f"host {place.shown}: the private key in the credentials {why}"
            raise HostFailure(msg, code="unauthorized", field="credentials.private_key") from error
        except asyncssh.KeyEncryptionError as error:
            msg = f"host {place.shown}: the passphrase in the credentials does not open the private key"
            raise HostFailure(msg, code="unauthorized", field="credentials.passphrase") from error

    # ── host keys ───────────────────────────────────────────────────────────────────────────────

    def _trusted(self, place: Place) -> _Trust:
        """What is believed of a host's key."""
        told = place.host_key
        if told is not None and told.startswith("SHA256:"):
            return _Trust((), told.rstrip("="), "its host_key")
        if told is not None:
            return _Trust((_public_key(told, f"host {place.shown}: host_key"),), None, "its host_key")
        if self._known is not None:
            # A name that is not an address is looked up by name alone.
            found = self._known.match(place.address, "", place.port)[0]
            if found:
                return _Trust(tuple(found), None, "known_hosts")
        try:
            shown = self._records.key_of(place.name)
        except (OSError, msgspec.MsgspecError) as error:
            raise HostFailure(f"the keys that hosts have shown before cannot be read: {error}") from error
        if shown is None:
            return _Trust((), None, None)
        return _Trust(
            (_public_key(shown.key, f"host {place.shown}: its kept key"),), None, "the first connection"
        )

    def _keep(self, place: Place, key: _Shown) -> None:
        if key.trust.source is None and key.shown is not None:
            line = key.shown.export_public_key().decode().strip()
            try:
                self._records.keep_key(place.name, line, key.fingerprint)
            except (OSError, msgspec.MsgspecError) as error:
                raise HostFailure(f"host {place.shown}: its key cannot be kept: {error}") from error

    # ── what goes wrong ─────────────────────────────────────────────────────────────────────────

    def _failed(self, place: Place, way: tuple[Place, ...], key: _Shown, error: BaseException) -> HostFailure:
        """Why a login failed, for people."""
        name = f"host {place.shown}"
        if place is not way[-1]:
            name += f", on the way to {way[-1].shown}"
        if isinstance(error, asyncssh.HostKeyNotVerifiable) or key.wrong:
            msg = (
                f"{name}: its host key is not the one that is known from {key.trust.source}: it shows "
                f"{key.fingerprint or 'another kind of key'}. Somebody may stand between; if the host was "
                "made anew, set its host_key to that"
            )
            return HostFailure(msg, code="unauthorized", field="config.hosts")
        if isinstance(error, asyncssh.PermissionDenied):
            user = place.user or "the daemon's own user name"
            msg = f"{name}: {user} is not let in with {self._tried(place)}"
            return HostFailure(msg, code="unauthorized", field="credentials")
        if isinstance(error, TimeoutError):
            msg = f"{name} does not answer within {self._config.connect_seconds:g} s"
            return HostFailure(msg)
        if isinstance(error, asyncssh.ChannelOpenError):
            return HostFailure(f"{name} cannot be reached from the jump before it: {error.reason}")
        said = error.reason if isinstance(error, asyncssh.Error) else str(error)
        return HostFailure(f"{name} cannot be reached: {said or type(error).__name__}")

    def _tried(self, place: Place) -> str:
        """What was tried to be let in, without it."""
        tried = [
            what
            for what, there in (
                ("the password", _for(self._passwords, place)),
                ("the private key", _for(self._private_keys, place)),
            )
            if there is not None
        ]
        if tried:
            return f"{' or '.join(tried)} in the credentials"
        return "the keys of the daemon's user" if self._config.own_keys else "nothing: it has no credentials"


class Login:
    """A connection to a host, with those that lead to it."""

    def __init__(self, connection: asyncssh.SSHClientConnection, opened: AsyncExitStack) -> None:
        self.connection = connection
        self._opened = opened

    @property
    def fingerprint(self) -> str:
        """Of the host's key."""
        key = self.connection.get_server_host_key()
        return key.get_fingerprint() if key is not None else ""

    def is_closed(self) -> bool:
        return self.connection.is_closed()

    async def close(self) -> None:
        """Let go of it and of the way there, at once."""
        await self._opened.aclose()


class _Trust:
    """Keys, or a fingerprint, that a host's key must be; ``source``: who says so; None: any will do."""

    def __init__(
        self, keys: tuple[asyncssh.SSHKey, ...], fingerprint: str | None, source: str | None
    ) -> None:
        self.keys = keys
        self.fingerprint = fingerprint
        self.source = source


class _Shown(asyncssh.SSHClient):
    """Hears which key a host shows, and says whether it is believed."""

    def __init__(self, trust: _Trust) -> None:
        self.trust = trust
        self.trusted = trust.keys
        self.shown: asyncssh.SSHKey | None = None
        self.wrong = False

    @property
    def fingerprint(self) -> str:
        return self.shown.get_fingerprint() if self.shown is not None else ""

    def kinds(self) -> list[str]:
        """The kinds of key that are asked for, those that are known first."""
        own = [kind.decode() for key in self.trusted for kind in key.sig_algorithms]
        return list(dict.fromkeys((*own, *KEY_KINDS)))

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Asked of every key that is not among those that are trusted."""
        self.shown = key
        trust = self.trust
        self.wrong = trust.source is not None and self.fingerprint != trust.fingerprint
        return not self.wrong


def _of_all(credentials: Mapping[str, str], one: str, each: str) -> dict[str, str]:
    """A credential by the names of hosts; that of ``""`` is for all others."""
    found: dict[str, str] = {}
    if each in credentials:
        try:
            found = msgspec.json.decode(credentials[each], type=dict[str, str])
        except msgspec.MsgspecError as error:
            msg = f"credentials.{each}: it is a JSON object of texts by the names of hosts"
            raise HostFailure(msg, code="invalid_request", field=f"credentials.{each}") from error
    if credentials.get(one):
        found[""] = credentials[one]
    return found


def _for(kept: Mapping[str, str], place: Place) -> str | None:
    return kept.get(place.name, kept.get(""))


def _public_key(line: str, what: str) -> asyncssh.SSHKey:
    try:
        return asyncssh.import_public_key(line)
    except asyncssh.KeyImportError as error:
        msg = f"{what}: {line[:40]!r} is no public key"
        raise HostFailure(msg, code="invalid_request", field="config.hosts") from error


def _known_hosts(text: str | None) -> asyncssh.SSHKnownHosts | None:
    if text is None:
        return None
    try:
        return asyncssh.import_known_hosts(text)
    except ValueError as error:
        msg = f"config.known_hosts: {error}"
        raise HostFailure(msg, code="invalid_request", field="config.known_hosts") from error
