"""The certificate of the address that others reach, also the one that is put in its place later.

Decides: when the files are read again (when they have changed), and that whoever comes after that is shown
the new one. Never: gives up one that works for files that cannot be used, and closes no connection.
Follows: who renews a certificate writes its files, and nothing has to be told or restarted.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import structlog

from sky.server.settings import SettingsError

LOOK_S = 2.0
_log = structlog.get_logger(__name__)

_Mark = tuple[tuple[int, int, int], ...]


class Certificate:
    """A certificate with its key, in two files. Raises SettingsError when they cannot be used."""

    def __init__(self, cert: Path, key: Path) -> None:
        self._files = (cert, key)
        self._seen, self._newest = self._read()
        # A context that has served is not changed: files that do not belong together would leave it without a
        # key. It hands each connection, as that begins, to the newest one instead.
        _, self.context = self._read()
        self.context.sni_callback = self._shown

    def look(self) -> bool:
        """Whether there is a new one, which holds from now on. Raises SettingsError when it cannot be used:
        then the one before is shown, and the next look tries again."""
        if self._mark() == self._seen:
            return False
        self._seen, self._newest = self._read()
        return True

    async def run_forever(self) -> None:
        """Look every few seconds."""
        told = ""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                if await asyncio.to_thread(self.look):
                    _log.info("certificate.renewed", file=str(self._files[0]))
                told = ""
            except SettingsError as error:
                if str(error) != told:
                    _log.warning("certificate.kept", error=str(error))
                told = str(error)

    def _shown(self, connection: ssl.SSLObject, _name: str | None, _own: ssl.SSLContext) -> None:
        """Called for every connection, also one that names no server."""
        connection.context = self._newest

    def _mark(self) -> _Mark | None:
        """By what a change is known; links are followed, since some renew by another target."""
        try:
            found = [path.stat() for path in self._files]
        except OSError:
            return None
        return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in found)

    def _read(self) -> tuple[_Mark | None, ssl.SSLContext]:
        cert, key = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        mark = self._mark()
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or str(error)
            msg = (
                f"tls_cert {cert} and tls_key {key} cannot be used: {reason}; give a certificate with its "
                "chain and its key, both PEM and readable by the daemon, the key without a passphrase"
            )
            raise SettingsError(msg) from error
        return mark, context
