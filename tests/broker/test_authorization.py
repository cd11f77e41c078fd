"""Principals, the permissions that each API needs, and cached answers under rules that change."""

from __future__ import annotations

from group_driver import heartbeat_request, stable
from wire_driver import Wire

from kohort.broker.apis import APIS
from kohort.broker.authorization import (
    ANONYMOUS,
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
    Need,
    Operation,
    Principal,
    Resource,
)
from kohort.broker.turn import ConnectionId, Opened
from kohort.wire.codec import encode_request
from kohort.wire.schemas.heartbeat import HeartbeatRequest

EVERYBODY = {"ApiVersions", "DescribeCluster", "SaslHandshake", "SaslAuthenticate"}
"""The APIs that need nothing, as in Kafka."""
SUPPORTED = {
    Resource.TOPIC: TOPIC_OPERATIONS,
    Resource.GROUP: GROUP_OPERATIONS,
    # DELETE Cluster is not among the operations that Kafka lists, but DeleteTopics asks for it.
    Resource.CLUSTER: CLUSTER_OPERATIONS | 1 << Operation.DELETE,
    Resource.TRANSACTIONAL_ID: 33040,
}


class Doorkeeper:
    """Allows all operations, or all but one operation on groups (`refused`)."""

    def __init__(self) -> None:
        self.version = 0
        self.refused: Operation | None = None
        self.asked: list[tuple[Principal, str, Operation, Resource, str]] = []

    def refuse(self, operation: Operation | None) -> None:
        self.refused = operation
        self.version += 1

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        self.asked.append((principal, host, operation, resource, name))
        return operation is not self.refused


def test_every_api_says_what_it_needs_in_kafkas_operations() -> None:
    assert (TOPIC_OPERATIONS, GROUP_OPERATIONS, CLUSTER_OPERATIONS) == (3576, 3400, 8096)
    assert {api.name for api in APIS.values() if not api.needs} == EVERYBODY
    for api in APIS.values():
        needs: list[Need | None] = list(api.needs)
        for need in needs:
            if need is not None:
                assert SUPPORTED[need.resource] >> need.operation & 1, (api.name, need)
                needs.append(need.instead)


def test_a_cached_answer_was_allowed_at_the_present_version_of_the_rules() -> None:
    wire = Wire()
    doorkeeper = wire.broker.state.authorizer = Doorkeeper()
    client = wire.connect()
    client.create_topic("t", 3)
    frame = encode_request(heartbeat_request(stable(client)), 4, 77, "client")

    def answered_at_once() -> bool:
        return wire.broker.at_once(client.id, frame, wire.now)[1] == len(frame)

    doorkeeper.asked.clear()
    assert answered_at_once()
    assert answered_at_once()
    assert doorkeeper.asked == [(ANONYMOUS, "127.0.0.1", Operation.READ, Resource.GROUP, "g")], "asked once"
    doorkeeper.refuse(Operation.READ)
    wire.step()
    assert not answered_at_once()
    doorkeeper.refuse(None)
    wire.step()
    assert answered_at_once()


def test_a_connection_has_the_principal_that_it_was_opened_with() -> None:
    wire = Wire()
    doorkeeper = wire.broker.state.authorizer = Doorkeeper()
    alice = Principal("alice")
    wire.step(Opened(ConnectionId(7), 1, "10.0.0.9", alice))
    frame = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 77, "")
    wire.broker.at_once(ConnectionId(7), frame, wire.now)
    assert doorkeeper.asked == [(alice, "10.0.0.9", Operation.READ, Resource.GROUP, "g")]
    assert str(alice) == "User:alice"
