"""Functions from wherever Python runs code: a module, a line, a pipe, a prompt, the cells of a notebook."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sky
from sky.client import calls

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
NAME = "local-code"
FILES = {
    "pkg/__init__.py": "",
    "pkg/sub/__init__.py": "",
    "pkg/sub/deep.py": """
        from .. import FACTOR

        def deeper(number):
            return number * FACTOR
    """,
    "pkg/helper.py": """
        from .sub import deep

        class Negative(Exception):
            def __init__(self, number, *, hint):
                super().__init__(f"{number} is below nothing")
                self.hint = hint

        def help_with(number):
            if number < 0:
                raise Negative(number, hint="add")
            return deep.deeper(number)
    """,
    "pkg/main.py": """
        import sky
        from . import helper

        @sky.function
        def work(number):
            return helper.help_with(number)

        with sky.Compute(name="local-code", quiet=True) as compute:
            print(work(2) >> compute)
            try:
                work(-1) >> compute
            except helper.Negative as error:
                print(error, error.hint)
    """,
    "colorsys.py": "def hue(): return 'not of the standard library'",
    "bare/tone.py": "def tone(): return 'of a folder without __init__.py'",
    "shadow.py": """
        import colorsys, sky
        from bare.tone import tone

        @sky.function
        def work():
            return f"{colorsys.hue()}, {tone()}"

        with sky.Compute(name="local-code", quiet=True) as compute:
            print(work() >> compute)
    """,
    "cells.py": """
        import ast, asyncio, inspect, linecache

        CELLS = [
            "import sky",
            "compute = sky.Compute(name='local-code', quiet=True).open()",
            "class Point:\\n    def __init__(self, x): self.x = x",
            "@sky.function\\ndef work(point): return Point(point.x * SCALE)",
            "SCALE = 2",
            "print((work(Point(3)) >> compute).x)",
            "SCALE = 5",
            "print((work(Point(3)) >> compute).x)",
            "print((await (work(Point(1)) > compute)).x)",
            "@sky.function\\ndef work(point): return Point('again')",
            "print((work(Point(3)) >> compute).x, type(work(Point(3)) >> compute) is Point)",
            "compute.close()",
        ]

        async def kernel():
            for number, cell in enumerate(CELLS):
                name = f"<cell {number}>"
                linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
                code = compile(cell, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                result = eval(code, globals())
                if inspect.iscoroutine(result):
                    await result

        asyncio.run(kernel())
    """,
}
LINES = """\
import sky
TERM = 3
def plus(number): return number + TERM

@sky.function
def work(number): return plus(number)

with sky.Compute(name="local-code", quiet=True) as compute: print(work(4) >> compute)

"""
Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(daemon: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs Python in a folder with these files; a compute of that name is there. Gives what it printed."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text).lstrip("\n"))
    (folder / "pkg/__init__.py").write_text("FACTOR = 10\n")
    environment = {**os.environ, "SKY_URL": daemon.url, "PYTHONDONTWRITEBYTECODE": "1"}

    def go(*words: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, *words],
            input=given,
            cwd=Path(folder),
            env=environment,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with sky.Compute(name=NAME, url=daemon.url, quiet=True) as compute:
        http, made = compute.http, compute.id
    yield go
    http.send(calls.delete_compute(made, None))


def test_a_module_of_a_package_brings_what_it_imports_from_it(run: Run) -> None:
    assert run("-m", "pkg.main") == "20\n-1 is below nothing add\n"


@pytest.mark.parametrize(
    ("words", "given"),
    [(("-c", LINES), ""), (("-",), LINES), (("-i",), LINES)],
    ids=["a line", "a pipe", "a prompt"],
)
def test_code_that_is_in_no_file(run: Run, words: tuple[str, ...], given: str) -> None:
    assert run(*words, given=given).splitlines()[-1] == "7"


def test_a_module_named_like_one_of_the_standard_library(run: Run) -> None:
    assert run("shadow.py") == "not of the standard library, of a folder without __init__.py\n"


def test_cells_of_a_notebook_are_as_they_were_run_last(run: Run) -> None:
    assert run("cells.py").splitlines() == ["6", "15", "5", "again True"]
