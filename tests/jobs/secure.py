"""A small https server with an authority of its own, for inputs of jobs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CONTENT = b"as it was put there\n"


class Handler(BaseHTTPRequestHandler):
    """``/words.txt`` is there; other paths are what their names say."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        places = {
            "/moved.txt": "/words.txt",
            "/plain.txt": "http://127.0.0.1/words.txt",
            "/ring.txt": "/ring.txt",
        }
        if path in places:
            self.send_response(302)
            self.send_header("Location", places[path])
            self.end_headers()
        elif path in ("/words.txt", "/two%20words.txt"):
            self._send(CONTENT, len(CONTENT))
        elif path == "/short.txt":
            self._send(CONTENT, len(CONTENT) + 1)
        else:
            self.send_error(403 if path == "/forbidden.txt" else 404)

    def _send(self, content: bytes, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)


def serve(home: Path) -> tuple[ThreadingHTTPServer, Path]:
    """The server, and the certificate that clients must trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    trusted, private = home / "ca.pem", home / "key.pem"
    trusted.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, private)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, trusted
