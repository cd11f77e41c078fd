"""The typed value of one setting's text, and its bounds."""

from __future__ import annotations

from typing import Any

from kohort.config.declaration import ConfigError
from kohort.config.settings import SETTINGS


def parse_value(name: str, text: str, factor: int = 1) -> Any:
    """The typed value of a setting's text. Raises ConfigError."""
    setting = SETTINGS[name]
    kind = type(setting.default)
    value: Any
    text = text.strip()
    try:
        if kind is bool:
            value = {"true": True, "false": False}[text.lower()]
        elif kind is int:
            value = int(text)
            value = value * factor if value >= 0 else value
        elif kind is float:
            value = float(text)
        else:
            # Kafka takes the words of a policy in any case.
            value = text.lower() if text.lower() in setting.metadata["one_of"] else text
    except (ValueError, KeyError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"{name} is {text!r}; it takes {wanted}") from None
    check_bounds(name, value)
    return value


def check_type(name: str, value: object) -> None:
    """Raises ConfigError if a value that is given in Python has another type than the setting."""
    kind = type(SETTINGS[name].default)
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        wanted = {bool: "True or False", int: "a whole number", float: "a number", str: "a string"}[kind]
        raise ConfigError(f"{name} is {value!r}; it takes {wanted}")


def check_bounds(name: str, value: Any) -> None:
    meta = SETTINGS[name].metadata
    if meta["low"] is not None and not value >= meta["low"]:
        raise ConfigError(f"{name} is {value}; the least is {meta['low']}")
    if meta["high"] is not None and not value <= meta["high"]:
        raise ConfigError(f"{name} is {value}; the most is {meta['high']}")
    if meta["one_of"] and value not in meta["one_of"]:
        raise ConfigError(f"{name} is {value!r}; it takes one of {', '.join(meta['one_of'])}")
    if meta["check"] is not None:
        try:
            meta["check"](value)
        except ValueError as error:
            raise ConfigError(f"{name} is {value!r}; {error}") from None
