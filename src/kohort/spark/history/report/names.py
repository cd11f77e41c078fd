"""The names of members and the colours of groups and clients, the same in all plots of a page.

A client keeps its name and colour when it restarts under another member id. Members with the same client id and host
that are present at the same time are different clients: the first letters of their ids tell them apart.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from kohort.spark.history.stories import Client, plain_host
from kohort.spark.history.tables.columns import milliseconds
from kohort.spark.reports.figures import MUTED, SERIES

ID_LETTERS = 4
_FOR_EVER = 2**62


class Style(NamedTuple):
    colour: str
    dashed: bool = False


class Palette:
    """Gives each key a style when it is drawn for the first time; it keeps it in later plots."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, keys: Sequence[Hashable]) -> dict[Hashable, Style]:
        """The styles of the keys of one plot, which differ as far as there are enough."""
        taken = {self._numbers[key] for key in keys if key in self._numbers}
        for key in keys:
            if key not in self._numbers:
                self._numbers[key] = next((n for n in range(2 * len(SERIES)) if n not in taken), 2 * len(SERIES))
                taken.add(self._numbers[key])
        return {key: _style(self._numbers[key]) for key in keys}


def _style(number: int) -> Style:
    if number >= 2 * len(SERIES):
        return Style(MUTED)
    return Style(SERIES[number % len(SERIES)], number >= len(SERIES))


@dataclass(frozen=True, slots=True)
class Named:
    """A member's client: what identifies it, and what the legend says."""

    key: tuple[str, ...]
    label: str


def member_names(members: pa.Table) -> dict[str, Named]:
    """The names of one group's members by member id, from its rows of the table `members`."""
    columns = ("member_id", "instance_id", "client_id", "host")
    since, until = (milliseconds(members.column(name)).tolist() for name in ("since", "until"))
    clients: dict[str, Client] = {}
    spans: dict[Client, list[tuple[int, int, str]]] = {}
    for (member, instance, client, host), begin, end in zip(
        zip(*(members.column(name).to_pylist() for name in columns), strict=True), since, until, strict=True
    ):
        who = Client(instance or client or member, plain_host(host))
        clients[member] = who
        spans.setdefault(who, []).append((begin, end if end >= 0 else _FOR_EVER, member))
    shared = {who for who, held in spans.items() if _overlap(held)}
    return {member: _named(member, who, who in shared) for member, who in clients.items()}


def _overlap(spans: Iterable[tuple[int, int, str]]) -> bool:
    last, owner = -1, ""
    for begin, end, member in sorted(spans):
        if begin < last and member != owner:
            return True
        if end > last:
            last, owner = end, member
    return False


def _named(member: str, who: Client, is_shared: bool) -> Named:
    label = f"{who.name} · {who.host}" if who.host else who.name
    if not is_shared:
        return Named((who.name, who.host), label)
    letters = member.removeprefix(who.name).lstrip("-")[:ID_LETTERS] or member[:ID_LETTERS]
    return Named((who.name, who.host, member), f"{label} · {letters}")


def named(names: Mapping[str, Named], member: str) -> Named:
    """Also of a member whose ids the log does not have."""
    return names.get(member) or Named((member,), member)


def described(members: pa.Table) -> dict[tuple[str, str], str]:
    """For each group and member id: the member id with its client and host, in words."""
    found = {}
    columns = ("group", "member_id", "instance_id", "client_id", "host")
    for group, member, instance, client, host in zip(
        *(members.column(name).to_pylist() for name in columns), strict=True
    ):
        name = instance or client or ""
        text = member if member.startswith(name) else f"{name} ({member})"
        found[group, member] = f"{text} on {plain_host(host)}" if host else text
    return found
