"""Copies the records of one batch to the buffers of Arrow columns: compiled code without bounds checks.

`source` may be hostile. `at` only moves forward. Every read follows a comparison of its position with the end of the
record, which has been compared with the end of the source. Lengths are compared with the remaining bytes and never
added to a position first, so nothing overflows. A record is written once all of it has been read and there is room for
all of it, so a call may stop before any record and continue from there. The same bytes count as damage as in
`kohort.wire.records`, the plain loop.
"""

from __future__ import annotations

from typing import Any

from numba import boolean, int32, int64, types, uint8, uint64

from kohort.spark.runtime.compiled import compiled, copy

DONE, FULL = 0, 1
LENGTH, VARINT, OFFSET, KEY, VALUE, HEADER_COUNT, HEADER_KEY, HEADER_VALUE, UTF8, END, BEHIND = range(-11, 0)
DAMAGE = {
    LENGTH: "a record with an impossible length",
    VARINT: "a number of more than 64 bits, or cut short",
    OFFSET: "an offset outside of the batch",
    KEY: "a record with an impossible key length",
    VALUE: "a record with an impossible value length",
    HEADER_COUNT: "a record with an impossible header count",
    HEADER_KEY: "a record with an impossible header key length",
    HEADER_VALUE: "a record with an impossible header value length",
    UTF8: "a header's key is not UTF-8",
    END: "a record that is longer than its contents",
    BEHIND: "bytes after the last record",
}

AT, INDEX, ROWS, KEYS, VALUES, HEADERS, HEADER_KEYS, HEADER_VALUES = range(8)
NO_KEY, NO_VALUE, NO_HEADERS, NO_HEADER_VALUE, NEED, STATE = range(8, 14)
"""Indexes in the state, and its size. Of the batch: where to continue (AT), how many records are done (INDEX), the size
of the record that did not fit (NEED). Of the columns: filled rows, bytes and entries, and nulls."""

TIME, DELTA, KEY_AT, KEY_LENGTH, VALUE_AT, VALUE_LENGTH, HEADERS_AT, HEADERS_COUNT, RECORD_END, RECORD = range(10)
"""Indexes in a record, and its size."""

ENDS, VALID, DATA = range(3)
"""Indexes in a column's buffers. `ends` has one entry more than there are rows: a zero comes first."""

_source = types.Array(uint8, 1, "C", readonly=True)
_bytes = uint8[::1]
_ints = int32[::1]
_longs = int64[::1]
_column = types.Tuple((_ints, _bytes, _bytes))
_headers = types.Tuple((_ints, _bytes, _ints, _bytes, _ints, _bytes, _bytes))
"""Lists: ends, valid. Keys: ends, data. Values: ends, valid, data."""
_columns = types.Tuple((_longs, _longs, _column, _column, _headers))
"""Offsets, times, keys, values, headers."""
_found = types.UniTuple(int64, 2)


@compiled(_found(_source, int64, int64))
def varint(source: Any, at: Any, end: Any) -> Any:
    """A zigzag varint and the position after it; the position is -1 if there is no varint."""
    value = uint64(0)
    shift = uint64(0)
    while at < end:
        byte = uint64(source[at])
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & uint64(127)) << shift
        if byte < 128:
            return int64(value >> uint64(1)) ^ -int64(value & uint64(1)), at
        shift += uint64(7)
    return int64(0), int64(-1)


@compiled(boolean(_source, int64, int64))
def is_utf8(source: Any, at: Any, end: Any) -> Any:
    """True if the bytes are UTF-8 by the Unicode standard (table 3-7): no surrogates, nothing overlong."""
    while at < end:
        lead = source[at]
        at += 1
        if lead < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if more > end - at:
            return False
        if not low <= source[at] <= high:
            return False
        for behind in range(at + 1, at + more):
            if not 0x80 <= source[behind] <= 0xBF:
                return False
        at += more
    return True


@compiled(_found(_source, int64, int64, int64))
def check_headers(source: Any, at: Any, end: Any, count: Any) -> Any:
    """Zero, or the damage of the headers that begin at `at`; and the position after them."""
    for _ in range(count):
        length, at = varint(source, at, end)
        if at < 0:
            return int64(VARINT), at
        if length < 0 or length > end - at:
            return int64(HEADER_KEY), at
        if not is_utf8(source, at, at + length):
            return int64(UTF8), at
        at += length
        length, at = varint(source, at, end)
        if at < 0:
            return int64(VARINT), at
        if length < -1 or length > end - at:
            return int64(HEADER_VALUE), at
        if length > 0:
            at += length
    return int64(0), at


@compiled(types.void(_source, int64, int64, int64, _longs, _headers))
def copy_headers(source: Any, at: Any, end: Any, count: Any, state: Any, headers: Any) -> Any:
    """Append headers that `check_headers` has accepted and that fit."""
    _, _, key_ends, key_data, value_ends, value_valid, value_data = headers
    entry, keys, values = state[HEADERS], state[HEADER_KEYS], state[HEADER_VALUES]
    for _ in range(count):
        length, at = varint(source, at, end)
        copy(key_data, keys, source, at, length)
        keys += length
        at += length
        length, at = varint(source, at, end)
        if length >= 0:
            copy(value_data, values, source, at, length)
            values += length
            at += length
            value_valid[entry >> 3] |= uint8(1 << (entry & 7))
        else:
            state[NO_HEADER_VALUE] += 1
        entry += 1
        key_ends[entry] = keys
        value_ends[entry] = values
    state[HEADERS], state[HEADER_KEYS], state[HEADER_VALUES] = entry, keys, values


@compiled(int64(_source, int64, int64, _longs))
def read(source: Any, at: Any, size: Any, record: Any) -> Any:
    """Zero, or the damage of the record that begins at `at`. Writes its fields to `record`."""
    length, at = varint(source, at, size)
    if at < 0 or length < 1 or length > size - at:
        return LENGTH
    end = at + length
    record[TIME], at = varint(source, at + 1, end)  # after the attributes, which have no meaning yet
    if at < 0:
        return VARINT
    record[DELTA], at = varint(source, at, end)
    if at < 0:
        return VARINT
    length, at = varint(source, at, end)
    if at < 0:
        return VARINT
    if length < -1 or length > end - at:
        return KEY
    record[KEY_AT], record[KEY_LENGTH] = at, length
    length, at = varint(source, at + max(length, 0), end)
    if at < 0:
        return VARINT
    if length < -1 or length > end - at:
        return VALUE
    record[VALUE_AT], record[VALUE_LENGTH] = at, length
    count, at = varint(source, at + max(length, 0), end)
    if at < 0:
        return VARINT
    if count < 0 or count > (end - at) >> 1:
        return HEADER_COUNT
    record[HEADERS_AT], record[HEADERS_COUNT] = at, count
    if count:
        wrong, at = check_headers(source, at, end, count)
        if wrong:
            return wrong
    record[RECORD_END] = end
    return 0 if at == end else END


@compiled(boolean(_longs, int64, boolean, int64, _longs, _columns))
def fits(record: Any, begin: Any, with_headers: Any, most_bytes: Any, state: Any, columns: Any) -> Any:
    """True if there is room for all of a record."""
    offsets, _, keys, values, headers = columns
    taken = state[KEYS] + state[VALUES] + state[HEADER_KEYS] + state[HEADER_VALUES]
    if state[ROWS] == len(offsets) or (state[ROWS] > 0 and taken + record[RECORD_END] - begin > most_bytes):
        return False
    if record[KEY_LENGTH] > len(keys[DATA]) - state[KEYS] or record[VALUE_LENGTH] > len(values[DATA]) - state[VALUES]:
        return False
    if not with_headers:
        return True
    size = record[RECORD_END] - record[HEADERS_AT]
    return (
        record[HEADERS_COUNT] < len(headers[2]) - state[HEADERS]
        and size <= len(headers[3]) - state[HEADER_KEYS]
        and size <= len(headers[6]) - state[HEADER_VALUES]
    )


@compiled(types.void(_source, int64, int64, _longs, int64, int64, _column))
def append(source: Any, at: Any, length: Any, state: Any, filled: Any, nulls: Any, column: Any) -> Any:
    """Append a key or value that fits, or null if the length is negative."""
    ends, valid, data = column
    row, end = state[ROWS], state[filled]
    if length >= 0:
        copy(data, end, source, at, length)
        end += length
        state[filled] = end
        valid[row >> 3] |= uint8(1 << (row & 7))
    else:
        state[nulls] += 1
    ends[row + 1] = end


@compiled(int64(_source, types.UniTuple(int64, 6), boolean, boolean, int64, _longs, _longs, _columns))
def decode(
    source: Any, batch: Any, is_log_time: Any, with_headers: Any, most_bytes: Any, state: Any, record: Any, columns: Any
) -> Any:
    """Append the records of a batch, from `state[INDEX]` on, to the columns. Returns DONE, FULL, or a key of DAMAGE.

    `source` holds the `count` records of the batch and nothing else; `base_offset + last_delta` fits in 64 bits. If
    `is_log_time`, `base_time` is every record's time. Rows are the records with offsets in [first, last). The columns
    take at most `most_bytes`, or one larger record if they have room for it. `record` is scratch memory.
    """
    count, base_offset, last_delta, base_time, first, last = batch
    offsets, times, keys, values, headers = columns
    size, at = len(source), state[AT]
    while state[INDEX] < count:
        wrong = read(source, at, size, record)
        if wrong:
            return wrong
        delta, time = record[DELTA], record[TIME]
        if delta < 0 or delta > last_delta:
            return OFFSET
        when = base_time if is_log_time else base_time + time  # wraps around, as in the plain loop
        if first <= base_offset + delta < last:
            if not fits(record, at, with_headers, most_bytes, state, columns):
                state[NEED] = record[RECORD_END] - at
                return FULL
            row = state[ROWS]
            offsets[row] = base_offset + delta
            times[row] = when
            append(source, record[KEY_AT], record[KEY_LENGTH], state, KEYS, NO_KEY, keys)
            append(source, record[VALUE_AT], record[VALUE_LENGTH], state, VALUES, NO_VALUE, values)
            if with_headers:
                if record[HEADERS_COUNT]:
                    copy_headers(source, record[HEADERS_AT], record[RECORD_END], record[HEADERS_COUNT], state, headers)
                    headers[VALID][row >> 3] |= uint8(1 << (row & 7))
                else:
                    state[NO_HEADERS] += 1
                headers[ENDS][row + 1] = state[HEADERS]
            state[ROWS] = row + 1
        at = record[RECORD_END]
        state[AT] = at
        state[INDEX] += 1
    return DONE if at == size else BEHIND
