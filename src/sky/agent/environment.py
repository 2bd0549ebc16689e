"""The Python environment that a node's image asks for: this interpreter, or one that uv makes.

Decides: which of the two, what goes into it, and by what it is known (the hash of all that it depends on).
Never: installs system packages, or lets an image replace what workers themselves need.
Follows: nodes of one computer that ask for the same packages share one environment, and what is wrong with
the packages is said in the installer's own words.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import msgspec

import sky
from sky.agent import installer
from sky.agent.installer import Console, LoginNeeded, Unbuildable
from sky.agent.reporter import StreamName
from sky.agent.shelf import Shelf
from sky.kit.codec import canonical, sha256_hex
from sky.wire.v1 import Image

AGENT_PACKAGES = ("msgspec", "cloudpickle", "lz4")
"""What a worker needs besides this package itself."""
HASH_CHARS = 20
PYTHON_MIN = (3, 11)
SHIMS = "shims"


class _Recipe(msgspec.Struct, frozen=True):
    """All that an environment's content depends on."""

    python: str
    pip: tuple[str, ...]
    indexes: tuple[tuple[str, tuple[str, ...]], ...]
    own: tuple[str, ...]
    package: str


def running_minor() -> str:
    """This interpreter's version, as ``3.12``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def is_plain(image: Image) -> bool:
    """Whether this interpreter serves the image as it is."""
    return not image.pip and (image.python is None or _minor(image.python) == running_minor())


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with; as new as can be where it is no version at all."""
    numbers = [int(part) for part in _minor(version).split(".") if part.isdigit()]
    return tuple(numbers) if len(numbers) == 2 else PYTHON_MIN


async def prepare(image: Image, shelf: Shelf, environment: Mapping[str, str], console: Console) -> str:
    """The path of the interpreter to run calls with, after building its environment if need be.

    Raises ``Unbuildable``, OSError. The caller bounds the time.
    """
    if is_plain(image):
        return sys.executable
    if image.python is not None and _numbers(image.python) < PYTHON_MIN:
        oldest = ".".join(map(str, PYTHON_MIN))
        raise Unbuildable(f"Python {image.python} is too old to run calls: the image needs {oldest} or later")
    recipe = _Recipe(
        python=image.python or running_minor(),
        pip=image.pip,
        indexes=tuple((index.url, index.packages) for index in image.pip_indexes),
        own=tuple(f"{name}=={metadata.version(name)}" for name in AGENT_PACKAGES),
        package=str(_package()),
    )

    async def make(folder: Path, lock: int) -> None:
        await _build(recipe, folder, environment, console, lock)

    def on_wait() -> None:
        console("stdout", "waiting for another node that builds the same environment\n")

    key = sha256_hex(canonical(recipe))[:HASH_CHARS]
    # Its interpreter is a link, which may lead nowhere when a Python was removed from the computer.
    folder = await shelf.take(key, make, on_wait, lambda folder: _python(folder).exists())
    return str(_python(folder))


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _package() -> Path:
    """The folder of this package's own source."""
    return Path(sky.__path__[0]).resolve()


async def _build(
    recipe: _Recipe, folder: Path, environment: Mapping[str, str], console: Console, lock: int
) -> None:
    uv = installer.uv_path()
    installing = {**environment, "UV_NO_PROGRESS": "1"}
    installing.pop("VIRTUAL_ENV", None)
    installing.setdefault("UV_PYTHON_DOWNLOADS", "never")
    installing["PATH"] = _without_shims(environment.get("PATH", os.defpath))
    if "REQUESTS_CA_BUNDLE" in environment:
        # uv knows the other name only.
        installing.setdefault("SSL_CERT_FILE", environment["REQUESTS_CA_BUNDLE"])
    python = _interpreter(recipe.python, environment)
    making = [uv, "venv", "--quiet", "--python", python, str(folder)]
    await installer.run(making, folder.parent, installing, console, (lock,))
    source = folder / "sky-source"
    source.mkdir()
    (source / "sky").symlink_to(_package(), target_is_directory=True)
    [site] = (folder / "lib").glob("python*/site-packages")
    (site / "sky-source.pth").write_text(f"{source}\n")
    install = [uv, "pip", "install", "--python", str(_python(folder))]

    async def run(own: tuple[str, ...]) -> None:
        # In one step, so that an image which cannot go together with what workers need is told so.
        await installer.run([*install, *_wanted(recipe, own, folder)], folder, installing, console, (lock,))

    try:
        await run(recipe.own)
    except LoginNeeded:
        raise
    except Unbuildable as failed:
        await _check_logins(install, recipe, folder, installing, lock)
        if not any(pinned in str(failed) for pinned in recipe.own):
            raise
        ranges = _ranges(recipe.own)
        console("stdout", f"tries other versions of what calls need: {', '.join(ranges)}\n")
        try:
            await run(ranges)
        except Unbuildable as again:
            raise Unbuildable(f"{again} (calls themselves need {', '.join(ranges)})") from again


def _ranges(own: tuple[str, ...]) -> tuple[str, ...]:
    """The versions of what workers need that would do, where this one's own cannot be had."""
    try:
        required = metadata.requires("skyfleet") or []
    except metadata.PackageNotFoundError:
        return own
    return tuple(line for line in required if re.split(r"[^\w-]", line)[0] in AGENT_PACKAGES) or own


async def _check_logins(
    install: list[str], recipe: _Recipe, folder: Path, installing: Mapping[str, str], lock: int
) -> None:
    """Raises LoginNeeded if that is why a package was not found: uv is silent about it for tied packages."""
    for url, packages in recipe.indexes:
        if packages:
            asking = [*install, "--dry-run", "--no-deps", "--default-index", url, "--", packages[0]]
            try:
                await installer.run(asking, folder, installing, _unheard, (lock,))
            except LoginNeeded:
                raise
            except Unbuildable:
                continue


def _unheard(_stream: StreamName, _text: str) -> None:
    """For what only repeats what was said."""


def _without_shims(path: str) -> str:
    """A search path without folders of stand-ins, which name interpreters that they then refuse to run."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if Path(entry).name != SHIMS)


def _interpreter(version: str, environment: Mapping[str, str]) -> str:
    """An interpreter of a version, or the version itself, for the installer to search for."""
    if version == running_minor():
        return sys.executable
    root = Path(environment.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [
        folder
        for folder in root.glob("versions/*")
        if (folder.name == version or folder.name.startswith(f"{version}."))
        and (folder / "bin" / "python").exists()
    ]
    newest = max(found, key=lambda folder: _patch(folder.name), default=None)
    return version if newest is None else str(newest / "bin" / "python")


def _patch(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in version.split("."))


def _wanted(recipe: _Recipe, own: tuple[str, ...], folder: Path) -> list[str]:
    """Arguments that install the image's packages, each from the index it may come from."""
    arguments: list[str] = []
    for url, packages in recipe.indexes:
        if not packages:
            arguments += ["--index", url]
    if not any(packages for _, packages in recipe.indexes):
        return [*arguments, "--", *own, *recipe.pip]
    project = folder / "sky-wanted" / "pyproject.toml"
    project.parent.mkdir(exist_ok=True)
    project.write_text(_project(recipe, own))
    return [*arguments, "-r", str(project)]


def _project(recipe: _Recipe, own: tuple[str, ...]) -> str:
    """A project file that ties packages to indexes, which arguments alone cannot."""
    quoted = msgspec.json.encode
    lines = ["[project]", 'name = "sky-wanted"', 'version = "0"']
    lines.append(f"dependencies = {quoted((*own, *recipe.pip)).decode()}")
    sources: list[str] = []
    for number, (url, packages) in enumerate(recipe.indexes):
        if packages:
            lines += ["[[tool.uv.index]]", f'name = "index-{number}"', f"url = {quoted(url).decode()}"]
            lines.append("explicit = true")
            sources += [f'{quoted(name).decode()} = {{ index = "index-{number}" }}' for name in packages]
    return "\n".join([*lines, "[tool.uv.sources]", *sources, ""])
