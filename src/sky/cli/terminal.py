"""The terminal while a command has its keys: read one by one, and given back as it was.

Decides: how a terminal's mode is changed for a while. Never: leaves it changed, however the command ends.
Follows: SIGTERM and SIGHUP end a command as errors do, so that what must be put back is.
"""

from __future__ import annotations

import contextlib
import signal
import termios
from collections.abc import Callable, Generator

HANDLED = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def keys_of(keyboard: int, change: Callable[[int, int], object]) -> Generator[None]:
    """The terminal ``keyboard`` in another mode while this lasts; ``change`` (``tty.setraw``) sets it.

    What was typed before is not thrown away.
    """
    before = termios.tcgetattr(keyboard)
    handlers = {number: signal.signal(number, _leave) for number in HANDLED}
    try:
        change(keyboard, termios.TCSADRAIN)
        yield
    finally:
        with contextlib.suppress(termios.error):  # it may be gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
