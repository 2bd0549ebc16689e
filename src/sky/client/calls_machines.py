"""Operations of ``/v1`` on what is behind a compute: commands and files on nodes, providers and offers.

Decides: as ``calls`` does, for the other half of the interface.
Never: opens a connection; a shell or a forward is two calls that meet under one ``cid``.
Follows: a command is never sent twice, because it may have run.
"""

from __future__ import annotations

from typing import Any

from sky.client.request import (
    EXEC_S,
    IS_JSON,
    TRANSFER_S,
    Body,
    Call,
    as_content,
    as_json,
    as_nothing,
    at,
    encoder,
    getting,
    query_of,
)
from sky.wire import v1

# ── commands, files and connections on nodes ─────────────────────────────────────────────────────────


def run_command(compute: str, command: str, node: str = "all") -> Call[dict[str, v1.Result]]:
    """Run a shell command on one node (id or rank) or on all. Never sent twice: it may have run."""
    query = query_of(command=command, node=node)
    path = at("computes", compute, "exec")
    return Call(
        "POST", path, as_json(dict[str, v1.Result]), query, (), b"", timeout_s=EXEC_S, repeatable=False
    )


def list_files(compute: str, path: str, node: str = "0") -> Call[dict[str, v1.Result]]:
    """What is in a folder of a node."""
    query = query_of(path=path, node=node)
    return Call("GET", at("computes", compute, "files"), as_json(dict[str, v1.Result]), query)


def remove_files(compute: str, path: str, node: str = "all") -> Call[dict[str, v1.Result]]:
    """Remove a file or folder of one node or of all."""
    query = query_of(path=path, node=node)
    where = at("computes", compute, "files")
    return Call("DELETE", where, as_json(dict[str, v1.Result]), query)


def upload_file(compute: str, path: str, content: Body, node: str = "all") -> Call[dict[str, str | None]]:
    """Write a file on one node or on all. The answer has, per node, what went wrong or null."""
    headers = (("Content-Type", "application/octet-stream"),)
    return Call(
        "PUT",
        at("computes", compute, "files"),
        as_json(dict[str, str | None]),
        query_of(path=path, node=node),
        headers,
        content,
        timeout_s=TRANSFER_S,
    )


def download_file(compute: str, path: str, node: str = "0") -> Call[bytes]:
    """A file of a node: open it as a stream when it may be large."""
    where = at("computes", compute, "files", "content")
    return Call("GET", where, as_content, query_of(path=path, node=node), timeout_s=TRANSFER_S)


def connection_up(compute: str, kind: str, cid: str, content: Body, **query: Any) -> Call[None]:
    """What goes to a node over a ``shell`` or a ``forward``; ``cid`` joins it with its other half."""
    return Call(
        "POST",
        at("computes", compute, kind, "up"),
        as_nothing,
        query_of(cid=cid, **query),
        (("Content-Type", "application/octet-stream"),),
        content,
        timeout_s=EXEC_S,
        repeatable=False,
    )


def connection_down(compute: str, kind: str, cid: str) -> Call[bytes]:
    """What comes from a node over a ``shell`` or a ``forward``: to be opened as a stream."""
    path = at("computes", compute, kind, "down")
    return Call("GET", path, as_content, query_of(cid=cid), timeout_s=EXEC_S, repeatable=False)


def resize_shell(compute: str, cid: str, columns: int, rows: int) -> Call[None]:
    """Tell a shell how large its terminal is now."""
    query = query_of(cid=cid, columns=columns, rows=rows)
    return Call("POST", at("computes", compute, "shell", "resize"), as_nothing, query, (), b"")


def shell_exit(compute: str, cid: str) -> Call[v1.ShellExit]:
    """How a shell has ended."""
    return getting(at("computes", compute, "shell", "exit"), v1.ShellExit, query_of(cid=cid))


# ── providers and offers ─────────────────────────────────────────────────────────────────────────────


def list_provider_kinds() -> Call[list[v1.ProviderKind]]:
    """The kinds of provider this daemon knows."""
    return Call("GET", "/v1/provider-kinds", as_json(list[v1.ProviderKind]))


def list_providers() -> Call[v1.ProviderPage]:
    """The providers that were added, by name."""
    return getting("/v1/providers", v1.ProviderPage)


def add_provider(create: v1.ProviderCreate) -> Call[v1.Provider]:
    """Add a provider. Not repeatable: a second sending would find the name taken by the first."""
    body = encoder.encode(create)
    return Call("POST", "/v1/providers", as_json(v1.Provider), (), (IS_JSON,), body, repeatable=False)


def get_provider(provider: str) -> Call[v1.Provider]:
    """One provider, by id or name."""
    return getting(at("providers", provider), v1.Provider)


def replace_provider(provider: str, create: v1.ProviderCreate) -> Call[v1.Provider]:
    """Give a provider another configuration."""
    body = encoder.encode(create)
    return Call("PUT", at("providers", provider), as_json(v1.Provider), (), (IS_JSON,), body)


def remove_provider(provider: str, *, dry_run: bool = False) -> Call[None]:
    """Forget a provider that nothing uses."""
    return Call("DELETE", at("providers", provider), as_nothing, query_of(dry_run=dry_run or None))


def list_offers(
    *,
    provider: str | None = None,
    kind: str | None = None,
    accelerator: str | None = None,
    min_count: int | None = None,
    min_vram: float | None = None,
    max_price: float | None = None,
    refresh: bool | None = None,
) -> Call[v1.OfferPage]:
    """What could be bought now, cheapest first."""
    query = query_of(
        provider=provider,
        kind=kind,
        accelerator=accelerator,
        min_count=min_count,
        min_vram=min_vram,
        max_price=max_price,
        refresh=refresh,
    )
    return getting("/v1/offers", v1.OfferPage, query)
