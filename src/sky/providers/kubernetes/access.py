"""Where a cluster's API is, and who we are there.

Decides: what of a kubeconfig counts, and which of it may come from far away. Never: says a credential in a
message. Follows: a kubeconfig that was sent to the daemon may name neither files of the daemon's computer nor
programs to run there; one that lies on that computer may.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from sky.providers.base import Refused
from sky.providers.kubernetes.shape import Item, at, every, is_mapping, many, mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FILE_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Program:
    """What prints a credential: the ``exec`` of a kubeconfig."""

    command: tuple[str, ...]
    environment: dict[str, str] = field(repr=False)
    api_version: str
    folder: Path | None


@dataclass(frozen=True, slots=True)
class Access:
    """One cluster as one user. ``token_file`` is read at each call; ``program`` is asked when it is due."""

    server: str
    namespace: str
    context: str
    tls: ssl.SSLContext | None = field(repr=False)
    server_name: str | None = None
    proxy: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    login: tuple[str, str] | None = field(default=None, repr=False)
    program: Program | None = None
    authority: bytes | None = field(default=None, repr=False)


def in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """The account of the pod that this process runs in. Raises Refused where it runs in none."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise _wrong("in_cluster", "the daemon runs in no pod: KUBERNETES_SERVICE_HOST is not set")
    token, authority = folder / "token", folder / "ca.crt"
    for path in (token, authority):
        if not path.is_file():
            raise _wrong("in_cluster", f"the daemon's pod has no service account: {path} is not there")
    namespace = folder / "namespace"
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.is_file() else "default",
        context="in-cluster",
        tls=tls_of(authority.read_bytes(), None, None, verify=True),
        token_file=token,
    )


def default_file(environment: Mapping[str, str]) -> Path:
    """The kubeconfig of whoever runs the daemon."""
    told = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return Path(told[0] if told else "~/.kube/config").expanduser()


def from_file(path: Path, context: str | None) -> Access:
    """The cluster that a file of this computer names. Raises Refused."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise _wrong("kubeconfig_file", f"{path} is larger than {FILE_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        told = "give the credential kubeconfig, or set kubeconfig_file or in_cluster"
        raise _wrong("kubeconfig_file", f"{path} cannot be read: {why}; {told}") from error
    return _Reader(text, "kubeconfig_file", path.parent).access(context)


def from_text(text: str, context: str | None) -> Access:
    """The cluster that a kubeconfig names that was sent to us. Raises Refused."""
    return _Reader(text, "kubeconfig", None).access(context)


def tls_of(
    authority: bytes | None, certificate: bytes | None, key: bytes | None, *, verify: bool
) -> ssl.SSLContext:
    """How the server is known, and with which certificate it knows us. Raises Refused."""
    try:
        text = None if authority is None else authority.decode("ascii")
        context = ssl.create_default_context(cadata=text)
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        # Authorities of clusters often lack what strict checking wants of them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if certificate is not None and key is not None:
            _load(context, certificate, key)
    except (ssl.SSLError, ValueError) as error:
        raise _wrong("kubeconfig", "its certificates or its key cannot be read") from error
    return context


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """A certificate and its key can be loaded from a file alone; that is gone right after."""
    with tempfile.NamedTemporaryFile(prefix="sky-", suffix=".pem") as file:  # only we may read it
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


class _Reader:
    """One kubeconfig. ``folder``: where its relative paths begin; None: it may name no file or program."""

    def __init__(self, text: str, where: str, folder: Path | None) -> None:
        self._where = where
        self._folder = folder
        try:
            read: object = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise _wrong(where, "it is not YAML") from error
        if not is_mapping(read):
            raise _wrong(where, "it is not a kubeconfig: a mapping with clusters, users and contexts")
        self._whole = mapping(read)

    def access(self, context: str | None) -> Access:
        name = context or self._whole.get("current-context")
        if not isinstance(name, str) or not name:
            raise _wrong("context", f"it names no current-context; say one of {self._listed('contexts')}")
        place = self._named("contexts", "context", name, "context")
        cluster = self._named("clusters", "cluster", str(place.get("cluster")), self._where)
        told = place.get("user")
        user = {} if told is None else self._named("users", "user", str(told), self._where)
        server = cluster.get("server")
        if not isinstance(server, str) or not server.startswith(("http://", "https://")):
            raise _wrong(self._where, f"the cluster of context {name!r} has no server with http or https")
        if "@" in urlsplit(server).netloc:
            told = "put the user and password into users, not into the address of the server"
            raise _wrong(self._where, f"the server of context {name!r}: {told}")
        certificate = self._bytes(user, "client-certificate")
        key = self._bytes(user, "client-key")
        authority = self._bytes(cluster, "certificate-authority")
        verify = cluster.get("insecure-skip-tls-verify") is not True
        if "auth-provider" in user:
            raise _wrong(self._where, "auth-provider is no longer used by Kubernetes; use exec or a token")
        login = (str(user["username"]), str(user["password"])) if "username" in user else None
        return Access(
            server=server.rstrip("/"),
            namespace=str(place.get("namespace") or "default"),
            context=name,
            tls=tls_of(authority, certificate, key, verify=verify) if server.startswith("https") else None,
            server_name=_text(cluster.get("tls-server-name")),
            proxy=_text(cluster.get("proxy-url")),
            token=_text(user.get("token")),
            token_file=self._path("tokenFile", user["tokenFile"]) if user.get("tokenFile") else None,
            login=login,
            program=self._program(user["exec"]) if user.get("exec") else None,
            authority=authority,
        )

    def _listed(self, group: str) -> str:
        names = [str(one.get("name")) for one in many(self._whole, group)]
        return ", ".join(repr(name) for name in sorted(names)) or "none"

    def _named(self, group: str, kind: str, name: str, field: str) -> Item:
        for one in many(self._whole, group):
            if one.get("name") == name:
                return mapping(one, kind)
        raise _wrong(field, f"the kubeconfig has no {kind} {name!r}; it has {self._listed(group)}")

    def _bytes(self, item: Mapping[str, Any], name: str) -> bytes | None:
        data = item.get(f"{name}-data")
        if data:
            try:
                return base64.b64decode(str(data), validate=False)
            except (binascii.Error, ValueError) as error:
                raise _wrong(self._where, f"its {name}-data is not base64") from error
        if not item.get(name):
            return None
        path = self._path(name, item[name])
        try:
            return path.read_bytes()
        except OSError as error:
            raise _wrong(self._where, f"its {name} {path} cannot be read: {error.strerror}") from error

    def _path(self, name: str, value: object) -> Path:
        if self._folder is None:
            told = f"put its content in, or the kubeconfig on the daemon's computer and name it with {FILE}"
            raise _wrong(
                self._where, f"a kubeconfig that is sent may name no files, and its {name} is one; {told}"
            )
        return self._folder / str(value)

    def _program(self, told: object) -> Program:
        if self._folder is None:
            what = (
                "a kubeconfig that is sent may run no program on the daemon's computer, and its user has exec"
            )
            raise _wrong(self._where, f"{what}; put it there and name it with {FILE}, or use a token")
        command, arguments = at(told, "command"), every(at(told, "args"))
        if not isinstance(command, str):
            raise _wrong(self._where, "its user's exec has no command")
        program = str(self._folder / command) if "/" in command else command
        return Program(
            command=(program, *(str(one) for one in arguments)),
            environment={str(one.get("name")): str(one.get("value")) for one in many(told, "env")},
            api_version=str(at(told, "apiVersion") or "client.authentication.k8s.io/v1"),
            folder=self._folder,
        )


FILE = "kubeconfig_file"


def _text(value: object) -> str | None:
    return str(value) if value else None


def _wrong(where: str, what: str) -> Refused:
    field = "credentials.kubeconfig" if where == "kubeconfig" else f"config.{where}"
    return Refused(f"{field}: {what}", "invalid_request", field=field)
