"""What an operator may set, and from where each value comes.

Decides: names, defaults, and the order command line, environment, default. Never: reads a request.
Follows: a setting that is not in this table does not exist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sky.domain.user import Role
from sky.kit.version import CLIENT_RELEASE
from sky.server import setting_rules
from sky.server.said import SettingsError, said
from sky.server.setting_rules import LOOPBACK
from sky.store.engine import driver_url

DEFAULT_PORT = 7590


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's settings. Each is also an environment variable: ``SKY_`` and its name in capitals."""

    home: Annotated[Path, Meta(description="State folder, mode 0700: database, blobs, nodes, logs.")]
    host: Annotated[
        str,
        Meta(
            description="Address to listen on. One that others can reach needs `tls_cert` and `tls_key`, or "
            "`behind_proxy`; see docs/users.md."
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int | None,
        Meta(
            description="Port to listen on; 0: any free one. Unset: 7590, or any free one when it is taken."
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        Meta(description="Certificate with its chain (PEM): the address is then served over TLS."),
    ] = None
    tls_key: Annotated[
        Path | None, Meta(description="Key of that certificate (PEM), without a passphrase.")
    ] = None
    behind_proxy: Annotated[
        bool,
        Meta(
            description="Whether a reverse proxy stands before the address: it does TLS, and its "
            "`X-Auth-Request-Email` says who asks."
        ),
    ] = False
    proxies: Annotated[
        str,
        Meta(description="Where that proxy is: addresses or networks, by comma. Others are not believed."),
    ] = "127.0.0.1,::1"
    names: Annotated[
        str | None,
        Meta(
            description="Names by which others reach the address, by comma, with the port unless it is the "
            "usual one. Unset: any name."
        ),
    ] = None
    default_role: Annotated[
        Role, Meta(description="Role of a user whom the proxy names for the first time.")
    ] = "user"
    api_version: Annotated[
        Annotated[int, Meta(ge=1, le=999_999)] | None,
        Meta(
            description="For tests of compatibility: the version of requests that the daemon says it speaks."
        ),
    ] = None
    api_version_min: Annotated[
        Annotated[int, Meta(ge=0, le=999_999)] | None,
        Meta(description="For tests of compatibility: the oldest version that it takes from a client."),
    ] = None
    database: Annotated[
        str | None,
        Meta(
            description="SQLite file, or URL of a PostgreSQL. Unset: `DATABASE_URL` where that names a "
            "PostgreSQL, or else `sky.db` in the state folder."
        ),
    ] = None
    shared_folder: Annotated[
        Path | None,
        Meta(
            description="Folder that all daemons on one PostgreSQL have: keys, content, files of paid jobs, "
            "and this computer's nodes. Unset: the state folder."
        ),
    ] = None
    blobs: Annotated[
        str | None,
        Meta(
            description="Where large content (code, arguments, results) is kept: `s3://bucket/prefix`. "
            "Unset: in the state folder. See docs/operating.md."
        ),
    ] = None
    blob_bytes_max: Annotated[int, Meta(ge=1, description="Largest blob in bytes.")] = 5 * 1024**3
    body_bytes_max: Annotated[int, Meta(ge=1024, description="Largest JSON body in bytes.")] = 8 * 1024**2
    stop_seconds: Annotated[
        float, Meta(ge=0, le=600, description="How long open requests may go on after SIGTERM, in seconds.")
    ] = 3.0
    full_sync: Annotated[
        bool, Meta(description="Wait for the disk at every commit, so that a power cut loses nothing either.")
    ] = False
    events_kept_seconds: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="How long recorded events can be replayed, in seconds. Unset: for ever."),
    ] = None
    ended_days: Annotated[
        int,
        Meta(
            ge=7,
            le=36_500,
            description="How many days deleted computes and removed clusters are kept, with their nodes, "
            "calls, results and jobs.",
        ),
    ] = 365
    call_days: Annotated[
        Annotated[int, Meta(ge=7, le=36_500)] | None,
        Meta(
            description="How many days calls of computes that are there are kept after their end, with "
            "their results. Unset: as long as their compute."
        ),
    ] = None
    request_days: Annotated[
        int, Meta(ge=1, le=36_500, description="How many days requests are kept after their end.")
    ] = 30
    delivery_days: Annotated[
        int, Meta(ge=1, le=36_500, description="How many days it is kept what became of a webhook's message.")
    ] = 30
    unnamed_days: Annotated[
        int,
        Meta(ge=1, le=36_500, description="How many days functions and content are kept that nothing names."),
    ] = 7
    cancel_confirm_seconds: Annotated[
        float,
        Meta(
            ge=1,
            le=86_400,
            description="How long a node may take to confirm that it stopped a cancelled call, in seconds; "
            "after that nobody knows whether it ran, and the call is `indeterminate`.",
        ),
    ] = 60.0
    metrics_open: Annotated[
        bool,
        Meta(description="Whether everybody on this computer may read `/metrics`; see docs/operating.md."),
    ] = False
    metrics_token: Annotated[
        Annotated[str, Meta(min_length=16, max_length=256)] | None,
        Meta(description="A token that is good for reading `/metrics`, and for nothing else."),
    ] = None
    log_format: Annotated[
        Literal["json", "text"],
        Meta(description="How a line of the log is written: one JSON object, or `name=value` for people."),
    ] = "json"
    log_level: Annotated[
        str, Meta(description="Least severe lines that are logged: debug, info, warning, error.")
    ] = "info"

    client_release: Annotated[
        str,
        Meta(
            max_length=64,
            description="Release of the client library `skyward` that the daemon says it serves; "
            "see docs/interop.md.",
        ),
    ] = CLIENT_RELEASE

    jobs: Annotated[
        bool,
        Meta(description="Whether paid jobs are taken. Off: their catalogue is served and nothing is sold."),
    ] = True
    accounts_backend: Annotated[
        Literal["local", "console"], Meta(description="Where keys and balances are: here, or at a console.")
    ] = "local"
    console_url: Annotated[
        str | None,
        Meta(description="Where the console is: https, or http on this computer. See docs/console.md."),
    ] = None
    console_token: Annotated[
        str | None, Meta(description="What the daemon shows to the console; the console knows it too.")
    ] = None
    console_cache_seconds: Annotated[
        float, Meta(ge=0, le=60, description="How long a key that the console knew is not asked about again.")
    ] = 60.0
    console_timeout_seconds: Annotated[
        float, Meta(gt=0, le=30, description="How long the console may take to answer.")
    ] = 10.0
    upstreams: Annotated[
        str, Meta(description="Kinds of provider that paid jobs may use, separated by commas.")
    ] = "local"
    catalogue: Annotated[
        Path | None, Meta(description="YAML file of what is sold. Unset: the one that comes along.")
    ] = None
    price_list: Annotated[
        Path | None,
        Meta(
            description="CSV file of what machines cost by list. Unset: the one that comes along. See "
            "docs/offers.md."
        ),
    ] = None
    templates: Annotated[
        Path | None,
        Meta(description="Folder of YAML files, each a template of a paid job. Unset: the catalogue's only."),
    ] = None
    artifacts: Annotated[
        str | None,
        Meta(
            description="Where files of paid jobs are kept: `s3://bucket/prefix`, or `none`. Unset: in the "
            "state folder. See docs/jobs.md."
        ),
    ] = None
    artifacts_endpoint: Annotated[
        str | None,
        Meta(
            description="Address of an S3-compatible store, for artifacts and blobs. Unset: AWS, in the "
            "bucket's region."
        ),
    ] = None
    artifacts_region: Annotated[
        str | None,
        Meta(
            description="Region of the buckets of artifacts and blobs. Unset: as for AWS's own tools, or "
            "us-east-1."
        ),
    ] = None
    artifact_days: Annotated[
        int, Meta(ge=1, le=36_500, description="How many days a job's files are kept after their upload.")
    ] = 30
    job_log_days: Annotated[
        int, Meta(ge=1, le=36_500, description="How many days what a job printed is kept after its end.")
    ] = 7
    allow_host_jobs: Annotated[
        bool,
        Meta(description="Whether the image `local` runs a paid command as a process of this computer."),
    ] = False
    webhook_loopback: Annotated[
        bool,
        Meta(description="Whether webhooks may go to this computer itself, for trying them out."),
    ] = False
    allow_private_inputs: Annotated[
        bool,
        Meta(description="Whether inputs of paid jobs may come from addresses that are not public."),
    ] = False
    job_ceiling_seconds: Annotated[
        int, Meta(ge=1, le=86_400, description="Longest runtime of a paid job in seconds.")
    ] = 14_400
    job_submits_per_hour: Annotated[int, Meta(ge=1, description="Submits of one key in an hour.")] = 60
    job_reads_per_minute: Annotated[int, Meta(ge=1, description="Reads of one key in a minute.")] = 600
    account_jobs_max: Annotated[
        int, Meta(ge=0, description="Jobs of one account that may be under way, unless it has its own limit.")
    ] = 2
    account_gpus_max: Annotated[
        int, Meta(ge=0, description="GPUs of one tier that an account may use, unless it has its own limit.")
    ] = 2
    platform_jobs_max: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Jobs of all accounts that may be under way. Unset: no limit."),
    ] = None
    platform_gpus_max: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="GPUs that all accounts may use. Unset: no limit."),
    ] = None

    @property
    def public(self) -> bool:
        """Whether others than the daemon's own user are to reach the address."""
        return self.behind_proxy or self.tls_cert is not None or self.host not in LOOPBACK

    @property
    def networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Where the proxy is."""
        return tuple(ip_network(text) for text in _parts(self.proxies))

    @property
    def hosts(self) -> frozenset[str]:
        """Names by which others reach the address."""
        return frozenset(_parts((self.names or "").lower()))

    @property
    def bucket(self) -> tuple[str, str] | None:
        """The bucket of artifacts and the prefix in it, which ends in a slash or is empty."""
        return _bucket(self.artifacts)

    @property
    def blob_bucket(self) -> tuple[str, str] | None:
        """The bucket of blobs, likewise."""
        return _bucket(self.blobs)

    @property
    def shared(self) -> Path:
        """Where what all daemons on one database need is kept."""
        return self.home if self.shared_folder is None else self.shared_folder.expanduser().absolute()

    @property
    def shares_database(self) -> bool:
        """Whether other daemons may be on the same database."""
        return self.database_url.startswith("postgresql")

    @property
    def database_url(self) -> str:
        """The database as SQLAlchemy names it."""
        if self.database is None:
            return f"sqlite:///{self.home / 'sky.db'}"
        if "://" in self.database:
            return driver_url(self.database)
        return f"sqlite:///{Path(self.database).expanduser().absolute()}"


_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([A-Za-z0-9_-][A-Za-z0-9._/-]{0,199}?))?/?")


def _bucket(text: str | None) -> tuple[str, str] | None:
    found = None if text is None else _BUCKET.fullmatch(text)
    return None if found is None else (found[1], f"{found[2]}/" if found[2] else "")


def load(given: Mapping[str, str | None], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from the command line (``given``), then the environment, then the defaults."""
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(Settings):
        text = given.get(field.name)
        if text is None:
            text = said("SKY_" + field.name.upper(), environ)
        if text is not None and text != "":
            values[field.name] = text
    shared = environ.get("DATABASE_URL", "")
    if "database" not in values and shared.startswith(("postgres://", "postgresql://")):
        values["database"] = shared
    values["home"] = str(Path(str(values.get("home") or "~/.sky")).expanduser().absolute())
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        msg = f"a setting is wrong: {error}"
        raise SettingsError(msg) from error
    setting_rules.check(settings)
    return settings


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _decode(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    msg = f"cannot make a {kind.__name__} of {value!r}"
    raise TypeError(msg)
