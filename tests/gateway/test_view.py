"""What the gateway makes of metadata answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kohort.broker.turn import FollowedTopic, UpstreamSeen
from kohort.client.security.security import Security
from kohort.gateway.follower import Follower
from kohort.gateway.view import FORGOTTEN_AFTER_S, AnotherCluster, View
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def answered(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2), cluster: str = "c") -> MetadataResponse:
    rows = tuple(MetadataResponseBroker(node_id=broker, host="h", port=9000 + broker) for broker in brokers)
    return MetadataResponse(brokers=rows, cluster_id=cluster, topics=topics)


def topic(name: str, partitions: int, topic_id: bytes = b"1" * 16, *, error: int = 0) -> MetadataResponseTopic:
    rows = tuple(
        MetadataResponsePartition(
            error_code=0, partition_index=index, leader_id=1, replica_nodes=(1, 2), isr_nodes=(1,)
        )
        for index in reversed(range(partitions))
    )
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=rows)


def seen(view: View, metadata: MetadataResponse, at_s: float = 0.0) -> UpstreamSeen:
    """All that has changed, as one."""
    events = view.see_cluster(metadata.cluster_id or "", metadata.brokers, (), at_s)
    events += view.see_topics(metadata.topics)
    events += view.see_end({topic.name for topic in metadata.topics if topic.name}, at_s)
    return UpstreamSeen(
        cluster=next((event.cluster for event in events if event.cluster is not None), None),
        topics=tuple(topic for event in events for topic in event.topics),
        gone=tuple(name for event in events for name in event.gone),
    )


def learned(view: View, metadata: MetadataResponse) -> list[UpstreamSeen]:
    return list(view.learn(metadata.cluster_id, metadata.topics))


def sizes(event: UpstreamSeen) -> dict[str, int]:
    return {topic.name: len(topic.replicas) for topic in event.topics}


def test_only_changes_are_told() -> None:
    view = View(None, ())
    assert sizes(seen(view, answered(topic("t", 2)))) == {"t": 2}
    assert seen(view, answered(topic("t", 2))) == UpstreamSeen()
    assert sizes(seen(view, answered(topic("t", 3), topic("u", 1)))) == {"t": 3, "u": 1}


def test_a_topic_is_gone_after_several_answers_and_some_time() -> None:
    view = View(None, (), gone_after_s=60)
    seen(view, answered(topic("t", 2)))
    assert all(not seen(view, answered(), at_s).gone for at_s in (1, 2, 3, 60))
    seen(view, answered(topic("t", 2)), 61)
    assert all(not seen(view, answered(), at_s).gone for at_s in (62, 63, 121)), "it had come back"
    assert seen(view, answered(), 123).gone == ("t",)
    assert not seen(view, answered(), 124).gone


def test_an_answer_with_an_error_deletes_nothing() -> None:
    view = View(None, (), gone_after_s=0)
    seen(view, answered(topic("t", 2)))
    unknown = topic("t", 0, error=29)
    assert all(seen(view, answered(unknown), at_s) == UpstreamSeen() for at_s in (1, 2, 3, 4, 5))


def test_passing_answers_add_and_never_take_away() -> None:
    view = View(None, ())
    seen(view, answered(topic("t", 3)))
    (event,) = learned(view, answered(topic("t", 2), topic("u", 1)))
    assert sizes(event) == {"u": 1}
    (event,) = learned(view, answered(topic("t", 4, b"2" * 16)))
    assert event.topics == (FollowedTopic("t", b"1" * 16, ((),) * 4),), "another id takes the gateway's own question"
    (changed,) = seen(view, answered(topic("t", 4, b"2" * 16), topic("u", 1))).topics
    assert changed.topic_id == b"2" * 16


def test_brokers_keep_their_slots() -> None:
    view = View(None, ())
    seen(view, answered(brokers=(5, 9)))
    seen(view, answered(brokers=(2, 9)))
    assert {broker.id: broker.slot for broker in view.brokers.values()} == {5: 0, 9: 1, 2: 2}
    assert view.coordinator == 2
    cluster = view.cluster
    again = View(cluster, ())
    seen(again, answered(brokers=(2, 5, 9)))
    assert {broker.id: broker.slot for broker in again.brokers.values()} == {5: 0, 9: 1, 2: 2}


def test_a_broker_leaves_after_some_time() -> None:
    view = View(None, (), gone_after_s=60)
    seen(view, answered())
    seen(view, answered(brokers=(2,)), 10)
    assert (view.has_left(1, 69), view.has_left(1, 70), view.has_left(2, 70)) == (False, True, False)
    assert view.coordinator == 2
    seen(view, answered(), 80)
    assert not view.has_left(1, 200)


def test_the_slot_of_a_broker_that_left_long_ago_is_free() -> None:
    view = View(None, (), gone_after_s=60)
    seen(view, answered())
    seen(view, answered(brokers=(2,)), 10)
    seen(view, answered(brokers=(2, 3)), 10 + FORGOTTEN_AFTER_S - 1)
    assert {broker.id: broker.slot for broker in view.brokers.values()} == {1: 0, 2: 1, 3: 2}
    seen(view, answered(brokers=(2, 3, 4)), 10 + FORGOTTEN_AFTER_S)
    assert {broker.id: broker.slot for broker in view.brokers.values()} == {2: 1, 3: 2, 4: 0}
    assert view.cluster is not None
    assert {broker.id for broker in view.cluster.brokers} == {2, 3, 4}


def test_another_cluster_is_refused() -> None:
    view = View(None, ())
    seen(view, answered())
    with pytest.raises(AnotherCluster, match="'d'"):
        seen(view, answered(cluster="d"))


def test_what_passes_from_another_cluster_is_refused() -> None:
    view = View(None, ())
    seen(view, answered())
    with pytest.raises(AnotherCluster, match="'d'"):
        list(learned(view, answered(topic("t", 1), cluster="d")))


@pytest.mark.parametrize(("host", "port"), [("h", -1), ("h", 0), ("h", 65_536), ("", 9092)])
def test_a_broker_that_nobody_can_connect_to_does_not_count(host: str, port: int) -> None:
    view = View(None, ())
    bad = MetadataResponseBroker(node_id=0, host=host, port=port)
    metadata = answered()
    metadata = MetadataResponse(brokers=(bad, *metadata.brokers), cluster_id="c", topics=())
    seen(view, metadata)
    assert (set(view.brokers), view.coordinator) == ({1, 2}, 1)
    assert not view.has_new_brokers(metadata.brokers)


def test_topics_without_ids_have_one_of_their_name() -> None:
    view = View(None, ())
    found = seen(view, answered(topic("t", 1, NO_UUID), topic("u", 1, NO_UUID))).topics
    assert len({one.topic_id for one in found} - {NO_UUID}) == 2
    assert seen(view, answered(topic("t", 1, NO_UUID), topic("u", 1, NO_UUID))) == UpstreamSeen()


async def test_an_interrupted_round_loses_nothing() -> None:
    """The broker takes over an event while the time of a round is up."""
    told: list[UpstreamSeen] = []
    view = View(None, ())

    async def tell(event: UpstreamSeen) -> None:
        if len(told) == 1:
            told.append(UpstreamSeen())
            raise TimeoutError
        told.append(event)

    follower = Follower([], Security(), view, SimpleNamespace(shards=(), acl_authorizer=None), tell, lambda: None)  # type: ignore[arg-type]
    metadata = answered(topic("t", 1_000), topic("u", 1, b"2" * 16))
    follower._untold.extend(view.see_cluster("c", metadata.brokers, (), 0))
    follower._untold.extend(view.see_topics(metadata.topics))
    with pytest.raises(TimeoutError):
        await follower.tell_all()
    await follower.tell_all()
    assert [sizes(event) for event in told] == [{}, {}, {"t": 1_000}, {"u": 1}]
