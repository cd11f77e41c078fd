"""Share groups as an operator sees them (KIP-932): offsets and lag, what is in flight, and how to change it.

Members come with `Cluster.describe_groups`. Start offsets and lag are Kafka's (API 90, Kafka 4.1 and later; the lag
since 4.2). What is in flight, what was archived and why are JSON of kohort's (docs/wire-extensions.md): other brokers
leave it out. The same is true of records that are delivered again.

`release` gives back what a member holds. Kafka has no request for that, but any client may open a share session in the
name of a member, and close it: the broker then gives back what this member holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kohort.client.admin.groups import Committed
from kohort.client.admin.lag import GroupLag, PartitionLag
from kohort.client.errors import BadAnswer, check, error_code
from kohort.client.metadata import TopicPartition
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import Router
from kohort.wire.embedded import by_topic
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.alter_share_group_offsets import (
    NOT_SET,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    NewOffset,
    NewOffsetsTopic,
    OffsetRange,
)
from kohort.wire.schemas.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    NamedTopic,
)
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribedOffsetsGroup,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    OffsetsAskedGroup,
)
from kohort.wire.schemas.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse

Document = dict[str, Any]
PIECE = 10
"""Partitions of one request that delivers records again, or sets offsets."""
NO_RECORDS = -1
OPENS, CLOSES = 0, -1
"""Epochs of a share session's first and last request."""


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """A share-partition. `start` and `lag` are None if they are not known: nobody has read the partition yet, or the
    broker does not tell its lag. `records` is what only kohort tells, documented in `kohort.broker.shares.reports`."""

    start: int | None
    lag: int | None = None
    leader_epoch: int = 0
    records: Document | None = None
    error: ErrorCode = ErrorCode.NONE

    @property
    def in_flight(self) -> int | None:
        """Records that members hold."""
        return None if self.records is None else self.records.get("in_flight_records", 0)


@dataclass(frozen=True, slots=True)
class ShareOffsets:
    """What a group has of each partition that it reads. `error`: why the broker refused the group."""

    partitions: Mapping[TopicPartition, ShareOffset] = field(default_factory=dict)
    error: ErrorCode = ErrorCode.NONE

    @property
    def lag(self) -> int | None:
        """Unfinished records; None if no partition's is known."""
        known = [one.lag for one in self.partitions.values() if one.lag is not None]
        return sum(known) if known else None

    @property
    def tells_records(self) -> bool:
        """Whether the server is kohort."""
        return any(one.records is not None for one in self.partitions.values())


def lag_of_shares(offsets: ShareOffsets, ends: Mapping[TopicPartition, int]) -> GroupLag:
    """The unfinished records as a lag: what is finished counts as committed. `ends`: of partitions whose end the
    coordinator does not tell."""
    found = {}
    for place, one in offsets.partitions.items():
        end = one.records["log_end"] if one.records is not None else ends.get(place)
        finished = Committed(end - one.lag) if end is not None and one.lag is not None else None
        found[place] = PartitionLag(finished, end)
    return GroupLag(found, None)


class ShareGroups:
    """`Cluster.share_groups`."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def offsets(self, group_ids: Iterable[str], *, ranges: int = NO_RECORDS) -> dict[str, ShareOffsets]:
        """Of all partitions that have a state in these groups; none for a group that does not exist.

        `ranges`: how many ranges of each kind the server tells of each partition; 0: counts only, -1: nothing but
        Kafka's. Raises UnsupportedVersion (before Kafka 4.1), ServerError."""

        def ask(asked: Sequence[str], connection: Connection) -> dict[str, ShareOffsets]:
            answer = connection.request(share_offsets_request(asked, ranges), DescribeShareGroupOffsetsResponse)
            for row in answer.groups:
                if row.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                    check(row.error_code, f"offsets of share group {row.group_id}", row.error_message)
            return {row.group_id: offsets_of_shares(row, connection.address) for row in answer.groups}

        return self._router.at_coordinators(group_ids, ask)

    def set_offsets(self, group_id: str, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, ErrorCode]:
        """Set the start offsets of a group without members. Everything from there on is delivered again.

        Returns the refused partitions, and why. Raises ServerError (NON_EMPTY_GROUP), UnsupportedVersion."""
        wanted = {
            place: NewOffset(partition_index=place[1], start_offset=start) for place, start in sorted(starts.items())
        }
        return self._alter(group_id, wanted)[1]

    def redeliver(
        self, group_id: str, ranges: Mapping[TopicPartition, Sequence[tuple[int, int]]]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ErrorCode]]:
        """Make finished records available again: ranges of first and last offset by partition.

        Only kohort does this: call it if `offsets` has told `records`. Returns how many records became available, and
        the refused partitions. Raises ServerError, UnsupportedVersion."""
        wanted = {
            (topic, index): NewOffset(
                partition_index=index,
                start_offset=NOT_SET,
                redeliver=tuple(OffsetRange(first_offset=first, last_offset=last) for first, last in mine),
            )
            for (topic, index), mine in sorted(ranges.items())
        }
        return self._alter(group_id, wanted)

    def _alter(
        self, group_id: str, wanted: Mapping[TopicPartition, NewOffset]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ErrorCode]]:
        done: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, ErrorCode] = {}
        places = list(wanted)
        for start in range(0, len(places), PIECE):
            piece = places[start : start + PIECE]
            request = AlterShareGroupOffsetsRequest(
                group_id=group_id,
                topics=tuple(
                    NewOffsetsTopic(topic_name=name, partitions=tuple(wanted[name, index] for index in indexes))
                    for name, indexes in by_topic(piece)
                ),
            )

            def ask(connection: Connection, request: AlterShareGroupOffsetsRequest = request) -> None:
                answer = connection.request(request, AlterShareGroupOffsetsResponse)
                check(answer.error_code, f"cannot change offsets of group {group_id}", answer.error_message)
                for topic in answer.responses:
                    for row in topic.partitions:
                        place = topic.topic_name, row.partition_index
                        if row.error_code:
                            refused[place] = error_code(row.error_code)
                        else:
                            done[place] = row.redelivered

            self._router.at_coordinator(group_id, ask)
        return done, refused

    def delete_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, ErrorCode]:
        """Forget what a group without members has of these topics. Returns the refused topics, and why."""
        request = DeleteShareGroupOffsetsRequest(
            group_id=group_id, topics=tuple(NamedTopic(topic_name=name) for name in topics)
        )

        def ask(connection: Connection) -> dict[str, ErrorCode]:
            answer = connection.request(request, DeleteShareGroupOffsetsResponse)
            check(answer.error_code, f"cannot delete offsets of group {group_id}", answer.error_message)
            return {row.topic_name: error_code(row.error_code) for row in answer.responses if row.error_code}

        return self._router.at_coordinator(group_id, ask)

    def release(
        self, group_id: str, member_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Give back what a member holds in these partitions. The member's session ends: its next request fails, it
        opens another one, and its acknowledgements of these records are refused. Returns the refused partitions.

        Raises ServerError, UnsupportedVersion."""
        left = list(partitions)
        refused: dict[TopicPartition, ErrorCode] = {}

        def attempt() -> None:
            led, without = self._router.by_leader(left, f"release records of group {group_id}")
            for error in without.values():
                raise error
            for node_id, mine in led.items():
                refused.update(self._release_at(self._router.connection(node_id), group_id, member_id, mine))
                left[:] = [place for place in left if place not in mine]

        self._router.retrying(attempt)
        return refused

    def _release_at(
        self, connection: Connection, group_id: str, member_id: str, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        topics = {name: self._router.view.topics[name] for name, _ in places}
        names = {topic.topic_id: name for name, topic in topics.items()}
        what = f"cannot release records of member {member_id} of group {group_id}"
        refused: dict[TopicPartition, ErrorCode] = {}
        asked = tuple(
            FetchTopic(
                topic_id=topics[name].topic_id or bytes(16),
                partitions=tuple(FetchPartition(partition_index=index) for index in indexes),
            )
            for name, indexes in by_topic(places)
        )
        for request in release_requests(group_id, member_id, asked):
            answer = connection.request(request, ShareFetchResponse)
            check(answer.error_code, what, answer.error_message)
            for topic in answer.responses:
                for row in topic.partitions:
                    if row.error_code and topic.topic_id in names:
                        refused[names[topic.topic_id], row.partition_index] = error_code(row.error_code)
        return refused


# -- requests and answers, for surveys too


def release_requests(
    group_id: str, member_id: str, topics: tuple[FetchTopic, ...]
) -> tuple[ShareFetchRequest, ShareFetchRequest]:
    """Open a session of the member anew, which ends its own one, and close it: its records are released."""
    made = partial(
        ShareFetchRequest,
        group_id=group_id,
        member_id=member_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=0,
        max_records=0,
        batch_size=1,
    )
    return made(share_session_epoch=OPENS, topics=topics), made(share_session_epoch=CLOSES, topics=())


def share_offsets_request(group_ids: Iterable[str], ranges: int) -> DescribeShareGroupOffsetsRequest:
    groups = tuple(OffsetsAskedGroup(group_id=name, topics=None) for name in group_ids)
    return DescribeShareGroupOffsetsRequest(groups=groups, records_most=ranges)


def offsets_of_shares(row: DescribedOffsetsGroup, address: str) -> ShareOffsets:
    """Raises BadAnswer."""
    if row.error_code:
        return ShareOffsets(error=error_code(row.error_code))
    found: dict[TopicPartition, ShareOffset] = {}
    for topic in row.topics:
        for one in topic.partitions:
            records = None
            if one.records:
                try:
                    records = json.loads(one.records)
                except ValueError as error:
                    raise BadAnswer(address, f"a report of records that is no JSON: {error}") from None
            found[topic.topic_name, one.partition_index] = ShareOffset(
                one.start_offset if one.start_offset >= 0 else None,
                one.lag if one.lag >= 0 else None,
                one.leader_epoch,
                records,
                error_code(one.error_code),
            )
    return ShareOffsets(found)
