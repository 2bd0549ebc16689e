"""Style as a test, with ratchets: what the linters do not see.

Decides: sizes, what a module must say about itself, where a broad ``except``, a clock or a late import may
stand, and which words may not be in the tree. Never: runs the product.
Follows: each entry of a list here has its reason. One that is no longer needed fails too, so it has to go.
"""

from __future__ import annotations

import ast
import gc
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SCRIPTS = [ROOT / "scripts/gen_docs"]
PYTHON = [
    *SOURCES,
    *TESTS,
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "bench").rglob("*.py")),
    *SCRIPTS,
]

FILE_LINES_MAX = 400
TEST_FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
FUNCTION_LINES_P95 = 40
DOCSTRING_LINES = range(3, 13)
DOCSTRING_FROM_LINES = 40

# The ratchets. Length of each file and function that is over its limit: never more, and here no longer than
# it is so. The numbers come down with the code.
LONG_FILES = {}
LONG_FUNCTIONS: dict[str, int] = {}

# The outermost place of something that must outlive what it runs, and why. Handlers that end by raising again
# are free everywhere.
BROAD_EXCEPTS = {
    "src/sky/agent/failure.py:guarded": "runs what a user's objects define: pickling and printing of errors",
    "src/sky/agent/payload.py:packs": "a class may answer with anything when asked whether it can be pickled",
    "src/sky/agent/run.py:Lane.run": "runs a user's function; whatever it raises is its outcome",
    "src/sky/api/agent/connect.py:_Line._written": "one bad report must not keep back all other news",
    "src/sky/client/aside.py:aside.run": "carries whatever is raised from its thread to the event loop",
    "src/sky/client/gathering.py:Gathering._send": "settles a future with what its calls raise when read",
    "src/sky/client/handles.py:in_background.run": "settles a future with whatever its thread raises",
    "src/sky/client/pack.py:unpack_from": "runs what a user's class defines while it is unpickled",
    "src/sky/kit/supervise.py:forever": "keeps a background task alive",
    "src/sky/reconcile/runner.py:Runner.look": "one poisoned row must not stop the loop of all others",
    "src/sky/store/writer.py:Writer._attend": "hands what an attending verb raised to whoever attends",
    "src/sky/store/writer.py:Writer._follow": "what a followed loop raised is left to the loop's own pass",
    "src/sky/store/writer.py:Writer._run": "hands what a verb raised to whoever waits in another thread",
    "src/sky/store/db.py:Database._serve": "the writer thread outlives every job",
}

# Who reads time beside the clock: ids carry a moment, and other processes than the daemon have no Clock.
CLOCK_READERS = (
    "src/sky/kit/clock.py",
    "src/sky/kit/ids.py",
    "src/sky/agent/",
    "src/sky/client/",
    "src/sky/cli/",
)

# Where an import may stand inside a function, and why.
LAZY_IMPORTS: dict[str, str] = {
    "src/sky/agent/run.py": "most workers never need an event loop, and each would pay for it",
    "src/sky/client/http.py": "the asynchronous driver is slow to import, and few programs need it",
    "src/sky/client/request_asks.py": "what is asked without a task needs no reader of task files",
    "src/sky/client/plugins.py": "joblib is imported only for computes whose plugins need it here",
    "src/sky/cli/": "a command loads what it needs, so that --help is quick",
    "src/sky/console/bridge.py": "the HTTP client is slow to import, and few daemons have a console",
    "src/sky/providers/aws/provider.py": "AWS's client is slow to import, and comes with an extra",
    "src/sky/providers/container/engine.py": "the HTTP client is slow to import, and many daemons need none",
    "src/sky/providers/kubernetes/kind.py": "the HTTP client is slow to import, and few have clusters",
    "src/sky/providers/skypilot/kind.py": "the HTTP client is slow to import, and few have such servers",
    "src/sky/providers/ssh/provider.py": "what speaks SSH comes with an extra, and only hosts need it",
    "src/sky/reconcile/webhooks.py": "the HTTP client is slow to import, and few daemons tell anybody",
    "src/sky/server/content.py": "what speaks to buckets is slow to import, and few daemons have one",
    "src/sky/server/buckets.py": "what finds credentials is slow to import, and comes with an extra",
    "src/sky/server/doctor.py": "what speaks to buckets is slow to import, and few installations have one",
    "src/sky/server/main.py": "what is loaded is loaded with the search for garbage off",
    "src/sky/server/takeover.py": "what speaks to buckets is slow to import, and few installations have one",
    "src/sky/server/tracing.py": "what sends traces comes with an extra, and few deployments collect them",
    "src/sky/store/migrate.py": "a database that is up to date needs no migrations",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module", autouse=True)
def read_once() -> Iterator[None]:
    """Every file is parsed once, and nobody looks for garbage among its nodes; then all is forgotten."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its dotted name, methods and inner functions too."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        elif not isinstance(child, ast.expr):
            yield from functions(child, prefix)


def inside(
    tree: ast.Module, wanted: type[ast.AST] | tuple[type[ast.AST], ...]
) -> Iterator[tuple[str, ast.AST]]:
    """Every node of a kind that stands in a function, with the name of the innermost one."""
    for name, function in functions(tree):
        own: list[ast.AST] = list(ast.iter_child_nodes(function))
        while own:
            node = own.pop()
            if isinstance(node, wanted):
                yield name, node
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                own.extend(ast.iter_child_nodes(node))


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def ratchet(found: dict[str, int], kept: dict[str, int]) -> list[str]:
    """What is over its limit and not listed, longer than listed, or listed with room to spare."""
    wrong = [f"{name} has {lines} lines" for name, lines in found.items() if lines > kept.get(name, 0)]
    return wrong + [
        f"{name} is listed with {lines} lines and has {found.get(name, 'few')}: lower or remove the entry"
        for name, lines in kept.items()
        if found.get(name, 0) < lines
    ]


def test_files_are_short() -> None:
    found: dict[str, int] = {}
    for path in PYTHON:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > (FILE_LINES_MAX if path in SOURCES else TEST_FILE_LINES_MAX):
            found[name_of(path)] = lines
    assert not ratchet(found, LONG_FILES)


def test_functions_are_short() -> None:
    found: dict[str, int] = {}
    lengths: list[int] = []
    for path in PYTHON:
        for name, function in functions(tree_of(path)):
            lengths.append(length(function))
            if lengths[-1] > FUNCTION_LINES_MAX:
                found[f"{name_of(path)}:{name}"] = lengths[-1]
    assert not ratchet(found, LONG_FUNCTIONS)
    assert sorted(lengths)[len(lengths) * 95 // 100] <= FUNCTION_LINES_P95


def test_modules_say_what_they_decide() -> None:
    wrong: list[str] = []
    for path in PYTHON:
        if len(path.read_text(encoding="utf-8").splitlines()) <= DOCSTRING_FROM_LINES:
            continue
        said = ast.get_docstring(tree_of(path)) or ""
        # A drawing (indented lines) may be as long as what it shows.
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith(" ")]
        wanted = DOCSTRING_LINES if path in SOURCES else range(1, DOCSTRING_LINES.stop)
        if len(lines) not in wanted:
            wrong.append(f"{name_of(path)} opens with {len(lines)} lines about itself")
    assert not wrong


def is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"})
        for kind in kinds
    )
    last = handler.body[-1]
    return broad and not (isinstance(last, ast.Raise) and last.exc is None)


def test_broad_excepts_stand_only_in_supervisors() -> None:
    found: set[str] = set()
    for path in SOURCES:
        for name, node in inside(tree_of(path), ast.ExceptHandler):
            if isinstance(node, ast.ExceptHandler) and is_broad(node):
                found.add(f"{name_of(path)}:{name}")
    assert found == set(BROAD_EXCEPTS)


TIME_CALLS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
DATE_CALLS = {"now", "utcnow", "today"}


def reads_clock(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="time"), attr=attr):
            return attr in TIME_CALLS
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="datetime" | "date") | ast.Attribute(), attr=attr)
        ):
            return attr in DATE_CALLS
        case ast.ImportFrom(module="time", names=names):
            return any(alias.name in TIME_CALLS for alias in names)
    return False


def test_only_the_clock_reads_time() -> None:
    found = [
        f"{name_of(path)}:{getattr(node, 'lineno', 0)}"
        for path in SOURCES
        if not name_of(path).startswith(CLOCK_READERS)
        for node in ast.walk(tree_of(path))
        if reads_clock(node)
    ]
    assert not found


def test_imports_stand_at_the_top() -> None:
    found: set[str] = set()
    used: set[str] = set()
    for path in SOURCES:
        allowed = next((place for place in LAZY_IMPORTS if name_of(path).startswith(place)), None)
        for name, _ in inside(tree_of(path), (ast.Import, ast.ImportFrom)):
            if allowed is None:
                found.add(f"{name_of(path)}:{name}")
            else:
                used.add(allowed)
    assert not found
    assert used == set(LAZY_IMPORTS)


def test_queues_have_a_limit() -> None:
    found: list[str] = []
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            match node:
                case (
                    ast.Call(
                        func=ast.Attribute(
                            value=ast.Name(id="asyncio" | "queue"),
                            attr="Queue" | "LifoQueue" | "PriorityQueue",
                        ),
                        args=[],
                        keywords=[],
                    )
                    | ast.Call(func=ast.Attribute(value=ast.Name(id="queue"), attr="SimpleQueue"))
                ):
                    found.append(f"{name_of(path)}:{node.lineno}")
    assert not found


# Written apart, so that this file does not find itself.
DEBTS = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error", "pragma: no " + "cover"]
SILENCED = [
    "type: " + "ignore",
    "pyright: " + "ignore",
    "no" + "qa",
    r"pytest\.mark\.(sk" + "ip|xf" + r"ail)\b",
]
PLACES = ["/wo" + "rk/", "/ro" + "ot/", r"/ho" + r"me/\w", "/opt/wh" + "eels"]
HOSTS = [r"pythonhosted\.or" + "g", r"pypi\.or" + "g", r"registry\.npmj" + "s", r"deb\.debian\.or" + "g"]
# One by one: what begins with a letter is found many times quicker than any of many.
FORBIDDEN = [re.compile(words) for words in (*DEBTS, *SILENCED, *PLACES, *HOSTS)]
LEFT_OUT = {
    ".git",
    ".venv",
    "__pycache__",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    ".import_linter_cache",
    "build",
    "dist",
    "node_modules",
}


def shipped() -> Iterator[Path]:
    """Every text file of the repository."""
    waiting = [ROOT]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            if path.name in LEFT_OUT or path.is_symlink():
                continue
            if path.is_dir():
                waiting.append(path)
            elif path.suffix not in {".png", ".gz", ".lz4", ".db"}:
                yield path


def test_nothing_is_left_undone_or_bound_to_one_machine() -> None:
    found: list[str] = []
    for path in shipped():
        text = path.read_text(encoding="utf-8")
        for hit in itertools.chain.from_iterable(words.finditer(text) for words in FORBIDDEN):
            line = text.count("\n", 0, hit.start()) + 1
            found.append(f"{name_of(path)}:{line}: {hit.group()}")
    assert not found


def failing(function: ast.AST) -> tuple[bool, set[str]]:
    """Whether it asserts or raises itself, and the names that it calls, which may."""
    itself, called = False, set[str]()
    for node in ast.walk(function):
        match node:
            case ast.Assert() | ast.Raise() | ast.Attribute(attr="raises" | "fail" | "warns"):
                itself = True
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                called.add(name)
    return itself, called


def test_every_test_can_fail() -> None:
    """It asserts, raises, or calls a helper of the tests that does."""
    known = [
        (f"{name_of(path)}:{name}", name.rpartition(".")[2], *failing(node))
        for path in TESTS
        for name, node in functions(tree_of(path))
    ]
    helpers: set[str] = set()
    while True:
        can_fail = [itself or not called.isdisjoint(helpers) for _, _, itself, called in known]
        named = [(one[1], can) for one, can in zip(known, can_fail, strict=True)]
        more = {name for name, can in named if can and not name.startswith("test_")}
        if more <= helpers:
            break
        helpers |= more
    tests = zip(known, can_fail, strict=True)
    assert not [place for (place, name, *_), can in tests if name.startswith("test_") and not can]


@pytest.mark.parametrize("name", ["scripts/setup", "scripts/test", "scripts/demo", "scripts/lock", ".ci/run"])
def test_scripts_can_be_run(name: str) -> None:
    path = ROOT / name
    assert path.stat().st_mode & 0o111, f"{name} lacks its run bit"
    assert "set -euo pipefail" in path.read_text(encoding="utf-8")
