"""`sasl.jaas.config`: the notation in which Java's clients configure their login modules.

An entry is `CLASS required NAME="VALUE" … ;`. Errors name what is expected and never repeat a value: it may be a
password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s=;"']+)|([=;]))""", re.DOTALL)


class LoginModule(NamedTuple):
    """One entry of a JAAS configuration."""

    name: str
    """The class name without its package."""
    options: Mapping[str, str]


def parse_jaas(text: str) -> LoginModule:
    """The entry of a `sasl.jaas.config`. Raises ValueError."""
    tokens = list(_tokens(text))
    words = [value for value, _ in tokens]
    if len(words) < 3 or words[-1] != ";" or words.index(";") != len(words) - 1:
        raise ValueError('sasl.jaas.config: expected: CLASS required NAME="VALUE" … ;')
    if words[1].lower() not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError("sasl.jaas.config: the word after the class is not `required`")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3:
        raise ValueError('sasl.jaas.config: the options are not all NAME="VALUE"')
    for (name, _), (equals, quoted), (value, _) in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if equals != "=" or quoted:
            raise ValueError('sasl.jaas.config: the options are not all NAME="VALUE"')
        options[name] = value
    return LoginModule(words[0].rpartition(".")[2], options)


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Words, `=` and `;`; each with whether it was quoted."""
    position, text = 0, text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError("sasl.jaas.config: a quotation mark is not closed")
        position = found.end()
        quoted = found[1] if found[1] is not None else found[2]
        if quoted is not None:
            yield re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL), True
        else:
            yield found[3] or found[4], False
