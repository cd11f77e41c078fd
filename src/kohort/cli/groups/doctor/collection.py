"""What the rules need, from the cluster: two surveys of the groups, and a few requests for all of their partitions.

kohort tells how long the oldest unread records have waited. Elsewhere, ListOffsets tells the first offset that is not
older than each of AGES_MS, by the records' timestamps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kohort.cli.groups.doctor.case import AGES_MS, WAITING_MS, Case
from kohort.cli.groups.lookup import selected
from kohort.cli.option_objects import near_word
from kohort.cli.output import plural
from kohort.cli.stable_offsets import StableEnd, stable_ends
from kohort.client.admin.configs import ResourceType
from kohort.client.admin.groups import ListedGroup
from kohort.client.admin.lag import GroupLag, PartitionLag
from kohort.client.admin.survey import Survey, SurveyedGroup, Surveyor
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError, UnsupportedVersion
from kohort.client.metadata import Topic, TopicPartition
from kohort.client.records.partition_leaders import EARLIEST
from kohort.spark.history.limits import MINUTE
from kohort.wire.errors import ErrorCode

STORIES = 50
"""As many as a kohort server keeps of a group by default."""
RETENTION = "offsets.retention.minutes"
NO_JOURNAL = (
    "the coordinators show no journal, because they are not kohort or this user may not DESCRIBE the cluster: who "
    "causes rebalances, members that are removed again and again, for whom others waited, assignors that change, "
    "offsets that expire"
)


@dataclass(frozen=True, slots=True)
class Collected:
    cases: Sequence[Case]
    seconds: float
    """Between the surveys."""
    not_seen: Sequence[str]
    """What could not be looked at, and why."""


def collect(
    cluster: Cluster,
    names: Sequence[str],
    listed: Sequence[ListedGroup],
    seconds: float,
    sleep: Callable[[float], object] = time.sleep,
) -> Collected:
    """Look at groups for some seconds. `listed` are those of the first survey. Raises KafkaError."""
    first = first_survey(cluster, listed)
    sleep(seconds)
    return second_survey(cluster, selected(cluster, names, shares=True), first)


def first_survey(cluster: Cluster, listed: Sequence[ListedGroup]) -> Survey:
    return Surveyor(cluster, with_lag=True).survey(listed)


def second_survey(cluster: Cluster, listed: Sequence[ListedGroup], first: Survey) -> Collected:
    """Of all or some of the groups of the first one, seconds later."""
    surveyor = Surveyor(cluster, stories=STORIES, with_lag=True)
    second = surveyor.survey(listed)
    lags = {group_id: second.lag_of(one) for group_id, one in second.groups.items() if not one.error}
    known = [second.groups[group_id] for group_id in lags]
    lagging = [
        (place, one)
        for group_id, lag in lags.items()
        if second.groups[group_id].shares is None
        for place, one in lag.partitions.items()
        if one.lag
    ]
    now_ms = time.time_ns() // 1_000_000
    untold = sorted({place for place, one in lagging if one.lag_ms is None})
    younger = {age_ms: surveyor.offsets(untold, now_ms - age_ms) for age_ms in AGES_MS}
    starts = surveyor.offsets(sorted({place for one in known for place in one.committed}), EARLIEST)
    topics = surveyor.topics({topic for one in known for topic in _topics_of(one)})
    retention_ms, why_not = _retention(cluster, known)
    stable = _stable(cluster, surveyor, lagging, younger[WAITING_MS])
    missing = _missing(cluster, topics, known)
    partitions_of = {name: len(topic.partitions) for name, topic in topics.items() if not topic.error}
    cases = [
        Case(
            first.groups.get(group_id, second.groups[group_id]),
            second.groups[group_id],
            second.offsets_s - first.offsets_s,
            now_ms=now_ms,
            ends_before=_ends(first.lag_of(before)) if (before := first.groups.get(group_id)) is not None else {},
            ends=_ends(lag),
            starts=starts,
            ages_ms={place: found.lag_ms for place, found in lag.partitions.items() if found.lag_ms is not None},
            younger=younger,
            stable=stable,
            partitions_of=partitions_of,
            missing_topics=missing,
            retention_ms=retention_ms,
        )
        for group_id, lag in lags.items()
    ]
    not_seen = [*_refused(second.groups.values()), *_without_end(lags.values(), missing)]
    if known and not second.has_journal:
        not_seen.insert(0, NO_JOURNAL)
    elif why_not:
        not_seen.append(why_not)
    return Collected(cases, second.offsets_s - first.offsets_s, not_seen)


def _ends(lag: GroupLag) -> dict[TopicPartition, int]:
    return {place: one.end for place, one in lag.partitions.items() if one.end is not None}


def _topics_of(one: SurveyedGroup) -> set[str]:
    return {topic for topic, _ in one.committed}.union(*(member.subscribed for member in one.group.members))


def _missing(cluster: Cluster, topics: Mapping[str, Topic], groups: Iterable[SurveyedGroup]) -> dict[str, str | None]:
    """The topics that do not exist, with the name that was probably meant where a member subscribes to them."""
    gone = [name for name, topic in topics.items() if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    subscribed = {topic for one in groups for member in one.group.members for topic in member.subscribed}
    existing = cluster.topics() if subscribed.intersection(gone) else {}
    return {name: near_word(name, existing) for name in gone}


def _stable(
    cluster: Cluster,
    surveyor: Surveyor,
    lagging: Sequence[tuple[TopicPartition, PartitionLag]],
    younger: Mapping[TopicPartition, int],
) -> dict[TopicPartition, StableEnd]:
    """Last stable offsets before the end whose record is older than WAITING_MS, with the transactions there."""
    untold = {place for place, one in lagging if one.stable_end is None}
    asked = surveyor.offsets(sorted(untold), read_committed=True)
    old: dict[TopicPartition, int] = {}
    for place, one in lagging:
        stable = one.stable_end if one.stable_end is not None else asked.get(place, -1)
        if one.end is None or one.committed is None or not 0 <= stable < one.end:
            continue
        # The age of a lag is that of the record at the last stable offset if the group has read up to there.
        told_ms = one.lag_ms if one.committed.offset == stable else None
        first = younger.get(place)
        if (told_ms or 0) > WAITING_MS or (first is not None and (first < 0 or stable < first)):
            old[place] = one.end
    return stable_ends(cluster, old) if old else {}


def _retention(cluster: Cluster, groups: Iterable[SurveyedGroup]) -> tuple[int | None, str]:
    """The brokers' setting in milliseconds, or why it is not known. Asked only if a group's offsets may expire."""
    statuses = (one.explanation.status or {} for one in groups if one.explanation is not None and one.committed)
    if not any(status.get("phase") == "Empty" for status in statuses):
        return None, ""
    try:
        entries = cluster.configs_of(ResourceType.BROKER, str(min(cluster.nodes())))
    except (ServerError, UnsupportedVersion) as error:
        return None, f"when offsets expire: {error.message}"
    value = next((entry.value for entry in entries if entry.name == RETENTION), None)
    if value is None or not value.isdecimal():
        return None, f"when offsets expire: the brokers do not tell {RETENTION}"
    return int(value) * MINUTE, ""


def _refused(groups: Iterable[SurveyedGroup]) -> list[str]:
    by_error: dict[str, list[str]] = {}
    for one in groups:
        if one.error:
            by_error.setdefault(one.error, []).append(one.group.group_id)
    return [
        f"{plural(len(ids), 'group')}, because of {error}: {', '.join(ids[:3])}{' …' if len(ids) > 3 else ''}"
        for error, ids in by_error.items()
    ]


def _without_end(lags: Iterable[GroupLag], missing: Mapping[str, str | None]) -> list[str]:
    places = {
        place
        for lag in lags
        for place, one in lag.partitions.items()
        if one.committed is not None and one.end is None and place[0] not in missing
    }
    if not places:
        return []
    return [f"the lag of {plural(len(places), 'partition')} that have no leader, do not exist, or may not be described"]
