"""A story of the journal as lanes: a member each, with what it did when. Times are milliseconds from the start.

A member of a classic group owns its partitions until it rejoins, and waits from then until the rebalance ends; in
between the story does not say when it gave them up, so the whole time before it rejoins is "gives up". A member of a
consumer group has steps: told to give partitions up, gave them up, waits for partitions of others, has got them.

A chart has at most MOST_LANES lanes. If there are more members, it has those that the others waited for longest, and
one lane for the rest. A story names at most 200 members, and before its end only those that have taken steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kohort.cli.groups.timeline import VERBS, happened
from kohort.cli.groups.wording import Document, Names, partitions, people_of
from kohort.cli.output import plural

MOST_LANES = 50
LEFT_LANES = 20
"""Lanes of single members if there are more than MOST_LANES."""

Kind = Literal["owns", "gives-up", "waits"]
KINDS: tuple[Kind, ...] = ("owns", "gives-up", "waits")


@dataclass(frozen=True, slots=True)
class Bar:
    kind: Kind
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Mark:
    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Band:
    """A phase of the rebalance."""

    name: str
    start_ms: int
    end_ms: int
    ended_by: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    host: str = ""
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()
    owned_before: bool = False
    owns_after: bool = False
    awaited_ms: int = 0
    """How long the others waited for it, as the story says."""
    awaited_how: str = ""
    late_ms: int = 0
    """When it was ready: an order among members that nobody is named to have waited for."""
    count: int | None = None
    """Partitions at the end."""
    gained: str = ""
    lost: str = ""
    state: str = ""
    """While the rebalance runs: the member's state."""
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    length_ms: int
    bands: tuple[Band, ...]
    lanes: tuple[Lane, ...]
    rest: Lane | None
    """The members that have no lane of their own."""
    marks: tuple[Mark, ...]
    """Causes that belong to no lane."""
    running: bool
    table: tuple[Lane, ...] = field(default_factory=tuple)
    """All members that the story names."""


def chart_of(story: Document, status: Document | None, now_ms: int) -> Chart:
    """`status` is the group's state now, for a story that is not over."""
    running = not story.get("outcome")
    took = story.get("took_ms")
    length = max(int(now_ms - story["started_ms"]) if running or took is None else int(took), 1)
    if took is None and not running:
        length = max(sum(phase.get("took_ms") or 0 for phase in story.get("phases", ())), 1)
    names = Names([*people_of([story]), *((status or {}).get("members", ()) if running else ())])
    is_consumer = story.get("group_type") == "consumer"
    lane_of = _consumer_lane if is_consumer else _classic_lane
    lanes = {_key(member): lane_of(member, names, length) for member in story.get("members", ())}
    for member in story.get("gone", ()):
        lane = lane_of(member, names, length)
        bars = lane.bars or (Bar("owns", 0, length),)
        lanes[_key(member)] = replace(lane, bars=bars, gone=True, owned_before=True, owns_after=False)
    if running and status is not None:
        for member in status.get("members", ()):
            key = _key(member)
            lanes[key] = _running(lanes.get(key, Lane(names.of(member), host_of(member))), member, length)
    for who in story.get("held_up_by", ()):
        key = _key(who)
        owned = (Bar("owns", 0, length),)
        lane = lanes.get(key) or Lane(names.of(who), host_of(who), owned, owned_before=True, gone=True)
        waited, how = who.get("waited_ms", 0), who.get("how", "")
        lanes[key] = replace(lane, awaited_ms=max(lane.awaited_ms, waited), awaited_how=how)
    happenings = [story.get("cause", {}), *story.get("happenings", ())]
    left_over = []
    for happening in happenings:
        if not happening.get("what"):
            continue
        mark = Mark(min(happening.get("after_ms", 0), length), happened(happening, names, consumers=is_consumer))
        key = _key(happening)
        if key in lanes:
            lanes[key] = _marked(lanes[key], mark)
        else:
            left_over.append(mark)
    ordered = sorted(lanes.values(), key=lambda lane: (-lane.awaited_ms, -lane.late_ms, lane.name))
    unnamed = max((story.get("members_count") or 0) - len(story.get("members", ())), 0)
    shown, rest = _split(ordered, unnamed, length)
    return Chart(length, _bands(story, length), shown, rest, tuple(left_over), running, tuple(ordered))


def _key(document: Document) -> str:
    return str(document.get("instance_id") or document.get("member_id") or "")


def host_of(document: Document) -> str:
    return str(document.get("host", "")).removeprefix("/")


def _bands(story: Document, length: int) -> tuple[Band, ...]:
    found, at = [], 0
    for phase in story.get("phases", ()):
        took = phase.get("took_ms")
        end = length if took is None else min(at + int(took), length)
        found.append(Band(phase.get("phase", "?"), at, end, phase.get("ended_by", "")))
        at = end
    return tuple(found)


def _keeps(member: Document) -> bool:
    """Whether it owns partitions that it owned before."""
    return bool(member.get("partitions", 0) > sum(map(len, member.get("gained", {}).values())))


def _had_before(member: Document) -> bool:
    return bool(member.get("lost")) or _keeps(member)


def _lane(member: Document, names: Names, bars: Iterable[Bar], late_ms: int) -> Lane:
    return Lane(
        names.of(member),
        host_of(member),
        tuple(bar for bar in bars if bar.end_ms > bar.start_ms),
        owned_before=_had_before(member),
        owns_after=member.get("partitions", 0) > 0,
        late_ms=late_ms,
        count=member.get("partitions", 0),
        gained=partitions(member.get("gained")),
        lost=partitions(member.get("lost")),
    )


def _classic_lane(member: Document, names: Names, length: int) -> Lane:
    joined = member.get("joined_after_ms")
    if joined is None:  # gone, or the time is not known
        bars = [Bar("gives-up", 0, length)] if _had_before(member) else []
        return _lane(member, names, bars, 0)
    joined = min(joined, length)
    before = [Bar("gives-up", 0, joined)] if _had_before(member) else []
    return _lane(member, names, [*before, Bar("waits", joined, length)], joined)


def _consumer_lane(member: Document, names: Names, length: int) -> Lane:
    steps: Mapping[str, int] = member.get("steps", {})
    told, waited_after, got = steps.get("told_after_ms"), steps.get("waited_after_ms"), steps.get("got_after_ms")
    bars: list[Bar] = []
    gave_up = 0
    owns_from = 0 if _had_before(member) else None
    if told is not None:
        gave_up = min(steps.get("revoked_after_ms", length), length)
        bars += [Bar("owns", 0, told), Bar("gives-up", told, gave_up)]
        owns_from = gave_up if _keeps(member) else None
    if waited_after is not None:
        bars.append(Bar("waits", max(waited_after, gave_up), length if got is None else min(got, length)))
    elif got is not None and owns_from is None:
        bars.append(Bar("waits", gave_up, min(got, length)))
    if owns_from is None:
        owns_from = got
    if owns_from is not None and member.get("partitions", 0) > 0:
        bars.append(Bar("owns", owns_from, length))
    late = max(steps.get("gave_up_in_ms") or 0, 0)
    return _lane(member, names, bars, late)


def _running(lane: Lane, member: Document, length: int) -> Lane:
    """A lane with the member's present state. What the status does not say, as when a member joined, has no bar."""
    state, waited = member.get("state", ""), member.get("waited_ms")
    bars = lane.bars
    if state in VERBS and waited is not None:
        bars = (*bars, Bar("gives-up", max(length - waited, 0), length))
    elif state == "waits for partitions" and not any(bar.kind == "waits" for bar in bars):
        bars = (*bars, Bar("waits", 0, length))
    awaited = waited if state in VERBS and waited is not None else lane.awaited_ms
    return replace(lane, bars=bars, state=state, awaited_ms=awaited, awaited_how=state if state in VERBS else "")


def _marked(lane: Lane, mark: Mark) -> Lane:
    bars = lane.bars
    if lane.gone:  # what it had, it had until it went
        bars = tuple(replace(bar, end_ms=min(bar.end_ms, mark.at_ms)) for bar in bars if bar.start_ms < mark.at_ms)
    return replace(lane, marks=(*lane.marks, mark), bars=bars)


def _split(lanes: Sequence[Lane], unnamed: int, length: int) -> tuple[tuple[Lane, ...], Lane | None]:
    if len(lanes) <= MOST_LANES:
        others: Sequence[Lane] = ()
        shown = tuple(lanes)
    else:
        shown, others = tuple(lanes[:LEFT_LANES]), lanes[LEFT_LANES:]
    count = len(others) + unnamed
    if not count:
        return shown, None
    return shown, Lane(f"{plural(count, 'other member')}, from the first to the last", bars=_merged(others))


def _merged(lanes: Sequence[Lane]) -> tuple[Bar, ...]:
    """For each kind of bar, from its first beginning to its last end."""
    found = []
    for kind in KINDS:
        own = [bar for lane in lanes for bar in lane.bars if bar.kind == kind]
        if own:
            found.append(Bar(kind, min(bar.start_ms for bar in own), max(bar.end_ms for bar in own)))
    return tuple(found)
