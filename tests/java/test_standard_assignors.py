"""Our own members and Java's consumers share a group by the standard assignors, with each of them leading in turn."""

from __future__ import annotations

import pytest
from assigned_reader import Reader, lead_in_turn
from run_java import JAVA_ASSIGNORS, shared_consumer
from shared_readers import Program

from kohort.client.assignors import ASSIGNORS, Claim, consumer_of, subscription_bytes
from kohort.wire.embedded import subscription_of

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


@pytest.mark.parametrize("first", ["ours", "java"])
@pytest.mark.parametrize("assignor", JAVA_ASSIGNORS)
def test_a_group_shared_with_java(classpath: str, servers: str, assignor: str, first: str) -> None:
    def check_metadata(reader: Reader) -> None:
        [metadata] = [member.metadata for member in reader.joined if member.member_id != reader.member_id]
        assert metadata == as_ours(assignor, metadata)

    def consumer(group: str, topic: str) -> Program:
        return shared_consumer(classpath, servers, group, topic, "classic", JAVA_ASSIGNORS[assignor])

    lead_in_turn(servers, assignor, first, consumer, check_metadata)


def as_ours(assignor: str, metadata: bytes) -> bytes:
    """Java's subscription, as a member of our own would have written it."""
    said = subscription_of(metadata)
    assert said is not None
    consumer = consumer_of(ASSIGNORS[assignor], "java", None, metadata)
    claim = consumer.claim
    if assignor == "cooperative-sticky" and said.user_data is not None:
        claim = Claim((), int.from_bytes(said.user_data, "big", signed=True))
    return subscription_bytes(
        ASSIGNORS[assignor], said.topics, consumer.owned, said.generation_id, remembered=claim, rack=said.rack_id
    )
