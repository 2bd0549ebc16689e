"""Runs the cells of a notebook as a kernel does: in one namespace, in an event loop that runs, in order.

Decides: what is printed: what the cells print, and the value of an expression that a cell ends with.
Never: goes on after a cell that raised.

    python cells.py NOTEBOOK
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import sys
import types
from pathlib import Path
from typing import Any


async def run(source: str, name: str, names: dict[str, Any]) -> None:
    """Run one cell."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    parts: list[tuple[ast.mod, str]] = [(ast.Module(body, []), "exec")]
    if isinstance(last, ast.Expr):
        parts.append((ast.Expression(last.value), "eval"))
    for tree, mode in parts:
        value = eval(compile(tree, name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(value):
            value = await value
        if mode == "eval" and value is not None:
            print(repr(value))


async def main(notebook: Path) -> None:
    sys.modules["ipykernel"] = types.ModuleType("ipykernel")  # by which a library knows where it is
    names = vars(sys.modules["__main__"])
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            await run("".join(cell["source"]), f"<{cell['id']}>", names)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
