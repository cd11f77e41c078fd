"""Words for people: lines with a depth, durations, partitions, short names of members."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import typer

from kohort.cli.output import plural, terminal_width
from kohort.client.admin.groups import GroupMember

LAG_TIME = "LAG-TIME"
"""The column for the age of the first record that a group has not committed."""

Document = Mapping[str, Any]
"""A part of a story or of a group's status, as JSON has it."""


class Line(NamedTuple):
    text: str
    depth: int = 0
    bold: bool = False
    whole: bool = False
    """Not broken at the width of the terminal: it ends with a command that people paste."""


def wrapped(lines: Iterable[Line], width: int | None) -> list[tuple[bool, str]]:
    """Lines as they are printed, broken at words where they are wider than the terminal."""
    found = []
    for line in lines:
        line = line._replace(text=plain(line.text))
        indent = " " * line.depth
        if width is None or line.whole or line.depth + len(line.text) <= width:
            found.append((line.bold, indent + line.text if line.text else ""))
            continue
        parts = textwrap.wrap(
            line.text,
            max(width, line.depth + 24),
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_on_hyphens=False,
        )
        found += [(line.bold, part) for part in parts]
    return found


def show(lines: Iterable[Line]) -> None:
    """Print lines, broken at the width of the terminal; whole if the output is none."""
    for bold, text in wrapped(lines, terminal_width()):
        typer.secho(text, bold=bold)


def plain(text: str) -> str:
    """The text without control characters: clients choose their names and reasons, so these may contain escapes."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "�" for letter in text)


# -- durations, instants, partitions


def duration(milliseconds: int | None) -> str:
    """`12 ms`, `2.1 s`, `3 min 20 s`, `2 h 5 min`, `3 days 4 h`."""
    if milliseconds is None:
        return "?"
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 59_950:
        return f"{milliseconds / 1000:.1f} s"
    seconds = round(milliseconds / 1000)
    for size, name, small, smaller in ((86_400, "day", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            count, rest = divmod(seconds, size)
            whole = plural(count, name) if name == "day" else f"{count} {name}"
            return f"{whole} {rest // small} {smaller}" if rest >= small else whole
    return f"{seconds} s"


def brief(milliseconds: int | None) -> str | None:
    """For a column: `0`, `12ms`, `2.1s`, `3m20s`, `2h05m`, `3d4h`."""
    if not milliseconds:
        return None if milliseconds is None else "0"
    if milliseconds < 1_000:
        return f"{milliseconds}ms"
    if milliseconds < 59_950:
        return f"{milliseconds / 1000:.1f}s"
    seconds = round(milliseconds / 1000)
    if seconds < 3_600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < 86_400:
        return f"{seconds // 3_600}h{seconds % 3_600 // 60:02}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3_600}h"


def instant(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def utc(milliseconds: int) -> str:
    """`2026-11-20T10:00:03.345Z`, for commands that people paste: no millisecond is lost, in any time zone."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:03}Z"


def ranges(indexes: Iterable[int]) -> str:
    """`0-2,4`."""
    found: list[list[int]] = []
    for index in sorted(indexes):
        if found and index == found[-1][1] + 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def partitions(by_topic: Mapping[str, Sequence[int]] | None) -> str:
    return " ".join(f"{topic}[{ranges(indexes)}]" for topic, indexes in sorted((by_topic or {}).items()))


# -- members


def as_document(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
    }


class Names:
    """Short names: the instance id, or the client id, with the member id's first letters where several share it."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._sharing: dict[str, set[str]] = {}
        for document in documents:
            if document.get("member_id") and not document.get("instance_id"):
                self._sharing.setdefault(client_of(document), set()).add(document["member_id"])

    def of(self, document: Document) -> str:
        if document.get("instance_id"):
            return str(document["instance_id"])
        member_id = str(document.get("member_id", ""))
        client = client_of(document)
        if len(self._sharing.get(client, ())) > 1:
            letters = member_id.removeprefix(client).lstrip("-")[:4]
            return f"{client}-{letters}" if letters else client
        return client or member_id or "somebody"

    def with_host(self, document: Document) -> str:
        host = str(document.get("host", "")).removeprefix("/")
        return f"{self.of(document)} on {host}{user_of(document)}" if host else self.of(document)


def user_of(document: Document) -> str:
    """` (user alice)`; empty if the client has not authenticated. Journals name the users of changes."""
    kind, colon, name = str(document.get("principal", "")).partition(":")
    return f" ({kind.lower()} {name})" if colon else ""


def client_of(document: Document) -> str:
    return str(document.get("client_id") or document.get("member_id", ""))


def people_of(stories: Iterable[Document]) -> list[Document]:
    """All members that the stories name."""
    found: list[Document] = []
    for story in stories:
        found.append(story.get("cause", {}))
        for key in ("happenings", "held_up_by", "members", "gone"):
            found.extend(story.get(key, ()))
    return found
