"""Structured logs: key-values on one line, secrets redacted in one place.

Event names are short lower-case phrases without interpolated values; an object is given as ``kind``, ``namespace``,
``name`` and ``uid``. Lines are JSON in a cluster and coloured text on a terminal. What is bound with
`structlog.contextvars` (such as ``reconcile_id``, C3) appears on every line of the same task.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

REDACTED = "[redacted]"

_SECRET_KEY = re.compile(
    r"(?i)(^|[_-])(token|password|passwd|secret|authorization|credential|private_?key)s?$"
)
_BEARER = re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/=-]{8,}")
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")


def configure(level: str = "info", *, json: bool = True, stream: TextIO | None = None) -> None:
    """Set up structlog and the standard library's logging for the whole process.

    Libraries that log through `logging` (aiohttp, kubernetes_asyncio) are rendered the same way, from warning up.
    Raises: ValueError when `level` is not a log level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown log level {level!r}: use debug, info, warning or error")
    target = stream if stream is not None else sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        redact,
    ]
    rendering: list[Processor] = (
        [structlog.processors.dict_tracebacks, redact, structlog.processors.JSONRenderer()]
        if json
        else [structlog.dev.ConsoleRenderer(colors=target.isatty())]
    )
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))


def get_logger(name: str, **bound: object) -> FilteringBoundLogger:
    """Return a logger whose lines carry ``component=name`` and the bound values."""
    return cast("FilteringBoundLogger", structlog.get_logger(component=name, **bound))


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace secrets, by the name of the key and by the look of the value (a structlog processor)."""
    for key, value in event.items():
        event[key] = _redacted(key, value)
    return event


def _redacted(key: str, value: Any) -> Any:
    if _SECRET_KEY.search(key) and isinstance(value, (str, bytes)):
        return REDACTED
    if isinstance(value, str):
        return _JWT.sub(REDACTED, _BEARER.sub(f"Bearer {REDACTED}", value))
    if isinstance(value, dict):
        return {inner: _redacted(str(inner), item) for inner, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted("", item) for item in value]
    return value
