"""Values of options from text. Options are case-insensitive: `given` has the names in lower case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T", bound=str)
N = TypeVar("N", int, None)


class OptionError(ValueError):
    """An option is missing, unknown, or has a bad value; the message names it.

    Spark shows an error of Python as its traceback, whose last line is the message. A cause stands above its error, so
    a copy without a traceback is the cause. It is a property, because Spark sets the cause of an error to None."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self._copy = OptionError.__new__(OptionError, message)

    @property
    def __cause__(self) -> OptionError | None:
        return getattr(self, "_copy", None)

    @__cause__.setter
    def __cause__(self, cause: object) -> None: ...


def number(given: Mapping[str, str], name: str, least: int, default: N) -> int | N:
    text = given.get(name.lower())
    if text is None:
        return default
    if not text.strip().isdigit() or int(text) < least:
        raise OptionError(f"option {name} is {text!r}; it takes a whole number from {least} on")
    return int(text)


def choice(given: Mapping[str, str], name: str, *allowed: T) -> T:
    """One of the allowed values, in upper or lower case. The first one is the default."""
    text = given.get(name.lower(), allowed[0])
    for value in allowed:
        if text.strip().lower() == value:
            return value
    raise OptionError(f"option {name} is {text!r}; it takes {', '.join(allowed[:-1])} or {allowed[-1]}")


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    return choice(given, name, *(("true", "false") if default else ("false", "true"))) == "true"
