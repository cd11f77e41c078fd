"""Pending offsets, compared with a flat list of records and Kafka's rule about their offsets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator.offsets.pending import PendingOffsets
from kohort.coordinator.offsets.sizes import GROUP_BYTES, OFFSET_BYTES
from kohort.coordinator.records import Place
from kohort.wire.schemas.group_records import OffsetCommitValue

T0, T1 = ("t", 0), ("t", 1)


def value(number: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=number, metadata="", commit_timestamp=number)


def ended(offsets: PendingOffsets, producer_id: int, *, committed: bool) -> list[tuple[str, Place, OffsetCommitValue]]:
    """What becomes committed, one by one."""
    found = offsets.end(producer_id, committed=committed)
    return [(group, place, value) for group, values in found for place, value in values.items()]


def test_a_marker_takes_what_its_producer_committed_and_nothing_else() -> None:
    offsets = PendingOffsets()
    offsets.add(1, "g", T0, value(1))
    offsets.add(1, "h", T0, value(2))
    offsets.add(1, "g", T0, value(3))
    offsets.add(2, "g", T0, value(4))
    assert ended(offsets, 1, committed=True) == [("g", T0, value(3)), ("h", T0, value(2))]
    assert ended(offsets, 1, committed=True) == []
    assert (offsets.is_pending("g", T0), "g" in offsets, "h" in offsets) == (True, True, False)
    assert ended(offsets, 2, committed=True) == [("g", T0, value(4))]
    assert offsets == PendingOffsets()


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_of_two_committed_transactions_the_newest_record_counts(first: int, second: int) -> None:
    offsets = PendingOffsets()
    offsets.add(1, "g", T0, value(1))
    offsets.add(2, "g", T0, value(2))
    committed = [*ended(offsets, first, committed=True), *ended(offsets, second, committed=True)]
    assert committed[-1] == ("g", T0, value(2)), "the markers' order does not count"


def test_a_deleted_partition_has_nothing_pending() -> None:
    offsets = PendingOffsets()
    for producer in (1, 2):
        offsets.add(producer, "g", T0, value(producer))
    offsets.add(1, "g", T1, value(3))
    assert (offsets.counts, offsets.of(1, "g")) == ({1: 2, 2: 1}, {T0: value(1), T1: value(3)})
    offsets.drop("g", T0)
    offsets.drop("g", ("unknown", 0))
    assert list(offsets.places("g")) == [T1]
    assert ended(offsets, 2, committed=True) == []
    assert ended(offsets, 1, committed=True) == [("g", T1, value(3))]
    assert offsets == PendingOffsets()


def test_shards_count_together() -> None:
    one, other = PendingOffsets(), PendingOffsets()
    other.counts = one.counts
    for offsets, group in ((one, "g"), (other, "h")):
        offsets.add(1, group, T0, value(1))
        offsets.add(1, group, T1, value(1))
        offsets.add(1, group, T1, value(2))
    one.drop("g", T0)
    assert one.counts == {1: 3}
    other.end(1, committed=False)
    assert one.counts == {1: 1}
    one.check()
    other.check()
    one.drop("g", T1)
    assert one.counts == {}


def test_sizes() -> None:
    offsets = PendingOffsets()
    offsets.add(1, "g", T0, OffsetCommitValue(offset=1, metadata="note", commit_timestamp=1))
    assert offsets.bytes == GROUP_BYTES + 1 + OFFSET_BYTES + 4
    offsets.add(1, "g", T0, value(2))
    offsets.add(1, "g", T1, value(2))
    assert offsets.bytes == GROUP_BYTES + 1 + 2 * OFFSET_BYTES
    offsets.add(2, "g", T1, value(2))
    assert offsets.bytes == 2 * (GROUP_BYTES + 1) + 3 * OFFSET_BYTES
    ended(offsets, 1, committed=False)
    ended(offsets, 2, committed=True)
    assert offsets.bytes == 0


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["add", "drop", "supersede", "commit", "abort"]),
        st.integers(1, 3),
        st.sampled_from("gh"),
        st.integers(0, 1),
    ),
    max_size=30,
)


@given(MOVES)
@settings(max_examples=300)
def test_any_history(moves: list[tuple[str, int, str, int]]) -> None:
    offsets = PendingOffsets()
    flat: dict[tuple[int, str, Any], int] = {}
    newest: dict[tuple[str, Any], int] = {}
    """The number of the newest record that counts."""
    for at, (what, producer, group, partition) in enumerate(moves):
        place = ("t", partition)
        match what:
            case "add":
                offsets.add(producer, group, place, value(at))
                flat[producer, group, place] = at
            case "drop":
                offsets.drop(group, place)
                flat = {key: one for key, one in flat.items() if key[1:] != (group, place)}
            case "supersede":
                offsets.supersede(group, place)
                newest[group, place] = at
            case _:
                taken = ended(offsets, producer, committed=what == "commit")
                mine = {key[1:]: one for key, one in flat.items() if key[0] == producer}
                counting = {key: one for key, one in mine.items() if one > newest.get(key, -1)}
                assert {(name, of): found.offset for name, of, found in taken} == (counting if what == "commit" else {})
                newest.update(counting if what == "commit" else {})
                flat = {key: one for key, one in flat.items() if key[0] != producer}
        offsets.check()
        for name in "gh":
            places = {key[2] for key in flat if key[1] == name}
            assert set(offsets.places(name)) == places
            assert (name in offsets) == bool(places)
            assert all(offsets.is_pending(name, ("t", n)) == (("t", n) in places) for n in range(3))
        described = {
            (producer_id, name, of): (found.offset, counts)
            for name, of_group in offsets.described().items()
            for of, entries in of_group.items()
            for producer_id, found, counts in entries
        }
        assert described == {key: (one, one > newest.get(key[1:], -1)) for key, one in flat.items()}
