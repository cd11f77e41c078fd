"""Reading the bytes of `__consumer_offsets` records, without an object a record: into arrays of numbers and places.

A place is where bytes begin and how many there are; strings are made of places later, a column at a time. `walk` reads
the records of groups, `commits` the values of offset commits, `keys` the keys. They are written so that numba compiles
them (`ways.py`) and so that they run as they are: then `data` is a `bytes`, whose items Python reads faster than
numpy's. What is read is never trusted: a position of BAD means that something did not fit, and the whole record is
called malformed.

The layouts are Kafka's (group-coordinator/src/main/resources/common/message), and those of what consumers put inside
(clients/src/main/resources/common/message/ConsumerProtocol*.json). In flexible versions lengths are varints, one more
than they say, and tagged fields stand at the end of every structure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BAD = -1

READ, TOMBSTONE, RECOGNISED, UNKNOWN_TYPE, UNKNOWN_VERSION, MALFORMED = range(6)
"""What became of a record; see `decode.STATUS`."""

FIRST_STREAMS, LAST_KNOWN = 17, 24
GENERATION = 30001
"""kohort's own: the highest generation of a group's name."""

# Columns of the numbers that `walk` writes for a record, a member, a topic of a member, a partition of a member.
EPOCH, PREVIOUS, STATE, TIME, HASH, HASHED, PROTOCOL_TYPE, PROTOCOL, LEADER, RECORD_WIDTH = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
)
(
    OF_RECORD,
    MEMBER,
    INSTANCE,
    RACK,
    CLIENT,
    HOST,
    REGEX,
    ASSIGNOR,
    REBALANCE_TIMEOUT,
    SESSION_TIMEOUT,
    HAS_TOPICS,
    HAS_PARTITIONS,
    MEMBER_WIDTH,
) = (0, 1, 3, 5, 7, 9, 11, 13, 15, 16, 17, 18, 19)
OF_MEMBER, TOPIC, TOPIC_WIDTH = 0, 1, 3
REVOKING, PARTITION_TOPIC, TOPIC_ID, PARTITION, PARTITION_EPOCH, PARTITION_WIDTH = 1, 2, 4, 5, 6, 7
NOTHING = -1
"""The length of a null, the place of what is not there."""
UNSET = -(2**63)
"""A number that is not there."""


def int16(data: Any, at: Any) -> Any:
    value = data[at] * 256 + data[at + 1]
    return value - 65536 if value >= 32768 else value


def int32(data: Any, at: Any) -> Any:
    value = ((data[at] * 256 + data[at + 1]) * 256 + data[at + 2]) * 256 + data[at + 3]
    return value - 4294967296 if value >= 2147483648 else value


def int64(data: Any, at: Any) -> Any:
    low = int32(data, at + 4)
    return int32(data, at) * 4294967296 + (low + 4294967296 if low < 0 else low)


def uvarint(data: Any, at: Any, end: Any) -> Any:
    """A number below 2^31 in at most five bytes, and the position behind it."""
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


def length(data: Any, at: Any, end: Any, flexible: Any, wide: Any) -> Any:
    """How many follow, NOTHING for a null, and the position behind it. `wide`: four bytes where not flexible."""
    if at == BAD:
        return 0, BAD
    if flexible:
        value, at = uvarint(data, at, end)
        return value - 1, at
    if at + (4 if wide else 2) > end:
        return 0, BAD
    value = int32(data, at) if wide else int16(data, at)
    return value, (BAD if value < NOTHING else at + (4 if wide else 2))


def span(data: Any, at: Any, end: Any, flexible: Any, wide: Any, nullable: Any) -> Any:
    """Where a string (or, `wide`, bytes) begins, how long it is, and the position behind it."""
    count, at = length(data, at, end, flexible, wide)
    if at == BAD or count > end - at or (count < 0 and not nullable):
        return 0, NOTHING, BAD
    return at, count, at + max(count, 0)


def fixed(at: Any, end: Any, size: Any) -> Any:
    """The position behind so many bytes, if they are there."""
    return at + size if at != BAD and at + size <= end else BAD


def tags(data: Any, at: Any, end: Any, flexible: Any) -> Any:
    """The position behind the tagged fields, and where field 0 stands among them: begin, size or NOTHING."""
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


def keys(data: Any, starts: Any, ends: Any, kinds: Any, places: Any) -> Any:
    """Of each key its type, and what it names: group, topic or member or expression, partition; a row of `places` each.

    Returns nothing; a key that does not fit has the type and a negative last number in its row.
    """
    for row in range(len(starts)):
        at, end = starts[row], ends[row]
        out = places[row]
        out[1] = out[3] = NOTHING
        out[5] = 0
        if end - at < 2:
            kinds[row] = NOTHING
            out[5] = MALFORMED
            continue
        kind = int16(data, at)
        kinds[row] = kind
        if not (0 <= kind <= LAST_KNOWN or kind == GENERATION):
            out[5] = UNKNOWN_TYPE
            continue
        out[0], out[1], at = span(data, at + 2, end, False, False, False)
        if kind <= 1 or kind in (5, 7, 8, 10, 13, 14, 16, 19, 21, 22):
            out[2], out[3], at = span(data, at, end, False, False, False)
        if kind <= 1:
            after = fixed(at, end, 4)
            if after != BAD:
                out[4] = int32(data, at)
            at = after
        if at != end:
            out[1] = out[3] = NOTHING
            out[5] = MALFORMED


def commits(data: Any, starts: Any, ends: Any, kinds: Any, statuses: Any, versions: Any, numbers: Any) -> Any:
    """The values of offset commits; a row of `numbers`: offset, leader epoch, commit and expiry time, metadata, id."""
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
        at += 2
        out = numbers[row]
        offset_at = at
        at = fixed(at, end, 8)
        epoch_at = at
        if version >= 3:
            at = fixed(at, end, 4)
        begin, count, at = span(data, at, end, version >= 4, False, False)
        commit_at = at
        at = fixed(at, end, 16 if version == 1 else 8)
        at, tag_at, tag_size = tags(data, at, end, version >= 4)
        if at != end or (tag_size != NOTHING and tag_size != 16):
            statuses[row] = MALFORMED
            continue
        out[0] = int64(data, offset_at)
        out[1] = int32(data, epoch_at) if version >= 3 else NOTHING
        out[2] = int64(data, commit_at)
        out[3] = int64(data, commit_at + 8) if version == 1 else NOTHING
        out[4] = begin
        out[5] = count
        out[6] = tag_at if tag_size == 16 else NOTHING


def walk(
    data: Any,
    starts: Any,
    ends: Any,
    kinds: Any,
    statuses: Any,
    versions: Any,
    records: Any,
    members: Any,
    topics: Any,
    partitions: Any,
) -> Any:
    """The values of what is no commit. Returns how many members, topics and partitions there are.

    Where one of the arrays is too small, nothing is written to it from there on, and the counts say how large it must
    be: call again.
    """
    counts = np.zeros(3, dtype=np.int64)
    before = np.zeros(3, dtype=np.int64)
    for row in range(len(starts)):
        kind = kinds[row]
        _clear(records, row)
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
        before[:] = counts
        at += 2
        if kind == 2:
            at = _classic_group(data, at, end, version, row, records, members, topics, partitions, counts)
        elif kind == 5:
            at = _member(data, at, end, row, members, topics, counts)
        elif kind == 7:
            at = _target(data, at, end, row, members, partitions, counts)
        elif kind == 8:
            at = _current(data, at, end, row, records, members, partitions, counts)
        elif kind == 16:
            at = _expression(data, at, end, row, records, members, topics, counts)
        else:
            at = _scalars(data, at, end, kind, row, records)
        if at != end:
            statuses[row] = MALFORMED
            _clear(records, row)
            counts[:] = before
    return counts


def _clear(records: Any, row: Any) -> Any:
    records[row, :PROTOCOL_TYPE] = UNSET
    records[row, PROTOCOL_TYPE:] = NOTHING


def _scalars(data: Any, at: Any, end: Any, kind: Any, row: Any, records: Any) -> Any:
    """A consumer group's epoch (3), its target's epoch (6), and kohort's generation."""
    begin = at
    at = fixed(at, end, 4)
    if at != BAD:
        records[row, EPOCH] = int32(data, begin)
    at, tag_at, tag_size = tags(data, at, end, kind != GENERATION)
    if tag_size == 8:
        records[row, HASH if kind == 3 else TIME] = int64(data, tag_at)
        records[row, HASHED] = UNSET + (kind == 3)
    elif tag_size != NOTHING:
        return BAD
    return at


def _new_member(members: Any, counts: Any, row: Any) -> Any:
    """The row of a new member; the last one, over and over, when there is no room."""
    at = counts[0]
    counts[0] += 1
    if at >= len(members):
        return len(members) - 1
    members[at, :] = NOTHING
    members[at, OF_RECORD] = row
    members[at, REBALANCE_TIMEOUT] = members[at, SESSION_TIMEOUT] = UNSET
    return at


def _classic_group(
    data: Any,
    at: Any,
    end: Any,
    version: Any,
    row: Any,
    records: Any,
    members: Any,
    topics: Any,
    partitions: Any,
    counts: Any,
) -> Any:
    flexible = version >= 4
    type_at, type_size, at = span(data, at, end, flexible, False, False)
    records[row, PROTOCOL_TYPE], records[row, PROTOCOL_TYPE + 1] = type_at, type_size
    begin = at
    at = fixed(at, end, 4)
    if at == BAD:
        return BAD
    records[row, EPOCH] = int32(data, begin)
    records[row, PROTOCOL], records[row, PROTOCOL + 1], at = span(data, at, end, flexible, False, True)
    records[row, LEADER], records[row, LEADER + 1], at = span(data, at, end, flexible, False, True)
    if version >= 2:
        begin = at
        at = fixed(at, end, 8)
        if at != BAD:
            records[row, TIME] = int64(data, begin)
    count, at = length(data, at, end, flexible, True)
    if at == BAD or count < 0 or count > end - at:
        return BAD
    consumer = type_size == 8
    if consumer:
        for place, letter in enumerate((99, 111, 110, 115, 117, 109, 101, 114)):  # "consumer"
            consumer = consumer and data[type_at + place] == letter
    for _ in range(count):
        at = _classic_member(data, at, end, version, row, consumer, members, topics, partitions, counts)
        if at == BAD:
            return BAD
    at, _, _ = tags(data, at, end, flexible)
    return at


def _classic_member(
    data: Any,
    at: Any,
    end: Any,
    version: Any,
    row: Any,
    consumer: Any,
    members: Any,
    topics: Any,
    partitions: Any,
    counts: Any,
) -> Any:
    flexible = version >= 4
    number = counts[0]
    out = members[_new_member(members, counts, row)]
    out[MEMBER], out[MEMBER + 1], at = span(data, at, end, flexible, False, False)
    if version >= 3:
        out[INSTANCE], out[INSTANCE + 1], at = span(data, at, end, flexible, False, True)
    out[CLIENT], out[CLIENT + 1], at = span(data, at, end, flexible, False, False)
    out[HOST], out[HOST + 1], at = span(data, at, end, flexible, False, False)
    begin = at
    at = fixed(at, end, 8 if version >= 1 else 4)
    if at == BAD:
        return BAD
    if version >= 1:
        out[REBALANCE_TIMEOUT] = int32(data, begin)
    out[SESSION_TIMEOUT] = int32(data, at - 4)
    subscription_at, subscription_size, at = span(data, at, end, flexible, True, False)
    assignment_at, assignment_size, at = span(data, at, end, flexible, True, False)
    if at == BAD:
        return BAD
    if consumer:
        stop = subscription_at + subscription_size
        _subscription(data, subscription_at, stop, number, out, topics, counts)
        _assignment(data, assignment_at, assignment_at + assignment_size, number, out, partitions, counts)
    at, _, _ = tags(data, at, end, flexible)
    return at


def _subscription(data: Any, at: Any, end: Any, number: Any, out: Any, topics: Any, counts: Any) -> Any:
    """What a consumer asks for. Clients make it up: where it does not fit, nothing is known."""
    if end - at < 2 or int16(data, at) < 0:
        return
    version = int16(data, at)
    before = counts[1]
    at = _strings(data, at + 2, end, False, number, topics, counts)
    _, _, at = span(data, at, end, False, True, True)
    if version >= 1:
        count, at = length(data, at, end, False, True)
        while at != BAD and count > 0:
            _, _, at = span(data, at, end, False, False, False)
            held, at = length(data, at, end, False, True)
            at = fixed(at, end, 4 * held) if at != BAD and held >= 0 else BAD
            count -= 1
        if count < 0:
            at = BAD
    if version >= 2:
        at = fixed(at, end, 4)
    if version >= 3:
        begin, size, at = span(data, at, end, False, False, True)
        if at != BAD:
            out[RACK], out[RACK + 1] = begin, size
    if at == BAD:
        counts[1] = before
    else:
        out[HAS_TOPICS] = 1


def _strings(data: Any, at: Any, end: Any, flexible: Any, number: Any, topics: Any, counts: Any) -> Any:
    """The topics of member `number`, an array of strings."""
    count, at = length(data, at, end, flexible, True)
    if at == BAD or count < 0:
        return BAD
    while count > 0 and at != BAD:
        begin, size, at = span(data, at, end, flexible, False, False)
        if counts[1] < len(topics):
            topics[counts[1], OF_MEMBER] = number
            topics[counts[1], TOPIC] = begin
            topics[counts[1], TOPIC + 1] = size
        counts[1] += 1
        count -= 1
    return at


def _assignment(data: Any, at: Any, end: Any, number: Any, out: Any, partitions: Any, counts: Any) -> Any:
    """What the leader gave a consumer. An empty one is of a member that has nothing."""
    if end == at:
        out[HAS_PARTITIONS] = 1
    if end - at < 2 or int16(data, at) < 0:
        return
    before = counts[2]
    count, at = length(data, at + 2, end, False, True)
    if count < 0:
        at = BAD
    while at != BAD and count > 0:
        begin, size, at = span(data, at, end, False, False, False)
        held, at = length(data, at, end, False, True)
        after = fixed(at, end, 4 * held) if at != BAD and held >= 0 else BAD
        if after != BAD:
            for index in range(held):
                _partition(partitions, counts, number, 0, begin, size, NOTHING, int32(data, at + 4 * index), UNSET)
        at = after
        count -= 1
    if at != BAD:
        _, _, at = span(data, at, end, False, True, True)
    if at == BAD:
        counts[2] = before
    else:
        out[HAS_PARTITIONS] = 1


def _partition(
    partitions: Any,
    counts: Any,
    number: Any,
    revoking: Any,
    begin: Any,
    size: Any,
    topic_id: Any,
    partition: Any,
    epoch: Any,
) -> Any:
    at = counts[2]
    counts[2] += 1
    if at < len(partitions):
        partitions[at, OF_MEMBER] = number
        partitions[at, REVOKING] = revoking
        partitions[at, PARTITION_TOPIC] = begin
        partitions[at, PARTITION_TOPIC + 1] = size
        partitions[at, TOPIC_ID] = topic_id
        partitions[at, PARTITION] = partition
        partitions[at, PARTITION_EPOCH] = epoch


def _member(data: Any, at: Any, end: Any, row: Any, members: Any, topics: Any, counts: Any) -> Any:
    """A member of a consumer group (5)."""
    number = counts[0]
    out = members[_new_member(members, counts, row)]
    out[INSTANCE], out[INSTANCE + 1], at = span(data, at, end, True, False, True)
    out[RACK], out[RACK + 1], at = span(data, at, end, True, False, True)
    out[CLIENT], out[CLIENT + 1], at = span(data, at, end, True, False, False)
    out[HOST], out[HOST + 1], at = span(data, at, end, True, False, False)
    at = _strings(data, at, end, True, number, topics, counts)
    out[HAS_TOPICS] = 1
    out[REGEX], out[REGEX + 1], at = span(data, at, end, True, False, True)
    begin = at
    at = fixed(at, end, 4)
    if at == BAD:
        return BAD
    out[REBALANCE_TIMEOUT] = int32(data, begin)
    out[ASSIGNOR], out[ASSIGNOR + 1], at = span(data, at, end, True, False, True)
    at, tag_at, tag_size = tags(data, at, end, True)
    if tag_size >= 5 and data[tag_at] == 1:  # the structure is there: the member speaks the classic protocol
        out[SESSION_TIMEOUT] = int32(data, tag_at + 1)
    return at


def _owned(data: Any, at: Any, end: Any, number: Any, revoking: Any, partitions: Any, counts: Any) -> Any:
    """Topics by id with their partitions, as consumer groups keep them."""
    count, at = length(data, at, end, True, True)
    if at == BAD or count < 0:
        return BAD
    while count > 0 and at != BAD:
        topic_id = at
        at = fixed(at, end, 16)
        held, at = length(data, at, end, True, True)
        first = at
        at = fixed(at, end, 4 * held) if at != BAD and held >= 0 else BAD
        at, tag_at, tag_size = tags(data, at, end, True)
        epochs_at, epochs = 0, 0
        if at != BAD and tag_size > 0:
            epochs, epochs_at = length(data, tag_at, tag_at + tag_size, True, True)
            if epochs_at == BAD or fixed(epochs_at, tag_at + tag_size, 4 * max(epochs, 0)) != tag_at + tag_size:
                at = BAD
        if at != BAD:
            for index in range(held):
                epoch = int32(data, epochs_at + 4 * index) if index < epochs else UNSET
                _partition(
                    partitions, counts, number, revoking, 0, NOTHING, topic_id, int32(data, first + 4 * index), epoch
                )
        count -= 1
    return at


def _target(data: Any, at: Any, end: Any, row: Any, members: Any, partitions: Any, counts: Any) -> Any:
    """What a member shall have (7)."""
    number = counts[0]
    members[_new_member(members, counts, row), HAS_PARTITIONS] = 1
    at = _owned(data, at, end, number, 0, partitions, counts)
    at, _, _ = tags(data, at, end, True)
    return at


def _current(data: Any, at: Any, end: Any, row: Any, records: Any, members: Any, partitions: Any, counts: Any) -> Any:
    """What a member has, and what it is giving up (8)."""
    number = counts[0]
    members[_new_member(members, counts, row), HAS_PARTITIONS] = 1
    begin = at
    at = fixed(at, end, 9)
    if at == BAD:
        return BAD
    records[row, EPOCH] = int32(data, begin)
    records[row, PREVIOUS] = int32(data, begin + 4)
    state = data[begin + 8] + 0
    records[row, STATE] = state - 256 if state > 127 else state
    at = _owned(data, at, end, number, 0, partitions, counts)
    at = _owned(data, at, end, number, 1, partitions, counts)
    at, _, _ = tags(data, at, end, True)
    return at


def _expression(data: Any, at: Any, end: Any, row: Any, records: Any, members: Any, topics: Any, counts: Any) -> Any:
    """The topics that an expression matched (16); they stand with a member that has no name."""
    number = counts[0]
    members[_new_member(members, counts, row), HAS_TOPICS] = 1
    at = _strings(data, at, end, True, number, topics, counts)
    begin = at
    at = fixed(at, end, 16)
    if at == BAD:
        return BAD
    records[row, HASH] = int64(data, begin)
    records[row, HASHED] = UNSET + 1
    records[row, TIME] = int64(data, begin + 8)
    at, _, _ = tags(data, at, end, True)
    return at


def gather(data: Any, begins: Any, sizes: Any, out: Any) -> Any:
    """The bytes of all places, one behind the other."""
    at = 0
    for row in range(len(begins)):
        begin = begins[row]
        for place in range(max(sizes[row], 0)):
            out[at] = data[begin + place]
            at += 1
