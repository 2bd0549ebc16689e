"""What ``import sky`` gives, and what it must not cost.

Decides: that every public name can be had, that what a type checker sees is what runs, and that nothing
heavy is loaded before it is used. Never: tests what a name does.
Follows: a name cannot be added in one place only, and an import that slows every process is noticed here.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sky
from sky.kit.version import VERSION

ROOT = Path(__file__).parents[1]
PROMISED = {
    *("Compute", "Image", "Local", "Options", "Plugin", "Spec", "Future"),
    *("function", "gather", "map", "app", "instance_info", "is_head", "shard"),
    *("Jobs", "AsyncJobs", "JobRefused", "JobFailed"),
    *("SkyError", "TaskFailed", "TaskCancelled", "TaskIndeterminate", "TaskTimedOut", "ComputeFailed"),
}
EXPORTED = {name for name in sky.__all__ if not name.startswith("__")}
HEAVY = (
    "asyncio",
    "httpx2",
    "aiohttp",
    "litestar",
    "sqlalchemy",
    "rich",
    "cyclopts",
    "cryptography",
    "structlog",
)


def declared() -> dict[str, tuple[str, str]]:
    """The public names as a type checker sees them: name, module, name there."""
    tree = ast.parse((ROOT / "src/sky/__init__.py").read_text(encoding="utf-8"))
    found: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.If):
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    found |= {alias.asname or alias.name: (line.module, alias.name) for alias in line.names}
    return found


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_every_public_name_can_be_had(name: str) -> None:
    module, there = declared()[name]
    assert getattr(sky, name) is getattr(sys.modules[module], there)


def test_declared_and_exported_names_are_the_same() -> None:
    assert {name for name in declared() if not name.startswith("__")} == EXPORTED
    assert sky.__version__ == VERSION


def test_promised_names_are_exported() -> None:
    assert PROMISED <= EXPORTED


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    missing = "Computer"
    with pytest.raises(AttributeError, match="no attribute 'Computer'"):
        getattr(sky, missing)


def loaded_by(statement: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {statement}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_loads_nothing_heavy() -> None:
    loaded = loaded_by("import sky")
    assert not loaded.intersection(HEAVY)
    assert {name for name in loaded if name.startswith("sky.")} == set()


def test_declaring_a_function_loads_no_server() -> None:
    loaded = loaded_by("import sky; sky.function(print)")
    assert not {
        name for name in loaded if name.startswith(("sky.server", "sky.store", "sky.api", "litestar"))
    }


def test_help_loads_no_server() -> None:
    loaded = loaded_by(
        "import contextlib, io, runpy; sys.argv = ['sky', '--help']\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    from sky.cli.main import main; main()\n"
        "print(*sys.modules); sys.exit()"
    )
    assert loaded
    assert not {
        name for name in loaded if name.startswith(("sky.server", "sky.store", "sky.api", "litestar"))
    }
