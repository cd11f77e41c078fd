"""A right that is taken away counts at once: also for cached answers, parked requests and answers made in steps."""

from __future__ import annotations

from typing import Any

import pytest
from acl_driver import DENY, Secured, acl, creation
from group_driver import commit_request, consumer_beat, consumer_join, heartbeat_request, join_request, stable
from shard_world import returned
from wire_driver import Connection, batch, fetch_request, produce_request

from kohort.broker.authorization import Operation, Resource
from kohort.wire.codec import encode_request
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.create_acls import CreateAclsRequest
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

_O, _R = Operation, Resource
GROUP_DENIED, TOPIC_DENIED = 30, 29
FOREVER = {"max_wait_ms": 60_000, "min_bytes": 1}


@pytest.fixture
def secured() -> Secured:
    found = Secured()
    found.root.create_topic("t")
    found.root.create_topic("u")
    found.allow("User:a", _O.READ, _R.GROUP, "*")
    found.allow("User:a", _O.READ, _R.TOPIC, "*")
    return found


def revoke(secured: Secured, resource: Resource, name: str, operation: Operation = Operation.READ) -> None:
    denied = acl(resource, name, principal="User:a", operation=operation, permission=DENY)
    assert secured.create(denied) == [(0, None)]


def at_once(client: Connection, request: Any, version: int) -> bool:
    """Whether a request is answered without a turn."""
    client.correlation_id += 1
    frame = encode_request(request, version, client.correlation_id, client.client_id)
    answer, _ = client.wire.broker.at_once(client.id, frame, client.wire.now)
    return bool(answer)


def test_heartbeats_that_are_answered_at_once(secured: Secured) -> None:
    client, other = secured.connect("a"), secured.connect("root")
    joined = stable(client)
    beat = heartbeat_request(joined)
    assert client.ask(beat, 3).error_code == 0
    assert at_once(client, beat, 3)
    revoke(secured, _R.GROUP, "g")
    assert not at_once(client, beat, 3)
    assert client.ask(beat, 3).error_code == GROUP_DENIED
    assert not at_once(client, beat, 3)
    assert other.ask(beat, 3).error_code == 0
    secured.delete({"permission_type": DENY})
    assert client.ask(beat, 3).error_code == 0
    assert at_once(client, beat, 3)


def test_repeated_commits(secured: Secured) -> None:
    client = secured.connect("a")
    joined = stable(client)
    fields = {"member": joined.member_id, "generation": joined.generation_id}
    kept = secured.wire.broker.repeats.commits.kept
    for offset in range(4):
        assert committed(client, offset, **fields) == 0
    assert kept(client.id) is not None
    revoke(secured, _R.TOPIC, "t")
    assert committed(client, 9, **fields) == TOPIC_DENIED
    assert kept(client.id) is None
    revoke(secured, _R.GROUP, "g")
    assert committed(client, 9, **fields) == GROUP_DENIED
    everything = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
    [topic] = secured.root.ask(everything, 8).groups[0].topics
    assert topic.partitions[0].committed_offset == 3


def committed(client: Connection, offset: int, *, member: str, generation: int) -> int:
    request = commit_request(offset, topic="t", member_id=member, generation_id_or_member_epoch=generation)
    error: int = client.ask(request, 7).topics[0].partitions[0].error_code
    return error


def test_v11_a_parked_join_is_refused(secured: Secured) -> None:
    client = secured.connect("a")
    client.send(join_request(), 3)
    assert not client.responses
    revoke(secured, _R.GROUP, "g")
    assert client.take().error_code == GROUP_DENIED
    secured.wire.advance(60_000)
    assert not client.responses
    assert returned(secured.wire.shard().describe("g", 5)).group_state in ("Dead", "Empty")


def test_a_parked_join_of_others_goes_on(secured: Secured) -> None:
    client = secured.connect("a")
    client.send(join_request(), 3)
    revoke(secured, _R.GROUP, "other")
    assert not client.responses
    secured.wire.advance(3_000)
    assert client.take().error_code == 0


def test_v11_a_held_heartbeat_is_refused(secured: Secured) -> None:
    client = secured.connect("a")
    client.ask(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.0"), 3)
    joined = stable(client)
    client.send(heartbeat_request(joined), 3)
    assert not client.responses, "it is held"
    revoke(secured, _R.GROUP, "g")
    assert client.take().error_code == GROUP_DENIED


def test_v11_a_held_heartbeat_of_a_consumer_group_is_refused(secured: Secured) -> None:
    client = secured.connect("a")
    joined = client.ask(consumer_join("m", "t"), 0)
    epoch = client.ask(consumer_beat("m", joined.member_epoch, ()), 0).member_epoch
    client.send(consumer_beat("m", epoch), 0)
    assert not client.responses, "it is held"
    revoke(secured, _R.GROUP, "g")
    assert client.take().error_code == GROUP_DENIED


def test_a_waiting_fetch_is_answered_without_the_records(secured: Secured) -> None:
    client = secured.connect("a")
    client.send(fetch_request("t", **FOREVER), 11)
    assert not client.responses
    revoke(secured, _R.TOPIC, "t")
    [row] = client.take().responses
    assert (row.partitions[0].error_code, row.partitions[0].records) == (TOPIC_DENIED, b"")


def test_a_fetch_that_was_woken_in_the_turn_of_the_revocation(secured: Secured) -> None:
    client = secured.connect("a")
    client.send(fetch_request("t", **FOREVER), 11)
    producing = secured.root
    deny = acl(_R.TOPIC, "t", principal="User:a", operation=_O.READ, permission=DENY)
    other = secured.connect("root")
    frames = (
        producing.frame(produce_request("t", batch("secret")), 9),
        other.frame(CreateAclsRequest(creations=(creation(deny),)), 3),
    )
    secured.wire.step(*frames)
    [row] = client.take().responses
    assert (row.partitions[0].error_code, row.partitions[0].records) == (TOPIC_DENIED, b"")


def test_a_waiting_fetch_of_several_topics_keeps_what_is_allowed(secured: Secured) -> None:
    client = secured.connect("a")
    asked = (FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000),)
    topics = tuple(FetchTopic(topic=name, partitions=asked) for name in ("t", "u"))
    client.send(FetchRequest(topics=topics, replica_id=-1, **FOREVER), 11)
    revoke(secured, _R.TOPIC, "t")
    rows = {row.topic: row.partitions[0].error_code for row in client.take().responses}
    assert rows == {"t": TOPIC_DENIED, "u": 0}


def test_an_answer_in_steps_leaves_out_what_is_denied_meanwhile(secured: Secured) -> None:
    """The list of topics takes many steps; the rules change between two of them."""
    for number in range(50):
        secured.root.create_topic(f"x{number}")
    client, wire = secured.connect("a"), secured.wire
    overs = iter([0, 1] + [2] * 1000)

    def time_is_up() -> int:
        return next(overs)

    frame = client.frame(MetadataRequest(topics=None), 9)
    wire.end(wire.broker.step([frame], wire.now, time_is_up))
    assert not client.responses, "the answer takes more than one turn"
    secured.create(acl(_R.TOPIC, "x", 4, principal="User:a", operation=_O.DESCRIBE, permission=DENY))
    wire.step()
    assert [topic.name for topic in client.take().topics] == ["t", "u"]


def test_the_version_of_the_rules_moves_within_a_turn(secured: Secured) -> None:
    """A heartbeat behind the revocation, in the same turn, is refused."""
    client = secured.connect("a")
    joined = stable(client)
    beat = heartbeat_request(joined)
    assert client.ask(beat, 3).error_code == 0
    deny = acl(_R.GROUP, "g", principal="User:a", operation=_O.READ, permission=DENY)
    other = secured.connect("root")
    secured.wire.step(other.frame(CreateAclsRequest(creations=(creation(deny),)), 3), client.frame(beat, 3))
    assert client.take().error_code == GROUP_DENIED
