"""Which of the present topics the patterns of a shard's groups match, as far as the search has come.

A pattern is compared with a name once. So new topics are compared alone, and deleted topics cost nothing. The search is
done outside the shard (`PatternsAsked`), one task a shard at a time with a limited number of names. A result may cover
only the first names, and the patterns take turns, so an expensive pattern does not delay the others for long. A pattern
that no group uses any more is kept for a while, because groups often return with their pattern.

All of this is soft state; consumer/pattern_subscriptions.py has what a group's records say of its patterns.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kohort.coordinator.events import PatternsAsked, PatternsResolved
from kohort.coordinator.topics import Topics

NAMES_A_TASK = 5_000
"""Topic names in one task; a name counts once for every pattern that it is compared with."""
MOST_UNUSED = 100
"""Patterns that are kept although no group uses them."""


class _Search(msgspec.Struct):
    todo: tuple[str, ...]
    """Names that are still to be compared, those of the running task included."""
    found: set[str] = msgspec.field(default_factory=set)
    groups: dict[str, None] = msgspec.field(default_factory=dict)
    """The groups that use the pattern, in the order in which they came."""
    is_refused: bool = False
    """The pattern is invalid here, although the log has it: another coordinator accepted it."""


class PatternMatches:
    def __init__(self) -> None:
        self._topics = Topics()
        self._known: dict[str, _Search] = {}
        self._unused: dict[str, None] = {}
        """Unused patterns, the most recently used last."""
        self._waiting: dict[str, None] = {}
        """Patterns in use with names to compare, in the order of their turns."""
        self._task: PatternsAsked | None = None
        self._last_number = 0

    def is_valid(self, text: str) -> bool:
        """True if this pattern is in use, or was lately, and is valid."""
        known = self._known.get(text)
        return known is not None and not known.is_refused

    def users(self, texts: Iterable[str]) -> list[str]:
        """The groups that use any of the patterns."""
        return list(dict.fromkeys(group for text in texts if text in self._known for group in self._known[text].groups))

    def matched(self, text: str) -> frozenset[str] | None:
        """The topics that the pattern matches; None until it has been compared with all topics."""
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
            known = self._known[text] = _Search(tuple(self._topics.by_name))
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
        """Replace the topics. `names`: those that changed, if known. Returns the patterns that lost a topic."""
        if not self._known:  # most shards: there are many, and a turn may create many topics
            self._topics = topics
            return []
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

    def _queue(self, text: str, known: _Search) -> None:
        if known.todo and known.groups:
            self._waiting[text] = None
        else:
            self._waiting.pop(text, None)

    def clear(self) -> None:
        """The shard is unloaded. The result of the running task will be ignored."""
        for everything in (self._known, self._unused, self._waiting):
            everything.clear()
        self._task = None

    # -- the search

    def next_task(self) -> PatternsAsked | None:
        """The next task; None if there are no names to compare or a task is running."""
        if self._task is not None or not self._waiting:
            return None
        searches = []
        room = NAMES_A_TASK
        for text in list(self._waiting):
            names = self._known[text].todo[:room]
            searches.append((text, names))
            room -= len(names)
            del self._waiting[text]
            self._waiting[text] = None
            if room <= 0:
                break
        self._last_number += 1
        self._task = PatternsAsked(self._last_number, tuple(searches))
        return self._task

    def take(self, event: PatternsResolved) -> list[str]:
        """Take the result of the running task. Returns the patterns that have been compared with all topics."""
        task = self._task
        if task is None or task.number != event.number:
            return []
        self._task = None
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
