"""The stories of a journal as periods in which a member owned a partition. Instants are the coordinator's.

A story says what each member gained and lost, and its partitions at the end. A member of a classic group has its new
partitions from the end of the rebalance on, and loses partitions when it rejoins, or at the start if it is gone. A
member of a consumer group has steps: when it gave partitions up, and when it got others. What is not in the stories is
a gap: a story names at most 200 members and 5,000 partitions, and the journal keeps the newest stories only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kohort.cli.groups.wording import Document, Names, as_document, people_of
from kohort.client.admin.groups import GroupMember
from kohort.client.metadata import TopicPartition
from kohort.console.rebalances.drawing import cut

LONGEST_NAME = 60
FINISHED = ("Stable", "Empty")
"""Outcomes of stories that say what members gained and lost."""


@dataclass(frozen=True, slots=True)
class Period:
    """`identity` tells members apart, also two with the same name."""

    identity: str
    name: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Span:
    """A rebalance."""

    number: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Past:
    """`begin_ms`: before it nothing is known."""

    begin_ms: int
    end_ms: int
    periods: Mapping[TopicPartition, tuple[Period, ...]]
    rebalances: tuple[Span, ...]


def past_of(stories: Sequence[Document], members: Iterable[GroupMember], now_ms: int) -> Past:
    """From the oldest of these stories until now."""
    described = [(as_document(member), member) for member in members]
    names = Names([*people_of(stories), *(document for document, _ in described)])
    rebalances = [story for story in stories if story.get("outcome") != "noted"]
    begin_ms = rebalances[0]["started_ms"] if rebalances else now_ms
    found = _Periods(begin_ms, names)
    for story in rebalances:
        if story.get("outcome") in FINISHED:
            found.add(story)
    owners = {
        (topic, index): document
        for document, member in described
        for topic, indexes in member.assigned.items()
        for index in indexes
    }
    found.finish(owners, now_ms, rebalances[-1]["started_ms"] if rebalances else now_ms)
    return Past(
        begin_ms,
        now_ms,
        {place: tuple(periods) for place, periods in sorted(found.periods.items())},
        tuple(Span(story["number"], story["started_ms"], _end_of(story, now_ms)) for story in rebalances),
    )


def _end_of(story: Document, now_ms: int) -> int:
    took = story.get("took_ms")
    if took is None:
        took = sum(phase.get("took_ms") or 0 for phase in story.get("phases", ())) if story.get("outcome") else None
    return now_ms if took is None else min(story["started_ms"] + int(took), now_ms)


class _Periods:
    def __init__(self, begin_ms: int, names: Names) -> None:
        self.periods: dict[TopicPartition, list[Period]] = {}
        self._begin_ms = begin_ms
        self._names = names
        self._open: dict[TopicPartition, Period] = {}
        """The present owners; their `end_ms` is not known yet."""

    def add(self, story: Document) -> None:
        is_consumer = story.get("group_type") == "consumer"
        start, end = story["started_ms"], story["started_ms"] + int(story.get("took_ms") or 0)
        everybody = (*story.get("members", ()), *story.get("gone", ()))
        for member in everybody:
            lost_ms = _lost_ms(member, start, end, is_consumer=is_consumer)
            for place in _places(member.get("lost")):
                self._loses(place, member, lost_ms)
        for member in everybody:
            got_ms = start + member.get("steps", {}).get("got_after_ms", 0) if _has_got(member) else end
            gained = set(_places(member.get("gained")))
            for place in gained:
                self._gains(place, member, got_ms)
            for place in _places(member.get("assignment")):
                if place not in gained and place not in self._open and place not in self.periods:
                    self._gains(place, member, self._begin_ms)  # it had it before the oldest story too

    def finish(self, owners: Mapping[TopicPartition, Document], now_ms: int, changed_ms: int) -> None:
        """The end: what members own now. If it is another than the last known one, `changed_ms` is the last time at
        which this one can have lost it, and since when the other owns it is not known."""
        for place, period in list(self._open.items()):
            same = place not in owners or _identity(owners[place]) == period.identity
            self._close(place, now_ms if same else changed_ms)
        for place, member in owners.items():
            if place not in self.periods:
                self._gains(place, member, self._begin_ms)
                self._close(place, now_ms)

    def _gains(self, place: TopicPartition, member: Document, at_ms: int) -> None:
        if place in self._open:  # its loss was not told
            self._close(place, at_ms)
        self._open[place] = Period(_identity(member), cut(self._names.of(member), LONGEST_NAME), at_ms, at_ms)

    def _loses(self, place: TopicPartition, member: Document, at_ms: int) -> None:
        if place not in self._open:
            if place in self.periods:
                return  # a gap: since when is not known
            self._gains(place, member, self._begin_ms)
        self._close(place, at_ms)

    def _close(self, place: TopicPartition, at_ms: int) -> None:
        period = self._open.pop(place)
        if at_ms >= period.start_ms:
            self.periods.setdefault(place, []).append(replace(period, end_ms=at_ms))


def _identity(member: Document) -> str:
    return str(member.get("instance_id") or member.get("member_id") or "")


def _places(by_topic: Mapping[str, Sequence[int]] | None) -> list[TopicPartition]:
    return [(topic, index) for topic, indexes in (by_topic or {}).items() for index in indexes]


def _has_got(member: Document) -> bool:
    return "got_after_ms" in member.get("steps", {})


def _lost_ms(member: Document, start: int, end: int, *, is_consumer: bool) -> int:
    """When it gave partitions up."""
    if is_consumer:
        steps = member.get("steps", {})
        after = steps.get("revoked_after_ms", steps.get("told_after_ms"))
    else:
        after = member.get("joined_after_ms")  # who is gone has none
    return start if after is None else min(start + int(after), end)
