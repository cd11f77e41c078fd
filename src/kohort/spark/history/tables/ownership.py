"""The ownership of partitions: from when to when a member had a partition.

A classic group's record (type 2) has all members and their partitions. In a consumer group each member has a record of
its assignment (8), and its ids are in a record of their own (5). A member that restarts under the same instance id is
the same member: its partitions have not moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.tables.columns import encoded, instants, named, taken, words
from kohort.spark.history.tables.group_records import GroupRecords
from kohort.spark.history.tables.spans import codes, spans

CLASSIC, CONSUMER = range(2)
PROTOCOLS = ("classic", "consumer")


@dataclass(frozen=True, slots=True)
class Ownership:
    """Spans of ownership, in the order of group, topic, partition and time. Times in milliseconds."""

    groups: Numbers
    topics: Numbers
    partitions: Numbers
    since: Numbers
    until: Numbers
    """OPEN if it lasts."""
    epoch: Numbers
    protocol: Numbers
    member: Numbers
    moved: Numbers
    """True if another member had the partition before."""
    previous: Numbers
    """The span before it of the same partition; NOTHING for the first one."""
    topic_names: pa.Array
    members: pa.Array
    """Member ids by their number."""
    clients: pa.Array
    """Client ids by the member's number."""

    def __len__(self) -> int:
        return len(self.groups)


def ownership_of(records: GroupRecords) -> Ownership:
    classic, consumer = _owned(records, CLASSIC), _owned(records, CONSUMER)
    joined = [np.concatenate(both) for both in zip(classic[0], consumer[0], strict=True)]
    groups, topics, partitions, since, until, epoch, protocol = joined
    names, instances, clients = (one + other for one, other in zip(classic[1], consumer[1], strict=True))
    order = np.lexsort((since, partitions, topics, groups))
    members, ids = encoded(pa.array(names, pa.string()))
    identities = [name if instance is None else instance for instance, name in zip(instances, names, strict=True)]
    identity = encoded(pa.array(identities, pa.string()))[0][order]
    client_of = np.full(len(ids), NOTHING)
    client, client_names = encoded(pa.array(clients, pa.string()))
    client_of[members[client >= 0]] = client[client >= 0]
    groups, topics, partitions = groups[order], topics[order], partitions[order]
    same = np.zeros(len(order), bool)
    same[1:] = (groups[1:] == groups[:-1]) & (topics[1:] == topics[:-1]) & (partitions[1:] == partitions[:-1])
    moved = same.copy()
    moved[1:] &= identity[1:] != identity[:-1]
    previous = np.where(same, np.arange(len(order)) - 1, NOTHING)
    return Ownership(
        groups=groups,
        topics=topics,
        partitions=partitions,
        since=since[order],
        until=until[order],
        epoch=epoch[order],
        protocol=protocol[order],
        member=members[order],
        moved=moved,
        previous=previous,
        topic_names=records.lists.topic_names,
        members=ids,
        clients=taken(client_of, client_names),
    )


def _owned(records: GroupRecords, protocol: int) -> tuple[tuple[Numbers, ...], tuple[list[Any], ...]]:
    """The spans in the groups of one protocol: columns `groups` to `protocol` of Ownership; and the member, instance
    and client ids. Each record of a classic group is a step, or each assignment of a member."""
    lists = records.lists
    rows = np.flatnonzero(records.kind == (2 if protocol == CLASSIC else 8))
    sequence = records.group[rows]
    if protocol == CONSUMER:
        sequence, _ = codes(sequence, records.member[rows])
    steps, place = records.steps(sequence, rows)
    record = lists.record[lists.owner]
    mine = np.flatnonzero(np.isin(record, rows))
    record, owner = record[mine], lists.owner[mine]
    topics, partitions = lists.topics[mine], lists.partitions[mine]
    of_members = [lists.ids[owner]] if protocol == CLASSIC else []
    item, _ = codes(topics, partitions, *of_members)
    found = spans(steps, place[record], item)
    first = found.first
    record = record[first]
    if protocol == CLASSIC:
        names, instances, clients = lists.texts(owner[first])
    else:
        names = taken(records.member[record], records.member_names).to_pylist()
        _, instances, clients = lists.texts(_descriptions(records, record))
    where = records.group[record], topics[first], partitions[first]
    numbers = *where, found.since, found.until, records.epoch[record], np.full(len(first), protocol)
    return numbers, (names, instances, clients)


def _descriptions(records: GroupRecords, rows: Numbers) -> Numbers:
    """For each record of a member the item of `lists` that has the member's ids: that of the last record of type 5
    before it, else of the first one after it (the log is compacted); NOTHING if the log has none."""
    items = np.flatnonzero(records.kind[records.lists.record] == 5)
    described = records.lists.record[items]
    if not len(described) or not len(rows):
        return np.full(len(rows), NOTHING)
    both = np.r_[described, rows]
    whose, _ = codes(records.group[both], records.member[both])
    # Member and place in the log as one ascending number.
    size = len(records.kind)
    known, wanted = np.split(whose * size + both, [len(described)])
    order = np.argsort(known)
    known = known[order]

    def same_member(place: Numbers) -> Numbers:
        inside = (place >= 0) & (place < len(known))
        found: Numbers = inside & (known[np.where(inside, place, 0)] // size == wanted // size)
        return found

    after = np.searchsorted(known, wanted)
    place = np.where(same_member(after - 1), after - 1, after)
    return np.where(same_member(place), items[order[np.minimum(place, len(known) - 1)]], NOTHING)


def ownership_table(owned: Ownership, group_names: pa.Array) -> pa.Table:
    return pa.table(
        {
            "group": named(owned.groups, group_names),
            "topic": named(owned.topics, owned.topic_names),
            "partition": pa.array(owned.partitions, pa.int32()),
            "member_id": named(owned.member, owned.members),
            "client_id": owned.clients.take(pa.array(owned.member)),
            "since": instants(owned.since),
            "until": instants(owned.until),
            "epoch": pa.array(owned.epoch, pa.int32()),
            "protocol": words(owned.protocol, PROTOCOLS),
            "moved_from": named(np.where(owned.moved, owned.member[owned.previous], NOTHING), owned.members),
        }
    )
