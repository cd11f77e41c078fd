"""Many groups at once: members, committed offsets and the ends of logs, in few requests.

A survey sends DescribeGroups, ConsumerGroupDescribe and OffsetFetch for up to `GROUPS` groups to their coordinator.
kohort tells the ends and the ages of the lags with the offsets, if a survey asks for the lag; the other ends are asked
with one ListOffsets to each leader. Brokers work at the same time, and each has one request of the survey at a time.
Offsets are read before ends, because a lag may be negative if they are read the other way round.

If a broker refuses one group, this group has an `error`; a partition whose offset is refused is left out. A broker that
does not answer fails the survey: nothing is retried here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kohort.client.admin.explanations import FIRST_VERSION, GroupExplanation, explanation_of
from kohort.client.admin.groups import (
    DEAD,
    SHARE,
    Committed,
    GroupDescription,
    ListedGroup,
    described,
    described_consumers,
    described_sharers,
)
from kohort.client.admin.lag import (
    GroupLag,
    OffsetsOfGroup,
    PartitionLag,
    answers,
    group_lag,
    has_no_room,
    offset_fetches,
    offsets_of,
)
from kohort.client.admin.share_groups import ShareOffsets, lag_of_shares, offsets_of_shares, share_offsets_request
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError, error_code
from kohort.client.metadata import NO_LEADER, Topic, TopicPartition
from kohort.client.records.partition_leaders import CONSUMER, LATEST
from kohort.client.wire.routing import GROUPS, in_pieces
from kohort.wire.embedded import CONSUMER_PROTOCOL, by_topic
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kohort.wire.schemas.offset_fetch import OffsetFetchResponse
from kohort.wire.schemas.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

EXPLAINED_STORIES = 1_000
"""Stories in one answer at most: a broker leaves out what goes beyond 16 MB."""
TOPICS_LAST_S = 30.0
"""Leaders and numbers of partitions are asked for again after this time."""
TIMEOUT_MS = 20_000
"""How long a leader may look for an offset in remote storage."""
CONSUMER_TYPE = "consumer"
SHARE_RANGES = 20
"""Ranges of records that are asked for, of each partition of a share group."""

Answer = TypeVar("Answer")
Requests = Mapping[int, Sequence[Any]]
"""By broker."""


@dataclass(frozen=True, slots=True)
class SurveyedGroup:
    """A group, its committed offsets, and with a journal why it is as it is. `error`: why the broker refused it.

    `lags` has the ends and the ages of one instant, if they were asked for and the coordinator is kohort; else None.
    """

    group: GroupDescription
    committed: Mapping[TopicPartition, Committed] = field(default_factory=dict)
    explanation: GroupExplanation | None = None
    error: str = ""
    lags: Mapping[TopicPartition, PartitionLag] | None = None
    shares: ShareOffsets | None = None
    """Of a share group, which has no committed offsets."""
    as_of_ms: int | None = None
    """The instant of `lags`, by the server's clock."""

    def unknown_ends(self) -> set[TopicPartition]:
        """The partitions whose end the coordinator has not told."""
        if self.shares is not None:
            return {place for place, one in self.shares.partitions.items() if one.records is None and not one.error}
        return (self.committed.keys() | self.group.owners().keys()) - (self.lags or {}).keys()


@dataclass(frozen=True, slots=True)
class Survey:
    """Groups in the order of the question.

    `at_ms` is this machine's clock; the others are seconds of a monotonic clock: when the offsets and the ends were
    read.
    """

    groups: Mapping[str, SurveyedGroup]
    ends: Mapping[TopicPartition, int]
    """Where the logs end, of partitions whose end no coordinator has told."""
    at_ms: int
    offsets_s: float
    ends_s: float
    has_journal: bool = False
    """Whether a coordinator has told stories."""

    def lag_of(self, one: SurveyedGroup) -> GroupLag:
        """Of each partition with a committed offset or an owner. Of a share group it is the number of unfinished
        records, and what is finished counts as committed."""
        if one.shares is not None:
            return lag_of_shares(one.shares, self.ends)
        found = OffsetsOfGroup(dict(one.committed), None if one.lags is None else dict(one.lags), one.as_of_ms)
        return group_lag(found, one.group.owners(), self.ends)


class Surveyor:
    """Takes surveys with one client. `stories` is the number of the newest stories of each group; -1: no stories.
    `with_lag` asks the coordinators for the lag; if they tell it, the leaders are not asked for the ends."""

    def __init__(self, cluster: Cluster, *, stories: int = -1, with_lag: bool = False) -> None:
        self._cluster = cluster
        self._with_lag = with_lag
        self._stories = stories
        self._journals: bool | None = None if stories >= 0 else False
        """Whether any coordinator keeps a journal; None: not known yet."""
        self._topics: dict[str, Topic] = {}
        self._topics_s = float("-inf")
        self.requests: Counter[str] = Counter()
        """How many requests of each kind there were."""

    def survey(self, listed: Sequence[ListedGroup]) -> Survey:
        """Raises ConnectionFailed, TimedOut, UnsupportedVersion."""
        at_ms = time.time_ns() // 1_000_000
        groups = self._describe(listed)
        self._fetch_offsets(listed, groups)
        self._fetch_share_offsets(listed, groups)
        offsets_s = time.monotonic()
        untold = {place for one in groups.values() for place in one.unknown_ends()}
        ends = self.offsets(sorted(untold))
        has_journal = any(one.explanation is not None for one in groups.values())
        if self._journals is None and groups:
            self._journals = has_journal
        return Survey(groups, ends, at_ms, offsets_s, time.monotonic(), has_journal)

    # -- groups

    def _describe(self, listed: Sequence[ListedGroup]) -> dict[str, SurveyedGroup]:
        found = {
            one.group_id: SurveyedGroup(
                GroupDescription(one.group_id, one.state, one.protocol_type, "", (), one.coordinator, one.type.lower())
            )
            for one in listed
        }
        explains = self._journals is not False
        asked = [one for one in listed if explains or one.type.lower() != CONSUMER_TYPE]
        self._describe_classic(_by_coordinator(asked), found, explains)
        consumers = [
            one
            for one in listed
            if one.type.lower() == CONSUMER_TYPE or (not one.type and found[one.group_id].group.state == DEAD)
        ]
        self._describe_of_type(
            consumers, found, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, described_consumers
        )
        shares = [one for one in listed if one.type.lower() == SHARE]
        self._describe_of_type(shares, found, ShareGroupDescribeRequest, ShareGroupDescribeResponse, described_sharers)
        return found

    def _describe_classic(
        self, groups: Mapping[int, list[str]], found: dict[str, SurveyedGroup], explains: bool
    ) -> None:
        stories = self._stories if explains else -1
        size = max(min(GROUPS, EXPLAINED_STORIES // max(stories, 1)), 1)
        requests = {
            node_id: [
                DescribeGroupsRequest(groups=tuple(ids), explain_last=stories if self._takes_stories(node_id) else -1)
                for ids in in_pieces(names, size)
            ]
            for node_id, names in groups.items()
        }
        for node_id, _, answer in self._ask(requests, DescribeGroupsResponse):
            for row in answer.groups:
                known = found.get(row.group_id)
                if known is None:
                    continue
                try:
                    group = described(row, row.group_id, node_id)
                except ServerError as error:
                    found[row.group_id] = SurveyedGroup(known.group, error=error.code.name)
                    continue
                if known.group.type in (CONSUMER_TYPE, SHARE):
                    group = known.group  # asked for its stories only
                explanation = explanation_of(row, group, self._cluster.connection(node_id).address)
                found[row.group_id] = SurveyedGroup(group, explanation=explanation)

    def _takes_stories(self, node_id: int) -> bool:
        return self._cluster.connection(node_id).version_of(DescribeGroupsRequest) >= FIRST_VERSION

    def _describe_of_type(
        self,
        groups: Iterable[ListedGroup],
        found: dict[str, SurveyedGroup],
        request_class: type[Any],
        answer_class: type[Any],
        read: Callable[[Any, int], GroupDescription],
    ) -> None:
        requests = self._requests(
            groups,
            request_class,
            lambda ids: request_class(group_ids=tuple(ids), include_authorized_operations=False),
        )
        for node_id, _, answer in self._ask(requests, answer_class):
            for row in answer.groups:
                known = found.get(row.group_id)
                if known is None or row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                    continue
                if row.error_code:
                    found[row.group_id] = SurveyedGroup(known.group, error=error_code(row.error_code).name)
                else:
                    found[row.group_id] = SurveyedGroup(read(row, node_id), explanation=known.explanation)

    # -- committed offsets, and those of share groups

    def _fetch_share_offsets(self, listed: Sequence[ListedGroup], found: dict[str, SurveyedGroup]) -> None:
        wanted = [one for one in listed if one.type.lower() == SHARE and not found[one.group_id].error]
        requests = self._requests(
            wanted, DescribeShareGroupOffsetsRequest, lambda ids: share_offsets_request(ids, SHARE_RANGES)
        )
        for node_id, _, answer in self._ask(requests, DescribeShareGroupOffsetsResponse):
            for row in answer.groups:
                known = found.get(row.group_id)
                if known is not None:
                    shares = offsets_of_shares(row, self._cluster.connection(node_id).address)
                    error = shares.error.name if shares.error else ""
                    found[row.group_id] = replace(known, shares=shares, error=error)

    def _fetch_offsets(self, listed: Sequence[ListedGroup], found: dict[str, SurveyedGroup]) -> None:
        consumers = (one for one in listed if one.protocol_type in ("", CONSUMER_PROTOCOL))
        asked = [one for one in consumers if not found[one.group_id].error]
        again = self._fetch_offsets_of(_by_coordinator(asked), GROUPS, found)
        self._fetch_offsets_of(_by_coordinator([one for one in asked if one.group_id in again]), 1, found)

    def _fetch_offsets_of(
        self, groups: Mapping[int, list[str]], size: int, found: dict[str, SurveyedGroup]
    ) -> set[str]:
        """Returns the groups for which there was no room in an answer."""
        requests = {
            node_id: [
                request
                for piece in in_pieces(names, size)
                for request in offset_fetches(piece, self._cluster.connection(node_id), with_lag=self._with_lag)
            ]
            for node_id, names in groups.items()
        }
        again = set()
        for _, request, answer in self._ask(requests, OffsetFetchResponse):
            rows = answers(request, answer)
            for group_id, row in rows:
                known = found.get(group_id)
                if known is None:
                    continue
                if has_no_room(row, len(rows)):
                    again.add(group_id)
                error = error_code(row.error_code).name if row.error_code else ""
                found[group_id] = SurveyedGroup(
                    known.group, explanation=known.explanation, error=error, **offsets_of(row)._asdict()
                )
        return again

    # -- offsets of logs

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Topics by name, at most `TOPICS_LAST_S` old. A name without a topic has its `error` set."""
        wanted = set(names)
        if time.monotonic() - self._topics_s > TOPICS_LAST_S:
            self._topics, self._topics_s = {}, time.monotonic()
        unknown = sorted(name for name in wanted if name not in self._topics or self._topics[name].error)
        if unknown:
            self.requests["Metadata"] += 1
            self._topics |= self._cluster.topics(unknown)
        return {name: self._topics[name] for name in wanted if name in self._topics}

    def offsets(
        self, places: Iterable[TopicPartition], at: int = LATEST, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The offset of each partition at a time in milliseconds, EARLIEST or LATEST; -1 if no record is as young.

        Leaves out partitions that do not exist, have no leader, or are refused.
        """
        wanted = list(places)
        nodes = self._cluster.nodes()
        leaders = {
            (topic.name, part.index): part.leader
            for topic in self.topics(name for name, _ in wanted).values()
            for part in topic.partitions
        }
        led: dict[int, list[TopicPartition]] = {}
        for place in wanted:
            if (leader := leaders.get(place, NO_LEADER)) in nodes:
                led.setdefault(leader, []).append(place)
        requests = {node_id: [_list_offsets(mine, at, read_committed)] for node_id, mine in led.items()}
        found = {}
        for _, _, answer in self._ask(requests, ListOffsetsResponse):
            for topic_row in answer.topics:
                for row in topic_row.partitions:
                    if not row.error_code:
                        found[topic_row.name, row.partition_index] = row.offset
                    else:
                        self._topics.pop(topic_row.name, None)
        return found

    # -- requests

    def _requests(
        self, groups: Iterable[ListedGroup], request_class: type[Any], request: Callable[[Sequence[str]], Any]
    ) -> Requests:
        """For the coordinators that serve this kind of request, up to `GROUPS` groups at a time."""
        return {
            node_id: [request(ids) for ids in in_pieces(names, GROUPS)]
            for node_id, names in _by_coordinator(groups).items()
            if self._cluster.connection(node_id).serves(request_class)
        }

    def _ask(self, requests: Requests, answer_class: type[Answer]) -> list[tuple[int, Any, Answer]]:
        """Every request with its broker and its answer."""
        answers: list[tuple[int, Any, Answer]] = []
        for turn in range(max(map(len, requests.values()), default=0)):
            asked = []
            try:
                for node_id, mine in requests.items():
                    if turn < len(mine):
                        connection = self._cluster.connection(node_id)
                        connection.send(mine[turn])
                        self.requests[type(mine[turn]).__name__.removesuffix("Request")] += 1
                        asked.append((node_id, connection, mine[turn]))
                while asked:
                    node_id, connection, request = asked[0]
                    answers.append((node_id, request, connection.receive(answer_class)))
                    del asked[0]
            finally:
                for _, connection, _ in asked:
                    connection.close()  # left early: its answer must not be read as the next one's
        return answers


def _by_coordinator(listed: Iterable[ListedGroup]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for one in listed:
        found.setdefault(one.coordinator, []).append(one.group_id)
    return found


def _list_offsets(places: Iterable[TopicPartition], at: int, read_committed: bool) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=int(read_committed),
        topics=tuple(
            ListOffsetsTopic(
                name=topic,
                partitions=tuple(ListOffsetsPartition(partition_index=index, timestamp=at) for index in indexes),
            )
            for topic, indexes in by_topic(places)
        ),
        timeout_ms=TIMEOUT_MS,
    )
