"""Configs that clients may set on a topic or a group: the definition of each name, and typed values from their text.

A resource keeps only what was set on it, as text. The value in force is its own, else that of the server's setting for
the name, else a constant. Names, types and bounds are Apache Kafka's if Kafka has the config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from kohort.config import INT_MAX, LONG_MAX, Config, property_name

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""The codes of types in DescribeConfigs."""

LONGEST_VALUE = 8_000
"""Characters of a value. Flexible requests can carry more than older versions of DescribeConfigs can answer."""

LONGEST_GUESSED = 100
"""Characters up to which an unknown name is compared with the known ones; longer ones take too long."""
MOST_MISSING = 3
"""The largest difference in length between an unknown name and a suggested one, in characters."""


class InvalidConfig(ValueError):
    """An unknown config or a bad value. The message names the config."""


class ConfigKey(msgspec.Struct, frozen=True):
    name: str
    type: int
    default: Any
    """Used if there is no `setting`."""
    setting: str | None
    """The attribute of Config that gives the default."""
    parse: Callable[[str], Any]
    doc: str

    def default_of(self, config: Config) -> Any:
        return getattr(config, self.setting) if self.setting is not None else self.default

    @property
    def synonym(self) -> str | None:
        return property_name(self.setting) if self.setting is not None else None


def number(text: str) -> str:
    """Refuse what only Python reads as a number: clients parse the text too."""
    if not text.isascii() or "_" in text:
        raise ValueError("it must be a number")
    return text


def whole(low: int, high: int, text: str) -> int:
    try:
        value = int(number(text))
    except ValueError:
        raise ValueError("it takes a whole number") from None
    if not low <= value <= high:
        raise ValueError(f"it must be between {low} and {high}")
    return value


def ratio(text: str) -> float:
    value = float(number(text))
    if not 0 <= value <= 1:
        raise ValueError("it must be between 0 and 1")
    return value


def boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("it must be true or false")
    return lowered == "true"


def never(text: str) -> bool:
    if boolean(text):
        raise ValueError("kohort has no such feature; only false is accepted")
    return False


def one_of(allowed: tuple[str, ...], text: str) -> str:
    if text not in allowed:
        raise ValueError(f"it must be one of {', '.join(allowed)}")
    return text


def any_text(text: str) -> str:
    return text


def config_key(
    name: str, type: int, default: Any, parse: Callable[[str], Any], doc: str, setting: str | None = None
) -> tuple[str, ConfigKey]:
    return name, ConfigKey(name, type, default, setting, parse, doc)


def int_key(name: str, low: int, default: int, doc: str, setting: str | None = None) -> tuple[str, ConfigKey]:
    return config_key(name, INT, default, partial(whole, low, INT_MAX), doc, setting)


def long_key(name: str, low: int, default: int, doc: str, setting: str | None = None) -> tuple[str, ConfigKey]:
    return config_key(name, LONG, default, partial(whole, low, LONG_MAX), doc, setting)


def parse(keys: Mapping[str, ConfigKey], kind: str, name: str, text: str) -> Any:
    """The typed value of a config of a topic or a group, as `kind` calls it. Raises InvalidConfig."""
    known = keys.get(name)
    if known is None:
        near = _close_to(name, keys)
        raise InvalidConfig(f"There is no {kind} config {name}" + (f"; did you mean {near[0]}?" if near else ""))
    if len(text) > LONGEST_VALUE:
        raise InvalidConfig(f"{name} takes up to {LONGEST_VALUE} characters; {len(text)} came")
    try:
        return known.parse(text.strip())
    except ValueError as error:
        raise InvalidConfig(f"{name} cannot be {text}: {error}") from None


def _close_to(name: str, keys: Iterable[str]) -> list[str]:
    """Similar names. Only few are compared, because a request may have thousands of unknown names."""
    if len(name) > LONGEST_GUESSED:
        return []
    likely = [key for key in keys if abs(len(key) - len(name)) <= MOST_MISSING and key[:2] == name[:2]]
    from difflib import get_close_matches  # rarely needed; the import costs time at the start

    return get_close_matches(name, likely, n=1) if likely else []


def value_text(value: Any) -> str:
    """A typed value as the text that clients expect."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
