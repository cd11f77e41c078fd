"""Other clients: committers without membership, admins, producers, storms of short-lived members, liars.

Each keeps one connection, sends at its pace, and connects to another broker when its connection is cut. All stop at the
healing; only the lasting members remain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from kohort.simulator.actors.actor import Actor
from kohort.simulator.actors.consumer import Consumer
from kohort.simulator.actors.member import SUBSCRIPTION, Member, Owners
from kohort.simulator.actors.offsets import commit_request
from kohort.simulator.plan import CONSUMER_GROUPS, MIXED, TOPICS, Faults
from kohort.simulator.world.network import Link
from kohort.simulator.world.process import Process
from kohort.simulator.world.world import START_MS, Violation, World
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.codec import encode_request
from kohort.wire.schemas.alter_client_quotas import AlterClientQuotasRequest, AlteredEntry, EntityData, OpData
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


class Paced(Actor, ABC):
    """Sends a request from time to time, over one connection."""

    members: Callable[[], list[Member]] = list
    """The classic members of the run."""
    consumers: Callable[[], list[Consumer]] = list
    """The members of consumer groups."""

    def __init__(self, world: World, process: Process, faults: Faults, name: str, options: dict[str, Any]) -> None:
        super().__init__(world, process, faults, name)
        self.options = options
        self.link: Link | None = None

    def start(self) -> None:
        self.running = True
        self.soon(self.random.randrange(self.options["pace_ms"]), self._tick)

    def _tick(self) -> None:
        if self.link is None:
            self.link = self.connect(self.any_broker())
        self.act(self.link)
        self.soon(self.random.randrange(self.options["pace_ms"] // 2, self.options["pace_ms"] * 2), self._tick)

    @abstractmethod
    def act(self, link: Link) -> None: ...

    def on_cut(self, link: Link) -> None:
        if link is self.link:
            self.link = None

    def end(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None
        super().end()


class Asking(Paced):
    """Sends requests about groups, mostly to the right broker."""

    def at_coordinator(self, link: Link, group: str) -> Link:
        broker = self.process.broker
        if broker is None or not broker.state.shards or self.random.random() < 0.1:
            return link
        coordinator = broker.state.coordinator_of(broker.state.shard_of(group))
        if link.broker_id == coordinator:
            return link
        link.close()
        self.link = self.connect(coordinator)
        return self.link


class Committer(Asking):
    """Commits for a group without being a member: refused while the group has members, accepted while it is empty."""

    offset = 0

    def act(self, link: Link) -> None:
        self.offset += 1
        link = self.at_coordinator(link, self.options["group"])
        partition = OffsetCommitRequestPartition(
            partition_index=self.random.randrange(2), committed_offset=self.offset, committed_metadata="by hand"
        )
        request = OffsetCommitRequest(
            group_id=self.options["group"],
            member_id="",
            topics=(OffsetCommitRequestTopic(name="orders", partitions=(partition,)),),
        )
        link.ask(request, self.random.choice((5, 9)), "committed")
        if self.random.random() < 0.3:
            link.ask(fetch_all(self.options["group"]), 8, "fetched")


def fetch_all(group: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))


class Admin(Asking):
    """Describes, deletes and creates groups and topics, and removes static members."""

    def act(self, link: Link) -> None:
        groups = [*self.options["groups"], "simple"]
        group = self.random.choice(groups)
        actions: dict[str, tuple[float, Callable[[Link, str], None]]] = {
            "look": (4, self._look),
            "delete group": (3, self._delete_group),
            "delete offsets": (1.5, self._delete_offsets),
            "remove static member": (1, self._remove_static),
            "delete topic": (1, self._delete_topic),
            "create topic": (1.5, self._create_topic),
            "grow topic": (0.5, self._grow_topic),
        }
        names = list(actions)
        name = self.random.choices(names, [actions[name][0] for name in names])[0]
        self.tell(f"{name}, {group}")
        link = self.at_coordinator(link, group)
        actions[name][1](link, group)

    def _look(self, link: Link, group: str) -> None:
        link.ask(DescribeGroupsRequest(groups=(group, "nobody")), self.random.choice((0, 5, 6)), "described")
        link.ask(ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False), 1, "described")
        link.ask(ListGroupsRequest(states_filter=self.random.choice(((), ("Stable",)))), 5, "listed")
        link.ask(fetch_all(group), 8, "fetched")

    def _delete_group(self, link: Link, group: str) -> None:
        link.ask(DeleteGroupsRequest(groups_names=(group,)), 2, "deleted")

    def _delete_offsets(self, link: Link, group: str) -> None:
        topic = OffsetDeleteRequestTopic(name="orders", partitions=(OffsetDeleteRequestPartition(partition_index=0),))
        link.ask(OffsetDeleteRequest(group_id=group, topics=(topic,)), 0, "offsets deleted")

    def _remove_static(self, link: Link, group: str) -> None:
        instances = [m.instance for m in self.members() if m.group == group and m.instance is not None]
        if instances:
            only = MemberIdentity(member_id="", group_instance_id=self.random.choice(instances), reason="an operator")
            link.ask(LeaveGroupRequest(group_id=group, members=(only,)), 5, "removed")

    def _delete_topic(self, link: Link, group: str) -> None:
        topic = self.random.choice(list(TOPICS))
        link.ask(DeleteTopicsRequest(topic_names=(topic,), timeout_ms=1_000), 5, ("deleted topic", topic))

    def _create_topic(self, link: Link, group: str) -> None:
        for topic, count in TOPICS.items():
            if topic not in self.world.topics:
                self.create(link, topic, count)

    def _grow_topic(self, link: Link, group: str) -> None:
        topic = self.random.choice(list(TOPICS))
        count = self.world.topics.get(topic, 0) + 1
        if 1 < count <= 5:
            grown = CreatePartitionsTopic(name=topic, count=count, assignments=None)
            link.ask(
                CreatePartitionsRequest(topics=(grown,), timeout_ms=1_000, validate_only=False),
                3,
                ("created topic", topic, count),
            )

    def create(self, link: Link, topic: str, count: int) -> None:
        link.ask(create_request({topic: count}), 7, ("created topic", topic, count))

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        if isinstance(tag, tuple):
            answered = response.responses if tag[0] == "deleted topic" else getattr(response, "topics", None)
            results = answered if answered is not None else response.results
            if results[0].error_code == 0:
                if tag[0] == "deleted topic":
                    self.world.topics.pop(tag[1], None)
                else:
                    self.world.topics[tag[1]] = tag[2]
                for member in self.members():
                    member.soon(self.random.randrange(100, 3_000), member.topics_changed)


def create_request(sizes: Mapping[str, int]) -> CreateTopicsRequest:
    """`sizes`: the topics' numbers of partitions."""
    topics = tuple(
        CreatableTopic(name=name, num_partitions=size, replication_factor=1, assignments=(), configs=())
        for name, size in sizes.items()
    )
    return CreateTopicsRequest(topics=topics, timeout_ms=1_000)


def quotas_request(values: Mapping[str, float]) -> AlterClientQuotasRequest:
    """Give each client id quotas of its own."""
    entity = EntityData(entity_type="client-id", entity_name=None)
    ops = tuple(OpData(key=key, value=value, remove=False) for key, value in values.items())
    return AlterClientQuotasRequest(entries=(AlteredEntry(entity=(entity,), ops=ops),), validate_only=False)


class Producer(Paced):
    """Produces and fetches; acknowledged records must be in the log at the end."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.acknowledged: list[tuple[int, bytes]] = []
        """Offset and value, of the topic "events"."""

    def act(self, link: Link) -> None:
        if self.random.random() < 0.3:
            asked = FetchPartition(partition=0, fetch_offset=len(self.acknowledged), partition_max_bytes=10_000)
            topic = FetchTopic(topic="events", partitions=(asked,))
            link.ask(
                FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=10_000, replica_id=-1, topics=(topic,)), 11, "read"
            )
            return
        value = f"{self.name}-{self.random.randrange(1_000_000)}".encode()
        data = encode_batch([NewRecord(None, value, START_MS + self.world.now)])
        topic_data = TopicProduceData(name="events", partition_data=(PartitionProduceData(index=0, records=data),))
        link.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(topic_data,)), 9, ("produced", value))

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        if isinstance(tag, tuple):
            result = response.responses[0].partition_responses[0]
            if result.error_code == 0:
                self.acknowledged.append((result.base_offset, tag[1]))
            elif self.link is link and result.error_code in (3, 6):
                link.close()
                self.link = None

    def check(self) -> None:
        """Check that all acknowledged records are there."""
        catalog = self.process.broker.state.catalog if self.process.broker is not None else None
        topic = catalog.topics.get("events") if catalog is not None else None
        if topic is None:
            return
        held = {batch.base_offset: batch.data for batch in self.process.disk.storage.read(topic.log_key(0), 0, 1 << 26)}
        for offset, value in self.acknowledged:
            if value not in held.get(offset, b""):
                raise Violation("acknowledged records are kept", f"offset {offset}, {value!r}")


class Storm(Actor):
    """Waves of members that live for seconds; some leave, some die."""

    def __init__(
        self, world: World, process: Process, faults: Faults, name: str, owners: Owners, options: dict[str, Any]
    ) -> None:
        super().__init__(world, process, faults, name)
        self.options = options
        self.members: list[Member | Consumer] = []
        self._owners = owners

    def start(self) -> None:
        self.running = True
        self.soon(self.random.randrange(self.options["wave_ms"]), self._wave)

    def _wave(self) -> None:
        for _ in range(self.options["size"]):
            options = {
                "group": self.options["group"],
                "session_ms": 6_000,
                "heartbeat_ms": 2_000,
                "rebalance_ms": 4_000,
                "work_ms": 1_000,
                "life": self.random.choice(("leaves", "dies")),
                "lasts_ms": self.random.choice((1_100, 4_000)),
                "old": self.random.random() < 0.2,
            }
            name = f"{self.name}-{len(self.members)}"
            member: Member | Consumer
            is_mixed = options["group"] == MIXED
            if options["group"] in CONSUMER_GROUPS or (is_mixed and self.random.random() < 0.5):
                member = Consumer(self.world, self.process, self.faults, name, options)
            else:
                member = Member(self.world, self.process, self.faults, name, self._owners, options)
            self.members.append(member)
            self.soon(self.random.randrange(500), member.start)
        self.soon(self.random.randrange(self.options["wave_ms"] // 2, self.options["wave_ms"] * 2), self._wave)


class Garbler(Paced):
    """Send bytes that may be no request."""

    def garbage(self) -> None:
        link = self.connect(self.any_broker())
        random = self.random
        frame = encode_request(fetch_all(self.options["group"]), 8, 1, "x")[4:]
        cut = random.randrange(len(frame))
        choice = random.randrange(4)
        if choice == 0:
            data = random.randbytes(random.randrange(1, 60))
        elif choice == 1:
            data = (1 << 30).to_bytes(4, "big") + frame
        elif choice == 2:
            data = len(frame[:cut]).to_bytes(4, "big") + frame[:cut]
        else:
            broken = bytearray(frame)
            broken[cut] ^= 1 << random.randrange(8)
            data = len(broken).to_bytes(4, "big") + bytes(broken)
        link.send_bytes(data)
        self.world.after(2_000, link.close)


class Liar(Garbler):
    """Sends invalid requests: garbage, other members' ids, old and future generations, foreign protocols."""

    def act(self, link: Link) -> None:
        random = self.random
        if random.random() < 0.15:
            self.garbage()
            return
        victim = random.choice(self.members() or [None])
        member_id = victim.membership.member_id if victim is not None and victim.lives else ""
        member_id = random.choice((member_id, member_id, "", "nobody-at-all"))
        generation = (victim.generation if victim is not None else 0) + random.choice((-1, 0, 0, 1, 1_000))
        instance = random.choice((None, None, "alpha-0", "alpha-1", "unheard-of"))
        request, version = random.choice((self._heartbeat, self._sync, self._join, self._leave, self._commit))(
            member_id, generation, instance
        )
        link.ask(request, version, "lied")

    def _heartbeat(self, member_id: str, generation: int, instance: str | None) -> tuple[Any, int]:
        request = HeartbeatRequest(
            group_id=self.options["group"], generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return request, 4

    def _sync(self, member_id: str, generation: int, instance: str | None) -> tuple[Any, int]:
        lie = SyncGroupRequestAssignment(member_id=member_id, assignment=b"")
        request = SyncGroupRequest(
            group_id=self.options["group"],
            # A SyncGroup with the leader's id would be valid: the server cannot distinguish it from the leader's.
            generation_id=generation if generation < 0 else generation + 5,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(lie,),
        )
        return request, 5

    def _join(self, member_id: str, generation: int, instance: str | None) -> tuple[Any, int]:
        name = self.random.choice(("range", "roundrobin", "sticky", ""))
        request = JoinGroupRequest(
            group_id=self.random.choice((self.options["group"], self.options["group"], "", "ghosts")),
            session_timeout_ms=self.random.choice((6_000, 10_000, 1)),
            rebalance_timeout_ms=4_000,
            member_id=self.random.choice(("", "nobody-at-all")),
            group_instance_id=None,
            protocol_type=self.random.choice(("consumer", "consumer", "connect", "")),
            protocols=(JoinGroupRequestProtocol(name=name, metadata=SUBSCRIPTION),) if name else (),
        )
        return request, self.random.choice((4, 9))

    def _leave(self, member_id: str, generation: int, instance: str | None) -> tuple[Any, int]:
        members = (
            MemberIdentity(member_id="nobody-at-all", group_instance_id=instance),
            MemberIdentity(member_id=member_id if self.random.random() < 0.2 else "", group_instance_id=None),
        )
        return LeaveGroupRequest(group_id=self.options["group"], members=members), 5

    def _commit(self, member_id: str, generation: int, instance: str | None) -> tuple[Any, int]:
        offsets = {("orders", self.random.randrange(3)): 7}
        return commit_request(self.options["group"], generation, member_id, instance, offsets), 9
