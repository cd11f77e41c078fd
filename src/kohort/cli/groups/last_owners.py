"""Partitions that a member has lost and no other one has got since: which member, when and why. From the journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kohort.cli.groups.timeline import happened
from kohort.cli.groups.wording import Document, Line, Names, as_document, instant, people_of
from kohort.cli.places import words_of
from kohort.client.admin.explanations import NoJournal
from kohort.client.admin.groups import GroupDescription
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition
from kohort.wire.embedded import by_topic

LOOKED_AT = 20
"""Stories of a group that are searched, the newest ones."""
MOST_LINES = 8


@dataclass(frozen=True, slots=True)
class LastOwner:
    member: Document
    places: tuple[TopicPartition, ...]
    since_ms: int
    story: Document
    why: str
    """`worker-1 on 10.0.0.1: session expired after 45000 ms of silence`."""

    @property
    def words(self) -> str:
        return f"nobody has {words_of(self.places)} since {instant(self.since_ms)}; {self.why}"

    @property
    def document(self) -> dict[str, Any]:
        named = ("member_id", "instance_id", "client_id", "host")
        return {
            **{key: self.member[key] for key in named if key in self.member},
            "partitions": [{"topic": topic, "partitions": list(indexes)} for topic, indexes in by_topic(self.places)],
            "since_ms": self.since_ms,
            "story": self.story["number"],
            "why": self.why,
        }


def last_owners(stories: Sequence[Document], places: Iterable[TopicPartition] | None, names: Names) -> list[LastOwner]:
    """Of these partitions (None: of all) that nobody owns, the last owners, the latest first.

    A partition whose loss is in no story is left out: the journal keeps the newest stories, and cuts long ones.
    """
    left = None if places is None else set(places)
    settled: set[TopicPartition] = set()
    found = []
    for story in reversed(stories):
        people = (*story.get("members", ()), *story.get("gone", ()))
        settled |= {place for member in people for place in _places(member.get("gained"))}
        for member in people:
            lost = [place for place in _places(member.get("lost")) if place not in settled]
            settled.update(lost)
            if shown := tuple(sorted(place for place in lost if left is None or place in left)):
                ended_ms = story["started_ms"] + story.get("took_ms", 0)
                found.append(LastOwner(member, shown, ended_ms, story, _why(member, story, names)))
    return found


def last_owners_of(cluster: Cluster, group: GroupDescription, places: Sequence[TopicPartition]) -> list[LastOwner]:
    """The same, asking the journal if there is one and there are partitions to ask for. Raises KafkaError."""
    if not places:
        return []
    try:
        stories = cluster.explain_group(group.group_id, last=LOOKED_AT).stories
    except NoJournal:
        return []
    return last_owners(stories, places, Names([*people_of(stories), *map(as_document, group.members)]))


def lines_of(found: Sequence[LastOwner], head: str = "") -> list[Line]:
    lines = [Line(f"{head}{one.words}") for one in found[:MOST_LINES]]
    more = len(found) - MOST_LINES
    return lines + ([Line(f"{head}and {more} more, with -o json")] if more > 0 else [])


def _places(changed: Document | None) -> Iterable[TopicPartition]:
    return ((topic, index) for topic, indexes in (changed or {}).items() for index in indexes)


def _why(member: Document, story: Document, names: Names) -> str:
    """The event that took the partitions from the member."""
    is_consumer = story.get("group_type") == "consumer"
    for happening in (story.get("cause", {}), *story.get("happenings", ())):
        if happening.get("member_id") == member.get("member_id"):
            return happened(happening, names, consumers=is_consumer)
    return f"{names.with_host(member)} had {'it' if _has_one(member) else 'them'}"


def _has_one(member: Document) -> bool:
    return sum(map(len, member.get("lost", {}).values())) == 1
