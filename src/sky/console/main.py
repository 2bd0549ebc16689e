"""Runs the reference console: ``python -m sky.console.main``, which ``sky console`` is.

Decides: where it listens: on this computer alone. Never: serves anybody's real money, and says so.
Follows: the token of the bridge and each key are printed once, at the start.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from aiohttp import web

from sky.console.book import Book
from sky.console.server import application
from sky.domain.money import parse_usd

DEFAULT_PORT = 7591
EXIT_USAGE = 2
CLOSE_S = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; returns the exit code (0 stopped, 2 wrong arguments)."""
    parser = argparse.ArgumentParser(prog="sky console", description="A console for development and tests.")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--token")
    parser.add_argument("--account", action="append", default=[], metavar="NAME=USD")
    given = parser.parse_args(arguments)
    try:
        book = Book(given.file)
        keys = [_opened(book, text) for text in given.account]
        listener = socket.create_server(("127.0.0.1", given.port))
    except (ValueError, OSError, msgspec.MsgspecError) as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_USAGE
    token = given.token or secrets.token_hex(16)
    asyncio.run(_serve(book, token, listener, keys))
    return 0


def _opened(book: Book, text: str) -> tuple[str, str]:
    """An account that was named on the command line, with a key."""
    name, separator, amount = text.partition("=")
    if not separator:
        raise ValueError(f"--account {text!r}: write NAME=USD, such as acme=100")
    book.open(name)
    book.pay(name, "at-start", parse_usd(amount))
    return name, book.make_key(name)


async def _serve(book: Book, token: str, listener: socket.socket, keys: list[tuple[str, str]]) -> None:
    runner = web.AppRunner(application(book, token), access_log=None, shutdown_timeout=CLOSE_S)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    lines = [
        f"a console for development and tests at {url}; its money is play money",
        f"SKY_ACCOUNTS_BACKEND=console SKY_CONSOLE_URL={url} SKY_CONSOLE_TOKEN={token}",
        *(f"account {name}: {key}" for name, key in keys),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    try:
        await ended.wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    sys.exit(main())
