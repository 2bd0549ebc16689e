"""How the daemon logs: one JSON object a line, with secrets masked.

Decides: the form of a line. Never: what is worth one. Follows: a value under a name that says it is a secret
never reaches the log.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import msgspec
import structlog

_SECRET = ("token", "password", "secret", "credential", "authorization")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _mask(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in event:
        if any(word in key.lower() for word in _SECRET):
            event[key] = "***"
    return event


def _dump(value: Any, **_options: Any) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()


def configure(level: str) -> None:
    """Send everything that is logged to stderr."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _mask,
            structlog.processors.JSONRenderer(serializer=_dump),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS.get(level, logging.INFO)),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
