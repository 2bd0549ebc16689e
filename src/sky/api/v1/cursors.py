"""The cursors of the lists, each of its own list.

Decides: what a cursor looks like from outside. Never: what it means (``store/views/paging``).
Follows: a cursor that was made up, or belongs to another list, is refused before anything is read.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

_SAID = "``next_cursor`` of the page before."

ComputeCursor = Annotated[str, Meta(pattern=r"^computes\.[0-9]{1,18}$", description=_SAID)]
GenerationCursor = Annotated[str, Meta(pattern=r"^generations\.[0-9]{1,18}$", description=_SAID)]
NodeCursor = Annotated[str, Meta(pattern=r"^nodes\.[0-9]{1,18}$", description=_SAID)]
TaskCursor = Annotated[str, Meta(pattern=r"^tasks\.[0-9]{1,18}$", description=_SAID)]
ExecutionCursor = Annotated[str, Meta(pattern=r"^executions\.[0-9]{1,18}$", description=_SAID)]
FunctionCursor = Annotated[str, Meta(pattern=r"^functions\.[0-9]{1,18}$", description=_SAID)]
ProviderCursor = Annotated[str, Meta(pattern=r"^providers\.[0-9]{1,18}$", description=_SAID)]
OfferCursor = Annotated[str, Meta(pattern=r"^offers\.[0-9]{1,18}$", description=_SAID)]
