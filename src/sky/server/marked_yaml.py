"""YAML as plain values that know on which line each of them stands.

Decides: which YAML is taken: one document of a bounded size and depth, no key twice, no tags of its own.
Never: makes an object of a program. Follows: whatever is wrong with a value later on can be told by its line;
anchors and merges work, and cannot grow beyond the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import yaml

BYTES_MAX = 1024 * 1024
VALUES_MAX = 50_000
DEPTH_MAX = 20

Path = tuple[str | int, ...]
_yaml: Any = yaml


class YamlError(Exception):
    """It is not the YAML that is taken; ``line`` counts from 1, 0: none in particular."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True)
class Marked:
    """Values, and the line of each by its path; of a field, that is the line of its name."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict[Path, int])

    def line(self, path: Path) -> int:
        """The line of a value, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def at(self, path: Path) -> Any:
        """The value at a path; None when there is none."""
        found = self.value
        for step in path:
            try:
                found = found[step]
            except (KeyError, IndexError, TypeError):
                return None
        return found


def parse(content: bytes) -> Marked:
    """The values of a document. Raises YamlError."""
    if len(content) > BYTES_MAX:
        raise YamlError(0, f"it has {len(content)} bytes, of {BYTES_MAX} at most")
    try:
        node = cast("yaml.Node | None", _yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader))
    except UnicodeDecodeError as error:
        raise YamlError(content[: error.start].count(b"\n") + 1, "it is not UTF-8") from error
    except RecursionError as error:
        raise YamlError(0, f"it is deeper than {DEPTH_MAX} levels") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise YamlError(0 if mark is None else mark.line + 1, f"it is no YAML: {said}") from error
    if node is None:
        raise YamlError(1, "it is empty")
    reader = _Reader()
    return Marked(reader.value(node, (), 1), reader.lines)


class _Reader:
    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._constructor: Any = yaml.constructor.SafeConstructor()

    def value(self, node: yaml.Node, path: Path, line: int) -> Any:
        self.lines[path] = line
        if len(self.lines) > VALUES_MAX:
            raise YamlError(line, f"it has more than {VALUES_MAX} values, with all that its anchors repeat")
        if len(path) > DEPTH_MAX:
            raise YamlError(line, f"it is deeper than {DEPTH_MAX} levels")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, line)
        if isinstance(node, yaml.SequenceNode):
            if not node.tag.endswith(":seq"):
                raise YamlError(line, f"the tag {node.tag!r} is not taken here")
            return [
                self.value(item, (*path, index), item.start_mark.line + 1)
                for index, item in enumerate(node.value)
            ]
        try:
            return self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            said = getattr(error, "problem", None) or str(error)
            raise YamlError(line, f"{str(node.value)[:40]!r} cannot be read: {said}") from error

    def _mapping(self, node: yaml.MappingNode, path: Path, line: int) -> dict[Any, Any]:
        if not node.tag.endswith(":map"):
            raise YamlError(line, f"the tag {node.tag!r} is not taken here")
        own: dict[str, int] = {}
        for key, _ in node.value:
            at = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise YamlError(at, "a name of a field is a word")
            if key.value in own and not key.tag.endswith(":merge"):
                raise YamlError(at, f"{key.value!r} is here twice, first on line {own[key.value]}")
            own[key.value] = at
        try:
            self._constructor.flatten_mapping(node)
        except (yaml.YAMLError, RecursionError) as error:
            said = getattr(error, "problem", None) or "it merges itself"
            raise YamlError(line, f"a merge cannot be read: {said}") from error
        return {
            key.value: self.value(item, (*path, key.value), key.start_mark.line + 1)
            for key, item in node.value
        }
