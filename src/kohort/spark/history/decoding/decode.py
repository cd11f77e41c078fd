"""The records of `__consumer_offsets` as typed columns, whatever the cluster that wrote them.

`decode` takes the keys and values of log records and gives a row of SCHEMA for each of them, in their order. Keys
repeat, so each distinct one is read once; values are read by compiled loops (`kernels.py`, `ways.py`); where they are
not compiled, offset commits are read with numpy, a column at a time. Nothing is dropped and nothing raises: a record
that is of an unknown type or version, or broken, has its row and a `status` that says so.

Which columns are filled depends on the record type, `kind`:

    0, 1    commit_topic, commit_partition, commit_offset, leader_epoch, metadata, commit_time, expire_time, topic_id
    2       a classic group: epoch (its generation), protocol_type, protocol, leader, state_time, members
    3       a consumer group: epoch, hash (of its topics' metadata)
    5       a member of one: member_id and one of `members`, without partitions
    6       its target: epoch, state_time
    7       the target of a member: member_id and one of `members`, with partitions
    8       what a member has: member_id, epoch, previous_epoch, state, and one of `members`, with partitions
    16      what a regular expression matched: regex, hash (the version of the topics), state_time, one of `members`,
            whose `topics` they are
    30001   kohort's own: epoch, the highest generation of that name
    4, 9-15, 17-24   what Kafka gave up, share groups, streams groups: group and member_id only
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.decoding import columns, kernels
from kohort.spark.history.decoding.columns import TIME, Bytes, Numbers, bytes_of, lists, numbers, places, times
from kohort.spark.history.decoding.kernels import NOTHING, READ, TOMBSTONE, UNSET
from kohort.spark.history.decoding.ways import Way, way

STATUS = ("read", "tombstone", "recognised", "unknown type", "unknown version", "malformed")
"""What became of a record: its columns are filled; it deletes what its key names; its type is known and its value not
taken apart; the rest is as it says. The column `status` has the place in this list."""

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
"""What Spark calls the items of a list."""


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field(ELEMENT, kind))


OWNED = pa.struct(
    [
        pa.field("topic", pa.string()),  # of classic groups
        pa.field("topic_id", pa.binary()),  # of consumer groups
        pa.field("partition", pa.int32()),
        pa.field("epoch", pa.int32()),  # at which the member got it, where the record says so
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
        pa.field("topics", _list(pa.string())),  # what it asks for
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
    """The keys: what each names, and columns of the distinct ones with the place of each row's among them."""

    kinds: Numbers
    statuses: Numbers
    partitions: Numbers
    distinct_kinds: Numbers
    groups: pa.Array
    seconds: pa.Array
    """Topic, member or expression."""
    rows: Numbers


def decode(keys: pa.Array, values: pa.Array, *, dictionaries: bool = False) -> pa.RecordBatch:
    """A row of SCHEMA for each record. `keys` and `values` are binary columns of the same length.

    With `dictionaries` the columns group, commit_topic, member_id and metadata are dictionaries of strings: less to
    hold, and faster to write.
    """
    chosen = way(len(keys))
    named = _read_keys(_plain(keys), chosen)
    values = _plain(values)
    source = bytes_of(values, chosen)
    count = len(values)
    kinds, statuses = named.kinds, named.statuses.astype(np.int64)
    if values.null_count:
        missing = values.is_null().to_numpy(zero_copy_only=False)
        statuses[missing & (statuses == READ)] = TOMBSTONE
    versions = np.full(count, NOTHING, np.int64)
    commits = np.full((count, 7), NOTHING, np.int64)
    if chosen.compiled:
        chosen.commits(source.data, source.starts, source.ends, kinds, statuses, versions, commits)
    else:
        columns.commits(source, kinds, statuses, versions, commits)
    others = np.flatnonzero(kinds > 1)
    of_groups = _Groups(source, others, kinds, statuses, versions)
    is_commit = (kinds >= 0) & (kinds <= 1)
    has_offset = is_commit & (statuses == READ)
    text = _Text(named, dictionaries)
    read = of_groups.spread
    arrays = [
        numbers(kinds, pa.int16(), kinds != NOTHING),
        numbers(statuses, pa.int8()),
        numbers(versions, pa.int16(), versions != NOTHING),
        text.column(named.groups, None),
        text.column(named.seconds, named.distinct_kinds <= 1),
        numbers(named.partitions, pa.int32(), is_commit & (named.statuses == READ)),
        numbers(commits[:, 0], pa.int64(), has_offset),
        numbers(commits[:, 1], pa.int32(), has_offset & (commits[:, 1] >= 0)),
        text.plain(places(source, commits[:, 4], np.where(has_offset, commits[:, 5], NOTHING), pa.string())),
        times(commits[:, 2], has_offset),
        times(commits[:, 3], has_offset),
        places(source, commits[:, 6], np.where(has_offset & (commits[:, 6] >= 0), 16, NOTHING), pa.binary()),
        text.column(named.seconds, (named.distinct_kinds > 1) & (named.distinct_kinds != 16)),
        *(read(of_groups.number(at, kind)) for at, kind in _NUMBERS_BEFORE_TIME),
        read(times(of_groups.records[:, kernels.TIME])),
        read(of_groups.hash()),
        *(read(of_groups.text(at)) for at in (kernels.PROTOCOL_TYPE, kernels.PROTOCOL, kernels.LEADER)),
        _only(named.seconds, named.distinct_kinds == 16).take(pa.array(named.rows)),
        of_groups.members(count),
    ]
    if dictionaries:
        return pa.RecordBatch.from_arrays(arrays, names=SCHEMA.names)
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


_NUMBERS_BEFORE_TIME = (
    (kernels.EPOCH, pa.int32()),
    (kernels.PREVIOUS, pa.int32()),
    (kernels.STATE, pa.int8()),
)


def _plain(column: pa.Array) -> pa.Array:
    """One piece of `binary`."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ChunkedArray):
        raise ValueError("more than 2 GiB in one column; decode fewer records at once")
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _read_keys(keys: pa.Array, chosen: Way) -> _Keys:
    encoded = (keys.fill_null(b"") if keys.null_count else keys).dictionary_encode()
    source = bytes_of(encoded.dictionary, chosen)
    count = len(encoded.dictionary)
    kinds = np.zeros(count, np.int64)
    found = np.full((count, 6), NOTHING, np.int64)
    chosen.keys(*source.readable(), kinds, found)
    rows = encoded.indices.to_numpy(zero_copy_only=False)
    return _Keys(
        kinds=kinds[rows],
        statuses=found[rows, 5],
        partitions=found[rows, 4],
        distinct_kinds=kinds,
        groups=places(source, found[:, 0], found[:, 1], pa.string()),
        seconds=places(source, found[:, 2], found[:, 3], pa.string()),
        rows=rows,
    )


def _only(column: pa.Array, where: Numbers) -> pa.Array:
    """The column, null elsewhere."""
    return pc.if_else(pa.array(where), column, pa.scalar(None, column.type))


class _Text:
    """Columns of strings of the keys, one for each row: as strings, or as dictionaries of the distinct ones."""

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


class _Groups:
    """What the records of groups hold: read for the rows `others` of a batch."""

    def __init__(self, source: Bytes, others: Numbers, kinds: Numbers, statuses: Numbers, versions: Numbers) -> None:
        self._source = source
        self._others = others
        self._count = len(kinds)
        theirs = source.some(others)
        size = int((theirs.ends - theirs.starts).sum())
        room = [len(others) + size // 64 + 1, len(others) + size // 64 + 1, len(others) + size // 16 + 1]
        readable = theirs.readable()
        while True:
            self.records = np.full((len(others), kernels.RECORD_WIDTH), NOTHING, np.int64)
            widths = (kernels.MEMBER_WIDTH, kernels.TOPIC_WIDTH, kernels.PARTITION_WIDTH)
            held = [np.full((rows, width), NOTHING, np.int64) for rows, width in zip(room, widths, strict=True)]
            now, seen = statuses[others], versions[others]
            needed = source.way.walk(*readable, kinds[others], now, seen, self.records, *held)
            if all(have >= need for have, need in zip(room, needed, strict=True)):
                break
            room = [max(have, int(need)) for have, need in zip(room, needed, strict=True)]
        statuses[others], versions[others] = now, seen
        self._members, self._topics, self._partitions = (
            rows[: int(need)] for rows, need in zip(held, needed, strict=True)
        )

    def number(self, at: int, kind: pa.DataType) -> pa.Array:
        values = self.records[:, at]
        return numbers(values, kind, values != UNSET)

    def hash(self) -> pa.Array:
        """Any number may be one, so whether there is one stands beside it."""
        return numbers(self.records[:, kernels.HASH], pa.int64(), self.records[:, kernels.HASHED] != UNSET)

    def text(self, at: int) -> pa.Array:
        return places(self._source, self.records[:, at], self.records[:, at + 1], pa.string())

    def spread(self, column: pa.Array) -> pa.Array:
        """A column of these rows as one of all rows."""
        if not len(self._others):
            return pa.nulls(self._count, column.type)
        where = np.full(self._count, NOTHING, np.int64)
        where[self._others] = np.arange(len(self._others))
        return column.take(pa.array(where, mask=where == NOTHING))

    def members(self, count: int) -> pa.Array:
        """The column `members`: null for what has none by its nature."""
        held = self._members
        owners = self._others[held[:, kernels.OF_RECORD]] if len(held) else np.zeros(0, np.int64)
        with_some = np.zeros(count, bool)
        with_some[owners] = True
        epochs = self.records[:, kernels.PROTOCOL_TYPE + 1]
        with_some[self._others[epochs != NOTHING]] = True  # a classic group, maybe an empty one
        return lists(owners, count, self._structures(), SCHEMA.field("members").type, with_some)

    def _structures(self) -> pa.Array:
        held = self._members
        count = len(held)

        def text(at: int) -> pa.Array:
            return places(self._source, held[:, at], held[:, at + 1], pa.string())

        def number(at: int) -> pa.Array:
            return numbers(held[:, at], pa.int32(), held[:, at] != UNSET)

        topics = self._topics
        names = places(self._source, topics[:, kernels.TOPIC], topics[:, kernels.TOPIC + 1], pa.string())
        asked = lists(
            topics[:, kernels.OF_MEMBER], count, names, MEMBER.field("topics").type, held[:, kernels.HAS_TOPICS] == 1
        )
        texts = (
            kernels.MEMBER,
            kernels.INSTANCE,
            kernels.RACK,
            kernels.CLIENT,
            kernels.HOST,
            kernels.REGEX,
            kernels.ASSIGNOR,
        )
        timeouts = (kernels.REBALANCE_TIMEOUT, kernels.SESSION_TIMEOUT)
        return pa.StructArray.from_arrays(
            [*map(text, texts), *map(number, timeouts), asked, self._owned(0), self._owned(1)],
            fields=list(MEMBER),
        )

    def _owned(self, revoking: int) -> pa.Array:
        held = self._partitions[self._partitions[:, kernels.REVOKING] == revoking]
        ids = held[:, kernels.TOPIC_ID]
        items = pa.StructArray.from_arrays(
            [
                places(
                    self._source,
                    held[:, kernels.PARTITION_TOPIC],
                    held[:, kernels.PARTITION_TOPIC + 1],
                    pa.string(),
                ),
                places(self._source, ids, np.where(ids >= 0, 16, NOTHING), pa.binary()),
                numbers(held[:, kernels.PARTITION], pa.int32()),
                numbers(held[:, kernels.PARTITION_EPOCH], pa.int32(), held[:, kernels.PARTITION_EPOCH] != UNSET),
            ],
            fields=list(OWNED),
        )
        filled = self._members[:, kernels.HAS_PARTITIONS] == 1
        return lists(held[:, kernels.OF_MEMBER], len(self._members), items, MEMBER.field("assigned").type, filled)
