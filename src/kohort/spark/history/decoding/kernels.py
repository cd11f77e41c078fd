"""Loops over the bytes of `__consumer_offsets` records, without an object for each record.

There are three: `keys` reads the keys of all records, `commits` the values of offset commits, `group_values` the values
of all other records. They write numbers into arrays that the caller provides. A text is written as two numbers, where
its bytes begin and how many there are; `columns.py` makes strings of a whole column of them later.

The functions are plain Python, which numba compiles (`compilation.py`) or which runs as it is; then `data` is `bytes`,
whose items Python reads faster than numpy's. A function that reads takes a position and returns the position after the
bytes that it read, or BAD if the bytes do not fit or the position is BAD. A record whose bytes do not fit is malformed.

The layouts are Kafka's (group-coordinator/src/main/resources/common/message) and, for what consumers put inside,
clients/src/main/resources/common/message/ConsumerProtocol*.json. In flexible versions a length is a varint, one more
than the number it stands for, and tagged fields are at the end of every structure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

BAD = -1
NOTHING = -1
"""The length of a null, and the position of a missing item."""
UNSET = -(2**63)
"""A missing number."""

READ, TOMBSTONE, RECOGNISED, UNKNOWN_TYPE, UNKNOWN_VERSION, MALFORMED = range(6)
"""The status of a record; `decode.STATUS` has the words."""

LAST_KIND = 24  # of Kafka's record types
GENERATION = 30001  # kohort's own: the highest generation of a group's name

# The columns of the arrays. A text takes two of them: where it begins, and its length.

GROUP, SECOND = 0, 2
"""Columns of a key: the group; the topic, the member or the regular expression."""
KEY_PARTITION, KEY_STATUS, KEY_WIDTH = range(4, 7)

OFFSET, LEADER_EPOCH, COMMIT_TIME, EXPIRE_TIME, METADATA = range(5)
COMMIT_TOPIC_ID, COMMIT_WIDTH = 6, 7
"""Columns of an offset commit."""

EPOCH, PREVIOUS_EPOCH, STATE, TIME, HASH, HAS_HASH = range(6)
PROTOCOL_TYPE, PROTOCOL, LEADER, RECORD_WIDTH = range(6, 13, 2)
"""Columns of any other record. Every number can be a hash, so HAS_HASH is UNSET if there is none."""

OF_RECORD = 0
MEMBER, INSTANCE, RACK, CLIENT, HOST, REGEX, ASSIGNOR, REBALANCE_TIMEOUT = range(1, 16, 2)
SESSION_TIMEOUT, HAS_TOPICS, HAS_PARTITIONS, MEMBER_WIDTH = range(16, 20)
"""Columns of a member; OF_RECORD is the row of its record."""

OF_MEMBER, TOPIC, TOPIC_WIDTH = 0, 1, 3
"""Columns of a topic that a member subscribes to; OF_MEMBER is the row of the member."""

REVOKING, PARTITION_TOPIC, TOPIC_ID, PARTITION, PARTITION_EPOCH, PARTITION_WIDTH = 1, 2, 4, 5, 6, 7
"""Columns of a partition that a member has (OF_MEMBER again). The topic has a name in classic groups, else an id."""


class GroupArrays(NamedTuple):
    """Where `group_values` writes. `records` has a row for each record; its numbers are UNSET, its texts NOTHING.
    Rows of the others are appended. `counts`, of members, topics and partitions so far, may exceed the arrays."""

    records: Any
    members: Any
    topics: Any
    partitions: Any
    counts: Any


def keys(data: Any, starts: Any, ends: Any, kinds: Any, out: Any) -> Any:
    """Read keys: the record type into `kinds`, UNSET if there is none; the rest into a row of `out`, of width
    KEY_WIDTH."""
    for row in range(len(starts)):
        at, end = starts[row], ends[row]
        one = out[row]
        one[GROUP + 1] = one[SECOND + 1] = NOTHING
        one[KEY_STATUS] = READ
        if end - at < 2:
            kinds[row] = UNSET
            one[KEY_STATUS] = MALFORMED
            continue
        kind = int16(data, at)
        kinds[row] = kind
        if not (0 <= kind <= LAST_KIND or kind == GENERATION):
            one[KEY_STATUS] = UNKNOWN_TYPE
            continue
        at = text(data, at + 2, end, False, False, one, GROUP)
        if kind <= 1 or kind in (5, 7, 8, 10, 13, 14, 16, 19, 21, 22):
            at = text(data, at, end, False, False, one, SECOND)
        if kind <= 1:
            at = integer(data, at, end, 4, one, KEY_PARTITION)
        if at != end:
            one[GROUP + 1] = one[SECOND + 1] = NOTHING
            one[KEY_STATUS] = MALFORMED


def commits(data: Any, starts: Any, ends: Any, kinds: Any, statuses: Any, versions: Any, out: Any) -> Any:
    """Read the values of offset commits into rows of `out`, of width COMMIT_WIDTH. Most records are commits, so this
    loop takes no view of a row and writes nothing before it has read all."""
    for row in range(len(starts)):
        if kinds[row] < 0 or kinds[row] > 1 or statuses[row] != READ:
            continue
        at, end = starts[row], ends[row]
        if end - at < 2:
            statuses[row] = MALFORMED
            continue
        version = int16(data, at)
        versions[row] = version
        if version < 0 or version > 4:
            statuses[row] = UNKNOWN_VERSION
            continue
        flexible = version >= 4
        epoch_at = fixed(at + 2, end, 8)
        begin, size, time_at = span(data, fixed(epoch_at, end, 4 if version >= 3 else 0), end, flexible, False, False)
        at, id_at, id_size = tags(data, fixed(time_at, end, 16 if version == 1 else 8), end, flexible)
        if at != end or (id_size != NOTHING and id_size != 16):
            statuses[row] = MALFORMED
            continue
        out[row, OFFSET] = int64(data, starts[row] + 2)
        out[row, LEADER_EPOCH] = int32(data, epoch_at) if version >= 3 else NOTHING
        out[row, COMMIT_TIME] = int64(data, time_at)
        out[row, EXPIRE_TIME] = int64(data, time_at + 8) if version == 1 else NOTHING
        out[row, METADATA] = begin
        out[row, METADATA + 1] = size
        out[row, COMMIT_TOPIC_ID] = id_at if id_size == 16 else NOTHING


def group_values(data: Any, starts: Any, ends: Any, kinds: Any, statuses: Any, versions: Any, out: GroupArrays) -> Any:
    """Read the values of all records that are not commits.

    If one of the arrays is too small, `out.counts` says how large it must be: call again with a larger one.
    """
    before = np.zeros(3, dtype=np.int64)
    for row in range(len(starts)):
        kind = kinds[row]
        if statuses[row] != READ or kind <= 1:
            continue
        at, end = starts[row], ends[row]
        if end - at < 2:
            statuses[row] = MALFORMED
            continue
        version = int16(data, at)
        versions[row] = version
        if kind == 4 or (kind > 8 and kind != 16 and kind != GENERATION):
            statuses[row] = RECOGNISED
            continue
        if version < 0 or version > (4 if kind == 2 else 0):
            statuses[row] = UNKNOWN_VERSION
            continue
        before[:] = out.counts
        at += 2
        if kind == 2:
            at = _classic_group(data, at, end, version, row, out)
        elif kind == 5:
            at = _member(data, at, end, row, out)
        elif kind == 7:
            at = _target(data, at, end, row, out)
        elif kind == 8:
            at = _current_assignment(data, at, end, row, out)
        elif kind == 16:
            at = _regular_expression(data, at, end, row, out)
        else:
            at = _epoch(data, at, end, kind, out.records[row])
        if at != end:
            statuses[row] = MALFORMED
            out.records[row, :PROTOCOL_TYPE] = UNSET
            out.records[row, PROTOCOL_TYPE:] = NOTHING
            out.counts[:] = before


# -- the records


def _epoch(data: Any, at: Any, end: Any, kind: Any, record: Any) -> Any:
    """A consumer group's epoch (3), its target's epoch (6), kohort's generation."""
    at = integer(data, at, end, 4, record, EPOCH)
    at, tag_at, tag_size = tags(data, at, end, kind != GENERATION)
    if tag_size == 8:
        integer(data, tag_at, end, 8, record, HASH if kind == 3 else TIME)
        record[HAS_HASH] = 1 if kind == 3 else UNSET
    elif tag_size != NOTHING:
        return BAD
    return at


def _classic_group(data: Any, at: Any, end: Any, version: Any, row: Any, out: GroupArrays) -> Any:
    """A classic group with all its members (2)."""
    flexible = version >= 4
    record = out.records[row]
    at = text(data, at, end, flexible, False, record, PROTOCOL_TYPE)
    at = integer(data, at, end, 4, record, EPOCH)
    at = text(data, at, end, flexible, True, record, PROTOCOL)
    at = text(data, at, end, flexible, True, record, LEADER)
    if version >= 2:
        at = integer(data, at, end, 8, record, TIME)
    count, at = length(data, at, end, flexible, True)
    if at == BAD or count < 0 or count > end - at:
        return BAD
    consumer = record[PROTOCOL_TYPE + 1] == 8
    if consumer:
        for place, letter in enumerate((99, 111, 110, 115, 117, 109, 101, 114)):  # "consumer"
            consumer = consumer and data[record[PROTOCOL_TYPE] + place] == letter
    for _ in range(count):
        at = _classic_member(data, at, end, version, row, consumer, out)
        if at == BAD:
            return BAD
    return tags(data, at, end, flexible)[0]


def _classic_member(data: Any, at: Any, end: Any, version: Any, row: Any, consumer: Any, out: GroupArrays) -> Any:
    flexible = version >= 4
    number, member = _new_member(row, out)
    at = text(data, at, end, flexible, False, member, MEMBER)
    if version >= 3:
        at = text(data, at, end, flexible, True, member, INSTANCE)
    at = text(data, at, end, flexible, False, member, CLIENT)
    at = text(data, at, end, flexible, False, member, HOST)
    if version >= 1:
        at = integer(data, at, end, 4, member, REBALANCE_TIMEOUT)
    at = integer(data, at, end, 4, member, SESSION_TIMEOUT)
    subscription_at, subscription_size, at = span(data, at, end, flexible, True, False)
    assignment_at, assignment_size, at = span(data, at, end, flexible, True, False)
    if at == BAD:
        return BAD
    if consumer:
        _subscription(data, subscription_at, subscription_at + subscription_size, number, member, out)
        _assignment(data, assignment_at, assignment_at + assignment_size, number, member, out)
    return tags(data, at, end, flexible)[0]


def _subscription(data: Any, at: Any, end: Any, number: Any, member: Any, out: GroupArrays) -> Any:
    """A classic consumer's subscription. The client writes these bytes; if they do not fit, they are ignored."""
    if end - at < 2 or int16(data, at) < 0:
        return
    version = int16(data, at)
    before = out.counts[1]
    at = _topics(data, at + 2, end, False, number, out)
    at = span(data, at, end, False, True, True)[2]  # user data
    if version >= 1:  # owned partitions
        count, at = length(data, at, end, False, True)
        while at != BAD and count > 0:
            at = span(data, at, end, False, False, False)[2]
            indexes, at = length(data, at, end, False, True)
            at = array32(at, end, indexes)
            count -= 1
        if count < 0:
            at = BAD
    if version >= 2:  # generation
        at = fixed(at, end, 4)
    if version >= 3:
        at = text(data, at, end, False, True, member, RACK)
    if at == BAD:
        out.counts[1] = before
    else:
        member[HAS_TOPICS] = 1


def _assignment(data: Any, at: Any, end: Any, number: Any, member: Any, out: GroupArrays) -> Any:
    """The leader's assignment for a classic consumer; no bytes mean no partitions. Ignored if the bytes do not fit."""
    if end == at:
        member[HAS_PARTITIONS] = 1
    if end - at < 2 or int16(data, at) < 0:
        return
    before = out.counts[2]
    count, at = length(data, at + 2, end, False, True)
    if count < 0:
        at = BAD
    while at != BAD and count > 0:
        begin, size, at = span(data, at, end, False, False, False)
        indexes, first = length(data, at, end, False, True)
        at = array32(first, end, indexes)
        if at != BAD:
            for index in range(indexes):
                _add_partition(out, number, 0, begin, size, NOTHING, int32(data, first + 4 * index), UNSET)
        count -= 1
    at = span(data, at, end, False, True, True)[2]  # user data
    if at == BAD:
        out.counts[2] = before
    else:
        member[HAS_PARTITIONS] = 1


def _member(data: Any, at: Any, end: Any, row: Any, out: GroupArrays) -> Any:
    """A member of a consumer group (5)."""
    number, member = _new_member(row, out)
    member[HAS_TOPICS] = 1
    at = text(data, at, end, True, True, member, INSTANCE)
    at = text(data, at, end, True, True, member, RACK)
    at = text(data, at, end, True, False, member, CLIENT)
    at = text(data, at, end, True, False, member, HOST)
    at = _topics(data, at, end, True, number, out)
    at = text(data, at, end, True, True, member, REGEX)
    at = integer(data, at, end, 4, member, REBALANCE_TIMEOUT)
    at = text(data, at, end, True, True, member, ASSIGNOR)
    at, tag_at, tag_size = tags(data, at, end, True)
    if tag_size >= 5 and data[tag_at] == 1:  # the structure is not null: a member with the classic protocol
        member[SESSION_TIMEOUT] = int32(data, tag_at + 1)
    return at


def _target(data: Any, at: Any, end: Any, row: Any, out: GroupArrays) -> Any:
    """The target assignment of a member (7)."""
    number, member = _new_member(row, out)
    member[HAS_PARTITIONS] = 1
    at = _partitions(data, at, end, number, 0, out)
    return tags(data, at, end, True)[0]


def _current_assignment(data: Any, at: Any, end: Any, row: Any, out: GroupArrays) -> Any:
    """The partitions that a member has, and those that it must revoke (8)."""
    number, member = _new_member(row, out)
    member[HAS_PARTITIONS] = 1
    record = out.records[row]
    at = integer(data, at, end, 4, record, EPOCH)
    at = integer(data, at, end, 4, record, PREVIOUS_EPOCH)
    after = fixed(at, end, 1)
    if after != BAD:
        state = data[at] + 0
        record[STATE] = state - 256 if state > 127 else state
    at = _partitions(data, after, end, number, 0, out)
    at = _partitions(data, at, end, number, 1, out)
    return tags(data, at, end, True)[0]


def _regular_expression(data: Any, at: Any, end: Any, row: Any, out: GroupArrays) -> Any:
    """The topics that a regular expression matched (16), as those of a member without a name."""
    number, member = _new_member(row, out)
    member[HAS_TOPICS] = 1
    record = out.records[row]
    at = _topics(data, at, end, True, number, out)
    at = integer(data, at, end, 8, record, HASH)
    record[HAS_HASH] = 1
    at = integer(data, at, end, 8, record, TIME)
    return tags(data, at, end, True)[0]


def _new_member(row: Any, out: GroupArrays) -> Any:
    """The number of a new member and its row; the last row again if there is no room."""
    number = out.counts[0]
    out.counts[0] += 1
    member = out.members[min(number, len(out.members) - 1)]
    member[:] = NOTHING
    member[OF_RECORD] = row
    member[REBALANCE_TIMEOUT] = member[SESSION_TIMEOUT] = UNSET
    return number, member


def _topics(data: Any, at: Any, end: Any, flexible: Any, number: Any, out: GroupArrays) -> Any:
    """The topics of member `number`, an array of strings."""
    count, at = length(data, at, end, flexible, True)
    if at == BAD or count < 0:
        return BAD
    while count > 0 and at != BAD:
        begin, size, at = span(data, at, end, flexible, False, False)
        row = out.counts[1]
        out.counts[1] += 1
        if row < len(out.topics):
            out.topics[row, OF_MEMBER] = number
            out.topics[row, TOPIC] = begin
            out.topics[row, TOPIC + 1] = size
        count -= 1
    return at


def _partitions(data: Any, at: Any, end: Any, number: Any, revoking: Any, out: GroupArrays) -> Any:
    """The partitions of member `number` in a consumer group, by topic id."""
    count, at = length(data, at, end, True, True)
    if at == BAD or count < 0:
        return BAD
    while count > 0 and at != BAD:
        topic_id = at
        indexes, first = length(data, fixed(at, end, 16), end, True, True)
        at, tag_at, tag_size = tags(data, array32(first, end, indexes), end, True)
        epochs, epochs_at = 0, 0
        if at != BAD and tag_size > 0:
            epochs, epochs_at = length(data, tag_at, tag_at + tag_size, True, True)
            if array32(epochs_at, tag_at + tag_size, max(epochs, 0)) != tag_at + tag_size:
                at = BAD
        if at != BAD:
            for index in range(indexes):
                epoch = int32(data, epochs_at + 4 * index) if index < epochs else UNSET
                partition = int32(data, first + 4 * index)
                _add_partition(out, number, revoking, 0, NOTHING, topic_id, partition, epoch)
        count -= 1
    return at


def _add_partition(
    out: GroupArrays, number: Any, revoking: Any, begin: Any, size: Any, topic_id: Any, partition: Any, epoch: Any
) -> Any:
    row = out.counts[2]
    out.counts[2] += 1
    if row < len(out.partitions):
        one = out.partitions[row]
        one[OF_MEMBER] = number
        one[REVOKING] = revoking
        one[PARTITION_TOPIC] = begin
        one[PARTITION_TOPIC + 1] = size
        one[TOPIC_ID] = topic_id
        one[PARTITION] = partition
        one[PARTITION_EPOCH] = epoch


# -- Kafka's types


def int16(data: Any, at: Any) -> Any:
    value = data[at] * 256 + data[at + 1]
    return value - 65536 if value >= 32768 else value


def int32(data: Any, at: Any) -> Any:
    value = ((data[at] * 256 + data[at + 1]) * 256 + data[at + 2]) * 256 + data[at + 3]
    return value - 4294967296 if value >= 2147483648 else value


def int64(data: Any, at: Any) -> Any:
    return int32(data, at) << 32 | int32(data, at + 4) & 0xFFFFFFFF


def fixed(at: Any, end: Any, size: Any) -> Any:
    """The position after this many bytes."""
    return at + size if at != BAD and at + size <= end else BAD


def array32(at: Any, end: Any, count: Any) -> Any:
    """The position after this many numbers of four bytes."""
    return fixed(at, end, 4 * count) if count >= 0 else BAD


def integer(data: Any, at: Any, end: Any, size: Any, out: Any, column: Any) -> Any:
    """Write a number of four or eight bytes to a column of `out`."""
    after = fixed(at, end, size)
    if after != BAD:
        out[column] = int32(data, at) if size == 4 else int64(data, at)
    return after


def text(data: Any, at: Any, end: Any, flexible: Any, nullable: Any, out: Any, column: Any) -> Any:
    """Write the place of a string to two columns of `out`."""
    out[column], out[column + 1], at = span(data, at, end, flexible, False, nullable)
    return at


def span(data: Any, at: Any, end: Any, flexible: Any, wide: Any, nullable: Any) -> Any:
    """Where a string (or, `wide`, bytes) begins, how long it is, and the position after it."""
    count, at = length(data, at, end, flexible, wide)
    if at == BAD or count > end - at or (count < 0 and not nullable):
        return 0, NOTHING, BAD
    return at, count, at + max(count, 0)


def length(data: Any, at: Any, end: Any, flexible: Any, wide: Any) -> Any:
    """A length, NOTHING for a null, and the position after it. `wide`: four bytes, not two, unless flexible."""
    if at == BAD:
        return 0, BAD
    if flexible:
        value, at = uvarint(data, at, end)
        return value - 1, at
    if at + (4 if wide else 2) > end:
        return 0, BAD
    value = int32(data, at) if wide else int16(data, at)
    return value, (BAD if value < NOTHING else at + (4 if wide else 2))


def uvarint(data: Any, at: Any, end: Any) -> Any:
    """A number below 2^31 in at most five bytes, and the position after it."""
    value = 0
    shift = 0
    while at < end and shift < 35:
        byte = data[at] + 0
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value, at) if value <= 2147483647 else (0, BAD)
        shift += 7
    return 0, BAD


def tags(data: Any, at: Any, end: Any, flexible: Any) -> Any:
    """The position after the tagged fields; where field 0 begins, and its size or NOTHING."""
    if at == BAD or not flexible:
        return at, 0, NOTHING
    begin, size = 0, NOTHING
    count, at = uvarint(data, at, end)
    last = -1
    while count > 0 and at != BAD:
        tag, at = uvarint(data, at, end) if at != BAD else (0, BAD)
        held, at = uvarint(data, at, end) if at != BAD else (0, BAD)
        if at == BAD or held > end - at or tag <= last:
            return BAD, 0, NOTHING
        if tag == 0:
            begin, size = at, held
        last = tag
        at += held
        count -= 1
    return at, begin, size
