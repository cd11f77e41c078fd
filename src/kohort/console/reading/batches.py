"""Requests about many groups at once: their members, and their committed offsets.

A cluster can have 15,000 groups, and a group 10,000 members, so a batch is limited by both: by the number of groups,
and by the members and partitions that they had when they were read before. `Cluster` asks about one group at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError, error_code
from kohort.client.metadata import TopicPartition
from kohort.client.wire.blocking_connection import Connection
from kohort.console.reading.snapshot import GroupRow
from kohort.wire.embedded import CONSUMER_PROTOCOL
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

MOST_GROUPS = 100
MOST_WEIGHT = 5_000
"""Members, or partitions, in one answer."""
UNKNOWN_WEIGHT = 50
MOST_ENDS = 2_000
"""Partitions in one call for the ends of logs."""
OTHER_TYPES = ("share", "streams")
BY_GROUP = 8
"""The first version of OffsetFetch for several groups."""

T = TypeVar("T")
Offsets = dict[TopicPartition, int]


def in_batches(items: Iterable[T], weight: Callable[[T], int], most: int, most_weight: int) -> Iterator[list[T]]:
    """In their order; an item that is heavier than `most_weight` is a batch of its own."""
    batch: list[T] = []
    total = 0
    for item in items:
        own = weight(item)
        if batch and (len(batch) >= most or total + own > most_weight):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += own
    if batch:
        yield batch


def batches_of(rows: Sequence[GroupRow]) -> Iterator[list[GroupRow]]:
    """Batches of groups with the same coordinator."""
    by_node: dict[int, list[GroupRow]] = {}
    for row in rows:
        by_node.setdefault(row.coordinator, []).append(row)
    for own in by_node.values():
        yield from in_batches(own, weight_of, MOST_GROUPS, MOST_WEIGHT)


def weight_of(row: GroupRow) -> int:
    return UNKNOWN_WEIGHT if row.members is None else max(row.members, row.partitions, 1)


def read_batch(cluster: Cluster, rows: Sequence[GroupRow]) -> tuple[list[GroupRow], dict[str, Offsets]]:
    """The groups with their members, and their committed offsets. What fails is named in the row's `problem`."""
    try:
        connection = cluster.connection(rows[0].coordinator)
        described = _described(connection, rows)
        offsets, refused = _committed(connection, [row.group_id for row in rows if has_offsets(row)])
    except KafkaError as error:
        return [replace(row, problem=error.message) for row in rows], {}
    return [replace(row, problem=refused.get(row.group_id, row.problem)) for row in described], offsets


def has_offsets(row: GroupRow) -> bool:
    return row.protocol_type in ("", CONSUMER_PROTOCOL) and row.type not in OTHER_TYPES


def _described(connection: Connection, rows: Sequence[GroupRow]) -> list[GroupRow]:
    found: dict[str, GroupRow] = {}
    by_id = {row.group_id: row for row in rows}
    classic = [row.group_id for row in rows if row.type in ("", "classic") and row.state != "Empty"]
    consumer = [row.group_id for row in rows if row.type == CONSUMER_PROTOCOL and row.state != "Empty"]
    if classic:
        answer = connection.request(DescribeGroupsRequest(groups=tuple(classic)), DescribeGroupsResponse)
        for group in answer.groups:
            found[group.group_id] = _row(
                by_id[group.group_id], group.error_code, group.group_state, group.protocol_data, len(group.members)
            )
    if consumer and connection.serves(ConsumerGroupDescribeRequest):
        asked = ConsumerGroupDescribeRequest(group_ids=tuple(consumer), include_authorized_operations=False)
        for one in connection.request(asked, ConsumerGroupDescribeResponse).groups:
            found[one.group_id] = _row(
                by_id[one.group_id], one.error_code, one.group_state, one.assignor_name, len(one.members)
            )
    return [found.get(row.group_id) or _undescribed(row) for row in rows]


def _undescribed(row: GroupRow) -> GroupRow:
    return replace(row, members=0 if row.state == "Empty" else None, problem="")


def _row(row: GroupRow, code: int, state: str, protocol: str, members: int) -> GroupRow:
    if code:
        return replace(row, members=None, problem=error_code(code).name)
    return replace(row, state=state, protocol=protocol, members=members, problem="")


def _committed(connection: Connection, group_ids: Sequence[str]) -> tuple[dict[str, Offsets], dict[str, str]]:
    """The offsets by group, and the names of errors by group."""
    by_group = connection.version_of(OffsetFetchRequest) >= BY_GROUP
    offsets: dict[str, Offsets] = {}
    refused: dict[str, str] = {}
    pieces = [list(group_ids)] if by_group and group_ids else [[group_id] for group_id in group_ids]
    while pieces:
        piece = pieces.pop()
        for group_id, answer in _fetch_offsets(connection, piece, by_group):
            # kohort says so, too, of groups for which there is no room in one answer (queued.max.response.bytes).
            if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and len(piece) > 1:
                pieces.append([group_id])
            elif answer.error_code:
                refused[group_id] = error_code(answer.error_code).name
            else:
                offsets[group_id] = _offsets_in(answer)
    return offsets, refused


def _fetch_offsets(
    connection: Connection, group_ids: Sequence[str], by_group: bool
) -> list[tuple[str, OffsetFetchResponse | OffsetFetchResponseGroup]]:
    """`by_group`: in the form for several groups; else there is one."""
    if by_group:
        asked = tuple(OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids)
        answer = connection.request(OffsetFetchRequest(groups=asked), OffsetFetchResponse)
        return [(group.group_id, group) for group in answer.groups]
    [group_id] = group_ids
    return [(group_id, connection.request(OffsetFetchRequest(group_id=group_id, topics=None), OffsetFetchResponse))]


def _offsets_in(answer: OffsetFetchResponse | OffsetFetchResponseGroup) -> Offsets:
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in answer.topics
        for row in topic.partitions
        if row.committed_offset >= 0 and not row.error_code
    }


def ends_of(cluster: Cluster, places: Sequence[TopicPartition]) -> Offsets:
    """Where the logs end; leaves out the partitions of a batch that fails."""
    found: Offsets = {}
    for first in range(0, len(places), MOST_ENDS):
        try:
            found |= cluster.offsets(places[first : first + MOST_ENDS], "latest")
        except KafkaError:
            continue
    return found
