"""The Python environment that a node's image asks for: this interpreter, or one that uv makes.

Decides: which of the two, what goes into it, and when a cached one may be used (its hash, and that it was
finished).
Never: installs system packages; a daemon that places such an image here was wrong.
Follows: nodes of one machine build an environment once; a build that died half-way is begun anew; what the
installer says is seen as it says it, and its last words are in the error.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import msgspec

import sky
from sky.agent.leftovers import kill_session
from sky.agent.lines import Lines
from sky.agent.reporter import StreamName
from sky.kit.codec import canonical, sha256_hex
from sky.wire.v1 import Image

try:
    import uv
except ImportError:  # a bare agent does without it until an image asks for packages
    uv = None

AGENT_PACKAGES = ("msgspec", "cloudpickle", "lz4")
"""What a worker needs besides this package itself."""
LOCK_POLL_S = 0.1
WORDS_LINES_MAX = 8
READ_BYTES = 32 * 1024
HASH_CHARS = 20
READY_FILE = "ready"
PYTHON_MIN = (3, 11)
SHIMS = "shims"

Console = Callable[[StreamName, str], None]


class Unbuildable(Exception):
    """The environment cannot be made; the message has the installer's last words."""


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


async def prepare(image: Image, envs: Path, environment: Mapping[str, str], console: Console) -> str:
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
    envs.mkdir(parents=True, exist_ok=True)
    folder = envs / sha256_hex(canonical(recipe))[:HASH_CHARS]
    if not (folder / READY_FILE).exists():
        await _build_once(recipe, folder, environment, console)
    return str(folder / "bin" / "python")


def _package() -> Path:
    """The folder of this package's own source."""
    return Path(sky.__path__[0]).resolve()


async def _build_once(
    recipe: _Recipe, folder: Path, environment: Mapping[str, str], console: Console
) -> None:
    """Build under the folder's lock, unless another node has meanwhile."""
    lock = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        waiting = False
        while not _locked(lock):
            if not waiting:
                console("stdout", "waiting for another node that builds the same environment\n")
            waiting = True
            await asyncio.sleep(LOCK_POLL_S)
        if (folder / READY_FILE).exists():
            return
        if folder.exists():
            shutil.rmtree(folder)
        await _build(recipe, folder, environment, console)
        (folder / READY_FILE).touch()
    finally:
        os.close(lock)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _build(recipe: _Recipe, folder: Path, environment: Mapping[str, str], console: Console) -> None:
    uv = _uv()
    installing = {**environment, "UV_NO_PROGRESS": "1"}
    installing.pop("VIRTUAL_ENV", None)
    installing.setdefault("UV_PYTHON_DOWNLOADS", "never")
    installing["PATH"] = _without_shims(environment.get("PATH", os.defpath))
    python = _interpreter(recipe.python, environment)
    await _run([uv, "venv", "--python", python, str(folder)], folder.parent, installing, console)
    source = folder / "sky-source"
    source.mkdir()
    (source / "sky").symlink_to(_package(), target_is_directory=True)
    [site] = (folder / "lib").glob("python*/site-packages")
    (site / "sky-source.pth").write_text(f"{source}\n")
    install = [uv, "pip", "install", "--python", str(folder / "bin" / "python")]
    await _run([*install, *recipe.own], folder, installing, console)
    if recipe.pip:
        await _run([*install, *_wanted(recipe, folder)], folder, installing, console)


def _without_shims(path: str) -> str:
    """A search path without folders of stand-ins, which name interpreters that they then refuse to run."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if Path(entry).name != SHIMS)


def _interpreter(version: str, environment: Mapping[str, str]) -> str:
    """An interpreter of a version, or the version itself, for the installer to search for."""
    if version == running_minor():
        return sys.executable
    root = Path(environment.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [
        folder / "bin" / "python"
        for folder in root.glob("versions/*")
        if folder.name == version or folder.name.startswith(f"{version}.")
    ]
    return next((str(path) for path in sorted(found, reverse=True) if path.exists()), version)


def _wanted(recipe: _Recipe, folder: Path) -> list[str]:
    """Arguments that install the image's packages, each from the index it may come from."""
    arguments: list[str] = []
    for url, packages in recipe.indexes:
        if not packages:
            arguments += ["--index", url]
    if not any(packages for _, packages in recipe.indexes):
        return [*arguments, "--", *recipe.pip]
    project = folder / "sky-wanted" / "pyproject.toml"
    project.parent.mkdir()
    project.write_text(_project(recipe))
    return [*arguments, "-r", str(project)]


def _project(recipe: _Recipe) -> str:
    """A project file that ties packages to indexes, which arguments alone cannot."""
    quoted = msgspec.json.encode
    lines = ["[project]", 'name = "sky-wanted"', 'version = "0"']
    lines.append(f"dependencies = {quoted(recipe.pip).decode()}")
    sources: list[str] = []
    for number, (url, packages) in enumerate(recipe.indexes):
        if packages:
            lines += ["[[tool.uv.index]]", f'name = "index-{number}"', f"url = {quoted(url).decode()}"]
            lines.append("explicit = true")
            sources += [f'{quoted(name).decode()} = {{ index = "index-{number}" }}' for name in packages]
    return "\n".join([*lines, "[tool.uv.sources]", *sources, ""])


def _uv() -> str:
    """The installer's path. Raises ``Unbuildable`` when there is none."""
    if uv is not None:
        try:
            return uv.find_uv_bin()
        except FileNotFoundError:
            pass
    found = shutil.which("uv")
    if found is None:
        raise Unbuildable("uv, which makes environments, is not installed on the node")
    return found


async def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], console: Console
) -> None:
    """Run an installer to its end. Raises ``Unbuildable`` with its last words when it fails."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
    )
    words: deque[str] = deque(maxlen=WORDS_LINES_MAX)

    async def relay(name: StreamName, pipe: asyncio.StreamReader | None) -> None:
        assert pipe is not None
        lines = Lines()
        while content := await pipe.read(READ_BYTES):
            said(name, lines.feed(content))
        said(name, lines.finish())

    def said(name: StreamName, text: str) -> None:
        if text:
            words.extend(text.splitlines())
            console(name, text)

    try:
        await asyncio.gather(relay("stdout", process.stdout), relay("stderr", process.stderr))
        code = await process.wait()
    finally:
        kill_session(process.pid)
        await process.wait()
    if code:
        step = " ".join(Path(part).name if number == 0 else part for number, part in enumerate(command[:3]))
        raise Unbuildable(f"{step} failed with exit code {code}: " + " | ".join(words))
