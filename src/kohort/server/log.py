"""The server's log: an event in plain words with named values, rendered as console, JSON or logfmt lines.

It goes through the standard library's logging (logger "kohort"), so a server inside another program logs to the same
place as that program. Only `configure`, which `kohort serve` calls, writes to stdout. structlog would render the
same, but importing it takes a fifth of the time in which a server is to be ready.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

logger = logging.getLogger("kohort")
logger.addHandler(logging.NullHandler())

LIMITED_LINES = 10
LIMITED_PERIOD_S = 10.0


class Event:
    """A log record's message. As text it is one line, whatever handler prints it."""

    __slots__ = ("name", "values")

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        self.name = name
        self.values = values

    def __str__(self) -> str:
        return " ".join((self.name, *(f"{key}={_quoted(value)}" for key, value in self.values.items())))


def debug(name: str, **values: Any) -> None:
    logger.debug(Event(name, values))


def info(name: str, **values: Any) -> None:
    logger.info(Event(name, values))


def warning(name: str, **values: Any) -> None:
    logger.warning(Event(name, values))


def error(name: str, **values: Any) -> None:
    logger.error(Event(name, values))


class LimitedLog:
    """Lines that clients can cause: a few per event and period, then the number of lines left out."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int]] = {}

    def info(self, name: str, **values: Any) -> None:
        self._limit(info, name, values)

    def warning(self, name: str, **values: Any) -> None:
        self._limit(warning, name, values)

    def _limit(self, tell: Callable[..., None], name: str, values: dict[str, Any]) -> None:
        began, count = self._seen.get(name, (0.0, 0))
        now = time.monotonic()
        if now - began >= LIMITED_PERIOD_S:
            if count > LIMITED_LINES:
                values["left_out_before"] = count - LIMITED_LINES
            began, count = now, 0
        self._seen[name] = (began, count + 1)
        if count < LIMITED_LINES:
            tell(name, **values)


def configure(level: str, shape: str, stream: TextIO | None = None) -> None:
    """Show the log on a stream (stdout). Levels and shapes are those of log.level and log.format."""
    stream = stream or sys.stdout
    if shape == "auto":
        shape = "console" if stream.isatty() else "logfmt"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_FORMATTERS[shape]())
    logger.handlers = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def set_level(level: str) -> None:
    """Change the level, one of log.level's, while the server runs."""
    logger.setLevel(level.upper())


class _Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{moment}.{int(record.msecs):03} {record.levelname.lower():7} {record.getMessage()}{_trace(record)}"


class _Logfmt(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        name, values = _parts(record)
        pairs = {"time": _iso(record), "level": record.levelname.lower(), "event": name, **values}
        return " ".join(f"{key}={_quoted(value)}" for key, value in pairs.items()) + _trace(record)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        name, values = _parts(record)
        line = {"time": _iso(record), "level": record.levelname.lower(), "event": name, **values}
        if trace := _trace(record).strip():
            line["traceback"] = trace
        return json.dumps(line, default=str)


_FORMATTERS: dict[str, type[logging.Formatter]] = {"console": _Console, "logfmt": _Logfmt, "json": _Json}


def _parts(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    if isinstance(record.msg, Event):
        return record.msg.name, record.msg.values
    return record.getMessage(), {}


def _iso(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"


def _trace(record: logging.LogRecord) -> str:
    return "\n" + logging.Formatter().formatException(record.exc_info) if record.exc_info else ""


def _quoted(value: Any) -> str:
    text = str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' "='):
        return text
    return json.dumps(text, ensure_ascii=False)
