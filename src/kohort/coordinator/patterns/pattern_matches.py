"""Which of the present topics the patterns of a shard's groups match, as far as it has been looked at.

A pattern and a name are looked at once: when topics come, only they are; when topics go, nothing is. The looking is
asked for (`PatternsAsked`), one task a shard at a time with a bounded number of names; an answer may be about the first
of them only, and the patterns take turns, so an expensive one holds up nobody else for long. A pattern that no group
uses any more is remembered for a while, because groups come back with their pattern.

All of this is soft state: what a group's records say of its patterns is in consumer_patterns.py.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kohort.coordinator.events import PatternsAsked, PatternsResolved
from kohort.coordinator.topics import Topics

NAMES_A_TASK = 5_000
"""Of topics; each counts once for every pattern that it is compared with."""
MOST_UNUSED = 100
"""Patterns that are remembered although no group uses them."""


class _Resolution(msgspec.Struct):
    todo: tuple[str, ...]
    """Names that are still to be looked at, or handed out to be."""
    found: set[str] = msgspec.field(default_factory=set)
    groups: dict[str, None] = msgspec.field(default_factory=dict)
    """Who uses the pattern, in the order in which they came."""
    is_refused: bool = False
    """It is no pattern here, although the log has it: another coordinator took it."""


class Resolutions:
    def __init__(self) -> None:
        self._topics = Topics()
        self._known: dict[str, _Resolution] = {}
        self._unused: dict[str, None] = {}
        """Patterns, the one that was used last at the end."""
        self._waiting: dict[str, None] = {}
        """Patterns in use with something to do, in the order of their turns."""
        self._asked: PatternsAsked | None = None
        self._last_number = 0

    def knows(self, text: str) -> bool:
        """Whether this is a pattern that was found valid."""
        known = self._known.get(text)
        return known is not None and not known.is_refused

    def users(self, texts: Iterable[str]) -> list[str]:
        """The groups that use any of the patterns."""
        return list(dict.fromkeys(group for text in texts if text in self._known for group in self._known[text].groups))

    def matched(self, text: str) -> frozenset[str] | None:
        """The topics that the pattern matches; None while that is not known of all topics."""
        known = self._known.get(text)
        if known is None or known.todo or known.is_refused:
            return None
        return frozenset(known.found)

    def is_refused(self, text: str) -> bool:
        known = self._known.get(text)
        return known is not None and known.is_refused

    # -- what changes

    def use(self, text: str, group_id: str) -> None:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = _Resolution(tuple(self._topics.by_name))
        known.groups[group_id] = None
        self._unused.pop(text, None)
        self._queue(text, known)

    def release(self, text: str, group_id: str) -> None:
        known = self._known.get(text)
        if known is None or known.groups.pop(group_id, self) is self or known.groups:
            return
        self._waiting.pop(text, None)
        self._unused[text] = None
        while len(self._unused) > MOST_UNUSED:
            oldest = next(iter(self._unused))
            del self._unused[oldest], self._known[oldest]

    def change_topics(self, topics: Topics, names: Iterable[str] | None) -> list[str]:
        """The topics are these now; `names`: what changed, if known. Returns the patterns of which a topic is gone."""
        before, after = self._topics.by_name, topics.by_name
        touched = list(names) if names is not None else [*before, *after]
        created = tuple(dict.fromkeys(name for name in touched if name in after and name not in before))
        deleted = frozenset(name for name in touched if name in before and name not in after)
        self._topics = topics
        affected = []
        for text, known in self._known.items():
            if not deleted.isdisjoint(known.found):
                affected.append(text)
                known.found -= deleted
            if known.todo and deleted:
                known.todo = tuple(name for name in known.todo if name not in deleted)
            if not known.is_refused:
                known.todo += created
            self._queue(text, known)
        return affected

    def _queue(self, text: str, known: _Resolution) -> None:
        if known.todo and known.groups:
            self._waiting[text] = None
        else:
            self._waiting.pop(text, None)

    def clear(self) -> None:
        """The shard's coordinator is elsewhere. An answer that is still to come is of no use."""
        for everything in (self._known, self._unused, self._waiting):
            everything.clear()
        self._asked = None

    # -- the looking

    def ask(self) -> PatternsAsked | None:
        """The next task, if there is something to do and none under way."""
        if self._asked is not None or not self._waiting:
            return None
        asked = []
        room = NAMES_A_TASK
        for text in list(self._waiting):
            names = self._known[text].todo[:room]
            asked.append((text, names))
            room -= len(names)
            del self._waiting[text]
            self._waiting[text] = None
            if room <= 0:
                break
        self._last_number += 1
        self._asked = PatternsAsked(self._last_number, tuple(asked))
        return self._asked

    def resolved(self, event: PatternsResolved) -> list[str]:
        """The answer to the task under way. Returns the patterns of which all is known now."""
        task = self._asked
        if task is None or task.number != event.number:
            return []
        self._asked = None
        complete = []
        for (text, names), found in zip(task.asked, event.found, strict=True):
            known = self._known.get(text)
            if known is None:
                continue
            if found is None:
                known.is_refused = True
                known.todo = ()
            else:
                known.found.update(name for name in found.names if name in self._topics.by_name)
                known.todo = _without(known.todo, names[: found.looked_at])
            self._queue(text, known)
            if not known.todo and known.groups:
                complete.append(text)
        return complete


def _without(todo: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    if todo[: len(names)] == names:
        return todo[len(names) :]
    gone = frozenset(names)
    return tuple(name for name in todo if name not in gone)
