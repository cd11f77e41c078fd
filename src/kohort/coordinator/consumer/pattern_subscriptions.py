"""Subscriptions by regular expression (KIP-848): a record of the group holds what each of its patterns matches.

    heartbeat with a pattern ──► valid? ──► matches known? ──► group epoch, target
                                   128          no: PatternsAsked ──► PatternsResolved ──► group epoch, target

A pattern is checked in the step of its heartbeat, and compared with the topics outside the shard. Until the matches
are known, the member gets a short heartbeat interval and keeps its partitions. A member may subscribe by names and a
pattern. The matches of a pattern that a group of the shard uses already are known at once
(patterns/pattern_matches.py).

New topics are compared with the patterns. A group takes new matches in at most once an assignment interval, because its
record holds all the names. Deleted topics do not count from that moment. The record of a pattern is deleted with its
last subscriber.

Unlike in Kafka, a pattern matches no internal topics, and nothing is refreshed by time: a pattern needs DESCRIBE of all
topics, so only topics can change what it matches. Source: ConsumerGroup.java, GroupMetadataManager.java (maybeUpdate…,
handleRegularExpressionsResult).
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.config import Config
from kohort.coordinator.consumer.group import ConsumerGroup, Pattern, pattern_value
from kohort.coordinator.consumer.soft_state import PATTERNS, RunningConsumers
from kohort.coordinator.consumer.target import Targets
from kohort.coordinator.events import Millis, PatternsResolved
from kohort.coordinator.patterns.regex import problem_of
from kohort.coordinator.records import regex_record
from kohort.coordinator.topics import Topics

MAX_NAMED = 5
"""Topics that a journal entry names; it counts the others."""
NAMES_A_STEP = 4_000
"""A group takes in new matches of its patterns up to so many names, and goes on in a later turn: its records hold all
the names."""


class Patterns:
    def __init__(self, config: Config, consumers: RunningConsumers, targets: Targets) -> None:
        self._config = config
        self._consumers = consumers
        self._targets = targets
        self._matches = consumers.running.pattern_matches
        self._outdated: list[str] = []
        """Patterns that lost a topic."""

    def problem_of(self, group: ConsumerGroup | None, member_id: str, text: str) -> str:
        """Why the member cannot subscribe with this pattern; "" if it can."""
        used = group.pattern_users if group is not None else {}
        if text in used:
            return ""
        member = group.members.get(member_id) if group is not None else None
        gives_up = member is not None and used.get(member.subscribed_topic_regex or "") == 1
        others = len(used) - gives_up
        if others >= self._config.group_consumer_regex_max_patterns:
            return f"The group has {others} other regular expressions: group.consumer.regex.max.patterns."
        if self._matches.is_valid(text):
            return ""
        problem = problem_of(text, self._config.group_consumer_regex_max_length)
        return f"{text[:100]!r} is not a supported regular expression: {problem}" if problem else ""

    # -- members

    def changed(self, group: ConsumerGroup, former: str | None, present: str | None, now: Millis) -> None:
        """A member has another pattern, or is gone. Call it after the member's record."""
        if former and former != present:
            self._release(group, former)
        if present:
            self._matches.use(present, group.group_id)
            if present not in group.patterns:
                self._take_in(group, present, now)
            self._search()

    def _release(self, group: ConsumerGroup, text: str) -> None:
        if text in group.pattern_users:
            return
        self._matches.release(text, group.group_id)
        if text in group.patterns:
            self._consumers.emit(regex_record(group.group_id, text, None))

    # -- topics

    def topics_are(self, topics: Topics, names: Iterable[str] | None) -> None:
        """`names`: the topics that changed, if known."""
        self._outdated += self._matches.change_topics(topics, names)

    def topics_changed(self, now: Millis) -> list[ConsumerGroup]:
        """Returns the group that has been looked at. Others that may have new matches come in later steps."""
        groups = self._refreshed_users(self._outdated, now)
        self._outdated.clear()
        return groups

    def resolved(self, event: PatternsResolved, now: Millis) -> list[ConsumerGroup]:
        """As `topics_changed`."""
        return self._refreshed_users(self._matches.take(event), now)

    def _refreshed_users(self, texts: Iterable[str], now: Millis) -> list[ConsumerGroup]:
        first, *others = self._matches.users(texts) or [""]
        for group_id in others:
            self._consumers.running.deadlines.set((PATTERNS, group_id, ""), now)
        self._search()
        if not first:
            return []
        self._refresh(self._consumers.groups[first], now)
        return [self._consumers.groups[first]]

    def due(self, group: ConsumerGroup, now: Millis) -> None:
        """The group may take in new matches again."""
        self._refresh(group, now)

    def _refresh(self, group: ConsumerGroup, now: Millis) -> None:
        """Take in the matches of all patterns of the group. Other matches than before, at most once an interval."""
        known = self._consumers.of(group)
        due = known.patterns_ms + self._consumers.settings(group).assignment_interval_ms
        changes = renewed = False
        room = NAMES_A_STEP
        for text in group.pattern_users:
            if text not in group.patterns:
                changes |= self._take_in(group, text, now)
            elif not self._differs(group, text):
                continue
            elif now < due:
                self._consumers.running.deadlines.set((PATTERNS, group.group_id, ""), due)
            elif room <= 0:
                self._consumers.running.deadlines.set((PATTERNS, group.group_id, ""), now)
                renewed = False
            else:
                renewed = True
                changes |= self._take_in(group, text, now)
                room -= len(group.patterns[text].topics)
        if renewed:
            known.patterns_ms = now
        if changes:
            self._targets.bump(group, now, "its regular expressions match other topics")

    def _differs(self, group: ConsumerGroup, text: str) -> bool:
        matched = self._matches.matched(text)
        taken_in = group.patterns[text].topics
        return matched is not None and matched is not taken_in and matched != taken_in

    def _take_in(self, group: ConsumerGroup, text: str, now: Millis) -> bool:
        """Write what the pattern matches into the group, if that is known. Returns whether the members' subscriptions
        change."""
        known = group.patterns.get(text)
        matched = self._matches.matched(text)
        if self._matches.is_refused(text) and known is None:
            matched = frozenset()
        if matched is None or (known is not None and known.topics == matched):
            return False
        topics = self._consumers.topics
        pattern = Pattern(matched, topics.version, now)
        self._consumers.emit(regex_record(group.group_id, text, pattern_value(pattern)))
        before = known.topics & topics.by_name.keys() if known is not None else frozenset()
        if matched != before:
            self._consumers.note(
                group, "topics matched", f"{text}:{_named('+', matched - before)}{_named('-', before - matched)}"
            )
            return True
        if known is None:
            self._consumers.note(group, "topics matched", f"{text}: none")
            return any(
                group.targets.get(m) for m, value in group.members.items() if value.subscribed_topic_regex == text
            )
        return False

    def _search(self) -> None:
        task = self._matches.next_task()
        if task is not None:
            self._consumers.running.out.tasks.append(task)

    # -- load, unload, deletion

    def load(self) -> None:
        """The matches in the log count until the patterns have been compared with all topics. That begins now."""
        for group in self._consumers.groups.values():
            # Only logs that Kafka wrote have patterns without subscribers.
            for text in sorted(group.patterns.keys() - group.pattern_users.keys()):
                self._consumers.emit(regex_record(group.group_id, text, None))
            for text in group.pattern_users:
                self._matches.use(text, group.group_id)
        self._search()

    def unload(self) -> None:
        self._matches.clear()
        self._outdated.clear()

    def deleted(self, group: ConsumerGroup) -> None:
        self._consumers.running.deadlines.clear((PATTERNS, group.group_id, ""))


def _named(sign: str, names: Iterable[str]) -> str:
    """+a +b +c and 7 more"""
    ordered = sorted(names)
    told = "".join(f" {sign}{name}" for name in ordered[:MAX_NAMED])
    return told + (f" and {len(ordered) - MAX_NAMED} more" if len(ordered) > MAX_NAMED else "")
