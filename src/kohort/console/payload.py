"""Keys, values and headers of records as HTML: text if they are UTF-8, else hexadecimal digits. All of it is escaped.

What is shown is bounded by its escaped length, because a page has at most 150 kB and a record may be all quotes.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup, escape

from kohort.cli.groups.wording import plain

SPACES = str.maketrans({"\t": "    ", "\r": ""})
GROUP = 4
"""Bytes between spaces in hexadecimal."""


@dataclass(frozen=True, slots=True)
class Shown:
    """`kind`: text, hex, null or empty. `is_cut`: the end is left out."""

    kind: str
    html: Markup
    is_cut: bool = False


def shown(data: bytes | None, room: int) -> Shown:
    """At most `room` bytes of HTML."""
    if data is None:
        return Shown("null", Markup("null"))
    if not data:
        return Shown("empty", Markup("empty"))
    text = _text(data)
    if text is None:
        count = min(len(data), room * GROUP // (2 * GROUP + 1))
        return Shown("hex", Markup(data[:count].hex(" ", -GROUP)), count < len(data))
    return Shown("text", *cut(text, room))


def cut(text: str, room: int) -> tuple[Markup, bool]:
    """The beginning of a text, escaped, in at most `room` bytes; and whether something is left out."""
    lines = "\n".join(plain(line) for line in text[:room].translate(SPACES).split("\n"))
    kept = len(lines)
    while len((html := escape(lines[:kept])).encode()) > room:
        kept = kept * 3 // 4
    return html, kept < len(lines) or room < len(text)


def _text(data: bytes) -> str | None:
    """None if it is no text: not UTF-8, or with control characters."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if any(letter < " " and letter not in "\t\n\r" for letter in text) else text
