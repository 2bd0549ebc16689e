"""Whom a client believes to be the server that it means, where it speaks TLS.

Decides: which certificates are believed: those of the system (``SSL_CERT_FILE`` names others), and those of
``SKY_CA_FILE``. Never: goes on without a certificate that is believed. Follows: a refusal of a certificate is
told at once, with what to do, since trying again would not change it; a password in an address is sent to
whom it is for, and shown to nobody.
"""

from __future__ import annotations

import os
import ssl
from base64 import b64encode
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from sky.client.errors import InvalidRequest

CA_VARIABLE = "SKY_CA_FILE"
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")


def context() -> ssl.SSLContext:
    """What TLS connections of a client are made with. Raises InvalidRequest."""
    made = ssl.create_default_context()
    path = os.environ.get(CA_VARIABLE)
    if path:
        try:
            made.load_verify_locations(Path(path).expanduser())
        except OSError as error:
            why = error.strerror or str(error)
            message = f"{CA_VARIABLE}={path} cannot be used ({why}): name a PEM file of certificates"
            raise InvalidRequest(message, "invalid_request", 400) from error
    return made


def refused(lost: BaseException) -> str | None:
    """Why a connection cannot be had, where it is about TLS and stays so; None: for another reason."""
    error: BaseException | None = lost
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not believed ({error.verify_message}); name the certificate of who "
                f"signed it in {CA_VARIABLE}"
            )
        if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
            return "it does not speak TLS there; an address with http:// may be meant"
        error = error.__cause__ or error.__context__
    return None


def basic(where: SplitResult) -> str:
    """What a proxy in front asks for, from an address such as ``https://me:word@sky.example.com``."""
    pair = f"{unquote(where.username or '')}:{unquote(where.password or '')}"
    return b64encode(pair.encode()).decode()


def shown(url: str) -> str:
    """An address without a trailing slash and without a password, to be told."""
    where = urlsplit(url)
    return where._replace(netloc=where.netloc.rpartition("@")[2]).geturl().rstrip("/")
