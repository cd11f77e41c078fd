"""The records of groups in one log partition: generations, members, ownership.

A classic group's record (type 2) names all members and what they have. A consumer group has a record for its epoch (3),
for its target's epoch (6), and for each member what it is (5) and what it has (8); what a member is still giving up is
its own until it says otherwise. Both become the same tables: spans of members, and spans of ownership (`spans.py`).

A member that is restarted under the same instance id is the same member, as far as partitions moving is concerned.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import GENERATION, NOTHING, READ, TOMBSTONE
from kohort.spark.history.tables.commits import dense, encoded, instants, milliseconds, words
from kohort.spark.history.tables.spans import Steps, codes, spans

CLASSIC, CONSUMER = range(2)
PROTOCOLS = ("classic", "consumer")

SOURCES = ("classic group", "group epoch", "target epoch", "highest generation")
"""Where a row of the table `generations` comes from."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Spans of ownership, in order of their places and then of time. Times in milliseconds."""

    groups: Numbers
    topics: Numbers
    partitions: Numbers
    since: Numbers
    until: Numbers
    """OPEN where it lasts."""
    epoch: Numbers
    protocol: Numbers
    member: Numbers
    """A number a member."""
    identity: Numbers
    """The same for members with the same instance id."""
    moved: Numbers
    """Whether somebody else had the partition before."""
    previous: Numbers
    """The span before it of the same place; NOTHING for the first one."""
    topic_names: pa.Array
    members: pa.Array
    """Ids by their number."""
    clients: pa.Array
    """Client ids, likewise."""

    def __len__(self) -> int:
        return len(self.groups)


@dataclass(frozen=True, slots=True)
class Groups:
    """What the records of groups say."""

    names: pa.Array
    """Of the groups, by their numbers."""
    generations: pa.Table
    members: pa.Table
    ownership: Ownership
    events: list[GroupEvent]
    """What matters for rebalances, in order of the log."""


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """A record of a group without what its members have. `kind` is the record's type."""

    group: int
    at: int
    kind: int
    deleted: bool
    epoch: int
    member: str
    state: int
    members: tuple[str, ...]
    """Of a classic group: its members' ids, or instance ids where they have some."""
    state_at: int


def groups_of(table: pa.Table, topic_names: Mapping[bytes, str]) -> Groups:
    """The groups of a table of log records, in any order. `topic_names` are names by topic id."""
    table = _in_order(table)
    group, names = encoded(table.column("group"))
    kind, status = dense(table.column("kind")), dense(table.column("status"))
    at = milliseconds(table.column("log_time"))
    held = _Held(table.column("members"), topic_names)
    member, member_names = encoded(table.column("member_id"))
    epoch = dense(table.column("epoch"))
    parts = [
        _classic(np.flatnonzero(kind == 2), group, at, epoch, held),
        _consumer(kind, group, member, at, epoch, held, member_names),
    ]
    return Groups(
        names,
        _generations(table, names, group, kind, status, at, epoch),
        _members(table, names, group, member, member_names, kind, at, held),
        _ownership(parts, held, member_names),
        _events(table, group, kind, at, epoch, held),
    )


def _in_order(table: pa.Table) -> pa.Table:
    """The records that say something, in the order of the log, each once."""
    status, log = dense(table.column("status")), dense(table.column("log_offset"))
    rows = np.flatnonzero((status == READ) | (status == TOMBSTONE))
    return table.take(pa.array(rows[np.unique(log[rows], return_index=True)[1]]))


class _Held:
    """The column `members`, flat: a row a member, a row a partition that it has."""

    def __init__(self, column: pa.ChunkedArray, topic_names: Mapping[bytes, str]) -> None:
        whole = column.combine_chunks()
        if isinstance(whole, pa.ChunkedArray):
            whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
        self.record = dense(pc.list_parent_indices(whole))
        self.items = pc.list_flatten(whole)
        self.ids, self.id_names = encoded(self.field("member_id"))
        self.instances, self.instance_names = encoded(self.field("instance_id"))
        self.clients, self.client_names = encoded(self.field("client_id"))
        owners, items = [], []
        for name in ("assigned", "revoking"):
            lists = self.field(name)
            owners.append(dense(pc.list_parent_indices(lists)))
            items.append(pc.list_flatten(lists))
        self.owner = np.concatenate(owners)
        """Of each partition the member that has it."""
        partitions = pa.chunked_array(items, type=items[0].type).combine_chunks() if len(self.owner) else items[0]
        if isinstance(partitions, pa.ChunkedArray):
            partitions = partitions.chunk(0) if partitions.num_chunks else items[0]
        named = pc.struct_field(partitions, "topic")
        by_id, ids = encoded_bytes(pc.struct_field(partitions, "topic_id"))
        texts = pa.array([topic_names.get(one, id_text(one)) for one in ids], pa.string())
        named = pc.coalesce(named, texts.take(pa.array(by_id, mask=by_id < 0)))
        self.topics, self.topic_names = encoded(named)
        self.partitions = dense(pc.struct_field(partitions, "partition"))

    def field(self, name: str) -> Any:
        return pc.struct_field(self.items, name)


def encoded_bytes(column: pa.Array) -> tuple[Numbers, list[bytes]]:
    """A column of binaries as numbers, and what they stand for."""
    dictionary = column.dictionary_encode()
    return dense(dictionary.indices), dictionary.dictionary.to_pylist()


def id_text(topic_id: bytes) -> str:
    """A topic id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class _Owned:
    """Spans of ownership out of one kind of record."""

    groups: Numbers
    topics: Numbers
    partitions: Numbers
    since: Numbers
    until: Numbers
    epoch: Numbers
    protocol: int
    names: list[str]
    instances: list[str | None]
    clients: list[str | None]


def _steps(sequence: Numbers, rows: Numbers, at: Numbers) -> tuple[Steps, Numbers]:
    """The rows in order of their sequences, and of each record its place among them."""
    order = np.argsort(sequence, kind="stable")
    place = np.full(int(rows.max()) + 1 if len(rows) else 0, NOTHING)
    place[rows[order]] = np.arange(len(rows))
    return Steps(sequence[order], at[rows[order]]), place


def _classic(rows: Numbers, group: Numbers, at: Numbers, epoch: Numbers, held: _Held) -> _Owned:
    steps, place = _steps(group[rows], rows, at)
    record = held.record[held.owner]
    mine = np.flatnonzero(np.isin(record, rows))
    record, owner = record[mine], held.owner[mine]
    item, _ = codes(held.topics[mine], held.partitions[mine], held.ids[owner])
    found = spans(steps, place[record], item)
    first = found.first
    names, instances, clients = _named(held, owner[first])
    return _Owned(
        group[record[first]],
        held.topics[mine[first]],
        held.partitions[mine[first]],
        found.since,
        found.until,
        epoch[record[first]],
        CLASSIC,
        names,
        instances,
        clients,
    )


def _named(held: _Held, rows: Numbers) -> tuple[list[str], list[str | None], list[str | None]]:
    def texts(numbers: Numbers, names: pa.Array) -> list[Any]:
        taken: list[Any] = names.take(pa.array(numbers[rows], mask=numbers[rows] < 0)).to_pylist()
        return taken

    return (
        texts(held.ids, held.id_names),
        texts(held.instances, held.instance_names),
        texts(held.clients, held.client_names),
    )


def _consumer(
    kind: Numbers, group: Numbers, member: Numbers, at: Numbers, epoch: Numbers, held: _Held, member_names: pa.Array
) -> _Owned:
    rows = np.flatnonzero(kind == 8)
    sequence, _ = codes(group[rows], member[rows])
    steps, place = _steps(sequence, rows, at)
    record = held.record[held.owner]
    mine = np.flatnonzero(np.isin(record, rows))
    record = record[mine]
    item, _ = codes(held.topics[mine], held.partitions[mine])
    found = spans(steps, place[record], item)
    first = found.first
    names = member_names.take(pa.array(member[record[first]])).to_pylist()
    told = _told(kind, group, member, record[first], held)
    _, instances, clients = _named(held, np.maximum(told, 0))
    unknown = (told < 0).tolist()
    return _Owned(
        group[record[first]],
        held.topics[mine[first]],
        held.partitions[mine[first]],
        found.since,
        found.until,
        epoch[record[first]],
        CONSUMER,
        names,
        [None if nothing else one for nothing, one in zip(unknown, instances, strict=True)],
        [None if nothing else one for nothing, one in zip(unknown, clients, strict=True)],
    )


def _told(kind: Numbers, group: Numbers, member: Numbers, rows: Numbers, held: _Held) -> Numbers:
    """Of each record of a member in which it is said who it is, as an item of `held`: by the last record of type 5
    before it, else by the first one after it (the log is compacted); NOTHING where the log does not say."""
    items = np.flatnonzero(kind[held.record] == 5)
    told = held.record[items]
    if not len(told) or not len(rows):
        return np.full(len(rows), NOTHING)
    whose, _ = codes(np.r_[group[told], group[rows]], np.r_[member[told], member[rows]])
    # A position in one ascending series: the member in front, the place in the log behind it.
    known, asked = whose[: len(told)] * len(kind) + told, whose[len(told) :] * len(kind) + rows
    order = np.argsort(known)
    known = known[order]

    def same(place: Numbers) -> Numbers:
        there = (place >= 0) & (place < len(known))
        found: Numbers = there & (known[np.where(there, place, 0)] // len(kind) == asked // len(kind))
        return found

    after = np.searchsorted(known, asked)
    place = np.where(same(after - 1), after - 1, after)
    return np.where(same(place), items[order[np.minimum(place, len(known) - 1)]], NOTHING)


def _ownership(parts: list[_Owned], held: _Held, member_names: pa.Array) -> Ownership:
    def joined(name: str) -> Numbers:
        return np.concatenate([getattr(part, name) for part in parts])

    names = [name for part in parts for name in part.names]
    instances = [name for part in parts for name in part.instances]
    clients = [name for part in parts for name in part.clients]
    protocol = np.concatenate([np.full(len(part.names), part.protocol) for part in parts])
    groups, topics, partitions, since = map(joined, ("groups", "topics", "partitions", "since"))
    order = np.lexsort((since, partitions, topics, groups))
    members, ids = encoded(pa.array(names, pa.string()))
    identity, _ = encoded(
        pa.array([a if a is not None else b for a, b in zip(instances, names, strict=True)], pa.string())
    )
    client_of = np.full(len(ids), NOTHING)
    client_codes, client_names = encoded(pa.array(clients, pa.string()))
    known = client_codes >= 0
    client_of[members[known]] = client_codes[known]
    groups, topics, partitions, identity = groups[order], topics[order], partitions[order], identity[order]
    same = np.zeros(len(order), bool)
    same[1:] = (groups[1:] == groups[:-1]) & (topics[1:] == topics[:-1]) & (partitions[1:] == partitions[:-1])
    moved = same.copy()
    moved[1:] &= identity[1:] != identity[:-1]
    return Ownership(
        groups,
        topics,
        partitions,
        since[order],
        joined("until")[order],
        joined("epoch")[order],
        protocol[order],
        members[order],
        identity,
        moved,
        np.where(same, np.arange(len(order)) - 1, NOTHING),
        held.topic_names,
        ids,
        client_names.take(pa.array(client_of, mask=client_of < 0)),
    )


def ownership_table(owned: Ownership, names: pa.Array) -> pa.Table:
    """The table `ownership`."""
    members = pa.DictionaryArray.from_arrays(pa.array(owned.member, pa.int32()), owned.members)
    before = np.where(owned.moved, owned.member[owned.previous], NOTHING)
    return pa.table(
        {
            "group": pa.DictionaryArray.from_arrays(pa.array(owned.groups, pa.int32()), names),
            "topic": pa.DictionaryArray.from_arrays(pa.array(owned.topics, pa.int32()), owned.topic_names),
            "partition": pa.array(owned.partitions, pa.int32()),
            "member_id": members,
            "client_id": owned.clients.take(pa.array(owned.member)),
            "since": instants(owned.since),
            "until": instants(owned.until),
            "epoch": pa.array(owned.epoch, pa.int32()),
            "protocol": words(owned.protocol, PROTOCOLS),
            "moved_from": pa.DictionaryArray.from_arrays(pa.array(before, pa.int32(), mask=before < 0), owned.members),
        }
    )


def _generations(
    table: pa.Table, names: pa.Array, group: Numbers, kind: Numbers, status: Numbers, at: Numbers, epoch: Numbers
) -> pa.Table:
    kinds = (2, 3, 6, GENERATION)
    rows = np.flatnonzero(np.isin(kind, kinds))
    source = np.select([kind[rows] == one for one in kinds], range(4))
    count = dense(pc.list_value_length(table.column("members")))[rows]
    taken = table.take(pa.array(rows))
    return pa.table(
        {
            "group": pa.DictionaryArray.from_arrays(pa.array(group[rows], pa.int32()), names),
            "at": instants(at[rows]),
            "of": words(source, SOURCES),
            "epoch": pa.array(epoch[rows], pa.int32(), mask=status[rows] != READ),
            "deleted": pa.array(status[rows] == TOMBSTONE),
            "members": pa.array(count, pa.int32(), mask=count < 0),
            "protocol_type": taken.column("protocol_type"),
            "assignor": taken.column("protocol"),
            "leader": taken.column("leader"),
            "state_time": taken.column("state_time"),
            "log_partition": taken.column("log_partition"),
            "log_offset": taken.column("log_offset"),
        }
    )


def _members(
    table: pa.Table,
    names: pa.Array,
    group: Numbers,
    member: Numbers,
    member_names: pa.Array,
    kind: Numbers,
    at: Numbers,
    held: _Held,
) -> pa.Table:
    """The table `members`: spans of membership."""
    classic, consumer = np.flatnonzero(kind == 2), np.flatnonzero(kind == 5)
    parts = []
    for protocol, rows, sequence in (
        (CLASSIC, classic, group[classic]),
        (CONSUMER, consumer, codes(group[consumer], member[consumer])[0]),
    ):
        steps, place = _steps(sequence, rows, at)
        mine = np.flatnonzero(np.isin(held.record, rows))
        record = held.record[mine]
        items = held.ids[mine] if protocol == CLASSIC else member[record]
        found = spans(steps, place[record], items)
        last = mine[found.last]
        if protocol == CLASSIC:
            who = held.id_names.take(pa.array(held.ids[last]))
        else:
            who = member_names.take(pa.array(member[held.record[last]]))
        info = held.items.take(pa.array(last))
        parts.append(
            pa.table(
                {
                    "group": names.take(pa.array(group[held.record[last]])),
                    "member_id": who,
                    **{one: pc.struct_field(info, one) for one in ("instance_id", "client_id", "host", "rack")},
                    "since": instants(found.since),
                    "until": instants(found.until),
                    "protocol": words(np.full(len(last), protocol), PROTOCOLS).cast(pa.string()),
                    **{
                        one: pc.struct_field(info, one)
                        for one in ("rebalance_timeout_ms", "session_timeout_ms", "topics", "regex")
                    },
                }
            )
        )
    return pa.concat_tables(parts).sort_by([("group", "ascending"), ("since", "ascending")])


def _events(
    table: pa.Table, group: Numbers, kind: Numbers, at: Numbers, epoch: Numbers, held: _Held
) -> list[GroupEvent]:
    rows = np.flatnonzero(np.isin(kind, (2, 3, 5, 6, 8)))
    names, instances, _ = _named(held, np.arange(len(held.record)))
    first = np.searchsorted(held.record, np.arange(table.num_rows + 1)).tolist()
    who = [instance if instance is not None else name for name, instance in zip(names, instances, strict=True)]
    member = table.column("member_id").to_pylist()
    status, state = dense(table.column("status")), dense(table.column("state"))
    state_at = milliseconds(table.column("state_time"))
    columns = (group, at, kind, status, epoch, state, state_at)
    return [
        GroupEvent(
            g,
            t,
            k,
            s == TOMBSTONE,
            e,
            member[row] or "",
            st,
            tuple(who[first[row] : first[row + 1]]) if k == 2 else (),
            sa,
        )
        for row, g, t, k, s, e, st, sa in zip(rows.tolist(), *(one[rows].tolist() for one in columns), strict=True)
    ]
