"""The records of groups in whole log partitions: generations, members, and the events that rebalances are made of.

A classic group's record (type 2) has all members. A consumer group has records for its epoch (3) and for its target's
epoch (6), and for each member one with its ids (5) and one with its assignment (8). Both become the same tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.decoding.kernels import GENERATION, READ, TOMBSTONE
from kohort.spark.history.tables.columns import dense, instants, milliseconds, named, taken, words
from kohort.spark.history.tables.group_records import GroupRecords
from kohort.spark.history.tables.ownership import CLASSIC, CONSUMER, PROTOCOLS
from kohort.spark.history.tables.spans import codes, spans

SOURCES = {2: "classic group", 3: "group epoch", 6: "target epoch", GENERATION: "highest generation"}
"""The origin of a row of the table `generations`, by the type of its record."""


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """A record of a group, without partitions. `kind` is the record's type."""

    group: int
    at: int
    kind: int
    deleted: bool
    epoch: int
    member: str
    state: int
    members: tuple[str, ...]
    """Of a classic group: the instance ids of its members, or member ids where there are none."""
    state_at: int


def generations_table(records: GroupRecords) -> pa.Table:
    rows = np.flatnonzero(np.isin(records.kind, list(SOURCES)))
    source = np.select([records.kind[rows] == kind for kind in SOURCES], range(len(SOURCES)))
    members = dense(pc.list_value_length(records.table.column("members")))[rows]
    table = records.table.take(pa.array(rows))
    return pa.table(
        {
            "group": named(records.group[rows], records.group_names),
            "at": instants(records.at[rows]),
            "of": words(source, tuple(SOURCES.values())),
            "epoch": pa.array(records.epoch[rows], pa.int32(), mask=records.status[rows] != READ),
            "deleted": pa.array(records.status[rows] == TOMBSTONE),
            "members": pa.array(members, pa.int32(), mask=members < 0),
            "protocol_type": table.column("protocol_type"),
            "assignor": table.column("protocol"),
            "leader": table.column("leader"),
            "state_time": table.column("state_time"),
            "log_partition": table.column("log_partition"),
            "log_offset": table.column("log_offset"),
        }
    )


def members_table(records: GroupRecords) -> pa.Table:
    """The table `members`: spans of membership."""
    both = [_membership(records, protocol) for protocol in (CLASSIC, CONSUMER)]
    return pa.concat_tables(both).sort_by([("group", "ascending"), ("since", "ascending")])


def _membership(records: GroupRecords, protocol: int) -> pa.Table:
    lists = records.lists
    rows = np.flatnonzero(records.kind == (2 if protocol == CLASSIC else 5))
    sequence = records.group[rows]
    if protocol == CONSUMER:
        sequence, _ = codes(sequence, records.member[rows])
    steps, place = records.steps(sequence, rows)
    mine = np.flatnonzero(np.isin(lists.record, rows))
    record = lists.record[mine]
    found = spans(steps, place[record], lists.ids[mine] if protocol == CLASSIC else records.member[record])
    last, record = mine[found.last], record[found.last]
    if protocol == CLASSIC:
        ids = taken(lists.ids[last], lists.id_names)
    else:
        ids = taken(records.member[record], records.member_names)
    details = lists.members.take(pa.array(last))

    def fields(*names: str) -> dict[str, pa.Array]:
        return {name: pc.struct_field(details, name) for name in names}

    return pa.table(
        {
            "group": taken(records.group[record], records.group_names),
            "member_id": ids,
            **fields("instance_id", "client_id", "host", "rack"),
            "since": instants(found.since),
            "until": instants(found.until),
            "protocol": pa.repeat(PROTOCOLS[protocol], len(last)),
            **fields("rebalance_timeout_ms", "session_timeout_ms", "topics", "regex"),
        }
    )


def group_events(records: GroupRecords) -> list[GroupEvent]:
    """The records that matter for rebalances, in the order of the log."""
    rows = np.flatnonzero(np.isin(records.kind, (2, 3, 5, 6, 8)))
    names, instances, _ = records.lists.texts(np.arange(len(records.lists.record)))
    ids = [name if instance is None else instance for instance, name in zip(instances, names, strict=True)]
    first = np.searchsorted(records.lists.record, np.arange(len(records.kind) + 1)).tolist()
    member = records.table.column("member_id").to_pylist()
    states, state_times = dense(records.table.column("state")), milliseconds(records.table.column("state_time"))
    columns = (records.group, records.at, records.kind, records.status, records.epoch, states, state_times)
    return [
        GroupEvent(
            group=group,
            at=at,
            kind=kind,
            deleted=status == TOMBSTONE,
            epoch=epoch,
            member=member[row] or "",
            state=state,
            members=tuple(ids[first[row] : first[row + 1]]) if kind == 2 else (),
            state_at=state_at,
        )
        for row, group, at, kind, status, epoch, state, state_at in zip(
            rows.tolist(), *(one[rows].tolist() for one in columns), strict=True
        )
    ]
