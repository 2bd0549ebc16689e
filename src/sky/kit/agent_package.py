"""The package that a machine installs to become a node: the agent and what calls may use of the client.

Decides: which folders are in it, and the exact releases of the few packages that it needs. Never: installs
anything. Follows: a node runs the very code that its daemon came with; the same code makes the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import platform
import zipfile
from functools import cache
from importlib import metadata
from pathlib import Path

from uv import find_uv_bin

from sky.kit.version import VERSION

ROOT = Path(__file__).parents[1]
FOLDERS = ("agent", "client", "kit", "wire")
NEEDS = ("aiohttp", "cloudpickle", "lz4", "msgspec")
FILE_NAME = f"skyfleet_agent-{VERSION}-py3-none-any.whl"
_INFO = f"skyfleet_agent-{VERSION}.dist-info"
_MOMENT = (2020, 1, 1, 0, 0, 0)


@cache
def wheel() -> bytes:
    """The package, to be installed by pip or uv under ``FILE_NAME``."""
    files = {f"sky/{path.name}": path.read_bytes() for path in (ROOT / "__init__.py", ROOT / "py.typed")}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            files[f"sky/{path.relative_to(ROOT).as_posix()}"] = path.read_bytes()
    exceptions = ROOT / "exceptions.py"
    if exceptions.is_file():
        files["sky/exceptions.py"] = exceptions.read_bytes()
    needs = "".join(f"Requires-Dist: {name}=={metadata.version(name)}\n" for name in NEEDS)
    files[f"{_INFO}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: skyfleet-agent\nVersion: {VERSION}\nRequires-Python: >=3.11\n{needs}"
    ).encode()
    files[f"{_INFO}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: skyfleet\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = f"{_INFO}/RECORD"
    lines = [f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items()]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _MOMENT), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def installer(machine: str) -> Path | None:
    """This computer's own uv, for a machine of the same kind (``uname -s``-``uname -m``); None: it is of
    another, or there is none here."""
    if machine != f"{platform.system()}-{platform.machine()}":
        return None
    try:
        return Path(find_uv_bin())
    except FileNotFoundError:
        return None


@cache
def digest() -> str:
    """The package's SHA-256."""
    return hashlib.sha256(wheel()).hexdigest()


@cache
def installer_digest() -> tuple[str, str]:
    """The kind of machine that ``installer`` has one for, and its SHA-256; both empty when there is none."""
    machine = f"{platform.system()}-{platform.machine()}"
    found = installer(machine)
    if found is None:
        return "", ""
    with found.open("rb") as file:
        return machine, hashlib.file_digest(file, "sha256").hexdigest()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
