"""What the rules look at: one group in two surveys, some seconds apart, and what else is known of its partitions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kohort.cli.groups.wording import Document, Names, as_document, duration, people_of
from kohort.cli.stable_offsets import StableEnd
from kohort.client.admin.groups import GroupMember
from kohort.client.admin.survey import SurveyedGroup
from kohort.client.metadata import TopicPartition
from kohort.spark.history.limits import MINUTE, Limits

LIMITS = Limits()
WAITING_MS = MINUTE
"""A record that waits for longer is not simply the newest one."""
AGES_MS = (WAITING_MS, LIMITS.behind_ms, LIMITS.standstill_ms)
"""The ages of unread records that are looked up."""
GROWING_MS = MINUTE // 2
"""Records that wait for longer are a finding if the server has seen their lag grow."""
COMMIT_INTERVALS_S = 10.0
"""Twice the interval in which consumers commit by default (auto.commit.interval.ms): within a shorter time, an offset
that stands still proves little."""


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


ORDER = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    group: str
    kind: str
    """A word for programs."""
    text: str
    """One sentence with the facts; it begins with what the group or a member does."""
    advice: str
    command: str = ""
    """That shows more of it or changes it; empty if there is none."""
    weight: float = 0.0
    """Orders findings of the same severity."""


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda one: (ORDER.index(one.severity), -one.weight, one.group, one.kind))


@dataclass(frozen=True, slots=True)
class Case:
    """A group. Offsets by partition; a partition that is missing in one of them is not known."""

    before: SurveyedGroup
    after: SurveyedGroup
    seconds: float
    """Between the surveys."""
    now_ms: int = 0
    ends_before: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    ages_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How long the oldest unread record waits, if the server tells it."""
    younger: Mapping[int, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Of other partitions, by one of AGES_MS: the first offset whose record is not older by its timestamp; -1 if all
    records are older."""
    stable: Mapping[TopicPartition, StableEnd] = field(default_factory=dict)
    """Last stable offsets before the end, if the record there is older than WAITING_MS."""
    partitions_of: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions of each topic that exists."""
    missing_topics: Mapping[str, str | None] = field(default_factory=dict)
    """Topics that do not exist, with the name that was probably meant."""
    retention_ms: int | None = None

    @property
    def name(self) -> str:
        return self.after.group.group_id

    @property
    def quoted(self) -> str:
        """For commands."""
        return shlex.quote(self.name)

    @property
    def stories(self) -> tuple[Document, ...]:
        return self.after.explanation.stories if self.after.explanation is not None else ()

    @property
    def status(self) -> Document:
        return (self.after.explanation.status or {}) if self.after.explanation is not None else {}

    @property
    def server_ms(self) -> int:
        """Now, by the clock of the stories."""
        return self.after.explanation.now_ms if self.after.explanation is not None else self.now_ms

    def names(self) -> Names:
        return Names([*people_of(self.stories), *map(as_document, self.after.group.members)])

    def owners(self) -> Mapping[TopicPartition, GroupMember]:
        """The owner of each partition; while a rebalance takes them all away, the owner before it."""
        return self.after.group.owners() or (self.before.group.owners() if self.after.group.members else {})

    def lags(self) -> dict[TopicPartition, int]:
        """Of the partitions with unread records."""
        return {
            place: self.ends[place] - now.offset
            for place, now in sorted(self.after.committed.items())
            if self.ends.get(place, -1) > now.offset
        }

    def step(self, place: TopicPartition) -> int:
        """How far the committed offset moved; 0 also for one that was not there before."""
        before = self.before.committed.get(place)
        return 0 if before is None else self.after.committed[place].offset - before.offset

    def written(self, places: Iterable[TopicPartition]) -> int:
        """Records written between the surveys."""
        return sum(
            max(self.ends[place] - self.ends_before[place], 0)
            for place in places
            if place in self.ends and place in self.ends_before
        )

    def waits_longer_than(self, age_ms: int, place: TopicPartition) -> bool:
        """Whether the oldest unread record of a partition with lag is older."""
        if place in self.ages_ms:
            return self.ages_ms[place] > age_ms
        first = self.younger.get(age_ms, {}).get(place)
        return first is not None and (first < 0 or self.after.committed[place].offset < first)

    def age_words(self, places: Iterable[TopicPartition]) -> str:
        """`, the oldest for 12 min 5 s` if the server tells it; `, the oldest for more than 10 min by its timestamp`
        else; empty if no record has waited for long."""
        chosen = list(places)
        told_ms = max((self.ages_ms[place] for place in chosen if place in self.ages_ms), default=0)
        if told_ms > GROWING_MS:
            return f", the oldest for {duration(told_ms)}"
        for age_ms in sorted(AGES_MS, reverse=True):
            if any(self.waits_longer_than(age_ms, place) for place in chosen):
                return f", the oldest for more than {age_ms // MINUTE} min by its timestamp"
        return ""


def rest_of(names: Iterable[str], most: int = 3) -> str:
    """`a, b, c and 2 more`."""
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more
