"""Surveys to figures: lag and its course, rates in and out, the time to catch up, partitions that do not move.

Rates are means over the last `WINDOW_S`, since most consumers commit every few seconds. A partition is stuck if its
committed offset has not moved for `STUCK_S` while there was lag. The lag in time is what kohort tells; of other servers
it is an estimate from where the logs ended in earlier surveys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from kohort.cli.groups.last_owners import last_owners
from kohort.cli.groups.timeline import REBALANCING
from kohort.cli.groups.wording import Names, as_document, people_of
from kohort.client.admin.commit_metadata import group_reader_of
from kohort.client.admin.end_times import EndTimes
from kohort.client.admin.groups import Committed, GroupDescription, GroupMember
from kohort.client.admin.lag import GroupLag, PartitionLag
from kohort.client.admin.share_groups import ShareOffset
from kohort.client.admin.survey import Survey, SurveyedGroup
from kohort.client.metadata import TopicPartition

WINDOW_S = 30.0
STUCK_S = 10.0
LAGS_KEPT = 60
"""Surveys in the course of a lag."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a group or a partition. None is unknown: no committed offset, or only one survey."""

    lag: int | None = None
    lags: tuple[int | None, ...] = ()
    """The course of the lag, the newest last."""
    rate_in: float | None = None
    """Records a second, written and committed."""
    rate_out: float | None = None
    catch_up_s: float | None = None
    """Until the lag is 0 at these rates; infinite if it does not shrink."""
    lag_ms: int | None = None
    """The age of the first record that is not committed; of a group, the largest of its partitions."""
    is_told: bool = False
    """Whether the server tells the age; else it is an estimate."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    topic: str
    partition: int
    committed: int | None
    """Of a share group: the start offset."""
    end: int | None
    owner: str
    """The member and its host, or the Spark query in the offset's metadata; empty if nobody is known. In a share group
    what members hold."""
    figures: Figures
    unmoved_s: float | None = None
    """Since when the committed offset has not moved although there is lag."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Partitions of one owner whose committed offsets do not move."""

    owner: str
    places: tuple[TopicPartition, ...]
    for_s: float
    """The longest."""
    lag: int
    last: str = ""
    """Of partitions without an owner: the last one, and what became of it, if the journal knows."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    group: str
    state: str
    type: str
    assignor: str
    members: int
    partitions: int
    """With a committed offset or an owner."""
    without_offset: int
    """Partitions that have an owner and records, and no committed offset."""
    figures: Figures
    stuck: tuple[Stuck, ...] = ()
    error: str = ""
    parts: tuple[PartitionRow, ...] = ()
    """Only if one group is watched."""

    @property
    def is_rebalancing(self) -> bool:
        return self.state in REBALANCING


class _Point(NamedTuple):
    committed_s: float
    committed: int
    """Records committed since the first survey."""
    written_s: float
    written: int


@dataclass(slots=True)
class _Meter:
    points: deque[_Point] = field(default_factory=deque)
    lags: deque[int | None] = field(default_factory=lambda: deque(maxlen=LAGS_KEPT))

    def add(self, survey: Survey, committed: int, written: int, lag: int | None) -> None:
        """`committed` and `written`: how many records since the survey before."""
        last = self.points[-1] if self.points else _Point(0, 0, 0, 0)
        self.points.append(_Point(survey.offsets_s, last.committed + committed, survey.ends_s, last.written + written))
        while len(self.points) > 2 and self.points[1].committed_s <= survey.offsets_s - WINDOW_S:
            self.points.popleft()
        self.lags.append(lag)

    def figures(self) -> Figures:
        lag = self.lags[-1]
        first, last = self.points[0], self.points[-1]
        if lag is None or len(self.points) < 2 or last.committed_s <= first.committed_s:
            return Figures(lag, tuple(self.lags))
        rate_out = (last.committed - first.committed) / (last.committed_s - first.committed_s)
        rate_in = (last.written - first.written) / (last.written_s - first.written_s)
        if lag == 0:
            catch_up: float | None = 0.0
        elif rate_out > rate_in:
            catch_up = lag / (rate_out - rate_in)
        else:  # a consumer may be between two commits
            catch_up = inf if rate_out or last.committed_s - first.committed_s >= STUCK_S else None
        return Figures(lag, tuple(self.lags), rate_in, rate_out, catch_up)


class Trends:
    """Folds surveys into rows; with rows of partitions too where there is one group."""

    def __init__(self) -> None:
        self._groups: dict[str, _Meter] = {}
        self._places: dict[tuple[str, TopicPartition], _Meter] = {}
        self._before: dict[str, GroupLag] = {}
        """The lags of the survey before."""
        self._end_times = EndTimes()
        self._unmoved: dict[tuple[str, TopicPartition], float] = {}
        """Since when a committed offset has not moved although there was lag."""

    def rows(self, survey: Survey) -> list[GroupRow]:
        """The worst lag first; groups without a known lag last."""
        gone = self._groups.keys() - survey.groups.keys()
        for group_id in gone:
            del self._groups[group_id]
        if len(survey.groups) != 1:
            self._places.clear()
        self._end_times.note(survey.at_ms, survey.ends)
        lags = {
            group_id: self._with_ages(survey, survey.lag_of(one), is_shared=one.shares is not None)
            for group_id, one in survey.groups.items()
        }
        self._note_unmoved(survey, lags)
        rows = [self._row(survey, one, lags[group_id]) for group_id, one in survey.groups.items()]
        self._before = lags
        return sorted(rows, key=lambda row: (row.figures.lag is None, -(row.figures.lag or 0), row.group))

    def _with_ages(self, survey: Survey, lag: GroupLag, *, is_shared: bool) -> GroupLag:
        if lag.as_of_ms is not None or is_shared:
            return lag  # the offset of the first unfinished record does not tell its age
        estimated = {}
        for place, one in lag.partitions.items():
            age_ms = None
            if one.committed is not None and one.end is not None:
                age_ms = self._end_times.age_ms(place, one.committed.offset, one.end, survey.at_ms)
            estimated[place] = replace(one, lag_ms=age_ms)
        return GroupLag(estimated, None)

    def _note_unmoved(self, survey: Survey, lags: Mapping[str, GroupLag]) -> None:
        unmoved = {}
        for group_id, lag in lags.items():
            for place, one in lag.partitions.items():
                if one.lag and one.committed is not None:
                    key = group_id, place
                    is_same = self._earlier(group_id, place) == one.committed.offset
                    unmoved[key] = self._unmoved.get(key, survey.offsets_s) if is_same else survey.offsets_s
        self._unmoved = unmoved

    def _earlier(self, group_id: str, place: TopicPartition) -> int | None:
        """The committed offset in the survey before."""
        before = self._before.get(group_id)
        found = before.partitions.get(place) if before is not None else None
        return None if found is None or found.committed is None else found.committed.offset

    def _row(self, survey: Survey, one: SurveyedGroup, lag: GroupLag) -> GroupRow:
        group, places = one.group, lag.partitions
        meter = self._groups.setdefault(group.group_id, _Meter())
        owners = group.owners()
        is_told = lag.as_of_ms is not None
        steps = [self._steps(group.group_id, place, found) for place, found in places.items()]
        committed, written = sum(step[0] for step in steps), sum(step[1] for step in steps)
        meter.add(survey, committed, written, lag.total)
        names = Names([as_document(member) for member in group.members])
        who = {place: _owner(owners.get(place), found.committed, names) for place, found in places.items()}
        shared = one.shares.partitions if one.shares is not None else {}
        who |= {place: in_flight_words(found, names, group) for place, found in shared.items()}
        parts = (
            tuple(
                self._part(survey, group.group_id, place, found, who[place], step, is_told=is_told)
                for (place, found), step in zip(places.items(), steps, strict=True)
            )
            if len(survey.groups) == 1
            else ()
        )
        parts = tuple(
            replace(part, committed=shared[part.topic, part.partition].start)
            if (part.topic, part.partition) in shared
            else part
            for part in parts
        )
        return GroupRow(
            group.group_id,
            group.state,
            group.type,
            group.protocol,
            len(group.members),
            len(places),
            0 if shared else sum(places[place].committed is None and bool(places[place].end) for place in owners),
            replace(meter.figures(), lag_ms=lag.worst_ms, is_told=is_told),
            self._stuck(survey, one, lag, who),
            one.error,
            tuple(sorted(parts, key=lambda row: (-(row.figures.lag or 0), row.topic, row.partition))),
        )

    def _steps(self, group_id: str, place: TopicPartition, now: PartitionLag) -> tuple[int, int]:
        """Records committed and written since the survey before. Steps back do not count."""
        before = self._before.get(group_id)
        earlier = before.partitions.get(place) if before is not None else None
        if earlier is None or earlier.committed is None or now.committed is None:
            return 0, 0
        written = 0 if earlier.end is None or now.end is None else max(now.end - earlier.end, 0)
        return max(now.committed.offset - earlier.committed.offset, 0), written

    def _part(
        self,
        survey: Survey,
        group_id: str,
        place: TopicPartition,
        found: PartitionLag,
        owner: str,
        step: tuple[int, int],
        *,
        is_told: bool,
    ) -> PartitionRow:
        meter = self._places.setdefault((group_id, place), _Meter())
        meter.add(survey, *step, found.lag)
        since = self._unmoved.get((group_id, place))
        return PartitionRow(
            *place,
            None if found.committed is None else found.committed.offset,
            found.end,
            owner,
            replace(meter.figures(), lag_ms=found.lag_ms, is_told=is_told),
            None if since is None else survey.offsets_s - since,
        )

    def _stuck(
        self, survey: Survey, one: SurveyedGroup, lag: GroupLag, who: Mapping[TopicPartition, str]
    ) -> tuple[Stuck, ...]:
        """By owner, the largest lag first."""
        group_id = one.group.group_id
        by_owner: dict[str, list[tuple[TopicPartition, float]]] = {}
        for place in lag.partitions:
            since = self._unmoved.get((group_id, place))
            if since is not None and survey.offsets_s - since >= STUCK_S:
                by_owner.setdefault(who[place], []).append((place, survey.offsets_s - since))
        found = [
            Stuck(
                owner,
                tuple(place for place, _ in places),
                max(for_s for _, for_s in places),
                sum(lag.partitions[place].lag or 0 for place, _ in places),
                "" if owner or one.shares is not None else _last(one, [place for place, _ in places]),
            )
            for owner, places in by_owner.items()
        ]
        return tuple(sorted(found, key=lambda stuck: -stuck.lag))


def in_flight_words(found: ShareOffset, names: Names, group: GroupDescription) -> str:
    """`worker-1 holds 5`, `3 members hold 50`; empty if nothing is in flight, or if it is not known."""
    holders = (found.records or {}).get("holders", {})
    records = sum(one["records"] for one in holders.values())
    if len(holders) != 1:
        return f"{len(holders)} members hold {records}" if holders else ""
    [member_id] = holders
    member = next((one for one in group.members if one.member_id == member_id), None)
    return f"{names.of(as_document(member)) if member is not None else member_id} holds {records}"


def _last(one: SurveyedGroup, places: Sequence[TopicPartition]) -> str:
    stories = one.explanation.stories if one.explanation is not None else ()
    return "; ".join(owner.why for owner in last_owners(stories, places, Names(people_of(stories)))[:1])


def _owner(member: GroupMember | None, committed: Committed | None, names: Names) -> str:
    if member is not None:
        return names.with_host(as_document(member))
    reader = group_reader_of(committed.metadata) if committed is not None and committed.metadata else None
    return "" if reader is None else str(reader)
