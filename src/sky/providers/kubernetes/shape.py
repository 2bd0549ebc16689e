"""Looking into what an API has answered, which may lack anything.

Decides: that what is not there, or is not what it should be, counts as nothing. Never: changes an item.
Follows: whoever reads an answer needs no check of its shape.
"""

from __future__ import annotations

from typing import Any, cast

Item = dict[str, Any]


def at(item: object, *path: str) -> Any:
    """What stands at ``path``; None when there is nothing."""
    for name in path:
        if not isinstance(item, dict):
            return None
        item = cast("Item", item).get(name)
    return item


def mapping(item: object, *path: str) -> Item:
    """The mapping at ``path``, or an empty one."""
    found = at(item, *path)
    return cast("Item", found) if isinstance(found, dict) else {}


def is_mapping(item: object) -> bool:
    """Whether it has names in it, which ``mapping`` then gives."""
    return isinstance(item, dict)


def many(item: object, *path: str) -> list[Item]:
    """The mappings of the list at ``path``."""
    found = at(item, *path)
    return [mapping(one) for one in every(found)]


def every(found: object) -> list[object]:
    """The items of a list; none of anything else."""
    return cast("list[object]", found) if isinstance(found, list) else []
