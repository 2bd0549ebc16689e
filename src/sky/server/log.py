"""How the daemon logs: one JSON object a line, with secrets masked.

Decides: the form of a line, and that journald is told how severe it is. Never: what is worth one, or fails
whoever logs. Follows: a value under a name that says it is a secret never reaches the log, nor does one that
is known or looks like a secret, wherever it stands; a line for which the disk has no room is lost.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import msgspec
import structlog

from sky.kit import about
from sky.kit.masks import Masks

_SECRET = ("token", "password", "secret", "credential", "authorization")
STDERR = 2
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _mask(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in event:
        if any(word in key.lower() for word in _SECRET):
            event[key] = "***"
    return event


def _tell_about(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in about.now().items():
        event.setdefault(name, value)
    return event


def _dump(value: Any, **_options: Any) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()


_EXPECTED = ("ASGI callable returned without completing response.", "Cancel %s running task(s)")


def _unexpected(record: logging.LogRecord) -> bool:
    """Whether the HTTP server tells of something that we have not done on purpose: answers are cut off when
    they cannot go on, and what is left open when time is over is ended."""
    return not str(record.msg).startswith(_EXPECTED)


_masks = [Masks()]


def hide(masks: Masks) -> None:
    """From now on these are kept out of the log as well."""
    _masks[0] = masks


class _Lines:
    """What a logger prints on: each line goes straight to stderr, or nowhere."""

    def write(self, text: str) -> int:
        text = _masks[0].hide(text)
        with contextlib.suppress(OSError):
            os.write(STDERR, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""


PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""What syslog calls the levels."""


def _to_journal() -> bool:
    """Whether what is said on stderr goes to journald, which names the file that it reads."""
    try:
        found = os.fstat(STDERR)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _with_priority(_logger: Any, method: str, line: str) -> str:
    """The line as journald takes it: with how severe it is before it, which is then not part of the line."""
    return f"<{PRIORITIES.get(method, 6)}>{line}"


class _OfLibraries(logging.Handler):
    """Hands what libraries log to our own logger, so that it has the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        told = structlog.get_logger(record.name).bind(logger=record.name)
        say = told.error if level == "critical" else getattr(told, level, told.info)
        say(record.getMessage(), exc_info=record.exc_info or None)


def configure(level: str, form: str = "json") -> None:
    """Send everything that is logged to stderr, as ``json`` or ``text``."""
    text = structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])
    journal: list[Any] = [_with_priority] if _to_journal() else []
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _tell_about,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _mask,
            *((_flat, text) if form == "text" else (structlog.processors.JSONRenderer(serializer=_dump),)),
            *journal,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS.get(level, logging.INFO)),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Lines())),
        cache_logger_on_first_use=True,
    )
    logging.getLogger("uvicorn.error").addFilter(_unexpected)
    logging.basicConfig(level=logging.WARNING, handlers=[_OfLibraries()])


def _flat(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Only what ``name=value`` can show: names without blanks, and text."""
    return {
        name.replace(" ", "_"): value if isinstance(value, str) else _dump(value)
        for name, value in event.items()
    }
