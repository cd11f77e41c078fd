"""Subscriptions by regular expression (KIP-848): what the patterns of a group match is a record of it.

    heartbeat with a pattern ──► valid? ──► known what it matches? ──► group epoch, target
                                   128          no: asked for ──► PatternsResolved ──► group epoch, target

A pattern is checked in the step of the heartbeat that brings it, and compared with the topics elsewhere; until then its
member is told to come back soon, and keeps what it has. Names and a pattern add up. A pattern that somebody in the
group uses already is known at once, and so is one that another group of the shard uses (resolutions.py).

When topics come, the patterns are compared with those; a group takes the outcome in at most once an assignment
interval, because its record holds all the names. Topics that are deleted count no more from that moment. The record of
a pattern goes with its last subscriber.

Unlike Kafka, a pattern matches no internal topics, and there is no refresh by time: nothing but topics can change what
a pattern matches where there are no ACLs. Source: ConsumerGroup.java, GroupMetadataManager.java (maybeUpdate…,
handleRegularExpressionsResult).
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.config import Config
from kohort.coordinator.consumer.group import ConsumerGroup, Pattern, pattern_value
from kohort.coordinator.consumer.soft_state import PATTERNS, RunningConsumers
from kohort.coordinator.consumer.target import Targets
from kohort.coordinator.events import Millis, PatternsResolved
from kohort.coordinator.patterns.pattern_matches import Resolutions
from kohort.coordinator.patterns.regex import problem_of
from kohort.coordinator.records import regex_record
from kohort.coordinator.topics import Topics

NAMES_TOLD = 5
"""Of topics, in the journal; further ones are counted."""


class Patterns:
    def __init__(self, config: Config, consumers: RunningConsumers, targets: Targets) -> None:
        self._config = config
        self._consumers = consumers
        self._targets = targets
        self._resolutions = Resolutions()
        self._outdated: list[str] = []
        """Patterns of which a topic is gone."""

    def problem_of(self, group: ConsumerGroup | None, member_id: str, text: str) -> str:
        """Why the member cannot subscribe with this; "" when it can."""
        used = group.pattern_users if group is not None else {}
        if text in used:
            return ""
        member = group.members.get(member_id) if group is not None else None
        gives_up = member is not None and used.get(member.subscribed_topic_regex or "") == 1
        others = len(used) - gives_up
        if others >= self._config.group_consumer_regex_max_patterns:
            return f"The group has {others} other regular expressions: group.consumer.regex.max.patterns."
        if self._resolutions.knows(text):
            return ""
        problem = problem_of(text, self._config.group_consumer_regex_max_length)
        return f"{text[:100]!r} is no regular expression that is served: {problem}" if problem else ""

    # -- members

    def changed(self, group: ConsumerGroup, former: str | None, now_has: str | None, now: Millis) -> None:
        """A member's pattern is another one, or it is gone with its pattern. To be told after the member's record."""
        if former and former != now_has:
            self._release(group, former)
        if now_has:
            self._resolutions.use(now_has, group.group_id)
            if now_has not in group.patterns:
                self._take_in(group, now_has, now)
            self._ask()

    def _release(self, group: ConsumerGroup, text: str) -> None:
        if text in group.pattern_users:
            return
        self._resolutions.release(text, group.group_id)
        if text in group.patterns:
            self._consumers.emit(regex_record(group.group_id, text, None))

    # -- topics

    def topics_are(self, topics: Topics, names: Iterable[str] | None) -> None:
        """`names`: what changed, if known."""
        self._outdated += self._resolutions.change_topics(topics, names)

    def topics_changed(self, now: Millis) -> list[ConsumerGroup]:
        """Returns the groups for which that may have changed something."""
        groups = self._refreshed_users(self._outdated, now)
        self._outdated.clear()
        return groups

    def resolved(self, event: PatternsResolved, now: Millis) -> list[ConsumerGroup]:
        """Returns what `topics_changed` returns."""
        return self._refreshed_users(self._resolutions.resolved(event), now)

    def _refreshed_users(self, texts: Iterable[str], now: Millis) -> list[ConsumerGroup]:
        groups = [self._consumers.groups[group_id] for group_id in self._resolutions.users(texts)]
        for group in groups:
            self._refresh(group, now)
        self._ask()
        return groups

    def due(self, group: ConsumerGroup, now: Millis) -> None:
        """What the group's patterns match may be taken in again."""
        self._refresh(group, now)

    def _refresh(self, group: ConsumerGroup, now: Millis) -> None:
        """Take in what is known of all patterns of the group; what is not new to it, at most once an interval."""
        known = self._consumers.of(group)
        due = known.patterns_ms + self._consumers.settings(group).assignment_interval_ms
        changes = False
        for text in group.pattern_users:
            if text not in group.patterns:
                changes |= self._take_in(group, text, now)
            elif not self._differs(group, text):
                continue
            elif now < due:
                self._consumers.running.deadlines.set((PATTERNS, group.group_id, ""), due)
            else:
                known.patterns_ms = now
                changes |= self._take_in(group, text, now)
        if changes:
            self._targets.bump(group, now, "its regular expressions match other topics")

    def _differs(self, group: ConsumerGroup, text: str) -> bool:
        matched = self._resolutions.matched(text)
        return matched is not None and group.patterns[text].topics != matched

    def _take_in(self, group: ConsumerGroup, text: str, now: Millis) -> bool:
        """Write what the pattern matches into the group, if that is known. Returns whether its members' subscriptions
        are others by that."""
        known = group.patterns.get(text)
        matched = self._resolutions.matched(text)
        if self._resolutions.is_refused(text) and known is None:
            matched = frozenset()
        if matched is None or (known is not None and known.topics == matched):
            return False
        topics = self._consumers.topics
        pattern = Pattern(matched, topics.version, now)
        self._consumers.emit(regex_record(group.group_id, text, pattern_value(pattern)))
        before = known.topics & topics.by_name.keys() if known is not None else frozenset()
        if matched != before:
            self._consumers.note(
                group, "topics matched", f"{text}:{_told('+', matched - before)}{_told('-', before - matched)}"
            )
            return True
        if known is None:
            self._consumers.note(group, "topics matched", f"{text}: none")
            return any(
                group.targets.get(m) for m, value in group.members.items() if value.subscribed_topic_regex == text
            )
        return False

    def _ask(self) -> None:
        task = self._resolutions.ask()
        if task is not None:
            self._consumers.running.out.tasks.append(task)

    # -- load, unload, deletion

    def load(self) -> None:
        """What the log says of the patterns holds until they are compared with all topics, which begins now."""
        for group in self._consumers.groups.values():
            self._forget_unused(group)
            for text in group.pattern_users:
                self._resolutions.use(text, group.group_id)
        self._ask()

    def _forget_unused(self, group: ConsumerGroup) -> None:
        """Patterns without subscribers are only in logs that others wrote."""
        for text in sorted(group.patterns.keys() - group.pattern_users.keys()):
            self._consumers.emit(regex_record(group.group_id, text, None))

    def unload(self) -> None:
        self._resolutions.clear()
        self._outdated.clear()

    def deleted(self, group: ConsumerGroup) -> None:
        """To be told before the group's own record goes."""
        self._consumers.running.deadlines.clear((PATTERNS, group.group_id, ""))


def _told(sign: str, names: Iterable[str]) -> str:
    """+a +b +c and 7 more"""
    ordered = sorted(names)
    told = "".join(f" {sign}{name}" for name in ordered[:NAMES_TOLD])
    return told + (f" and {len(ordered) - NAMES_TOLD} more" if len(ordered) > NAMES_TOLD else "")
