"""`sasl.jaas.config` and files of Java properties: the two notations of Java's clients.

A JAAS entry is `CLASS required NAME="VALUE" … ;`. Errors name what is expected and never repeat a value: it may be a
password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s=;"']+)|([=;]))""", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_PAIR = re.compile(r"((?:\\.|[^\\=:\s])*)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


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


def read_properties(path: str | Path) -> dict[str, str]:
    """A file of Java properties, as Kafka's tools take it. Raises ValueError, naming the file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is None:
            raise ValueError(f"{path}: a line is not NAME=VALUE")
        found[_unescaped(pair[1])] = _unescaped(pair[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; one that ends in a backslash goes on in the next."""
    whole = ""
    for line in text.splitlines():
        line = line.lstrip()
        if not whole and (not line or line[0] in "#!"):
            continue
        if _CONTINUED.search(line):
            whole += line[:-1]
            continue
        yield whole + line
        whole = ""
    if whole:
        yield whole


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(plain, text)
