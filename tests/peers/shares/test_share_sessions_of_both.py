"""Share sessions, fetches and acknowledgements: the same requests to kohort and to Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from share_driver import ACCEPT, REJECT, RELEASE, RENEW, ranges, row, values
from share_peers import World, filled, until

from kohort.wire.batches import decode_records, split_batches
from kohort.wire.schemas.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

GAP = 0
INVALID, INVALID_STATE, NO_SESSION, BAD_EPOCH = 42, 121, 122, 123
LOCK_MS = 1_000


@pytest.mark.conformance("SH4")
@pytest.mark.parametrize("fields", [{"group_id": None}, {"group_id": ""}, {"member_id": None}, {"member_id": "x" * 37}])
def test_names_are_checked(world: World, fields: Any) -> None:
    """Apache Kafka opens a session of a group without a name, which has no records."""
    world.create()
    error = world.member().ask_fetch(**fields)
    assert error == (world.either(kohort=INVALID, kafka=0) if fields == {"group_id": ""} else INVALID)


@pytest.mark.conformance("SH4", "SH5", "SH8")
def test_topics_and_states_that_are_not_there(world: World) -> None:
    [a] = filled(world, 1, "a")
    assert row(a.fetch(partitions=(0, 7)), 7).error_code == 3
    b = world.member("b")
    b.fetch()
    b.topic_id = bytes(range(16))
    assert b.ack((0, 0, ACCEPT)) == 100
    unknown = b.fetch(partitions=(0,))
    if world.kafka:  # its 4.3 fails at a topic without a name
        assert (unknown.error_code, unknown.responses) == (-1, ())
    else:
        assert row(unknown).error_code == 100
    c = world.member("c", f"{world.group}-nobody")
    assert row(c.fetch(max_wait_ms=2_000)).error_code == -1, "the group has no state of the partition"


@pytest.mark.conformance("SH54", "SH55")
def test_epochs_of_a_session(world: World) -> None:
    [a] = filled(world, 3, "a")
    a.epoch = 1
    assert a.fetch().error_code == NO_SESSION
    assert a.ack((0, 0, ACCEPT), epoch=-1) == NO_SESSION
    assert a.fetch(share_session_epoch=-1).error_code == NO_SESSION
    assert a.ack((0, 0, ACCEPT), epoch=0) == BAD_EPOCH
    a.epoch = 0
    assert a.fetch(acks=[(0, 0, ACCEPT)]).error_code == INVALID, "nothing can be acknowledged when a session opens"
    assert a.take_all(3) == [(0, 2, 1)]
    assert a.ack((0, 0, ACCEPT), epoch=7) == BAD_EPOCH
    assert a.ack((0, 0, ACCEPT)) == 0
    assert a.ask_fetch(share_session_epoch=1) == BAD_EPOCH, "both APIs share the counter"
    assert a.take_at_once([(1, 1, ACCEPT)]) == []
    a.epoch = 0
    assert a.take_at_once() == [], "the lock stays"
    assert a.ack((2, 2, ACCEPT)) == 0
    world.put("last")
    assert a.take() == [(3, 3, 1)]


@pytest.mark.conformance("SH34", "SH38")
def test_each_record_is_with_one_member_until_it_is_given_back(world: World) -> None:
    a, b = filled(world, 6)
    first = a.fetch(max_wait_ms=9_000, max_records=4, share_acquire_mode=1)
    assert (ranges(first), values(first)) == ([(0, 3, 1)], [b"0", b"1", b"2", b"3"])
    assert first.acquisition_lock_timeout_ms == 600_000
    assert b.take() == [(4, 5, 1)]
    assert b.take([(4, 4, ACCEPT), (5, 5, RELEASE)]) == [(5, 5, 2)]
    assert a.ack((0, 1, ACCEPT), (2, 3, RELEASE, REJECT)) == 0
    world.put("new")
    assert b.take_all(2) == [(2, 2, 2), (6, 6, 1)], "redeliveries come first"


@pytest.mark.conformance("SH56")
def test_the_last_request_of_a_session_acknowledges_and_then_releases(world: World) -> None:
    a, b = filled(world, 3)
    assert a.take_all(3) == [(0, 2, 1)]
    assert a.ack((0, 0, ACCEPT), epoch=-1) == 0
    assert a.ack((1, 1, ACCEPT)) == NO_SESSION
    assert b.take_all(2) == [(1, 2, 2)]
    closing = b.fetch([(1, 1, ACCEPT)], share_session_epoch=-1)
    assert (row(closing).acknowledge_error_code, ranges(closing)) == (0, [])
    a.epoch = 0
    assert a.take() == [(2, 2, 3)]


@pytest.mark.conformance("SH32", "SH57")
def test_a_closed_connection_gives_records_back(world: World) -> None:
    a, b = filled(world, 3)
    assert a.take_all(3) == [(0, 2, 1)]
    assert b.take_at_once() == []
    a.connection.close()
    assert b.take() == [(0, 2, 2)]


@pytest.mark.conformance("SH55", "SH57")
def test_forgotten_partitions_keep_their_locks_and_are_not_fetched(world: World) -> None:
    a, b = filled(world, 2)
    assert world.configure(record_lock_duration_ms=2_000) == 0
    assert a.take_all(2) == [(0, 1, 1)]
    assert world.configure(record_lock_duration_ms=30_000) == 0
    assert a.take_at_once(forgotten_topics_data=a.forget(0)) == []
    world.put("new")
    assert a.take_at_once() == []
    assert a.fetch(share_session_epoch=-1).error_code == 0
    assert b.take() == [(2, 2, 1)], "the records of a forgotten partition stay locked"
    assert b.take() == [(0, 1, 2)], "until the lock ends"


@pytest.mark.conformance("SH55")
def test_partitions_without_news_are_left_out_but_for_the_first_answer(world: World) -> None:
    [a] = filled(world, 0, "a")
    assert [one.partition_index for topic in a.fetch(max_wait_ms=300).responses for one in topic.partitions] == [0]
    assert a.fetch(max_wait_ms=300).responses == ()


@pytest.mark.conformance("SH40", "SH43", "SH47")
def test_a_lock_that_times_out_gives_the_record_to_a_member_that_waits(world: World) -> None:
    a, b = filled(world, 1, record_lock_duration_ms=LOCK_MS)
    assert a.take() == [(0, 0, 1)]
    b.wait()
    assert not b.connection.answered
    assert b.got() == [(0, 0, 2)]
    assert a.ack((0, 0, ACCEPT)) == INVALID_STATE, "another member has it now"


@pytest.mark.conformance("SH44")
def test_a_late_acknowledgement_counts_if_the_member_has_the_record_again(world: World) -> None:
    [a] = filled(world, 1, "a", record_lock_duration_ms=LOCK_MS)
    assert a.take() == [(0, 0, 1)]
    assert a.take() == [(0, 0, 2)], "the lock has ended"
    assert a.ack((0, 0, ACCEPT)) == 0


@pytest.mark.conformance("SH40")
def test_records_that_are_given_back_wake_a_member_that_waits(world: World) -> None:
    """Apache Kafka 4.3 looks for records to deliver while their state is written, and not after that, unless the start
    has moved: they come when the wait ends."""
    a, b = filled(world, 2)
    assert a.take_all(2) == [(0, 1, 1)]
    assert b.take_at_once() == []
    most = world.either(kohort=20_000, kafka=2_000)
    b.wait(max_wait_ms=most)
    assert a.ack((0, 0, RELEASE)) == 0
    assert b.got() == [(0, 0, 2)]
    b.wait(max_wait_ms=most)
    assert a.fetch(share_session_epoch=-1).error_code == 0
    assert b.got() == [(1, 1, 2)]
    b.wait()
    world.put("new")
    assert b.got() == [(2, 2, 1)]


@pytest.mark.conformance("SH40")
def test_a_fetch_of_nothing_acknowledges_at_once(world: World) -> None:
    [a] = filled(world, 2, "a")
    assert a.take(max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
    answer = a.fetch([(0, 0, ACCEPT)], max_records=0, max_wait_ms=9_000)
    assert (row(answer).acknowledge_error_code, ranges(answer)) == (0, [])
    assert a.take() == [(1, 1, 1)]


@pytest.mark.conformance("SH4", "SH9", "SH10", "SH46")
def test_a_renewed_lock_lasts_longer(world: World) -> None:
    a, b = filled(world, 2, record_lock_duration_ms=2_000)
    assert a.take_all(2) == [(0, 1, 1)]
    assert world.configure(record_lock_duration_ms=30_000) == 0
    none = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    assert a.ask_fetch(acks=[(0, 0, RENEW)], is_renew_ack=True) == INVALID, "a renewal fetches nothing"
    renewed = a.fetch([(0, 0, RENEW)], is_renew_ack=True, **none)
    assert (row(renewed).acknowledge_error_code, ranges(renewed)) == (0, [])
    assert renewed.acquisition_lock_timeout_ms == 30_000
    assert b.take() == [(1, 1, 2)], "its lock has ended, and the renewed one has not"
    assert a.ack((0, 0, RENEW), is_renew_ack=True) == 0
    assert a.ack((0, 0, RENEW)) == INVALID, "the request does not say that it renews"
    assert a.ack((0, 0, ACCEPT)) == 0


@pytest.mark.conformance("SH46")
def test_renewals_can_be_turned_off(world: World) -> None:
    [a] = filled(world, 1, "a", renew_acknowledge_enable="false")
    assert a.take() == [(0, 0, 1)]
    assert a.ack((0, 0, RENEW), is_renew_ack=True) == INVALID_STATE
    assert a.ack((0, 0, ACCEPT)) == 0


@pytest.mark.conformance("SH5", "SH9", "SH43")
def test_acknowledgements_that_fail_as_a_whole(world: World) -> None:
    a, b = filled(world, 5)
    assert a.take_all(5) == [(0, 4, 1)]
    world.put("new")
    failing: list[Any] = [
        [(1, 0, ACCEPT)],
        [(2, 3, ACCEPT), (1, 1, ACCEPT)],
        [(0, 0)],
        [(0, 2, ACCEPT, ACCEPT)],
        [(0, 0, 5)],
        [(0, 0, -1)],
        [(0, 9, ACCEPT)],
        [(5, 5, ACCEPT)],
    ]
    assert [a.ack(*batches) for batches in failing] == [INVALID] * len(failing)
    assert b.fetch().error_code == 0
    assert b.ack((0, 4, ACCEPT)) == INVALID_STATE, "another member has them"
    assert a.ack((0, 4, ACCEPT)) == 0, "nothing has changed"


@pytest.mark.conformance("SH41", "SH42", "SH43", "SH45", "SH49")
def test_all_batches_of_a_partition_succeed_or_none(world: World) -> None:
    a, b = filled(world, 4)
    assert a.take(max_records=2, share_acquire_mode=1) == [(0, 1, 1)]
    assert b.take() == [(2, 3, 1)]
    assert a.ack((0, 0, ACCEPT), (1, 2, ACCEPT)) == INVALID_STATE
    assert a.ack((0, 1, ACCEPT)) == 0
    # The start moves over the finished prefix. Apache Kafka stores that with the next change.
    assert world.offsets()[0] == world.either(kohort=(2, 2), kafka=(0, 2))
    assert a.ack((0, 1, ACCEPT)) == 0, "below the start, it is skipped"
    assert b.ack((3, 3, ACCEPT)) == 0
    assert b.ack((3, 3, ACCEPT)) == INVALID_STATE, "a second time"
    assert world.offsets()[0] == (2, 1)
    assert b.ack((0, 2, ACCEPT)) == 0, "the part above the start counts"
    assert world.offsets()[0] == world.either(kohort=(4, 0), kafka=(2, 0))


@pytest.mark.conformance("SH41", "SH46")
def test_renewals_beside_a_batch_that_fails(world: World) -> None:
    """Apache Kafka renews all the same."""
    [a] = filled(world, 2, "a", record_lock_duration_ms=LOCK_MS)
    assert a.take_all(2) == [(0, 1, 1)]
    assert world.configure(record_lock_duration_ms=30_000) == 0
    assert a.ack((0, 0, RENEW), (1, 1, 3), (2, 2, ACCEPT), is_renew_ack=True) == INVALID
    got = a.take()
    assert got == world.either(kohort=[(0, 1, 2)], kafka=[(1, 1, 2)])


@pytest.mark.conformance("SH6")
def test_an_error_of_the_acknowledgement_does_not_hide_records(world: World) -> None:
    a, b = filled(world, 2)
    assert a.take_all(2) == [(0, 1, 1)]
    world.put("2")
    assert b.take() == [(2, 2, 1)]
    world.put("3")
    found = row(b.fetch([(0, 0, ACCEPT)], max_wait_ms=9_000))
    assert (found.error_code, found.acknowledge_error_code) == (0, INVALID_STATE)
    assert [(one.first_offset, one.last_offset) for one in found.acquired_records] == [(3, 3)]


# -- what is acquired


@pytest.mark.conformance("SH33", "SH36", "SH38")
def test_whole_batches_are_sent_and_neighbours_are_one_range(world: World) -> None:
    a, b = filled(world, 0)
    world.put("0", "1", "2", "3")
    found = a.fetch(max_records=3, share_acquire_mode=1, max_wait_ms=9_000)
    assert ranges(found) == [(0, 2, 1)]
    assert len([one for _, data in split_batches(row(found).records or b"") for one in decode_records(data)]) == 4
    assert a.ack((0, 0, RELEASE)) == a.ack((1, 1, RELEASE)) == 0
    assert b.take_all(3) == [(0, 1, 2), (3, 3, 1)]


@pytest.mark.conformance("SH35")
def test_whole_batches_until_the_limit_and_ranges_of_the_batch_size(world: World) -> None:
    a, b = filled(world, 0)
    for _ in range(4):
        world.put("x", "y", "z")
    assert a.take(max_records=4, batch_size=3) == [(0, 2, 1), (3, 5, 1)]
    assert b.take(max_records=500, batch_size=500) == [(6, 11, 1)]


@pytest.mark.conformance("SH31", "SH45")
def test_records_are_archived_after_too_many_deliveries(world: World) -> None:
    [a] = filled(world, 1, "a", delivery_count_limit=2)
    assert a.take() == [(0, 0, 1)]
    assert a.take([(0, 0, RELEASE)]) == [(0, 0, 2)]
    world.put("next")
    assert a.take([(0, 0, RELEASE)]) == [(1, 1, 1)]
    assert a.ack((0, 0, ACCEPT)) == 0, "below the start"
    assert world.offsets()[0] == world.either(kohort=(1, 1), kafka=(0, 1))


@pytest.mark.conformance("SH39")
def test_a_record_that_fails_again_and_again_is_delivered_alone_in_the_end(world: World) -> None:
    [a] = filled(world, 0, "a")
    world.put(*"01234567")
    seen = []
    while sum(last - first + 1 for first, last, _ in seen) < 40:
        found = a.take()
        seen += found
        a.ack(*((first, last, RELEASE) for first, last, _ in found))
    deliveries = {count: [last - first + 1 for first, last, n in seen if n == count] for count in range(1, 6)}
    # Half of what is left; in Apache Kafka, half of the batch as it was acquired first.
    halves = world.either(kohort=[4, 2, 1, 1], kafka=[4, 4])
    assert deliveries == {1: [8], 2: [8], 3: [8], 4: halves, 5: [1] * 8}


@pytest.mark.conformance("SH37")
def test_the_window_stops_new_records_behind_an_unfinished_one(world: World) -> None:
    a, b = filled(world, 1, partition_max_record_locks=100)
    for _ in range(15):
        world.put(*["x"] * 10)
    assert a.take(max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
    [(first, last, _)] = b.take(batch_size=1_000)
    assert (first, last) == (1, 100)
    assert b.ack((1, 100, ACCEPT)) == 0
    assert b.take_at_once() == []
    assert a.ack((0, 0, ACCEPT)) == 0
    assert [(first, last) for first, last, _ in b.take(batch_size=1_000)] == [(101, 150)]


@pytest.mark.conformance("SH42", "SH50")
def test_deleted_records_are_skipped(world: World) -> None:
    a, b = filled(world, 6)
    assert a.take(max_records=2, share_acquire_mode=1) == [(0, 1, 1)]
    partition = DeleteRecordsPartition(partition_index=0, offset=4)
    topics = (DeleteRecordsTopic(name=world.topic, partitions=(partition,)),)
    request = DeleteRecordsRequest(topics=topics, timeout_ms=9_000)
    assert world.client.ask(request, 2).topics[0].partitions[0].error_code == 0
    assert until(lambda: b.take(max_wait_ms=100), "the rest is delivered") == [(4, 5, 1)]
    assert a.ack((0, 1, ACCEPT)) == 0, "below the start"
    assert b.ack((4, 5, ACCEPT)) == 0
    assert world.offsets()[0] == world.either(kohort=(6, 0), kafka=(4, 0))


# -- transactions


@pytest.mark.conformance("SH48", "SH52")
def test_committed_records_alone(world: World) -> None:
    [a] = filled(world, 0, "a", isolation_level="read_committed")
    producer = world.producer()
    assert until(lambda: not producer.produce("open", topic=world.topic), "it is produced")
    assert a.take_at_once() == []
    assert producer.abort() == 0
    assert until(lambda: not producer.produce("kept", topic=world.topic), "the transaction has ended")
    assert a.take_at_once() == [], "up to the last stable offset"
    assert producer.commit() == 0
    # 0 is an aborted record, 1 and 3 are markers.
    found = a.take_all(1)
    assert [(first, count) for first, _, count in found if first <= 2] in ([(1, 1)], [(2, 1)])
    first, last, _ = found[0]
    assert a.ack(*((at, at, ACCEPT if at == 2 else GAP) for at in range(first, last + 1))) == 0
    world.put("next")
    assert a.take()[0][1] == 4


@pytest.mark.conformance("SH53")
def test_aborted_records_longer_than_the_window(world: World) -> None:
    """In Apache Kafka they fill it, and the group gets no record any more."""
    [a] = filled(world, 0, "a", isolation_level="read_committed", partition_max_record_locks=100)
    producer = world.producer()
    for _ in range(5):
        assert until(lambda: not producer.produce(*["x"] * 50, topic=world.topic), "it is produced")
    assert producer.abort() == 0
    world.put("kept")
    got = [found for _ in range(10) for found in a.take(max_wait_ms=world.either(kohort=50, kafka=300))]
    assert got == world.either(kohort=[(251, 251, 1)], kafka=[])
