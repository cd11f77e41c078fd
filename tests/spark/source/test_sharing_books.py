"""The state of a query that shares its group, without a group."""

from __future__ import annotations

import pytest

from kohort.client.admin.commit_metadata import GroupReader
from kohort.client.admin.groups import Committed
from kohort.spark.source.member.sharing import BatchReader, Sharing, batch_reader, is_ours, ranges_of, where_to_begin
from kohort.spark.source.positions import BATCH, START

P, Q = ("t", 0), ("t", 1)
ME = BatchReader("m-1", 3, "consumer")


def begun() -> Sharing:
    sharing = Sharing()
    sharing.begin(P, 3, 10)
    sharing.begin(Q, 3, 20)
    return sharing


def test_a_batch_states_its_ranges_and_its_reader() -> None:
    sharing = begun()
    assert sharing.readable({P: 3, Q: 3}) == {P: 10, Q: 20}
    end = sharing.plan({P: 10, Q: 20}, {P: 15, Q: 20}, {}, ME)
    assert end["t"] == {"0": 15, "1": 20}
    assert end[START] == {"t": {"0": 10, "1": 20}}
    assert end[BATCH]["number"] == 1
    assert ranges_of(end) == {P: (10, 15), Q: (20, 20)}
    assert batch_reader(end) == ME
    assert sharing.busy([P, Q], {P: 3, Q: 3}) == {P}
    assert sharing.due({P: 3, Q: 3}) == {}
    sharing.finish()
    assert sharing.busy([P, Q], {P: 3, Q: 3}) == set()
    assert sharing.due({P: 3, Q: 3}) == {P: 15}
    sharing.committed({P: 15})
    assert sharing.due({P: 3, Q: 3}) == {}


def test_the_same_range_again_is_another_batch() -> None:
    sharing = begun()
    first = sharing.plan({P: 10}, {P: 15}, {}, ME)
    sharing.begin(P, 5, 10)  # lost, and back
    assert sharing.plan({P: 10}, {P: 15}, first, ME) != first


def test_a_lost_partition_does_not_count_any_more() -> None:
    sharing = begun()
    sharing.plan({P: 10, Q: 20}, {P: 15, Q: 25}, {}, ME)
    owned = {Q: 3}
    assert sharing.busy([P, Q], owned) == {Q}
    sharing.begin(P, 5, 12)  # it comes back, and somebody has read on meanwhile
    owned = {P: 5, Q: 3}
    assert sharing.busy([P], owned) == set()
    sharing.finish()
    assert sharing.due(owned) == {Q: 25}
    assert sharing.readable(owned) == {P: 12, Q: 25}
    assert sharing.readable({P: 6, Q: 3}) == {Q: 25}  # of another epoch, and not begun yet


def test_a_partition_to_give_up_is_not_planned_again() -> None:
    sharing = begun()
    sharing.leaving.add(P)
    assert sharing.readable({P: 3, Q: 3}) == {Q: 20}
    sharing.give_up([P])
    sharing.begin(P, 4, 10)
    assert sharing.readable({P: 4, Q: 3}) == {P: 10, Q: 20}


def test_a_range_that_tasks_left_is_not_finished() -> None:
    sharing = begun()
    owned = {P: 3, Q: 3}
    sharing.plan({P: 10, Q: 20}, {P: 15, Q: 25}, {}, ME)
    sharing.finish({P})
    assert sharing.due(owned) == {Q: 25}
    assert sharing.readable(owned) == {P: 10, Q: 25}
    assert sharing.busy([P, Q], owned) == set()


OURS = GroupReader(query="q").metadata()


def at(offset: int, metadata: str = OURS) -> Committed:
    return Committed(offset, -1, metadata)


def test_where_it_begins() -> None:
    assert where_to_begin(at(7), None) == 7
    assert where_to_begin(None, None) is None
    assert where_to_begin(at(10), (10, 15)) == 15  # finished, and the process ended before it could commit
    assert where_to_begin(None, (10, 15)) == 15
    assert where_to_begin(at(12), (10, 15)) == 12  # somebody has read on, or set it so
    assert where_to_begin(at(30), (10, 15)) == 30
    assert where_to_begin(at(4), (10, 15)) == 4
    [plain] = ranges_of({"t": {"0": 15}}).values()  # the checkpoint of a query without a membership
    assert where_to_begin(at(4), plain) == 15
    assert where_to_begin(at(20), plain) == 20
    assert batch_reader({"t": {"0": 15}}) is None


@pytest.mark.parametrize("metadata", ["", "reset by hand", '{"by":"somebody"}'])
def test_an_operators_rewind_counts_also_to_where_the_last_batch_began(metadata: str) -> None:
    assert where_to_begin(at(10, metadata), (10, 15)) == 10
    assert not is_ours(at(10, metadata), 10)
    assert is_ours(at(10), 10)
    assert not is_ours(at(10), 11)
    assert not is_ours(None, 10)
