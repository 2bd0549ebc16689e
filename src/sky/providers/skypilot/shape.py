"""Looking into what the server has answered, which may lack anything.

Decides: that what is not there, or is not what it should be, counts as nothing. Never: changes an item.
Follows: whoever reads an answer needs no check of its shape.
"""

from __future__ import annotations

import json
import math
from typing import Any, cast

Item = dict[str, Any]


def mapping(found: object) -> Item:
    """A mapping as it is; an empty one of anything else."""
    return cast("Item", found) if isinstance(found, dict) else {}


def every(found: object) -> list[object]:
    """The items of a list or tuple; none of anything else."""
    return list(cast("list[object]", found)) if isinstance(found, list | tuple) else []


def many(found: object) -> list[Item]:
    """The mappings of a list."""
    return [one for one in map(mapping, every(found)) if one]


def text(found: object) -> str | None:
    """A text that says something; None of anything else."""
    return found if isinstance(found, str) and found else None


def number(found: object) -> float | None:
    """A number that is one; None of anything else."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        value = float(found)
    except OverflowError:  # JSON bounds no integer
        return None
    return value if math.isfinite(value) else None


def parsed(found: object) -> object:
    """What a text in JSON holds; None where it is no text, or no JSON, or nested without measure."""
    if not isinstance(found, str | bytes):
        return None
    try:
        return json.loads(found)
    except (ValueError, RecursionError):
        return None
