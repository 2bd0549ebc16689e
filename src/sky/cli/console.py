"""``sky console``: a console for development and tests, in this terminal.

Decides: nothing; ``sky.console.main`` does, in the place of this process. Never: loads it here.
Follows: Ctrl-C ends it; what it prints at its start is all that a daemon needs to use it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sky.cli.app import Many, noun, only
from sky.cli.errors import usage

MODULE = "sky.console.main"
PORT_MAX = 65_535


@only("console", "sky console --account acme=100", "sky console --port 0 --file books.json")
def console(
    *,
    port: Annotated[int, Parameter(help="Port to listen at, on this computer; 0 for any free one.")] = 7591,
    file: Annotated[Path | None, Parameter(help="Where to keep the books [in memory].")] = None,
    account: Annotated[
        list[str] | None, Parameter(metavar="NAME=USD", help="An account to open, with a key."), Many
    ] = None,
) -> int:
    """Run a console for development and tests: accounts, keys and play money.

    A daemon that is started with the settings it prints sells to its accounts. docs/console.md says what
    a console of your own has to answer.
    """
    if not 0 <= port <= PORT_MAX:
        raise usage(f"--port {port} is not a port", f"a port is between 0 and {PORT_MAX}; 0 takes a free one")
    words = [sys.executable, "-m", MODULE, "--port", str(port)]
    if file is not None:
        words += ["--file", str(file.expanduser().absolute())]
    for text in account or ():
        words += ["--account", text]
    os.execv(words[0], words)


app = noun("console")
