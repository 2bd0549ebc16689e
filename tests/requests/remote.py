"""Daemons that others may reach: over TLS, with a proxy in front, several on one database.

Decides: how such a daemon is started and spoken to in a test. Never: trusts a certificate but its own.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.conftest import START_S, RunningDaemon

DEADLINE_S = 60.0


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """An authority of our own, and a certificate of it for this computer: its file, that one's, its key's."""
    now = datetime.datetime.now(datetime.UTC)

    def build(name: str, issuer: str, key: Any) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    signing = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    ca = (
        build("test authority", "test authority", authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing, critical=True)
        .sign(authority, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    cert = (
        build("localhost", "test authority", own)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority, hashes.SHA256())
    )
    ca_file, cert_file, key_file = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
    ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    cert_file.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        own.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return ca_file, cert_file, key_file


@dataclass
class Reachable(RunningDaemon):
    """A daemon with a door for others at ``url`` and one for its own user at ``local``."""

    ca: Path | None = None
    told: dict[str, Any] = field(init=False)

    @property
    def url(self) -> str:
        return self.told["public"]

    @property
    def local(self) -> str:
        """Where its own user needs no token."""
        return self.told["url"]

    def start(self) -> None:
        (self.home / "daemon.json").unlink(missing_ok=True)
        super().start()

    def _answers(self) -> bool:
        record = self.home / "daemon.json"
        if not record.is_file():
            return False
        self.told = json.loads(record.read_text())
        return True

    def as_(self, token: str | None = None, **headers: str) -> httpx2.Client:
        """Somebody at the door for others; without a token, nobody."""
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        if token is not None:
            given["authorization"] = f"Bearer {token}"
        verify: Any = True if self.ca is None else _trusting(self.ca)
        return httpx2.Client(
            base_url=self.url, headers=given, timeout=START_S, trust_env=False, verify=verify
        )

    def owner(self) -> httpx2.Client:
        """The daemon's own user."""
        return httpx2.Client(base_url=self.local, timeout=START_S, trust_env=False)

    def made(self, name: str, role: str = "user", token: str = "main", /, **more: Any) -> str:
        """A token of a user, who is made where there is none."""
        with self.owner() as owner:
            answer = owner.post("/users", json={"name": name, "role": role})
            assert answer.status_code == 201 or answer.json()["code"] == "name_taken", answer.text
            answer = owner.post("/users/tokens", json={"name": token, "user": name, **more})
            assert answer.status_code == 201, answer.text
            return answer.json()["token"]


def _trusting(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca))


def finished(client: httpx2.Client, name: str, **body: Any) -> dict[str, Any]:
    """Submit a request and wait for its end."""
    answer = client.post(f"/{name}", json=body)
    assert answer.status_code == 200, answer.text
    return ended(client, answer.json()["request_id"])


def ended(client: httpx2.Client, request_id: str) -> dict[str, Any]:
    """A request, once it is over."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        record = client.get("/api/get", params={"request_id": request_id, "wait": 10}).json()
        if record["finished_at"] is not None:
            return record
        assert time.monotonic() < deadline, record
