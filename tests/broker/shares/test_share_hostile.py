"""Random requests of share groups, valid or not: each is answered, and what must hold between turns holds."""

from __future__ import annotations

import random
from typing import Any

import pytest
from share_driver import Member, share_world

from kohort.wire.schemas import (
    alter_share_group_offsets,
    delete_groups,
    initialize_share_group_state,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
    write_share_group_state,
)

OFFSETS = (-(2**63), -1, 0, 1, 2, 5, 9, 10, 11, 25, 2**31, 2**63 - 1)
SMALL = (0, 1, 2, 3, 5, 9, 12)
NUMBERS = (-(2**31), -1, 0, 1, 3, 500, 2**31 - 1)


class Random:
    def __init__(self, seed: int, topic_id: bytes) -> None:
        self.random = random.Random(seed)
        self.topic_ids = (topic_id, topic_id, topic_id, bytes(16))

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def some(self, make: Any, most: int = 3) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self.random.randint(0, most)))

    def acks(self, kind: Any) -> Any:
        first = self.one(*OFFSETS, *SMALL, *SMALL)
        size = self.one(1, 1, 2, 3)
        last = self.one(first, first + size - 1, *OFFSETS)
        mixed = self.some(lambda: self.one(-1, 0, 1, 2, 3, 4, 5))
        types = self.one((1,), (2,), (3,), (0,), (4,), (), (1, 2), (1,) * size, mixed)
        return kind(first_offset=first, last_offset=min(last, 2**63 - 1), acknowledge_types=types)

    def index(self) -> int:
        return int(self.one(0, 0, 0, 1, -1, 2**31 - 1))

    def topic(self, row: Any, make: Any, name: str = "partitions") -> Any:
        return row(topic_id=self.one(*self.topic_ids), **{name: self.some(make)})

    def request(self, epoch: int) -> tuple[Any, int]:
        names = {"group_id": self.one("g", "g", "g", "h", "", None), "member_id": self.one("a", "b", "", None)}
        match self.one(*"ffffaaaahwiod"):
            case "f":
                partition = lambda: share_fetch.FetchPartition(  # noqa: E731
                    partition_index=self.index(),
                    acknowledgement_batches=self.some(lambda: self.acks(share_fetch.AcknowledgementBatch), 2),
                )
                forgotten = lambda: self.topic(share_fetch.ForgottenTopic, self.index)  # noqa: E731
                request: Any = share_fetch.ShareFetchRequest(
                    **names,
                    share_session_epoch=self.one(0, epoch, epoch, epoch, -1, -7),
                    max_wait_ms=self.one(0, 0, 100, -1),
                    min_bytes=self.one(0, 1, 2**31 - 1),
                    max_bytes=self.one(*NUMBERS, 1_000_000),
                    max_records=self.one(*NUMBERS),
                    batch_size=self.one(*NUMBERS),
                    share_acquire_mode=self.one(0, 1, 7),
                    is_renew_ack=self.one(False, False, True),
                    topics=self.some(lambda: self.topic(share_fetch.FetchTopic, partition), 2),
                    forgotten_topics_data=self.some(forgotten, 1),
                )
                return request, 2
            case "a":
                acked = lambda: share_acknowledge.AcknowledgePartition(  # noqa: E731
                    partition_index=self.index(),
                    acknowledgement_batches=self.some(lambda: self.acks(share_acknowledge.AcknowledgementBatch), 2),
                )
                request = share_acknowledge.ShareAcknowledgeRequest(
                    **names,
                    share_session_epoch=self.one(0, epoch, epoch, epoch, -1),
                    is_renew_ack=self.one(False, True),
                    topics=self.some(lambda: self.topic(share_acknowledge.AcknowledgeTopic, acked), 2),
                )
                return request, 2
            case "h":
                request = share_group_heartbeat.ShareGroupHeartbeatRequest(
                    group_id=names["group_id"] or "",
                    member_id=names["member_id"] or "",
                    member_epoch=self.one(0, 1, 2, 3, -1, -2),
                    subscribed_topic_names=self.one(None, (), ("t",), ("t", "none"), ("t", "t")),
                )
                return request, 1
            case "o":
                offset = lambda: alter_share_group_offsets.NewOffset(  # noqa: E731
                    partition_index=self.index(), start_offset=self.one(*OFFSETS)
                )
                topics = self.some(
                    lambda: alter_share_group_offsets.NewOffsetsTopic(
                        topic_name=self.one("t", "none"), partitions=self.some(offset)
                    )
                )
                return alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id="g", topics=topics), 0
            case "i":
                initial = lambda: initialize_share_group_state.PartitionData(  # noqa: E731
                    partition=self.index(), state_epoch=self.one(*NUMBERS), start_offset=self.one(*OFFSETS)
                )
                states: Any = self.some(
                    lambda: self.topic(initialize_share_group_state.InitializeStateData, initial), 1
                )
                return initialize_share_group_state.InitializeShareGroupStateRequest(group_id="g", topics=states), 0
            case "w":
                batch = lambda: write_share_group_state.StateBatch(  # noqa: E731
                    first_offset=self.one(*OFFSETS),
                    last_offset=self.one(*OFFSETS),
                    delivery_state=self.one(-1, 0, 1, 2, 3, 4, 9),
                    delivery_count=self.one(-1, 0, 1, 5, 32_767),
                )
                written = lambda: write_share_group_state.PartitionData(  # noqa: E731
                    partition=self.index(),
                    state_epoch=self.one(0, 1, 2**31 - 1),
                    leader_epoch=self.one(0, 0, 1),
                    start_offset=self.one(*OFFSETS),
                    delivery_complete_count=self.one(-1, 0, 5),
                    state_batches=self.some(batch),
                )
                states = self.some(lambda: self.topic(write_share_group_state.WriteStateData, written), 1)
                return write_share_group_state.WriteShareGroupStateRequest(group_id="g", topics=states), 1
        return delete_groups.DeleteGroupsRequest(groups_names=("g",)), 2


@pytest.mark.parametrize("seed", range(4))
def test_random_requests(seed: int) -> None:
    wire, client, members = share_world(10)
    found = Random(seed, members[0].topic_id)
    connections = [member.connection for member in members]
    for _ in range(150):
        at = found.random.randrange(len(connections))
        connection = connections[at]
        key = (found.one("g"), found.one("a", "b"), 1)
        session = next((one for one in wire.broker.state.shares.sessions._sessions.values() if one.key == key), None)
        request, version = found.request(session.epoch if session is not None else 1)
        connection.send(request, version)
        wire.advance(found.one(0, 0, 100, 31_000))
        connection.responses.clear()
        assert connection.disconnected is None
        if found.one(*range(20)) == 0:
            connection.close()
            connections[at] = Member(wire, "a", members[0].topic_id).connection
        if found.one(*range(10)) == 0:
            client.produce("t", "more", "and more")
        wire.broker.validate()
        wire.broker.state.shares.sessions.check()
