"""The records of groups in whole log partitions, as arrays."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import READ, TOMBSTONE
from kohort.spark.history.tables.columns import dense, encoded, log_places, milliseconds, one_array, taken
from kohort.spark.history.tables.spans import Steps


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """A row for each record, in the order of each log partition. `group` and `member` index their names."""

    table: pa.Table
    kind: Numbers
    status: Numbers
    at: Numbers
    """Milliseconds."""
    epoch: Numbers
    group: Numbers
    group_names: pa.Array
    member: Numbers
    member_names: pa.Array
    lists: MemberLists

    @classmethod
    def of(cls, table: pa.Table, topic_names: Mapping[bytes, str]) -> GroupRecords:
        """The records of a table in any order; a repeated record counts once. `topic_names` are by topic id."""
        status, log = dense(table.column("status")), log_places(table)
        rows = np.flatnonzero((status == READ) | (status == TOMBSTONE))
        table = table.take(pa.array(rows[np.unique(log[rows], return_index=True)[1]]))
        group, group_names = encoded(table.column("group"))
        member, member_names = encoded(table.column("member_id"))
        return cls(
            table,
            dense(table.column("kind")),
            dense(table.column("status")),
            milliseconds(table.column("log_time")),
            dense(table.column("epoch")),
            group,
            group_names,
            member,
            member_names,
            MemberLists(table.column("members"), topic_names),
        )

    def steps(self, sequence: Numbers, rows: Numbers) -> tuple[Steps, Numbers]:
        """The records `rows` in the order of their sequences, and for each record its place among them."""
        order = np.argsort(sequence, kind="stable")
        place = np.full(len(self.kind), -1)
        place[rows[order]] = np.arange(len(rows))
        return Steps(sequence[order], self.at[rows[order]]), place


class MemberLists:
    """The column `members`, flat: a row for each member, and a row for each partition that it has."""

    def __init__(self, column: pa.ChunkedArray, topic_names: Mapping[bytes, str]) -> None:
        lists = one_array(column)
        self.record = dense(pc.list_parent_indices(lists))
        """For each member the row of its record."""
        self.members = pc.list_flatten(lists)
        self.ids, self.id_names = encoded(self.field("member_id"))
        self._instances, self._instance_names = encoded(self.field("instance_id"))
        self._clients, self._client_names = encoded(self.field("client_id"))
        # A member owns the partitions that it must revoke until it has revoked them.
        owned = [self.field("assigned"), self.field("revoking")]
        self.owner = np.concatenate([dense(pc.list_parent_indices(one)) for one in owned])
        """For each partition its member."""
        partitions = one_array(pa.chunked_array([pc.list_flatten(one) for one in owned]))
        ids = pc.struct_field(partitions, "topic_id").dictionary_encode()
        # A topic id as Kafka's tools print it.
        texts = {one: base64.urlsafe_b64encode(one).decode().rstrip("=") for one in ids.dictionary.to_pylist()}
        names = [topic_names.get(one, text) for one, text in texts.items()]
        by_id = taken(dense(ids.indices), pa.array(names, pa.string()))
        self.topics, self.topic_names = encoded(pc.coalesce(pc.struct_field(partitions, "topic"), by_id))
        self.partitions = dense(pc.struct_field(partitions, "partition"))

    def field(self, name: str) -> Any:
        return pc.struct_field(self.members, name)

    def texts(self, rows: Numbers) -> tuple[list[str], list[str | None], list[str | None]]:
        """The member, instance and client ids of some members; a negative row has None."""
        columns = (
            (self.ids, self.id_names),
            (self._instances, self._instance_names),
            (self._clients, self._client_names),
        )
        member, instance, client = (
            taken(np.r_[numbers, -1][rows], names).to_pylist() for numbers, names in columns
        )  # a row of -1 takes the last number, which is that of null
        return member, instance, client
