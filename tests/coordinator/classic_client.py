"""A client of the classic protocol for random histories, which behaves like a real consumer.

An eager client uses no partition from its JoinGroup to its SyncGroup. A cooperative client keeps its partitions; it
gives up those that a new assignment lacks, and then joins again. A leader moves no partition that a member says it
owns, so a group can have clients of both kinds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kohort.conformance.play.consumer_client import TopicNames
from kohort.conformance.play.requests import request, subscription
from kohort.coordinator.events import RequestId
from kohort.wire.embedded import assignment_bytes, assignment_in, by_topic, subscription_of
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupResponse

Place = tuple[str, int]
PROTOCOL = "any"


class ClassicClient:
    commit_version = 8

    def __init__(self, group: str, name: str, names: TopicNames, *, cooperative: bool, lives: int = 0) -> None:
        self.group = group
        self.name = name
        self.names = names
        self.cooperative = cooperative
        self.instance = name if name in "st" else None
        self.lives = lives
        self.topics: tuple[str, ...] = ("t",)
        self.pattern = ""
        """Only clients of the consumer protocol subscribe by it."""
        self.former_id = ""
        self.start()

    def start(self) -> None:
        """A new process, which knows nothing of the last one."""
        self.former_id = getattr(self, "member_id", "")
        self.lives += 1
        self.begin_again()

    def begin_again(self) -> None:
        self.member_id = ""
        self.is_fenced = False
        self.asked: RequestId | None = None
        self._lose_everything()

    def _lose_everything(self) -> None:
        self.generation = -1
        self.uses: frozenset[Any] = frozenset()
        self.phase = "join"
        self.is_mixed = False
        """True if the generation is that of a consumer group: those have no leader."""
        self._to_assign: JoinGroupResponse | None = None

    @property
    def epoch(self) -> int:
        """For commits."""
        return self.generation

    def work(self) -> None:
        """No action: the client takes its assignment at once."""

    def subscribe(self, topics: tuple[str, ...], pattern: str) -> None:
        self.topics, self.pattern = topics, pattern
        if self.asked is None:
            self.phase = "join"

    def wants(self, topic: str) -> bool:
        return topic in self.topics

    # -- requests

    def request(self) -> tuple[Any, int]:
        """The next request and its version; of a fenced client, that of a new process."""
        if self.is_fenced:
            self.start()
        match self.phase:
            case "join":
                return self._join(), 9
            case "sync":
                return self._sync(), 5
            case _:
                return self._heartbeat(self.member_id, self.generation)

    def leave(self, epoch: int) -> tuple[Any, int] | None:
        identity = {"member_id": self.member_id, "group_instance_id": self.instance}
        self.start()
        return (request("LeaveGroup", group_id=self.group, members=[identity]), 5) if identity["member_id"] else None

    def former_request(self, epoch: int) -> tuple[Any, int] | None:
        """A heartbeat of the client's former life."""
        return self._heartbeat(self.former_id, max(epoch, 0)) if self.former_id else None

    def _heartbeat(self, member_id: str, generation: int) -> tuple[Any, int]:
        fields = {"generation_id": generation, "member_id": member_id, "group_instance_id": self.instance}
        return request("Heartbeat", group_id=self.group, **fields), 4

    def _join(self) -> Any:
        if not self.cooperative:
            self.uses = frozenset()
        owned = by_topic(sorted(self._named(self.uses)))
        metadata = subscription(self.topics, owned, self.generation, version=2)
        return request(
            "JoinGroup",
            group_id=self.group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=(4000, 10_000)[len(self.topics) % 2],
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[{"name": PROTOCOL, "metadata": metadata}],
        )

    def _sync(self) -> Any:
        return request(
            "SyncGroup",
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=self._assignments() if self._to_assign is not None else [],
        )

    def _assignments(self) -> list[dict[str, Any]]:
        """Assign in turn, but an owned partition stays with its owner, or waits until the owner gives it up."""
        wants = {}
        owners: dict[Place, str] = {}
        said = []
        for member in self._to_assign.members:
            report = subscription_of(member.metadata)
            wants[member.member_id] = set(report.topics)
            said.append((report.generation_id, member.member_id, report.owned_partitions))
        for _, member_id, owned in sorted(said, key=lambda one: -one[0]):
            for row in owned:
                for index in row.partitions:
                    owners.setdefault((row.topic, index), member_id)
        given: dict[str, list[Place]] = {member_id: [] for member_id in sorted(wants)}
        for name, spec in sorted(self.names.present.items()):
            subscribers = [member_id for member_id in given if name in wants[member_id]]
            for index in range(spec.partitions if subscribers else 0):
                member_id = subscribers[index % len(subscribers)]
                if owners.get((name, index), member_id) == member_id:
                    given[member_id].append((name, index))
        return [
            {"member_id": member_id, "assignment": assignment_bytes(by_topic(sorted(places)))}
            for member_id, places in given.items()
        ]

    def _named(self, partitions: Iterable[Any]) -> list[Place]:
        """The partitions by topic name, without those of deleted topics."""
        named = {spec.topic_id: name for name, spec in self.names.present.items()}
        return [(named[topic_id], index) for topic_id, index in partitions if topic_id in named]

    # -- responses

    def misses_answer(self) -> None:
        self.asked = None
        if self.phase == "sync":
            self.phase = "join"

    def learn(self, answer: Any) -> None:
        self.asked = None
        if answer.error_code:
            return self._refused(answer)
        match answer:
            case JoinGroupResponse():
                self.member_id, self.generation = answer.member_id, answer.generation_id
                self.is_mixed = not answer.leader
                leads = answer.leader == answer.member_id and not answer.skip_assignment
                self._to_assign = answer if leads else None
                self.phase = "sync"
            case SyncGroupResponse():
                found = assignment_in(answer.assignment) if answer.assignment else {}
                present = self.names.present
                assigned = {(present[t].topic_id, i) for t, indexes in found.items() if t in present for i in indexes}
                gives_up = self.cooperative and bool(self.uses - assigned)
                self.uses = frozenset(assigned)
                self.phase = "join" if gives_up else "stable"
        return None

    def _refused(self, answer: JoinGroupResponse | SyncGroupResponse | HeartbeatResponse) -> None:
        match answer.error_code:
            case ErrorCode.MEMBER_ID_REQUIRED:
                assert isinstance(answer, JoinGroupResponse)
                self.member_id = answer.member_id
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.phase = "join"
            case ErrorCode.ILLEGAL_GENERATION:
                self._lose_everything()
            case ErrorCode.FENCED_INSTANCE_ID:
                self._lose_everything()
                self.is_fenced = True
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                if self.phase == "sync":
                    self.phase = "join"
            case _:
                self.begin_again()
