"""Several tasks, and which comes after which.

Decides: that tasks made inside of ``with sky.Dag()`` belong to it, and what a chain is.
Never: runs one. Follows: a file with several documents is a chain, in their order; a first document that has
nothing but a name names the chain.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Self, cast

from sky.client.exceptions import InvalidTaskError
from sky.client.outermost import outermost_class
from sky.client.tasks import joining, reading
from sky.client.tasks.reading import Overrides
from sky.client.tasks.task import Task


@outermost_class
class Dag:
    """Tasks and their order. ``with sky.Dag() as dag: first >> second``."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.tasks: list[Task] = []
        self._after: dict[Task, list[Task]] = {}

    @classmethod
    def from_yaml(
        cls,
        yaml_path: str | os.PathLike[str],
        *,
        env_overrides: Overrides = None,
        secrets_overrides: Overrides = None,
    ) -> Self:
        """The chain of a file, of one task or several. Raises InvalidTaskYAMLError."""
        content = reading.content_of(yaml_path)
        return cls._of_content(content, os.fspath(yaml_path), env_overrides, secrets_overrides)

    @classmethod
    def from_yaml_str(
        cls, yaml_str: str, *, env_overrides: Overrides = None, secrets_overrides: Overrides = None
    ) -> Self:
        """The chain of the text of a file. Raises InvalidTaskYAMLError."""
        return cls._of_content(
            reading.content_of_text(yaml_str), reading.TEXT, env_overrides, secrets_overrides
        )

    @classmethod
    def _of_content(cls, content: bytes, file: str, envs: Overrides, secrets: Overrides) -> Self:
        found = reading.documents(content, file)
        made = cls()
        first = cast("dict[str, Any]", found[0].value)
        if len(found) > 1 and set(first) == {"name"}:
            made.name = str(first["name"])
            found = found[1:]
        with made:
            for document in found:
                Task.of_document(document, file, envs, secrets)
        for one, other in zip(made.tasks, made.tasks[1:], strict=False):
            made.add_edge(one, other)
        if made.name is None and made.tasks:
            made.name = made.tasks[0].name
        return made

    def add(self, task: Task) -> None:
        """Have a task in it."""
        if task not in self.tasks:
            self.tasks.append(task)
            self._after[task] = []

    def remove(self, task: Task) -> None:
        """Have a task in it no longer. Raises InvalidTaskError when it is not."""
        self._require(task)
        self.tasks.remove(task)
        del self._after[task]
        for others in self._after.values():
            if task in others:
                others.remove(task)

    def add_edge(self, op1: Task, op2: Task) -> None:
        """``op2`` comes after ``op1``. Raises InvalidTaskError when that is a circle."""
        self.add(op1)
        self.add(op2)
        if op1 is op2 or op1 in self._all_after(op2):
            raise InvalidTaskError(f"{op2!r} cannot come after {op1!r}: it comes before it already")
        if op2 not in self._after[op1]:
            self._after[op1].append(op2)

    def _all_after(self, task: Task) -> set[Task]:
        found: set[Task] = set()
        waiting = list(self._after[task])
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self._after[one]
        return found

    def _require(self, task: Task) -> None:
        if task not in self.tasks:
            raise InvalidTaskError(f"{task!r} is not in this Dag")

    def after(self, task: Task) -> tuple[Task, ...]:
        """The tasks that come right after one. Raises InvalidTaskError when it is not here."""
        self._require(task)
        return tuple(self._after[task])

    def is_chain(self) -> bool:
        """Whether each task has at most one before and one behind it, and all hang together."""
        firsts = len(self.tasks) - len({one for others in self._after.values() for one in others})
        edges = sum(len(others) for others in self._after.values())
        at_most_one = all(len(others) <= 1 for others in self._after.values())
        return len(self.tasks) <= 1 or (at_most_one and firsts == 1 and edges == len(self.tasks) - 1)

    def validate(self, *, workdir_only: bool = False) -> None:
        """Look whether the files that the tasks name are here. Asks nobody. Raises InvalidTaskYAMLError."""
        if not self.tasks:
            raise InvalidTaskError("a Dag without tasks: make them inside of `with sky.Dag()`, or add them")
        for task in self.tasks:
            task.validate(workdir_only=workdir_only)

    def __enter__(self) -> Self:
        joining.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        joining.leave(self)

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __repr__(self) -> str:
        return f"Dag({', '.join(repr(task) for task in self.tasks)})"
