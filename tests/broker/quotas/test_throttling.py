"""Throttling: which requests count for what, how long a client waits, and that nobody else does."""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import commit_request, consumer_beat, consumer_join, heartbeat_request, join_request, stable
from hypothesis import given, settings
from hypothesis import strategies as st
from quota_driver import FETCH, MUTATION, PRODUCE, REQUEST, Limited
from wire_driver import Connection, batch, fetch_request, produce_request, values_of

from kohort.broker.handlers.topics_admin import STRICT_CREATES, STRICT_DELETES, STRICT_GROWS
from kohort.broker.quotas import meters
from kohort.broker.quotas.throttling import MEMBER_MS
from kohort.broker.turn import Closed
from kohort.wire.codec import encode_request
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic

MS = 1_000_000
"""Nanoseconds."""
SMALL = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.fixture
def limited() -> Limited:
    made = Limited()
    made.admin.create_topic("t")
    return made


def produced(client: Connection, size: int, acks: int = 1) -> Any:
    """The answer to a request with `size` bytes of values; None with acks=0."""
    request = produce_request("t", batch(b"x" * size), 0, acks=acks)
    client.send(request, 9)
    if not acks:
        client.awaited.pop()
        return None
    return client.take()


def request_bytes(client: Connection, size: int) -> int:
    return len(encode_request(produce_request("t", batch(b"x" * size), 0), 9, 1, client.client_id)) - 4


# -- bytes


@pytest.mark.conformance("Q2", "Q3", "W9")
def test_a_producer_above_its_quota_is_answered_at_once_and_muted(limited: Limited) -> None:
    limited.set(PRODUCE, 1000, user="alice")
    alice, bob = limited.connect("alice"), limited.connect("bob")
    size = request_bytes(alice, 15_000)
    answer = produced(alice, 15_000)
    delay = round((size / 10 - 1000) / 1000 * 10_000)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms == delay
    assert limited.is_muted(alice)
    alice.send(SMALL, 3)
    assert alice.responses == []
    assert produced(bob, 15_000).throttle_time_ms == 0
    limited.wire.advance(delay - 1)
    assert alice.responses == []
    limited.wire.advance(1)
    assert alice.take().error_code == 0
    assert not limited.is_muted(alice)


@pytest.mark.conformance("Q3")
def test_a_producer_within_its_quota_does_not_wait(limited: Limited) -> None:
    limited.set(PRODUCE, 1000, client_id=None)
    client = limited.connect()
    for _ in range(30):
        assert produced(client, 500).throttle_time_ms == 0
        limited.wire.advance(1000)


@pytest.mark.conformance("Q3")
def test_acks_0_is_muted_without_an_answer(limited: Limited) -> None:
    limited.set(PRODUCE, 1000, client_id="c")
    limited.set(REQUEST, 0.001, client_id="c")
    client = limited.connect(client_id="c")
    limited.spends = 50 * MS
    assert produced(client, 100, acks=0) is None
    assert not limited.is_muted(client), "the time of such a request does not count"
    produced(client, 20_000, acks=0)
    assert limited.is_muted(client)
    assert client.responses == []
    assert client.disconnected is None


@pytest.mark.conformance("Q1", "Q3")
def test_clients_of_one_entity_share_its_quota_and_those_of_a_default_do_not(limited: Limited) -> None:
    limited.set(PRODUCE, 1000, user="alice")
    limited.set(PRODUCE, 1000, client_id=None)
    produced(limited.connect("alice", "a"), 9_000)
    assert produced(limited.connect("alice", "b"), 9_000).throttle_time_ms > 0
    produced(limited.connect(client_id="c"), 9_000)
    assert produced(limited.connect(client_id="d"), 9_000).throttle_time_ms == 0
    assert produced(limited.connect(client_id="c"), 9_000).throttle_time_ms > 0


@pytest.mark.conformance("Q1")
def test_each_broker_counts_for_itself() -> None:
    limited = Limited(brokers=2)
    limited.set(PRODUCE, 1000, user="alice")
    limited.admin.create_topic("t")
    leader = limited.wire.broker.state.catalog.topics["t"].partitions[0].leader
    other = limited.connect("alice", broker_id=3 - leader)
    assert produced(other, 9_000).throttle_time_ms == 0, "it is not the leader, and the bytes count all the same"
    assert produced(limited.connect("alice", broker_id=leader), 9_000).throttle_time_ms == 0
    assert produced(other, 9_000).throttle_time_ms > 0


@pytest.mark.conformance("Q3")
def test_a_fetch_above_the_quota_is_empty_and_does_not_count(limited: Limited) -> None:
    for _ in range(4):
        produced(limited.admin, 6_000)
    limited.set(FETCH, 1000, user="alice")
    alice = limited.connect("alice")
    first = alice.ask(fetch_request("t", 0), 11)
    assert first.throttle_time_ms == 0
    assert len(values_of(first)) == 1, "cut to ten seconds of the quota"
    second = alice.ask(fetch_request("t", 1), 11)
    assert (second.responses, second.error_code) == ((), 0)
    assert second.throttle_time_ms > 0
    assert limited.is_muted(alice)
    limited.wire.advance(second.throttle_time_ms + 11_000)
    assert len(values_of(alice.ask(fetch_request("t", 1), 11))) == 1


def test_a_fetch_that_waited_counts_too(limited: Limited) -> None:
    limited.set(FETCH, 100, user="alice")
    alice = limited.connect("alice")
    alice.send(fetch_request("t", 0, max_wait_ms=5_000), 11)
    assert alice.responses == []
    produced(limited.admin, 5_000)
    limited.wire.step()
    answer = alice.take()
    assert answer.responses == ()
    assert answer.throttle_time_ms > 0


# -- time


@pytest.mark.conformance("Q4")
def test_the_time_of_requests(limited: Limited) -> None:
    """A request takes 60 ms by the stopwatch, so ten of them are above 5 percent of ten seconds."""
    limited.set(REQUEST, 5, user="alice")
    alice, bob = limited.connect("alice"), limited.connect("bob")
    limited.spends = 60 * MS
    delays = []
    while not delays or not delays[-1]:
        delays.append(alice.ask(SMALL, 3).throttle_time_ms)
        assert bob.ask(SMALL, 3).throttle_time_ms == 0
        assert len(delays) < 20
    assert 4 <= len(delays) <= 10
    assert limited.is_muted(alice)
    limited.wire.advance(1000)
    assert not limited.is_muted(alice), "no longer than a second, whatever the rate is"


@pytest.mark.conformance("Q3", "Q4")
def test_heartbeats_count_and_are_delayed_by_a_second_at_most() -> None:
    """Far above its quota, a member of a classic group and one of a consumer group keep their sessions."""
    limited = Limited(group_consumer_heartbeat_hold_enable=False)
    limited.admin.create_topic("t")
    limited.set(REQUEST, 0.01, user="alice")
    classic, consumer = limited.connect("alice", "classic"), limited.connect("alice", "consumer")
    joined = stable(classic, "g")
    limited.wire.advance(1000)
    beat = consumer.ask(consumer_join("m", "t", group="h"), 1)
    limited.spends = 500 * MS
    delays = set()
    for _ in range(60):
        limited.wire.advance(1000)
        answer = classic.ask(heartbeat_request(joined, "g"), 3)
        assert answer.error_code == 0
        delays.add(answer.throttle_time_ms)
        answer = consumer.ask(consumer_beat("m", beat.member_epoch, group="h"), 1)
        assert answer.error_code == 0
        delays.add(answer.throttle_time_ms)
    assert delays == {1000}


@pytest.mark.conformance("Q3")
@pytest.mark.parametrize("compatibility", ["kohort", "kafka"])
def test_a_mute_does_not_end_the_session_of_a_member_that_shares_its_connection(compatibility: str) -> None:
    """A client that fetches and sends heartbeats on one connection: it is muted for a second at a time. In the strict
    mode it loses its session, as with Kafka."""
    limited = Limited(compatibility=compatibility)
    limited.admin.create_topic("t")
    for _ in range(2):
        produced(limited.admin, 100_000)
    limited.set(FETCH, 1000, user="alice")
    alice = limited.connect("alice")
    joined = stable(alice)
    alice.ask(heartbeat_request(joined), 3)
    first = alice.ask(fetch_request("t", 0), 11)
    assert first.responses == ()
    strict = compatibility == "kafka"
    assert (first.throttle_time_ms > 60_000) if strict else (first.throttle_time_ms == MEMBER_MS)
    errors = set()
    for _ in range(40):
        alice.send(heartbeat_request(joined), 3)
        alice.send(fetch_request("t", 0, max_wait_ms=0), 11)
        limited.wire.advance(MEMBER_MS)
        while alice.responses:
            answer = alice.take()
            if hasattr(answer, "responses"):
                assert answer.responses == ()
            else:
                errors.add(answer.error_code)
    assert errors == (set() if strict else {0})


@pytest.mark.conformance("Q3")
def test_requests_before_a_heartbeat_are_handled_with_it(limited: Limited) -> None:
    """A client that sends five commits a second and does not wait for their answers keeps its session."""
    limited.set(REQUEST, 0.01, user="alice")
    alice = limited.connect("alice")
    joined = stable(alice)
    limited.spends = 500 * MS
    beats, commits = [], 0
    for second in range(40):
        for _ in range(5):
            alice.send(
                commit_request(second, member_id=joined.member_id, generation_id_or_member_epoch=joined.generation_id),
                7,
            )
        alice.send(heartbeat_request(joined), 3)
        limited.wire.advance(1000)
        while alice.responses:
            answer = alice.take()
            if hasattr(answer, "topics"):
                commits += 1
                assert answer.topics[0].partitions[0].error_code == 0
            else:
                beats.append(answer.error_code)
    assert set(beats) == {0}
    assert len(beats) >= 38
    assert commits >= 5 * len(beats)


# -- changes


def create(client: Connection, *counts: int, version: int, first: int = 0) -> Any:
    topics = tuple(
        CreatableTopic(name=f"n{first + at}", num_partitions=count, replication_factor=1)
        for at, count in enumerate(counts)
    )
    return client.ask(CreateTopicsRequest(topics=topics), version)


@pytest.mark.conformance("Q5")
def test_changes_above_the_quota_are_refused(limited: Limited) -> None:
    """A burst of 5.5 partitions: a token is left after three, so three more are done; then none is left."""
    limited.set(MUTATION, 0.5, user="alice")
    alice = limited.connect("alice")
    answer = create(alice, 3, 3, 1, version=STRICT_CREATES)
    assert [topic.error_code for topic in answer.topics] == [0, 0, 89]
    assert answer.topics[2].error_message == "The throttling quota has been exceeded."
    assert answer.throttle_time_ms == 1000, "half a token is missing"
    assert limited.is_muted(alice)
    limited.wire.advance(1000)
    gone = alice.ask(
        DeleteTopicsRequest(topics=(DeleteTopicState(name="n0"), DeleteTopicState(name="n1")), timeout_ms=1), 6
    )
    assert [topic.error_code for topic in gone.responses] == [0, 89]
    limited.wire.advance(gone.throttle_time_ms)
    grow = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t", count=3, assignments=None),), timeout_ms=1)
    assert alice.ask(grow, STRICT_GROWS).results[0].error_code == 0
    assert create(limited.admin, 10, version=7, first=10).throttle_time_ms == 0, "others have no such quota"


@pytest.mark.conformance("Q5")
def test_older_versions_are_done_and_then_throttled(limited: Limited) -> None:
    limited.set(MUTATION, 0.5, user="alice")
    alice = limited.connect("alice")
    answer = create(alice, 3, 3, 1, version=STRICT_CREATES - 1)
    assert [topic.error_code for topic in answer.topics] == [0, 0, 0]
    assert answer.throttle_time_ms == 3000
    alice.send(DeleteTopicsRequest(topic_names=("n0",), timeout_ms=1), STRICT_DELETES - 1)
    assert alice.responses == []
    limited.wire.advance(3000)
    assert alice.take().throttle_time_ms == 6000


@pytest.mark.conformance("Q5")
def test_topics_that_metadata_creates_count_and_do_not_throttle(limited: Limited) -> None:
    limited.set(MUTATION, 0.1, user="alice")
    alice = limited.connect("alice")

    def ask(*names: str) -> list[int]:
        topics = tuple(MetadataRequestTopic(name=name) for name in names)
        answer = alice.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 9)
        assert answer.throttle_time_ms == 0
        return [topic.error_code for topic in answer.topics]

    assert ask("a", "b", "c") == [0, 0, 3]
    assert ask("a", "b", "c") == [0, 0, 3]
    limited.wire.advance(10_000)
    assert ask("c") == [0]


# -- connections and limits


def test_a_client_that_has_gone_is_not_muted(limited: Limited) -> None:
    """What it has sent before is handled at once, if it changes something."""
    limited.set(PRODUCE, 1000, user="alice")
    alice = limited.connect("alice")
    produced(alice, 50_000)
    alice.send(produce_request("t", batch(b"last"), 0), 9)
    alice.send(fetch_request("t", 0), 11)
    assert limited.is_muted(alice)
    limited.wire.step(Closed(alice.id))
    assert limited.admin.values("t", 1) == [b"last"]
    limited.wire.advance(100_000)


def test_mutes_of_closed_connections_are_forgotten(limited: Limited) -> None:
    limited.set(PRODUCE, 1, client_id=None)
    for at in range(200):
        client = limited.connect(client_id=f"c{at}")
        assert produced(client, 1_000).throttle_time_ms > 0
        client.close()
    assert len(limited.wire.broker._throttling._heap) <= 66


def test_a_quota_that_is_removed_ends_no_mute(limited: Limited) -> None:
    limited.set(PRODUCE, 1000, user="alice")
    alice = limited.connect("alice")
    delay = produced(alice, 20_000).throttle_time_ms
    limited.set(PRODUCE, None, user="alice")
    assert limited.is_muted(alice)
    limited.wire.advance(delay)
    assert produced(alice, 20_000).throttle_time_ms == 0


def test_there_is_a_limit_of_what_is_counted(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "MOST_METERS", 10)
    limited.set(PRODUCE, 1000, client_id=None)
    limited.set(MUTATION, 1, client_id=None)
    for at in range(20):
        client = limited.connect(client_id=f"c{at}")
        produced(client, 10)
        create(client, 1, version=7, first=at)
    assert len(limited.wire.broker.state.meters) == 10


def test_a_long_answer_of_a_muted_connection_leaves_at_once(limited: Limited) -> None:
    limited.set(REQUEST, 0.001, user="alice")
    alice = limited.connect("alice")
    limited.spends = 100 * MS
    keys = tuple(f"g{at}" for at in range(3_000))
    answer = alice.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4)
    assert len(answer.coordinators) == 3_000
    assert answer.throttle_time_ms == 1000


def test_old_versions_have_no_throttle_time_and_are_muted(limited: Limited) -> None:
    limited.set(REQUEST, 0.001, user="alice")
    alice = limited.connect("alice")
    limited.spends = 100 * MS
    alice.ask(ApiVersionsRequest(), 0)
    assert limited.is_muted(alice)
    alice.send(join_request("g"), 1)
    limited.wire.advance(5_000)
    assert alice.take().error_code == 0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_throttled_client_holds_back_nobody_else(data: st.DataObject) -> None:
    """Whatever the throttled clients send: each request of the others is answered in its own turn."""
    limited = Limited()
    limited.admin.create_topic("t")
    for key in (PRODUCE, FETCH):
        limited.set(key, data.draw(st.sampled_from((1, 50, 2_000))), user="slow")
    limited.set(REQUEST, 0.5, user="slow")
    limited.spends = data.draw(st.sampled_from((0, MS, 40 * MS)))
    slow = [limited.connect("slow", f"s{at}") for at in range(3)]
    free = limited.connect("free")
    requests = (
        lambda: (produce_request("t", batch(b"x" * 3_000), 0), 9),
        lambda: (fetch_request("t", 0, max_wait_ms=0), 11),
        lambda: (SMALL, 3),
        lambda: (commit_request(1), 7),
    )
    sent = [0, 0, 0]
    for _ in range(data.draw(st.integers(5, 30))):
        at = data.draw(st.integers(0, 2))
        slow[at].send(*data.draw(st.sampled_from(requests))())
        sent[at] += 1
        answer = free.ask(*data.draw(st.sampled_from(requests))())
        assert answer.throttle_time_ms == 0
        limited.wire.advance(data.draw(st.sampled_from((0, 1, 400, 3_000))))
        limited.wire.broker.validate()
    assert not limited.is_muted(free)
    while limited.wire.broker.next_deadline() is not None and sent != [len(one.responses) for one in slow]:
        limited.wire.advance(100_000)
    assert sent == [len(one.responses) for one in slow], "all of them are answered in the end"
