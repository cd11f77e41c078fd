"""Members that behave as real ones, so that a story has working groups. A disturbance of working groups finds more.

Each has one request under way at a time and follows its answers: a classic member joins, syncs and heartbeats; a
member of the consumer protocol heartbeats and gives up partitions on request. Now and then one of their requests is
mutated, with its right member id and epoch in it, or lost with its connection.
"""

from __future__ import annotations

import random
from typing import Any

from kohort.simulator.actors.offsets import commit_request
from kohort.wire.embedded import assignment_bytes, encode_subscription
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kohort.wire.schemas.offset_commit import OffsetCommitResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SUBSCRIPTION = encode_subscription(ConsumerProtocolSubscription(topics=("orders", "wide"), user_data=None))
OFFSETS = {("orders", 0): 5}
MEMBER_ID_REQUIRED, REBALANCING = 79, 27


class ClassicMember:
    def __init__(self, group: str, instance: str | None, chance: random.Random) -> None:
        self.group = group
        self._instance = instance
        self._chance = chance
        self._member_id = ""
        self._generation = -1
        self._step = "join"
        self._others: tuple[str, ...] = ()

    def request(self) -> tuple[Any, int]:
        own = {"group_id": self.group, "member_id": self._member_id, "group_instance_id": self._instance}
        match self._step:
            case "join":
                return JoinGroupRequest(
                    **own,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=30_000,
                    protocol_type="consumer",
                    protocols=tuple(
                        JoinGroupRequestProtocol(name=name, metadata=SUBSCRIPTION) for name in ("range", "sticky")
                    ),
                ), self._chance.choice((5, 7, 9))
            case "sync":
                return SyncGroupRequest(
                    **own,
                    generation_id=self._generation,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=tuple(
                        SyncGroupRequestAssignment(
                            member_id=other, assignment=assignment_bytes([("orders", (index % 3,))], SUBSCRIPTION)
                        )
                        for index, other in enumerate(self._others)
                    ),
                ), self._chance.choice((3, 4, 5))
            case "leave":
                self._step = "join"
                members = (MemberIdentity(member_id=self._member_id, group_instance_id=self._instance),)
                return LeaveGroupRequest(group_id=self.group, members=members), self._chance.choice((3, 5))
        if self._chance.random() < 0.3:
            return commit_request(self.group, self._generation, self._member_id, self._instance, OFFSETS), 7
        return HeartbeatRequest(**own, generation_id=self._generation), self._chance.choice((3, 4))

    def heard(self, response: Any) -> None:
        match response:
            case JoinGroupResponse():
                if response.error_code == 0:
                    self._generation, self._step = response.generation_id, "sync"
                    self._others = tuple(member.member_id for member in response.members)
                if response.error_code in (0, MEMBER_ID_REQUIRED):
                    self._member_id = response.member_id
                else:
                    self._again()
            case SyncGroupResponse():
                self._step = "beat" if response.error_code == 0 else "join"
            case HeartbeatResponse():
                if response.error_code:
                    self._step = "join"
                    if response.error_code != REBALANCING:
                        self._again()
            case LeaveGroupResponse():
                self._again()
            case OffsetCommitResponse():
                if self._chance.random() < 0.05:
                    self._step = "leave"

    def _again(self) -> None:
        self._member_id, self._generation, self._step = "", -1, "join"


class ConsumerMember:
    def __init__(self, group: str, instance: str | None, chance: random.Random) -> None:
        self.group = group
        self._instance = instance
        self._chance = chance
        self._member_id = f"member-{chance.randrange(1000)}"
        self._epoch = 0
        self._owned: tuple[HeartbeatTopicPartitions, ...] = ()

    def request(self) -> tuple[Any, int]:
        if self._epoch > 0 and self._chance.random() < 0.2:
            return commit_request(self.group, self._epoch, self._member_id, self._instance, OFFSETS), 9
        joins = self._epoch == 0
        epoch = self._epoch if joins or self._chance.random() < 0.95 else -1
        pattern = self._chance.random() < 0.3
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._instance,
            rebalance_timeout_ms=30_000 if joins else -1,
            subscribed_topic_names=("orders", "wide") if joins or self._chance.random() < 0.1 else None,
            subscribed_topic_regex=self._chance.choice(("o.*", "w.*e", "")) if joins and pattern else None,
            topic_partitions=() if joins else self._owned,
        ), 1

    def heard(self, response: Any) -> None:
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            if response.error_code or response.member_epoch < 0:
                self._epoch, self._owned = 0, ()
                return
            self._epoch = response.member_epoch
            if response.assignment is not None:
                self._owned = response.assignment.topic_partitions
        elif self._chance.random() < 0.02:
            self._epoch, self._owned = 0, ()


def members(chance: random.Random) -> list[ClassicMember | ConsumerMember]:
    """Members of three groups: one of each protocol, and a mixed one."""
    made: list[ClassicMember | ConsumerMember] = [
        ClassicMember("classic", None, chance),
        ClassicMember("classic", "static-1", chance),
        ConsumerMember("modern", None, chance),
        ConsumerMember("modern", "static-2", chance),
        ClassicMember("mixed", None, chance),
        ConsumerMember("mixed", None, chance),
    ]
    return chance.sample(made, chance.randint(2, len(made)))
