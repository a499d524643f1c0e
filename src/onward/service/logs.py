"""What a process writes about itself: one line an event, for people in a terminal, else as JSON.

Only the edge of a process calls this; everybody else just logs.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# They say much about what goes well, such as coming and going; the service says that itself.
_TERSE: Final = (
    *("alembic", "uvicorn.error", "uvicorn.asgi"),
    *("celery.beat", "celery.worker.strategy", "celery.app.trace"),
)


def configure(stream: TextIO | None = None) -> None:
    """Send what the program and its libraries log to `stream`, standard error if none is named."""
    stream = stream or sys.stderr
    terminal = stream.isatty()
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *common,
            _Unrepeated(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.PositionalArgumentsFormatter(), *common],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(terminal=terminal),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for name in _TERSE:
        logging.getLogger(name).setLevel(logging.WARNING)


class _Unrepeated:
    """Says a warning once in a while: a database that is away is noticed by everybody, always."""

    _PAUSE_S: Final = 5.0
    _KNOWN_MAX: Final = 1_000

    def __init__(self) -> None:
        self._said: dict[tuple[object, ...], tuple[float, int]] = {}  # when, and repeats since

    def __call__(self, _: WrappedLogger, level: str, event: EventDict) -> EventDict:
        if level != "warning":
            return event
        told = (event["logger"], event["event"], event.get("problem", event.get("reason")))
        said_at, repeats = self._said.get(told, (-self._PAUSE_S, 0))
        if time.monotonic() - said_at < self._PAUSE_S:
            self._said[told] = (said_at, repeats + 1)
            raise structlog.DropEvent
        if len(self._said) >= self._KNOWN_MAX:
            self._said.clear()
        self._said[told] = (time.monotonic(), 0)
        return {**event, "repeated": repeats} if repeats else event


def _rendering(*, terminal: bool) -> list[Processor]:
    if not terminal:
        return [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    # Plain tracebacks: the others show local variables, and keys may be among them.
    return [
        structlog.dev.ConsoleRenderer(
            pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
        )
    ]
