"""YAML as plain values that know on which line each of them stands.

Decides: which YAML is taken: documents of a bounded size and depth, no key twice, no tags of its own.
Never: makes an object of a program. Follows: whatever is wrong with a value later on can be told by its line
and column; anchors and merges work, and cannot grow beyond the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

BYTES_MAX = 1024 * 1024
VALUES_MAX = 50_000
DEPTH_MAX = 20
DOCUMENTS_MAX = 100

Path = tuple[str | int, ...]
Pair = tuple[yaml.Node, yaml.Node]
_yaml: Any = yaml
COMPOSED_DEPTH_MAX = 2 * DEPTH_MAX
"""How deep nodes may be before their values are looked at: merges add to it. Deeper ones take long."""


class _Loader(_yaml.SafeLoader):
    """Stops at what is too deep, before all of it was read."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self._depth > COMPOSED_DEPTH_MAX:
            raise RecursionError
        self._depth += 1
        node: Any = _yaml.SafeLoader.compose_node(self, parent, index)
        self._depth -= 1
        return node


class YamlError(Exception):
    """It is not the YAML that is taken; ``line`` and ``column`` count from 1, 0: none in particular."""

    def __init__(self, line: int, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(slots=True)
class Marked:
    """Values, and the place of each by its path; of a field, that is the place of its name. ``texts`` has
    what is written where a value is neither a text nor a collection."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict[Path, int])
    columns: dict[Path, int] = field(default_factory=dict[Path, int])
    texts: dict[Path, str] = field(default_factory=dict[Path, str])

    def line(self, path: Path) -> int:
        """The line of a value, or of the nearest one around it."""
        return self.place(path)[0]

    def place(self, path: Path) -> tuple[int, int]:
        """Line and column of a value, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1), self.columns.get(path, 1)

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
    nodes = _composed(content)
    if not nodes or nodes[0] is None:
        raise YamlError(1, "it is empty")
    if len(nodes) > 1:
        line, column = _place(cast("yaml.Node", nodes[1]))
        raise YamlError(line, "it is no YAML: a second document begins here", column)
    return _marked(nodes[0])


def parse_all(content: bytes) -> list[Marked]:
    """The values of each document of a file; those with nothing in them are left out. Raises YamlError."""
    found = [_marked(node) for node in _composed(content) if node is not None and not _is_nothing(node)]
    if not found:
        raise YamlError(1, "it is empty")
    return found


def _composed(content: bytes) -> Sequence[yaml.Node | None]:
    if len(content) > BYTES_MAX:
        raise YamlError(0, f"it has {len(content)} bytes, of {BYTES_MAX} at most")
    nodes: list[yaml.Node | None] = []
    try:
        for node in _yaml.compose_all(content.decode("utf-8"), Loader=_Loader):
            nodes.append(node)
            if len(nodes) > DOCUMENTS_MAX:
                raise YamlError(0, f"it has more than {DOCUMENTS_MAX} documents")
    except UnicodeDecodeError as error:
        raise YamlError(content[: error.start].count(b"\n") + 1, "it is not UTF-8") from error
    except RecursionError as error:
        raise YamlError(0, f"it is deeper than {DEPTH_MAX} levels") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = _said(error, mark)
        if mark is None:
            raise YamlError(0, f"it is no YAML: {said}") from error
        raise YamlError(mark.line + 1, f"it is no YAML: {said}", mark.column + 1) from error
    return nodes


def _said(error: yaml.YAMLError, mark: Any) -> str:
    """What the parser stumbled over, in words that help."""
    said = getattr(error, "problem", None) or str(error).partition("\n")[0]
    if "'\\t'" in said:
        return "a tab stands where a value begins; YAML is indented with spaces"
    if "mapping values are not allowed" in said:
        return "a colon with a space behind it where none may be; put the text in quotes"
    if "expected <block end>" in said and mark is not None:
        return f"{said}; is this line indented as those around it?"
    return said


def _is_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


def _marked(node: yaml.Node) -> Marked:
    reader = _Reader()
    reader.found.value = reader.value(node, (), _place(node))
    return reader.found


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


class _Reader:
    def __init__(self) -> None:
        self.found = Marked(None)
        self._constructor: Any = yaml.constructor.SafeConstructor()
        self._merged: dict[int, dict[str, Pair]] = {}

    def value(self, node: yaml.Node, path: Path, place: tuple[int, int]) -> Any:
        self.found.lines[path], self.found.columns[path] = place
        line, column = place
        if len(self.found.lines) > VALUES_MAX:
            message = f"it has more than {VALUES_MAX} values, with all that its anchors repeat"
            raise YamlError(line, message, column)
        if len(path) > DEPTH_MAX:
            raise YamlError(line, f"it is deeper than {DEPTH_MAX} levels", column)
        if isinstance(node, yaml.MappingNode):
            pairs = self._pairs(node, 0).items()
            return {name: self.value(item, (*path, name), _place(key)) for name, (key, item) in pairs}
        if isinstance(node, yaml.SequenceNode):
            if not node.tag.endswith(":seq"):
                raise YamlError(line, f"the tag {node.tag!r} is not taken here", column)
            items: list[yaml.Node] = node.value
            return [self.value(item, (*path, index), _place(item)) for index, item in enumerate(items)]
        return self._scalar(node, path, place)

    def _scalar(self, node: yaml.Node, path: Path, place: tuple[int, int]) -> Any:
        text = str(node.value)
        try:
            value = self._constructor.construct_object(node)
        except (IndexError, KeyError, AttributeError) as error:  # a tag that the text does not fit
            said = f"it is no {node.tag.rpartition(':')[2]}"
            raise YamlError(place[0], f"{text[:40]!r} cannot be read: {said}", place[1]) from error
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            said = getattr(error, "problem", None) or str(error)
            raise YamlError(place[0], f"{text[:40]!r} cannot be read: {said}", place[1]) from error
        if not isinstance(value, str):
            self.found.texts[path] = text
        return value

    def _pairs(self, node: yaml.MappingNode, depth: int) -> dict[str, Pair]:
        """The fields of a mapping, with what it merges; its own win, then those merged first."""
        if id(node) in self._merged:
            return self._merged[id(node)]
        line, column = _place(node)
        if not node.tag.endswith(":map") and not node.tag.endswith(":set"):
            raise YamlError(line, f"the tag {node.tag!r} is not taken here", column)
        if depth > DEPTH_MAX:
            raise YamlError(line, "a merge cannot be read: it merges itself, or too deeply", column)
        own: dict[str, Pair] = {}
        merged: list[yaml.Node] = []
        pairs: list[Pair] = node.value
        for key, item in pairs:
            at = _place(key)
            if not isinstance(key, yaml.ScalarNode):
                raise YamlError(at[0], "a name of a field is a word", at[1])
            if key.tag.endswith(":merge"):
                merged += item.value if isinstance(item, yaml.SequenceNode) else [item]
                continue
            if key.value in own:
                first = _place(own[key.value][0])[0]
                raise YamlError(at[0], f"{key.value!r} is here twice, first on line {first}", at[1])
            own[key.value] = (key, item)
        for other in {id(one): one for one in merged}.values():
            if not isinstance(other, yaml.MappingNode):
                raise YamlError(line, "a merge cannot be read: it is no mapping", column)
            own = {**own, **{k: v for k, v in self._pairs(other, depth + 1).items() if k not in own}}
        self._merged[id(node)] = own
        return own
