"""Which of the present topics the patterns of a shard's groups match, as far as the search has come.

A pattern is compared with a name once. So new topics are compared alone, and deleted topics cost nothing. All patterns
share one list of names, and each knows how far it has come: a new topic costs little, however many patterns are behind.
The search is done outside the shard (`PatternsAsked`), one task a shard at a time with a limited number of names and
patterns. A result may cover only the first names, and the patterns take turns, so an expensive pattern does not delay
the others for long. A pattern that no group uses any more is kept for a while, because groups often return with their
pattern.

All of this is soft state; consumer/pattern_subscriptions.py has what a group's records say of its patterns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice

import msgspec

from kohort.coordinator.events import Found, PatternsAsked, PatternsResolved
from kohort.coordinator.topics import Topics

NAMES_A_TASK = 2_500
"""Topic names in one task; a name counts once for every pattern that it is compared with."""
PATTERNS_A_TASK = 100
MOST_UNUSED = 100
"""Patterns that are kept although no group uses them."""
MOST_UNUSED_MATCHES = 4_000
"""Of all of these. They do not count for `group.max.total.bytes`."""
MATCH_BYTES = 64
"""About the memory of a name in the matches of a pattern."""


class _Search(msgspec.Struct):
    next: int = 0
    """The place in the list of names up to which the pattern has been compared."""
    found: set[str] = msgspec.field(default_factory=set)
    """Matches, until the pattern has been compared with all topics."""
    matched: frozenset[str] | None = None
    """Matches, from then on."""
    groups: dict[str, None] = msgspec.field(default_factory=dict)
    """The groups that use the pattern, in the order in which they came."""
    is_refused: bool = False
    """The pattern is invalid here, although the log has it: another coordinator accepted it."""

    def matches(self) -> set[str] | frozenset[str]:
        return self.found if self.matched is None else self.matched


class _Part(msgspec.Struct, frozen=True):
    """What the running task compares with one pattern."""

    begin: int
    ends: tuple[int, ...]
    """The place in the list behind each of the task's names."""


class PatternMatches:
    def __init__(self) -> None:
        self._topics = Topics()
        self._names: list[str] = []
        """Present topics, in the order in which they came, and some that are gone. A topic that was created again may
        be there twice. Empty while there are no patterns."""
        self._known: dict[str, _Search] = {}
        self._unused: dict[str, None] = {}
        """Unused patterns, the most recently used last."""
        self._waiting: dict[str, None] = {}
        """Patterns in use with names to compare, in the order of their turns."""
        self._task: PatternsAsked | None = None
        self._parts: tuple[_Part, ...] = ()
        self._topics_of_task = self._topics
        self._last_number = 0

    @property
    def size(self) -> int:
        """About the bytes of all matches of patterns in use. A pattern that is behind counts as if it matched all
        topics."""
        topics = len(self._topics.by_name)
        used = [search.matched for search in self._known.values() if search.groups]
        return MATCH_BYTES * sum(topics if matched is None else len(matched) for matched in used)

    def size_of_new(self, text: str) -> int:
        """About the bytes that the pattern may add."""
        known = self._known.get(text)
        return 0 if known is not None and known.groups else MATCH_BYTES * len(self._topics.by_name)

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
        if known is None or known.is_refused or self._is_behind(known):
            return None
        if known.matched is None:
            known.matched, known.found = frozenset(known.found), set()
        return known.matched

    def is_refused(self, text: str) -> bool:
        known = self._known.get(text)
        return known is not None and known.is_refused

    # -- what changes

    def use(self, text: str, group_id: str) -> None:
        if not self._known:
            self._names = list(self._topics.by_name)
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = _Search()
        known.groups[group_id] = None
        self._unused.pop(text, None)
        self._queue(text, known)

    def release(self, text: str, group_id: str) -> None:
        known = self._known.get(text)
        if known is None or known.groups.pop(group_id, self) is self or known.groups:
            return
        self._waiting.pop(text, None)
        self._unused[text] = None
        self._forget_unused()

    def _forget_unused(self) -> None:
        matches = sum(len(self._known[text].matches()) for text in self._unused)
        while len(self._unused) > MOST_UNUSED or matches > MOST_UNUSED_MATCHES:
            oldest = next(iter(self._unused))
            matches -= len(self._known[oldest].matches())
            del self._unused[oldest], self._known[oldest]

    def change_topics(self, topics: Topics, names: Iterable[str] | None) -> list[str]:
        """Replace the topics. `names`: those that changed, if known. Returns the patterns that lost a topic."""
        before, after = self._topics.by_name, topics.by_name
        self._topics = topics
        if not self._known:  # most shards: there are many, and a turn may create many topics
            return []
        touched = list(names) if names is not None else [*before, *after]
        self._names += dict.fromkeys(name for name in touched if name in after and name not in before)
        deleted = frozenset(name for name in touched if name in before and name not in after)
        affected = []
        for text, known in self._known.items():
            if deleted and not deleted.isdisjoint(known.matches()):
                affected.append(text)
                if known.matched is None:
                    known.found -= deleted
                else:
                    known.matched -= deleted
            self._queue(text, known)
        if self._task is None and len(self._names) > 2 * len(after) + NAMES_A_TASK:
            self._tidy()
        return affected

    def _tidy(self) -> None:
        """Take names that are gone, and the first of two places, out of the list."""
        last = {name: place for place, name in enumerate(self._names) if name in self._topics.by_name}
        kept = sorted(last.values())
        for known in self._known.values():
            known.next = bisect_left(kept, known.next)
        self._names = [self._names[place] for place in kept]

    def _is_behind(self, known: _Search) -> bool:
        names, present = self._names, self._topics.by_name
        while known.next < len(names) and names[known.next] not in present:
            known.next += 1
        return known.next < len(names)

    def _queue(self, text: str, known: _Search) -> None:
        if known.groups and not known.is_refused and self._is_behind(known):
            self._waiting[text] = None
        else:
            self._waiting.pop(text, None)

    def clear(self) -> None:
        """The shard is unloaded. The result of the running task will be ignored."""
        for everything in (self._known, self._unused, self._waiting, self._names):
            everything.clear()
        self._task = None

    # -- the search

    def next_task(self) -> PatternsAsked | None:
        """The next task; None if there are no names to compare or a task is running."""
        if self._task is not None or not self._waiting:
            return None
        searches, parts = [], []
        room = NAMES_A_TASK
        for text in list(islice(self._waiting, PATTERNS_A_TASK)):
            names, part = self._part(self._known[text], room)
            searches.append((text, names))
            parts.append(part)
            room -= len(names)
            del self._waiting[text]
            self._waiting[text] = None
            if room <= 0:
                break
        self._last_number += 1
        self._task = PatternsAsked(self._last_number, tuple(searches))
        self._parts = tuple(parts)
        self._topics_of_task = self._topics
        return self._task

    def _part(self, known: _Search, most: int) -> tuple[tuple[str, ...], _Part]:
        """The next names that the pattern is compared with."""
        names, ends = [], []
        for place in range(known.next, len(self._names)):
            if (name := self._names[place]) in self._topics.by_name:
                names.append(name)
                ends.append(place + 1)
                if len(names) == most:
                    break
        return tuple(names), _Part(known.next, tuple(ends))

    def take(self, event: PatternsResolved) -> list[str]:
        """Take the result of the running task. Returns the patterns that have been compared with all topics."""
        task = self._task
        if task is None or task.number != event.number:
            return []
        self._task = None
        complete = []
        for (text, _), part, found in zip(task.asked, self._parts, event.found, strict=True):
            known = self._known.get(text)
            if known is None:
                continue
            if found is None:
                known.is_refused = True
            else:
                self._take(known, part, found)
            self._queue(text, known)
            if known.groups and (known.is_refused or not self._is_behind(known)):
                complete.append(text)
        self._forget_unused()  # one of them may have matched more
        return complete

    def _take(self, known: _Search, part: _Part, found: Found) -> None:
        present = set(found.names)
        if self._topics is not self._topics_of_task:
            present = {name for name in present if name in self._topics.by_name}
        if not present <= known.matches():
            if known.matched is not None:
                known.found, known.matched = set(known.matched), None
            known.found |= present
        if found.looked_at and part.begin <= known.next:
            known.next = max(known.next, part.ends[found.looked_at - 1])
