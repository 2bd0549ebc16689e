"""The word that says who we are at a cluster's API, as often as it changes.

Decides: when a program that prints credentials is run again, and for how long it may run.
Never: keeps a token beyond its end, or repeats what a program printed on its standard output.
Follows: a token that the API no longer takes is forgotten, and the next call gets another.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import ssl
from datetime import datetime

from sky.kit.clock import SECOND_US, Clock
from sky.providers.base import AgainLater, Refused
from sky.providers.kubernetes.access import Access, Program, tls_of
from sky.providers.kubernetes.shape import Item, at, mapping

PROGRAM_S_MAX = 30.0
OUTPUT_BYTES_MAX = 1 << 20
TOLD_CHARS_MAX = 300
EARLY_US = 60 * SECOND_US
"""How long before its end a token is no longer used."""


class Tokens:
    """The headers and certificates of one user, for one provider."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._asked: tuple[str | None, int | None] | None = None
        self._tls: ssl.SSLContext | None = None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What a program has given takes the place of what the kubeconfig says."""
        return self._tls or self._access.tls

    def forget(self) -> bool:
        """The API did not take what it was told. Whether another answer may come of asking again."""
        renewed, self._asked = self._asked is not None, None
        return renewed

    async def header(self) -> str | None:
        """The value of Authorization; None where a certificate does. Raises AgainLater, Refused."""
        access = self._access
        if access.program is not None:
            token = await self._printed(access.program)
            return None if token is None else f"Bearer {token}"
        if access.token_file is not None:
            try:
                return f"Bearer {access.token_file.read_text(encoding='utf-8').strip()}"
            except OSError as error:
                msg = f"the token file {access.token_file} cannot be read: {error.strerror}"
                raise AgainLater(msg) from error
        if access.token is not None:
            return f"Bearer {access.token}"
        if access.login is not None:
            return "Basic " + base64.b64encode(":".join(access.login).encode()).decode()
        return None

    async def _printed(self, program: Program) -> str | None:
        now_us = self._clock.now_us()
        if self._asked is not None and (self._asked[1] is None or now_us < self._asked[1] - EARLY_US):
            return self._asked[0]
        status = _status(await _run(program, self._access.server), program)
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if certificate and key:
            authority = self._access.authority
            self._tls = tls_of(authority, str(certificate).encode(), str(key).encode(), verify=True)
        token = status.get("token")
        if not token and not certificate:
            raise _unusable(program, "printed neither a token nor a certificate")
        ends = status.get("expirationTimestamp")
        self._asked = (str(token) if token else None, None if ends is None else _moment_us(str(ends)))
        return self._asked[0]


def _moment_us(text: str) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * SECOND_US)
    except ValueError:
        return None


async def _run(program: Program, server: str) -> bytes:
    told = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {**os.environ, **program.environment, "KUBERNETES_EXEC_INFO": json.dumps(told)}
    try:
        process = await asyncio.create_subprocess_exec(
            *program.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=program.folder,
            limit=OUTPUT_BYTES_MAX,
        )
    except OSError as error:
        raise _unusable(program, f"cannot be run: {error.strerror}") from error
    try:
        async with asyncio.timeout(PROGRAM_S_MAX):
            out, err = await process.communicate()
    except TimeoutError as error:
        msg = f"the program {program.command[0]!r} gave no credentials for {server} in {PROGRAM_S_MAX:g} s"
        raise AgainLater(msg) from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        words = err.decode(errors="replace").strip()[-TOLD_CHARS_MAX:]
        raise _unusable(program, f"ended with code {process.returncode}: {words or 'without a word'}")
    return out


def _status(printed: bytes, program: Program) -> Item:
    try:
        read: object = json.loads(printed)
    except ValueError as error:
        raise _unusable(program, "printed no JSON") from error
    if not isinstance(at(read, "status"), dict):
        raise _unusable(program, "printed no status")
    return mapping(read, "status")


def _unusable(program: Program, why: str) -> Refused:
    return Refused(f"the program {program.command[0]!r}, which the kubeconfig names, {why}", "unauthorized")
