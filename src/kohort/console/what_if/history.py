"""The stories of a journal as changes that the simulator can play: who joined, left or died, and when.

A member that comes back is the same one: the same instance id, or the same client id on the same host. The journal does
not know the session timeout of a classic group: it is the longest silence after which a session expired, or else the
clients' default. How long a member needs to give partitions up is the median of what the journal has of it.

A run is limited: the newest changes of at most MOST_MEMBERS members, with the quiet time between them cut. What is left
out, and what is no change of a member, is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import median
from typing import Literal

from kohort.cli.groups.wording import Document, Names, as_document, people_of
from kohort.client.admin.groups import GroupMember

Protocol = Literal["eager", "cooperative", "consumer"]
Key = tuple[str, str]
"""The instance id, or the client id and the host: it stays when a process is started again."""

DEFAULT_SESSION_MS = 45_000
MOST_CHANGES = 8
MOST_MEMBERS = 8
MOST_PARTITIONS_EACH = 6
QUIET_MS = 12_000
"""The time after a change, if nobody is away: longer ones are cut to it, and to three times the slowest member's."""
MOST_SLOW_MS = 60_000
NOTABLE_MS = 100
DEPARTURES: dict[str, Literal["leaves", "dies"]] = {"member left": "leaves", "session expired": "dies"}
FOLLOW_UPS = ("subscription changed", "leader rejoined", "static member returned")
"""Causes of rebalances that follow from another one."""
CHANGES = ("member joined", *DEPARTURES)


@dataclass(frozen=True, slots=True)
class Change:
    """`member` is its number in the run. `story` is the number of the rebalance; `returns`: it came, or comes, back
    within its session timeout, so a static member would have kept its partitions."""

    at_ms: int
    what: Literal["joins", "leaves", "dies"]
    member: int
    story: int
    name: str
    returns: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """What can be played, and what the journal says of the same time."""

    protocol: Protocol
    is_static: bool
    """Members have instance ids."""
    session_ms: int
    session_known: bool
    members: int
    """When the run begins."""
    partitions: int
    changes: tuple[Change, ...]
    gaps_ms: tuple[int, ...]
    """Before each change: as they were, or cut."""
    slow_ms: dict[int, int]
    """How long a member needs to give partitions up, by its number."""
    began_ms: int
    rebalances: int
    """Since the first change."""
    took_ms: int
    """All of them together."""
    avoidable: tuple[int, ...]
    """Numbers of those that static members would have avoided."""
    scaled: bool
    """The group has more members than are played."""
    others: Counter[str] = field(default_factory=Counter)
    """Causes of rebalances that are not played."""


class NothingToPlay(ValueError):
    """The message says why."""


def history_of(stories: Sequence[Document], members: Sequence[GroupMember]) -> History:
    """Raises NothingToPlay."""
    rebalances = [story for story in stories if story.get("outcome") != "noted"]
    events = _events(rebalances)
    if not events:
        raise NothingToPlay("The journal has no member of this group that joined, left or whose session expired.")
    newest = rebalances[-1]
    session_ms, session_known = _session_ms(rebalances)
    roster = _Roster(Names([*people_of(rebalances), *map(as_document, members)]), session_ms)
    events = events[-MOST_CHANGES:]
    own_changes = roster.changes(events)
    began_ms = events[0].at_ms
    since = [story for story in rebalances if story["number"] >= min(event.story for event in events)]
    slowness = _slowness(since)
    played, all_at_first = _played(roster, members, slowness)
    everybody = [*played, *roster.later]
    total = _partitions(since, members)
    share = len(everybody) / (all_at_first + len(roster.later))
    partitions = min(max(round(total * share), 1), len(everybody) * MOST_PARTITIONS_EACH)
    slow = {number: slowness[key] for number, key in enumerate(everybody) if key in slowness}
    changes = roster.renumbered(own_changes, len(played))
    return History(
        _protocol_of(newest),
        any(member.group_instance_id for member in members) or any(event.person.get("instance_id") for event in events),
        session_ms,
        session_known,
        max(len(played), 1),
        partitions,
        changes,
        _gaps(changes, max(QUIET_MS, 3 * max(slow.values(), default=0)), session_ms),
        slow,
        began_ms,
        len(since),
        sum(int(story.get("took_ms") or 0) for story in since),
        _avoidable(since, changes),
        all_at_first > len(played) or partitions < total,
        Counter(
            story.get("cause", {}).get("what", "?")
            for story in since
            if story.get("cause", {}).get("what") not in (*CHANGES, *FOLLOW_UPS)
        ),
    )


def _played(roster: _Roster, members: Iterable[GroupMember], slowness: Mapping[Key, int]) -> tuple[list[Key], int]:
    """The members that are there at first, those without changes after the others and the slowest of them first; and
    how many the group had."""
    steady = sorted(
        (_key(as_document(member)) for member in members if member.member_id not in roster.known),
        key=lambda key: -slowness.get(key, 0),
    )
    at_first = [*roster.at_first, *steady[: max(MOST_MEMBERS - roster.count, 0)]]
    return at_first, len(roster.at_first) + len(steady)


def _partitions(stories: Iterable[Document], members: Iterable[GroupMember]) -> int:
    told = max((story.get("partitions_count") or 0 for story in stories), default=0)
    return told or sum(len(indexes) for member in members for indexes in member.assigned.values())


# -- events


@dataclass(frozen=True, slots=True)
class _Event:
    at_ms: int
    what: Literal["joins", "leaves", "dies"]
    story: int
    person: Document


def _events(stories: Iterable[Document]) -> list[_Event]:
    """In order of time. A session that expired is a death at the time when the silence began."""
    found: dict[tuple[str, str], _Event] = {}
    for story in stories:
        for happening in (story.get("cause", {}), *story.get("happenings", ())):
            what, member_id = happening.get("what"), happening.get("member_id", "")
            if what not in CHANGES or not member_id:
                continue
            at_ms = story["started_ms"] + happening.get("after_ms", 0)
            if what == "session expired":
                at_ms -= happening.get("waited_ms") or DEFAULT_SESSION_MS
            event = _Event(at_ms, "joins" if what == "member joined" else DEPARTURES[what], story["number"], happening)
            found.setdefault((event.what, member_id), event)
    return sorted(found.values(), key=lambda event: event.at_ms)


def _session_ms(stories: Iterable[Document]) -> tuple[int, bool]:
    silent = [
        happening["waited_ms"]
        for story in stories
        for happening in (story.get("cause", {}), *story.get("happenings", ()))
        if happening.get("what") == "session expired" and happening.get("waited_ms")
    ]
    return (min(max(max(silent), 6_000), 300_000), True) if silent else (DEFAULT_SESSION_MS, False)


def _protocol_of(story: Document) -> Protocol:
    if story.get("group_type") == "consumer":
        return "consumer"
    return "cooperative" if "cooperative" in story.get("protocol", "") else "eager"


# -- members


@dataclass(slots=True)
class _Slot:
    """A place in the group that one member has after the other: a process that is started again."""

    key: Key
    at_first: bool
    member_ids: list[str]
    is_here: bool = True
    left_ms: int = 0


class _Roster:
    def __init__(self, names: Names, session_ms: int) -> None:
        self._names = names
        self._session_ms = session_ms
        self._slots: list[_Slot] = []
        self.known: set[str] = set()
        """Member ids of the events."""

    @property
    def at_first(self) -> list[Key]:
        """Those that were there before the first event."""
        return [slot.key for slot in self._slots if slot.at_first]

    @property
    def later(self) -> list[Key]:
        return [slot.key for slot in self._slots if not slot.at_first]

    @property
    def count(self) -> int:
        return len(self._slots)

    def changes(self, events: Iterable[_Event]) -> list[Change]:
        made: list[Change] = []
        for event in events:
            member_id = str(event.person.get("member_id", ""))
            self.known.add(member_id)
            key = _key(event.person)
            returns = False
            if event.what == "joins":
                number = self._coming(key)
                slot = self._slots[number] if number is not None else None
                if slot is None:
                    self._slots.append(_Slot(key, False, [member_id]))
                    number = len(self._slots) - 1
                else:
                    assert number is not None
                    returns = event.at_ms - slot.left_ms <= self._session_ms
                    slot.is_here = True
                    slot.member_ids.append(member_id)
                    before = max(at for at, change in enumerate(made) if change.member == number)
                    made[before] = replace(made[before], returns=returns)
            else:
                number = self._going(key, member_id)
                if number is None:
                    self._slots.append(_Slot(key, True, [member_id]))
                    number = len(self._slots) - 1
                slot = self._slots[number]
                slot.is_here, slot.left_ms = False, event.at_ms
            assert number is not None
            made.append(Change(event.at_ms, event.what, number, event.story, self._names.of(event.person), returns))
        return made

    def renumbered(self, changes: Iterable[Change], played: int) -> tuple[Change, ...]:
        """With the simulator's numbers: those that are there at first, from 0; from `played` on those that come."""
        first, later = count(), count(played)
        numbers = [next(first if slot.at_first else later) for slot in self._slots]
        return tuple(replace(change, member=numbers[change.member]) for change in changes)

    def _coming(self, key: Key) -> int | None:
        away = [number for number, slot in enumerate(self._slots) if slot.key == key and not slot.is_here]
        return max(away, key=lambda number: self._slots[number].left_ms, default=None)

    def _going(self, key: Key, member_id: str) -> int | None:
        here = [number for number, slot in enumerate(self._slots) if slot.is_here and slot.key == key]
        exact = [number for number in here if member_id in self._slots[number].member_ids]
        return next(iter(exact or here), None)


def _key(person: Document) -> Key:
    if person.get("instance_id"):
        return ("", str(person["instance_id"]))
    return (str(person.get("client_id") or person.get("member_id", "")), str(person.get("host", "")))


def _slowness(stories: Iterable[Document]) -> dict[Key, int]:
    """The median of the times that a member needed to give partitions up, in milliseconds, where it is notable."""
    times: dict[Key, list[int]] = {}
    for story in stories:
        caused = {event.get("member_id") for event in (story.get("cause", {}), *story.get("happenings", ()))}
        for member in story.get("members", ()):
            took = member.get("steps", {}).get("gave_up_in_ms")
            if story.get("group_type") != "consumer" and member.get("member_id") not in caused:
                took = member.get("joined_after_ms")
            if took is not None:
                times.setdefault(_key(member), []).append(int(took))
    medians = {key: min(int(median(took)), MOST_SLOW_MS) for key, took in times.items()}
    return {key: took for key, took in medians.items() if took >= NOTABLE_MS}


# -- the run


def _gaps(changes: Sequence[Change], quiet_ms: int, session_ms: int) -> tuple[int, ...]:
    """Before each change. While somebody is away the time counts, up to the end of its session."""
    gaps, away, before = [], set[int](), changes[0].at_ms - 1_000
    for change in changes:
        most = session_ms + 5_000 if away else quiet_ms
        gaps.append(min(max(change.at_ms - before, 1), most))
        before = change.at_ms
        if change.what == "joins":
            away.discard(change.member)
        elif change.returns:
            away.add(change.member)
    return tuple(gaps)


def _avoidable(stories: Iterable[Document], changes: Iterable[Change]) -> tuple[int, ...]:
    """Rebalances whose changes are all restarts within the session, and those that only follow from them."""
    by_story: dict[int, list[Change]] = {}
    for change in changes:
        by_story.setdefault(change.story, []).append(change)
    found: list[int] = []
    before_avoided = False
    for story in stories:
        own = by_story.get(story["number"], [])
        what = story.get("cause", {}).get("what")
        if own:
            avoided = all(change.returns for change in own) and what in (*CHANGES, *FOLLOW_UPS)
        else:
            avoided = before_avoided and what in FOLLOW_UPS
        if avoided:
            found.append(story["number"])
        before_avoided = avoided
    return tuple(found)
