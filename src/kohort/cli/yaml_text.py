"""A JSON document as YAML, in block style: what YAML 1.1 and 1.2 readers give back is the same document.

Only plain words stay without quotes. All other strings are in double quotes, with JSON's escapes, which YAML shares;
so a version such as "1.10", a date, or a "no" stays a string.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./()-]+)*")
WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Words that a YAML 1.1 reader takes for something else than a string."""
UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
STEP = "  "


def yaml_text(document: Any) -> str:
    return "\n".join(_lines(document))


def _lines(value: Any) -> Iterator[str]:
    match value:
        case dict() if value:
            for key, item in value.items():
                yield from _under(f"{_text(str(key))}:", item, STEP)
        case list() | tuple() if value:
            for item in value:
                yield from _item(item)
        case _:
            yield _scalar(value)


def _under(key: str, item: Any, indent: str) -> Iterator[str]:
    if isinstance(item, dict | list | tuple) and item:
        yield key
        yield from (indent + line for line in _lines(item))
    else:
        yield f"{key} {_scalar(item)}"


def _item(item: Any) -> Iterator[str]:
    for number, line in enumerate(_lines(item)):
        yield ("- " if number == 0 else STEP) + line


def _scalar(value: Any) -> str:
    match value:
        case dict():
            return "{}"
        case list() | tuple():
            return "[]"
        case str():
            return _text(value)
        case float() if math.isnan(value):
            return ".nan"
        case float() if math.isinf(value):
            return ".inf" if value > 0 else "-.inf"
        case float():
            text = json.dumps(value)
            return text if "." in text else text.replace("e", ".0e")
        case _:
            return json.dumps(value)


def _text(value: str) -> str:
    if PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda letter: f"\\u{ord(letter.group()):04x}", quoted)
