"""The records of `__consumer_offsets` of any Kafka cluster as typed columns.

`decode` takes the keys and values of log records and returns a row of SCHEMA for each of them, in their order. Keys
repeat, so each distinct key is read once. Keys and values are read by compiled loops (`kernels.py`, `compilation.py`);
without numba, those of offset commits are read with numpy, a column at a time. No record is dropped and none raises:
the `status` of a row says if a record is malformed, or of an unknown type or version.

Which columns are filled depends on the record type, `kind`:

    0, 1    commit_topic, commit_partition, commit_offset, leader_epoch, metadata, commit_time, expire_time, topic_id
    2       a classic group: epoch (its generation), protocol_type, protocol, leader, state_time, members
    3       a consumer group: epoch, hash (of its topics' metadata)
    5       its member: member_id and one of `members`, without partitions
    6       its target assignment: epoch, state_time
    7       a member's target assignment: member_id and one of `members`, with partitions
    8       a member's current assignment: member_id, epoch, previous_epoch, state, one of `members`, with partitions
    16      the topics that a regular expression matched: regex, hash (the version of the topics), state_time, and one
            of `members` with these `topics`
    30001   kohort's own: epoch, the highest generation of that group name
    4, 9-15, 17-24   types that Kafka gave up, share groups, streams groups: group and member_id only
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.decoding import columns, kernels
from kohort.spark.history.decoding.columns import TIME, Bytes, Numbers, bytes_of, lists, numbers, places, times
from kohort.spark.history.decoding.compilation import Kernels, kernels_for
from kohort.spark.history.decoding.kernels import (
    COMMIT_TOPIC_ID,
    METADATA,
    NOTHING,
    READ,
    TOMBSTONE,
    UNSET,
    GroupArrays,
)

STATUS = ("read", "tombstone", "recognised", "unknown type", "unknown version", "malformed")
"""The column `status` has the place in this list. Read: the columns are filled; tombstone: the record deletes what its
key names; recognised: the type is known, and the value is not read."""

KINDS = {
    0: "offset commit (legacy)",
    1: "offset commit",
    2: "classic group",
    3: "consumer group",
    4: "consumer group partitions (given up)",
    5: "consumer group member",
    6: "consumer group target",
    7: "consumer group member's target",
    8: "consumer group member's assignment",
    **dict.fromkeys(range(9, 16), "share group"),
    16: "consumer group regular expression",
    **dict.fromkeys(range(17, 25), "streams group"),
    kernels.GENERATION: "generation (kohort)",
}

ELEMENT = "element"
"""Spark's name of the items of a list."""


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field(ELEMENT, kind))


OWNED = pa.struct(
    [
        pa.field("topic", pa.string()),  # of classic groups
        pa.field("topic_id", pa.binary()),  # of consumer groups
        pa.field("partition", pa.int32()),
        pa.field("epoch", pa.int32()),  # at which the member got it, if the record has it
    ]
)
MEMBER = pa.struct(
    [
        pa.field("member_id", pa.string()),
        pa.field("instance_id", pa.string()),
        pa.field("rack", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("host", pa.string()),
        pa.field("regex", pa.string()),
        pa.field("assignor", pa.string()),
        pa.field("rebalance_timeout_ms", pa.int32()),
        pa.field("session_timeout_ms", pa.int32()),
        pa.field("topics", _list(pa.string())),  # its subscription
        pa.field("assigned", _list(OWNED)),
        pa.field("revoking", _list(OWNED)),
    ]
)
SCHEMA = pa.schema(
    [
        pa.field("kind", pa.int16()),
        pa.field("status", pa.int8()),
        pa.field("version", pa.int16()),
        pa.field("group", pa.string()),
        pa.field("commit_topic", pa.string()),
        pa.field("commit_partition", pa.int32()),
        pa.field("commit_offset", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("metadata", pa.string()),
        pa.field("commit_time", TIME),
        pa.field("expire_time", TIME),
        pa.field("topic_id", pa.binary()),
        pa.field("member_id", pa.string()),
        pa.field("epoch", pa.int32()),
        pa.field("previous_epoch", pa.int32()),
        pa.field("state", pa.int8()),
        pa.field("state_time", TIME),
        pa.field("hash", pa.int64()),
        pa.field("protocol_type", pa.string()),
        pa.field("protocol", pa.string()),
        pa.field("leader", pa.string()),
        pa.field("regex", pa.string()),
        pa.field("members", _list(MEMBER)),
    ]
)


class _Keys(NamedTuple):
    """The content of the keys: numbers for each row, texts for each distinct key."""

    kinds: Numbers
    statuses: Numbers
    partitions: Numbers
    rows: Numbers
    """The distinct key of each row."""
    distinct_kinds: Numbers
    groups: pa.Array
    seconds: pa.Array
    """Topic, member or regular expression."""


def decode(keys: pa.Array, values: pa.Array, *, dictionaries: bool = False) -> pa.RecordBatch:
    """A row of SCHEMA for each record. `keys` and `values` are binary columns of the same length.

    With `dictionaries` the columns group, commit_topic, member_id and metadata are dictionaries of strings, which take
    less memory and are faster to write.
    """
    chosen = kernels_for(len(keys))
    named = _read_keys(_plain(keys), chosen)
    values = _plain(values)
    source = bytes_of(values, chosen)
    count = len(values)
    kinds, statuses = named.kinds, named.statuses.astype(np.int64)
    if values.null_count:
        missing = values.is_null().to_numpy(zero_copy_only=False)
        statuses[missing & (statuses == READ)] = TOMBSTONE
    versions = np.full(count, NOTHING, np.int64)
    commits = np.full((count, kernels.COMMIT_WIDTH), NOTHING, np.int64)
    if chosen.compiled:
        chosen.commits(source.data, source.starts, source.ends, kinds, statuses, versions, commits)
    else:
        columns.commits(source, kinds, statuses, versions, commits)
    others = np.flatnonzero(kinds > 1)
    groups = _Groups(source, others, kinds, statuses, versions)
    is_commit = (kinds >= 0) & (kinds <= 1)
    has_offset = is_commit & (statuses == READ)
    text = _Text(named, dictionaries)
    spread = groups.spread
    arrays = [
        numbers(kinds, pa.int16(), kinds != UNSET),
        numbers(statuses, pa.int8()),
        numbers(versions, pa.int16(), versions != NOTHING),
        text.column(named.groups, None),
        text.column(named.seconds, named.distinct_kinds <= 1),
        numbers(named.partitions, pa.int32(), is_commit & (named.statuses == READ)),
        numbers(commits[:, kernels.OFFSET], pa.int64(), has_offset),
        numbers(commits[:, kernels.LEADER_EPOCH], pa.int32(), has_offset & (commits[:, kernels.LEADER_EPOCH] >= 0)),
        text.plain(
            places(source, commits[:, METADATA], np.where(has_offset, commits[:, METADATA + 1], NOTHING), pa.string())
        ),
        times(commits[:, kernels.COMMIT_TIME], has_offset),
        times(commits[:, kernels.EXPIRE_TIME], has_offset),
        _topic_ids(source, np.where(has_offset, commits[:, COMMIT_TOPIC_ID], NOTHING)),
        text.column(named.seconds, (named.distinct_kinds > 1) & (named.distinct_kinds != 16)),
        *(spread(groups.number(at, kind)) for at, kind in _GROUP_NUMBERS),
        spread(times(groups.records[:, kernels.TIME])),
        spread(groups.hash()),
        *(spread(groups.text(at)) for at in (kernels.PROTOCOL_TYPE, kernels.PROTOCOL, kernels.LEADER)),
        _only(named.seconds, named.distinct_kinds == 16).take(pa.array(named.rows)),
        groups.members(count),
    ]
    if dictionaries:
        return pa.RecordBatch.from_arrays(arrays, names=SCHEMA.names)
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


_GROUP_NUMBERS = ((kernels.EPOCH, pa.int32()), (kernels.PREVIOUS_EPOCH, pa.int32()), (kernels.STATE, pa.int8()))


def _plain(column: pa.Array) -> pa.Array:
    """One piece of `binary`."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ChunkedArray):
        raise ValueError("the bytes of one column exceed 2 GiB; decode fewer records at once")
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _read_keys(keys: pa.Array, chosen: Kernels) -> _Keys:
    encoded = (keys.fill_null(b"") if keys.null_count else keys).dictionary_encode()
    source = bytes_of(encoded.dictionary, chosen)
    count = len(encoded.dictionary)
    kinds = np.zeros(count, np.int64)
    found = np.full((count, kernels.KEY_WIDTH), NOTHING, np.int64)
    if chosen.compiled:
        chosen.keys(source.data, source.starts, source.ends, kinds, found)
    else:
        columns.keys(source, kinds, found)
    rows = encoded.indices.to_numpy(zero_copy_only=False)
    return _Keys(
        kinds=kinds[rows],
        statuses=found[rows, kernels.KEY_STATUS],
        partitions=found[rows, kernels.KEY_PARTITION],
        rows=rows,
        distinct_kinds=kinds,
        groups=_texts(source, found, kernels.GROUP),
        seconds=_texts(source, found, kernels.SECOND),
    )


def _texts(source: Bytes, rows: Numbers, at: int) -> pa.Array:
    """The texts at the positions in two columns of `rows`."""
    return places(source, rows[:, at], rows[:, at + 1], pa.string())


def _topic_ids(source: Bytes, begins: Numbers) -> pa.Array:
    return places(source, begins, np.where(begins >= 0, 16, NOTHING), pa.binary())


def _only(column: pa.Array, where: Numbers) -> pa.Array:
    """The column, null elsewhere."""
    return pc.if_else(pa.array(where), column, pa.scalar(None, column.type))


class _Text:
    """Makes columns of strings: plain, or dictionaries of the distinct ones."""

    def __init__(self, named: _Keys, dictionaries: bool) -> None:
        self._rows = pa.array(named.rows)
        self._dictionaries = dictionaries

    def column(self, distinct: pa.Array, where: Numbers | None) -> pa.Array:
        if where is not None:
            distinct = _only(distinct, where)
        if not self._dictionaries:
            return distinct.take(self._rows)
        encoded = distinct.dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices.take(self._rows), encoded.dictionary)

    def plain(self, column: pa.Array) -> pa.Array:
        return column.dictionary_encode() if self._dictionaries else column


def _arrays(records: int, room: list[int]) -> GroupArrays:
    """Empty arrays with room for this many members, topics and partitions."""
    widths = (kernels.MEMBER_WIDTH, kernels.TOPIC_WIDTH, kernels.PARTITION_WIDTH)
    numbers_of_records = np.full((records, kernels.RECORD_WIDTH), NOTHING, np.int64)
    numbers_of_records[:, : kernels.PROTOCOL_TYPE] = UNSET
    members, topics, partitions = (
        np.full((rows, width), NOTHING, np.int64) for rows, width in zip(room, widths, strict=True)
    )
    return GroupArrays(numbers_of_records, members, topics, partitions, np.zeros(3, np.int64))


class _Groups:
    """The values of the records of groups: read for the rows `others` of a batch."""

    def __init__(self, source: Bytes, others: Numbers, kinds: Numbers, statuses: Numbers, versions: Numbers) -> None:
        self._source = source
        self._others = others
        self._count = len(kinds)
        theirs = source.some(others)
        size = int((theirs.ends - theirs.starts).sum())
        room = [len(others) + size // 64 + 1, len(others) + size // 64 + 1, len(others) + size // 16 + 1]
        arguments = theirs.arguments()
        while True:
            out = _arrays(len(others), room)
            status, version = statuses[others], versions[others]
            source.kernels.group_values(*arguments, kinds[others], status, version, out)
            members, topics, partitions = needed = out.counts.tolist()
            if all(have >= need for have, need in zip(room, needed, strict=True)):
                break
            room = [max(have, need) for have, need in zip(room, needed, strict=True)]
        statuses[others], versions[others] = status, version
        self.records = out.records
        self._members, self._topics = out.members[:members], out.topics[:topics]
        self._partitions = out.partitions[:partitions]

    def number(self, at: int, kind: pa.DataType) -> pa.Array:
        values = self.records[:, at]
        return numbers(values, kind, values != UNSET)

    def hash(self) -> pa.Array:
        return numbers(self.records[:, kernels.HASH], pa.int64(), self.records[:, kernels.HAS_HASH] != UNSET)

    def text(self, at: int) -> pa.Array:
        return _texts(self._source, self.records, at)

    def spread(self, column: pa.Array) -> pa.Array:
        """A column of these rows as a column of all rows."""
        if not len(self._others):
            return pa.nulls(self._count, column.type)
        where = np.full(self._count, NOTHING, np.int64)
        where[self._others] = np.arange(len(self._others))
        return column.take(pa.array(where, mask=where == NOTHING))

    def members(self, count: int) -> pa.Array:
        """The column `members`: null for records that cannot have members."""
        held = self._members
        owners = self._others[held[:, kernels.OF_RECORD]] if len(held) else np.zeros(0, np.int64)
        with_some = np.zeros(count, bool)
        with_some[owners] = True
        is_classic = self.records[:, kernels.PROTOCOL_TYPE + 1] != NOTHING
        with_some[self._others[is_classic]] = True  # a classic group may be empty
        return lists(owners, count, self._structures(), SCHEMA.field("members").type, with_some)

    def _structures(self) -> pa.Array:
        held = self._members
        count = len(held)

        def number(at: int) -> pa.Array:
            return numbers(held[:, at], pa.int32(), held[:, at] != UNSET)

        topics = lists(
            self._topics[:, kernels.OF_MEMBER],
            count,
            _texts(self._source, self._topics, kernels.TOPIC),
            MEMBER.field("topics").type,
            held[:, kernels.HAS_TOPICS] == 1,
        )
        ids = kernels.MEMBER, kernels.INSTANCE, kernels.RACK, kernels.CLIENT, kernels.HOST
        columns = [_texts(self._source, held, at) for at in (*ids, kernels.REGEX, kernels.ASSIGNOR)]
        columns += [number(kernels.REBALANCE_TIMEOUT), number(kernels.SESSION_TIMEOUT), topics]
        return pa.StructArray.from_arrays([*columns, self._owned(0), self._owned(1)], fields=list(MEMBER))

    def _owned(self, revoking: int) -> pa.Array:
        held = self._partitions[self._partitions[:, kernels.REVOKING] == revoking]
        items = pa.StructArray.from_arrays(
            [
                _texts(self._source, held, kernels.PARTITION_TOPIC),
                _topic_ids(self._source, held[:, kernels.TOPIC_ID]),
                numbers(held[:, kernels.PARTITION], pa.int32()),
                numbers(held[:, kernels.PARTITION_EPOCH], pa.int32(), held[:, kernels.PARTITION_EPOCH] != UNSET),
            ],
            fields=list(OWNED),
        )
        filled = self._members[:, kernels.HAS_PARTITIONS] == 1
        return lists(held[:, kernels.OF_MEMBER], len(self._members), items, MEMBER.field("assigned").type, filled)
