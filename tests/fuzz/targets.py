"""What reads the bytes of others, each as one function of bytes, with the errors that it may raise.

Decides: which readers are held to that they refuse what they cannot read with an error of their own, and with
nothing else. Never: makes up bytes (``test_targets`` and ``__main__`` do). Follows: whatever else is raised
here is a defect, and so is what takes longer or more memory than ``LIMIT_S`` and the runner allow.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import sky
from sky.agent import connection, frames, included, scripts, session
from sky.agent.installer import Unbuildable
from sky.api import ranges, reading
from sky.api.agent import connect
from sky.client.exceptions import InvalidTaskYAMLError
from sky.client.sse import Frames
from sky.client.tasks import reading as task_files
from sky.client.tasks.ignore import SKYIGNORE, Ignored
from sky.domain import money, price_list
from sky.domain.errors import InvalidRequest
from sky.domain.job_errors import JobRefused
from sky.domain.price_list import PriceListError
from sky.kit import masks, secrets
from sky.kit.folding import TooLarge, Unfolding
from sky.server import catalogue
from sky.server.catalogue import CatalogueError
from sky.verbs import webhooks
from sky.wire import jobs as jobs_wire
from sky.wire import requests as requests_wire
from sky.wire import v1
from sky.wire.scripts import Bring, step_of

UNFOLDED_BYTES = 1_000_000
LIMIT_S = 2.0
"""So much processor time one input may take: far more than any of them needs."""


@dataclass(frozen=True)
class Target:
    """A reader, the errors that it declares, and some inputs that it understands."""

    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]


# ── what agents and daemons say to each other ───────────────────────────────────────────────────


def _worker_stream(content: bytes) -> None:
    splitter = frames.Splitter()
    half = len(content) // 2
    for piece in (content[:half], content[half:]):
        for body in splitter.feed(piece):
            frames.from_worker.decode(body)


def _payload(content: bytes) -> None:
    unfolding = Unfolding([content], UNFOLDED_BYTES)
    while piece := unfolding.read(65_536):
        assert len(piece) <= 65_536
        unfolding.readline()
        if not piece.strip(b"\0"):
            return


# ── archives ────────────────────────────────────────────────────────────────────────────────────


def _files_below(folder: Path) -> list[Path]:
    return [Path(at) / name for at, folders, files in os.walk(folder) for name in (*folders, *files)]


def _brought(content: bytes) -> None:
    """An archive of a task's files, as a node unpacks it."""
    with tempfile.TemporaryDirectory(prefix="sky-fuzz-") as apart:
        home = Path(apart) / "home"
        home.mkdir()
        step = Bring(cluster="c", target="x", digest="0" * 64)
        try:
            scripts._bring(step, content, None, home)
        finally:
            assert [path for path in Path(apart).iterdir() if path != home] == [], "it wrote outside"
            for path in _files_below(home):
                assert path.resolve().is_relative_to(home.resolve()), path


def _included(content: bytes) -> None:
    """An archive of included files, as a node unpacks it."""
    with tempfile.TemporaryDirectory(prefix="sky-fuzz-") as apart:
        archive, target = Path(apart) / "archive", Path(apart) / "target"
        archive.write_bytes(content)
        target.mkdir()
        included.Unpacking(target)._unpack(archive)
        assert {path.name for path in Path(apart).iterdir()} == {"archive", "target"}, "it wrote outside"
        assert not [path for path in _files_below(target) if path.is_symlink()], "it made a link"


def archive_of(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """A small archive, for seeds."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, len(content) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


ARCHIVES = (
    archive_of(("a", b"x"), ("b/c", b"")),
    archive_of(("../out", b"x")),
    archive_of(("/tmp/out", b"x")),
    archive_of(("a", b""), kind=tarfile.SYMTYPE, link="/etc"),
    archive_of(("a", b""), kind=tarfile.FIFOTYPE),
    gzip.compress(b"\0" * 2048),
)

# ── text that people write ──────────────────────────────────────────────────────────────────────


def _task(content: bytes) -> None:
    sky.Task.from_yaml_str(content.decode("utf-8", "surrogateescape"))


def _in_a_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    def of(content: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="sky-fuzz-") as folder:
            path = Path(folder) / name
            path.write_bytes(content)
            read(path)

    return of


def _left_behind(path: Path) -> None:
    ignored = Ignored(path.parent)
    for one in ("a", "a/b/c.py", "data/" + "a" * 40, "aab" * 30 + "/x", "[z]/\\q"):
        ignored.match(one, folder=False)


def _price_list(content: bytes) -> None:
    price_list.parse(content.decode("utf-8", "replace"), "prices.csv")


def _masked(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    known = masks.Masks(["a-known-secret"])
    assert "a-known-secret" not in known.hide(text)
    flow = masks.Flow(known)
    for at in range(0, len(text), 97):
        flow.hide(text[at : at + 97], whole=False)
    list(secrets.find({"A_TOKEN": text, "b": [text]}, "x"))


# ── requests ────────────────────────────────────────────────────────────────────────────────────


def _json(kind: Any) -> Callable[[bytes], object]:
    return lambda content: reading.decoded(content, kind)


def _job(content: bytes) -> None:
    try:
        msgspec.json.decode(content, type=jobs_wire.SubmitJobRequest)
    except RecursionError as error:  # as the face takes it
        raise ValueError(str(error)) from None


def _range(content: bytes) -> None:
    start, end = ranges.wanted_range(content.decode("latin-1"), 1_000)
    assert 0 <= start < end <= 1_000


def _address(content: bytes) -> None:
    sealing = webhooks.Sealing(lambda _: b"", lambda _: {})
    webhooks.check_url(content.decode("utf-8", "replace"), sealing)


def _events(content: bytes) -> None:
    parser = Frames()
    for at in range(0, len(content), 7):
        list(parser.feed(content[at : at + 7]))


YAML = (
    b"run: echo\nresources: {cpus: 2+, infra: aws/us-east-1}\nenvs: {A: 1}\n",
    b"a: &x [1, 2]\nb: *x\n<<: {c: d}\n",
    b"a: !!int ''\n",
    b"a: !!bool x\n",
    b"a: !!timestamp x\n",
    b"a: !!float ''\n",
    b"name: 2001-99-99\nnum_nodes: 0o7\n",
    b"--- {}\n--- {}\n",
)
TARGETS: dict[str, Target] = {
    "agent": Target(
        connect._decoder.decode,
        connect.UNREADABLE,
        (
            msgspec.msgpack.encode({"type": "ping", "window": 1}),
            b"\x91" * 5_000,
            b"\x82\xa4type\xa4ping\xa1x" + b"\x91" * 5_000,
        ),
    ),
    "daemon": Target(connection._decoder.decode, (msgspec.DecodeError,), (msgspec.msgpack.encode(["pong"]),)),
    "session": Target(session._decoder.decode, (msgspec.DecodeError,), (msgspec.msgpack.encode([1, b"x"]),)),
    "worker": Target(
        _worker_stream,
        (msgspec.DecodeError, ValueError),
        (frames.framed(frames.Wrote(1, 1, "x\n", 1)), b"\xff\xff\xff\xff", b"\0\0\0\0"),
    ),
    "payload": Target(
        _payload, (TooLarge, EOFError, RuntimeError), (b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x40\x40\xc0")
    ),
    "step": Target(step_of, (msgspec.DecodeError,), (b'sky-step\n{"step":"bring"}', b"sky-step\n{")),
    "files": Target(_brought, scripts.UNREADABLE, ARCHIVES),
    "included": Target(_included, (Unbuildable,), ARCHIVES),
    "task": Target(_task, (InvalidTaskYAMLError,), YAML),
    "catalogue": Target(
        _in_a_file("c.yaml", catalogue.read),
        (CatalogueError,),
        (*YAML, b"skus:\n  - {id: a, price_usd_per_hour: '1', tier: '', vcpus: 1, memory_gb: 1}\n"),
    ),
    "prices": Target(
        _price_list,
        (PriceListError,),
        (
            b"# as_of: 2026-01\n# currency: USD\n# source: x\ncloud,instance_type\n",
            (
                "# as_of: 2026-01\n# currency: USD\n# source: x\n" + ",".join(price_list.COLUMNS) + "\naws,"
            ).encode()
            + b"x" * 200_000,
        ),
    ),
    "dotenv": Target(
        _in_a_file(".env", task_files.env_file), (InvalidTaskYAMLError,), (b"A=1\n#x\nB='a'\n",)
    ),
    "ignore": Target(
        _in_a_file(SKYIGNORE, _left_behind), (), (b"a*b\n!c\n[a-z]/\n**/x\n", b"*a*a*a*a*a*a*a*a*b\n")
    ),
    "events": Target(_events, (ValueError,), (b"id: 1\nevent: x\ndata: {}\n\n", b":\r\n\r\n")),
    "range": Target(_range, (), (b"bytes=0-1", b"bytes=-5", b"bytes=9-1")),
    "webhook": Target(
        _address,
        (JobRefused,),
        (b"https://example.com/x", b"https://127.1/", b"https://[::1]/", "https://１２７.1/".encode()),
    ),
    "money": Target(
        lambda content: money.parse_usd(content.decode("latin-1")),
        (ValueError, InvalidRequest),
        (b"1.000001", b"-1", b"1e9"),
    ),
    "compute": Target(_json(v1.ComputeCreate), (InvalidRequest,), (b'{"spec":{"specs":[]}}', b"[" * 5_000)),
    "launch": Target(_json(requests_wire.LaunchBody), (InvalidRequest,), (b'{"task":{"run":"x"}}',)),
    "job": Target(_job, (ValueError,), (b'{"sku":"cpu","spec":{"image":"local"}}',)),
    "log": Target(_masked, (), (b"a-known-secret", b"eyJ" * 50, b"-----BEGIN PRIVATE KEY-----\nx")),
}
"""Every reader, by what it reads."""
