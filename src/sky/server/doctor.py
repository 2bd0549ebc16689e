"""Looks at an installation, one thing after the other: ``python -m sky.server.doctor``, for ``sky doctor``.

Decides: what is looked at on this computer, and from which number on something is a warning or bad.
Never: mends or starts anything, or asks a daemon; it writes nothing but an object in each bucket, which it
removes. Follows: each finding is printed as JSON on a line of
its own as soon as it is known, what may take longest last, so that whoever waits loses only that.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import resource
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from sky.domain.errors import Busy
from sky.kit import containers
from sky.kit.clock import SystemClock
from sky.server import log, takeover, unfinished
from sky.server.settings import Settings, SettingsError, load
from sky.store import condition, installation
from sky.store.migrate import UnusableDatabaseError

FREE_BYTES_BAD = 256 * 1024**2
FREE_BYTES_FEW = 2 * 1024**3
FREE_INODES_FEW = 10_000
FILES_BAD = 256
FILES_FEW = 4_096
CERTIFICATE_DAYS_FEW = 14
_RENEW = "have a new one made, and put it in its place; the daemon takes it without a restart"
LEFT_SECONDS = 86_400
"""After so long nobody is receiving a file any more."""
EXTRAS = {
    "postgresql": "psycopg",
    "s3": "botocore",
    "aws": "botocore",
    "ssh": "asyncssh",
    "otel": "opentelemetry.sdk",
}
SECRETS = ("token", "secret", "login.json", "sky.db")
LEFT_BEHIND = (".restore-*", "*.new", "blobs/incoming/*")

_clock = SystemClock()


class Finding(msgspec.Struct, frozen=True):
    """How one thing is; ``mend``: what to type or do, where that is needed."""

    check: str
    state: Literal["ok", "warn", "bad"]
    said: str
    mend: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """0, whatever was found."""
    parser = argparse.ArgumentParser(
        prog="python -m sky.server.doctor", description="Looks, changes nothing."
    )
    for option in ("--home", "--database", "--host", "--tls-cert", "--tls-key", "--behind-proxy"):
        parser.add_argument(option)
    said = vars(parser.parse_args(arguments))
    log.configure("error")  # on stdout there are findings and nothing else
    try:
        chosen = load(said)
    except SettingsError as error:
        mend = "unset or correct it; docs/settings.md lists what may be said"
        _tell(Finding("settings", "bad", str(error), mend))
        return 0
    _tell(Finding("settings", "ok", "the daemon's settings can be used"))
    for name, check in _CHECKS.items():
        try:
            for finding in check(chosen):
                _tell(finding)
        except OSError as error:
            said = f"{error.filename or 'something'} cannot be looked at: {error.strerror or error}"
            mend = "run `sky doctor` as the daemon's user, and see that this user may read what it names"
            _tell(Finding(name, "bad", said, mend))
    return 0


def _tell(finding: Finding) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(finding) + b"\n")
    sys.stdout.buffer.flush()


# ── the state folder ────────────────────────────────────────────────────────────────────────────


def _home(chosen: Settings) -> Iterator[Finding]:
    for name, folder in _folders(chosen).items():
        if not folder.exists():
            yield Finding(name, "ok", f"{folder} is not there yet; the first daemon makes it")
        elif not folder.is_dir():
            mend = f"mv {folder} {folder}.old, or name another folder in SKY_HOME"
            yield Finding(name, "bad", f"{folder} is no folder", mend)
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            mend = f"chown -R {os.getuid()} {folder}; chmod u+rwx {folder}"
            yield Finding(name, "bad", f"{folder} cannot be written by this user", mend)
        elif folder == chosen.home and _open_to_others(folder):
            yield Finding(name, "warn", f"{folder} is open to other users", f"chmod 700 {folder}")
        else:
            yield Finding(name, "ok", f"{folder} can be written")


def _folders(chosen: Settings) -> dict[str, Path]:
    found = {"home": chosen.home, "shared": chosen.shared, "blobs": chosen.shared / "blobs"}
    if chosen.bucket is None:
        found["artifacts"] = chosen.shared / "artifacts"
    if chosen.shared == chosen.home:
        del found["shared"]
    return found


def _open_to_others(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def _secrets(chosen: Settings) -> Iterator[Finding]:
    files = {folder / name for folder in (chosen.home, chosen.shared) for name in SECRETS}
    kept = sorted(path for path in files if _there(path))
    loose = [path for path in kept if _open_to_others(path)]
    for path in loose:
        yield Finding("secrets", "bad", f"{path} can be read by other users", f"chmod 600 {path}")
    if not loose:
        yield Finding("secrets", "ok", f"{len(kept)} files with secrets are the user's own")


def _there(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:
        return False


def _space(chosen: Settings) -> Iterator[Finding]:
    seen: set[int] = set()
    for folder in _folders(chosen).values():
        there = next(path for path in (folder, *folder.parents) if path.exists())
        device = there.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        free = shutil.disk_usage(there).free
        disk = os.statvfs(there)
        said = f"{free / 1024**3:.1f} GB are free for {there}"
        mend = "remove what is not needed: `sky admin gc --dry-run` shows what the daemon would"
        if disk.f_files and disk.f_favail < FREE_INODES_FEW:
            yield Finding("disk", "warn", f"only {disk.f_favail} more files fit on the disk of {there}", mend)
        elif free < FREE_BYTES_FEW:
            yield Finding("disk", "bad" if free < FREE_BYTES_BAD else "warn", f"only {said}", mend)
        else:
            yield Finding("disk", "ok", said)


def _left_behind(chosen: Settings) -> Iterator[Finding]:
    before_s = _clock.now_us() / 1e6 - LEFT_SECONDS
    old: list[Path] = []
    for pattern in LEFT_BEHIND:
        old += [path for path in chosen.shared.glob(pattern) if _changed_s(path) < before_s]
    if old:
        some = ", ".join(str(path) for path in old[:3])
        mend = f"once no daemon runs: rm -r {some}"
        yield Finding("leftovers", "warn", f"{len(old)} files were left half written: {some}", mend)
    else:
        yield Finding("leftovers", "ok", "no files were left half written")


def _changed_s(path: Path) -> float:
    """When a file was written last; one that is gone by now is as new as can be."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return math.inf


# ── this computer ───────────────────────────────────────────────────────────────────────────────


def _limits(_: Settings) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    if soft == resource.RLIM_INFINITY or soft >= FILES_FEW:
        yield Finding("limits", "ok", f"a process may open {said} files")
        return
    raisable = hard == resource.RLIM_INFINITY or hard >= FILES_FEW
    mend = f"ulimit -n {FILES_FEW}" if raisable else "raise nofile in /etc/security/limits.conf"
    state: Literal["warn", "bad"] = "bad" if soft < FILES_BAD else "warn"
    yield Finding("limits", state, f"a process may open only {said} files; each node needs some", mend)


def _extras(chosen: Settings) -> Iterator[Finding]:
    there = [name for name, module in EXTRAS.items() if _installed(module)]
    if chosen.shares_database and "postgresql" not in there:
        said = "the database is a PostgreSQL, and its driver is not installed"
        yield Finding("extras", "bad", said, "pip install 'skyfleet[postgresql]'")
    else:
        missing = ", ".join(name for name in EXTRAS if name not in there)
        more = f"; not installed: {missing}" if missing else ""
        yield Finding("extras", "ok", f"installed: {', '.join(there) or 'none'}{more}")


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _engine(_: Settings) -> Iterator[Finding]:
    found = containers.find(os.environ)
    if isinstance(found, str):
        mend = "install podman, or start what is installed; only jobs with an image need it"
        yield Finding("containers", "warn", f"this computer runs no containers: {found}", mend)
    else:
        how = "as this user" if found.rootless else "as root"
        yield Finding("containers", "ok", f"{found.name} answers, and runs containers {how}")


def _certificate(chosen: Settings) -> Iterator[Finding]:
    if chosen.tls_cert is None or chosen.tls_key is None:
        return
    mend = "name a PEM file with the certificate in SKY_TLS_CERT, and its key in SKY_TLS_KEY"
    try:
        certificate = x509.load_pem_x509_certificate(chosen.tls_cert.read_bytes())
        key = load_pem_private_key(chosen.tls_key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        yield Finding("certificate", "bad", f"{chosen.tls_cert} cannot be used: {error}", mend)
        return
    if key.public_key() != certificate.public_key():
        said = f"{chosen.tls_key} is not the key of {chosen.tls_cert}"
        yield Finding("certificate", "bad", said, mend)
        return
    now = datetime.fromtimestamp(_clock.now_us() / 1e6, UTC)
    ends = certificate.not_valid_after_utc
    days = (ends - now).days
    if now < certificate.not_valid_before_utc:
        said = f"{chosen.tls_cert} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}"
        yield Finding("certificate", "bad", said, "set this computer's clock, or name another certificate")
    elif ends <= now:
        said = f"{chosen.tls_cert} was valid until {ends:%Y-%m-%d}"
        yield Finding("certificate", "bad", said, _RENEW)
    elif days < CERTIFICATE_DAYS_FEW:
        said = f"{chosen.tls_cert} is valid for {days} more days"
        yield Finding("certificate", "warn", said, _RENEW)
    else:
        yield Finding("certificate", "ok", f"{chosen.tls_cert} is valid until {ends:%Y-%m-%d}")


# ── buckets ─────────────────────────────────────────────────────────────────────────────────────


def _buckets(chosen: Settings) -> Iterator[Finding]:
    if chosen.blob_bucket is None and chosen.bucket is None:
        return
    from sky.server import buckets  # with botocore, which is an extra, and slow

    for one in buckets.named(chosen):
        try:
            bucket = buckets.bucket_of(chosen, one.setting, one.where, _clock)
        except SettingsError as error:
            mend = "correct the profile that AWS_PROFILE names, or the files that AWS's tools read"
            yield Finding("bucket", "bad", str(error), mend)
            continue
        trouble = asyncio.run(buckets.tried(bucket, one))
        if trouble is None:
            yield Finding("bucket", "ok", f"{one.url} takes, lists, gives and removes objects")
        else:
            yield Finding("bucket", "bad", trouble.said, trouble.mend)


# ── whose all that is ───────────────────────────────────────────────────────────────────────────


def _owners(chosen: Settings) -> Iterator[Finding]:
    begun = chosen.shared / unfinished.NOTE
    if begun.exists():
        busy = unfinished.under_way(chosen)
        if busy is not None:
            yield Finding("owner", "warn", busy, "no daemon starts there before that")
            return
        said = f"{begun} says that a restore was begun and did not come to its end"
        yield Finding("owner", "bad", said, "run `sky admin restore` again; it begins anew")
        return
    try:
        found = takeover.look(chosen, installation.peek(chosen.database_url))
    except SettingsError:
        return  # told by the look at buckets
    except (UnusableDatabaseError, Busy) as error:
        yield Finding("owner", "warn", f"whose content it is cannot be told: {error}", "see below, and above")
        return
    for one in found:
        told = one.standing
        if told.why_not is None:
            yield Finding("owner", "ok", f"{told.where} is this installation's own")
        elif one.free:
            yield Finding("owner", "ok", f"{told.where} is nobody's yet; the daemon marks it as its own")
        else:
            mend = "sky admin takeover --dry-run; or give this one a bucket or folder of its own"
            yield Finding("owner", "warn", told.why_not, mend)


# ── the database ────────────────────────────────────────────────────────────────────────────────


def _database(chosen: Settings) -> Iterator[Finding]:
    url = chosen.database_url
    file = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite") and (not file.is_file() or not file.stat().st_size):
        yield Finding("database", "ok", f"{file} is not there yet; the first daemon makes it")
        return
    try:
        found = condition.look(url)
    except condition.UnreadableError as error:
        mend = "check SKY_DATABASE; `sky admin restore FILE` puts a backup back into an empty folder"
        yield Finding("database", "bad", f"the database cannot be read: {error}", mend)
        return
    if found.schema != found.head:
        yield _other_schema(found)
        return
    if found.damage:
        mend = "stop the daemon, keep a copy of the folder, and `sky admin restore` the last backup"
        yield Finding("database", "bad", f"the database is damaged: {found.damage[0]}", mend)
    else:
        yield Finding("database", "ok", f"it is whole, at schema {found.schema}")
    if found.unbalanced:
        said = f"{found.unbalanced} entries of the ledger do not sum to zero"
        yield Finding("ledger", "bad", said, "`sky admin ledger verify` lists them; sell nothing before that")
    else:
        yield Finding("ledger", "ok", "each entry of the ledger sums to zero")


def _other_schema(found: condition.Condition) -> Finding:
    if found.schema is None:
        return Finding("database", "ok", "the database is empty; the first daemon fills it")
    if found.schema > found.head:
        said = f"the database has schema {found.schema}, and this release knows {found.head}"
        return Finding("database", "bad", said, "pip install --upgrade skyfleet")
    said = f"the database has schema {found.schema}; this release brings it to {found.head}"
    return Finding("database", "warn", said, "sky server stop; sky server start")


_CHECKS = {
    "home": _home,
    "secrets": _secrets,
    "disk": _space,
    "limits": _limits,
    "leftovers": _left_behind,
    "extras": _extras,
    "certificate": _certificate,
    "containers": _engine,
    "database": _database,
    "bucket": _buckets,
    "owner": _owners,
}


if __name__ == "__main__":
    sys.exit(main())
