"""Nodes that serve at once, without a database: what a broker does with the slots that it gets and gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from wire_driver import Wire, batch, delete_topics, fetch_request, produce_request

from kohort.broker.logs.newest_records import all_records, newest_records
from kohort.broker.nodes import Node
from kohort.broker.sharing.asks import Ask
from kohort.broker.sharing.slots import Slots
from kohort.broker.topics.catalog import METADATA_LOG
from kohort.broker.turn import AskAnswered, ConnectionId, Frame, Opened, Release, Send, SlotsSeen, Turn
from kohort.coordinator.events import Record
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import GiveSlots, Lease, Operation, StorageError, TakeSlots
from kohort.storage.slots import CONTROLLER_SLOT, SLOTS, slot_of
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


class Database(MemoryStorage):
    """The logs of all nodes, and who owns which slot."""

    def __init__(self) -> None:
        super().__init__()
        self.owners = [1] * SLOTS
        self.epochs = [0] * SLOTS
        self.wanted: dict[int, int] = {}
        self.writer = 0
        self.served: dict[int, set[int]] = {1: set(), 2: set()}

    def commit(self, operations: Sequence[Operation], lease: Lease) -> None:
        ours = self.served[self.writer]
        for operation in operations:
            if isinstance(operation, TakeSlots):
                assert {self.owners[slot] for slot in operation.slots} <= {self.writer}
                ours.update(operation.slots)
        plain = [operation for operation in operations if not isinstance(operation, TakeSlots | GiveSlots)]
        if foreign := [operation for operation in plain if slot_of(operation.log) not in ours]:
            raise StorageError(f"of another node: {foreign}")
        super().commit(plain, lease)
        for operation in operations:
            if isinstance(operation, GiveSlots):
                for slot, node in operation.slots:
                    assert self.owners[slot] == self.writer
                    ours.remove(slot)
                    self.owners[slot], self.epochs[slot] = node, self.epochs[slot] + 1
                    del self.wanted[slot]


class NodeWire(Wire):
    def __init__(self, database: Database, number: int) -> None:
        self.number = number
        self.database = database
        database.writer = number
        super().__init__(
            database, slots=Slots(number), broker_id=number, journal_enable=False, group_initial_rebalance_delay_ms=0
        )

    @property
    def slots(self) -> Slots:
        slots = self.broker.state.slots
        assert slots is not None
        return slots

    def end(self, turn: Turn) -> None:
        self.database.writer = self.number
        super().end(turn)

    def look(self) -> None:
        """As the edge does."""
        database, node = self.database, self.number
        nodes = tuple(Node(number, "127.0.0.1", 9091 + number, None) for number in (1, 2))
        owners, epochs = tuple(database.owners), tuple(database.epochs)
        wanted = {slot: to for slot, to in database.wanted.items() if slot in self.slots.held}
        gained = tuple(slot for slot, owner in enumerate(owners) if owner == node and slot not in self.slots.held)
        ids = range(1000 * node, 1000 * node + 10)
        self.step(SlotsSeen(nodes, owners, epochs, *self.metadata(), wanted=wanted, producer_ids=ids))
        if gained:
            logs = tuple(info for info in database.logs() if slot_of(info.key) in gained)
            offsets = self.broker.state.topic("__consumer_offsets")
            replays = {
                info.key: tuple(newest_records(database, info.key, info.start_offset))
                for info in logs
                if offsets is not None and info.key.topic_id == offsets.topic_id
            }
            self.step(SlotsSeen(nodes, owners, epochs, *self.metadata(), gained=gained, logs=logs, replays=replays))

    def metadata(self) -> tuple[tuple[Record, ...], int]:
        info = self.database.log_info(METADATA_LOG)
        end = self.broker.state.topics.metadata.end_offset
        if self.slots.controls or info is None:
            return (), 0
        return tuple(record for record, _ in all_records(self.database, METADATA_LOG, end)), info.end_offset

    def gives(self, slots: Iterable[int], other: NodeWire) -> None:
        self.database.wanted = dict.fromkeys(slots, other.number)
        self.look()
        other.look()
        self.look()


@pytest.fixture
def nodes() -> tuple[NodeWire, NodeWire]:
    database = Database()
    first, second = NodeWire(database, 1), NodeWire(database, 2)
    first.look()
    second.look()
    return first, second


def committed(wire: NodeWire, offset: int) -> int:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=(row,))
    asked = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=(topic,))
    error: int = wire.connect(wire.number).ask(asked, 8).topics[0].partitions[0].error_code
    return error


def shard_slot(wire: NodeWire) -> int:
    state = wire.broker.state
    return slot_of(state.catalog.topics["__consumer_offsets"].log_key(state.shard_of("g")))


def test_a_group_moves_with_its_offsets(nodes: tuple[NodeWire, NodeWire]) -> None:
    first, second = nodes
    first.connect(1).create_topic("t")
    second.look()
    assert (committed(first, 5), committed(second, 6)) == (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
    member = first.connect(1)
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    joining = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=60_000, member_id="", protocol_type="consumer",
        protocols=(protocol,),
    )  # fmt: skip
    one = member.ask(joining, 3)
    assert one.error_code == ErrorCode.NONE
    waiting = first.connect(1)
    waiting.send(joining, 3)
    assert waiting.responses == []
    first.gives([shard_slot(first)], second)
    assert waiting.take().error_code == ErrorCode.NOT_COORDINATOR
    assert second.shard("g").hard.offsets["g"]["t", 0].offset == 5
    assert (committed(first, 7), committed(second, 8)) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NONE)
    for wire in nodes:
        found = wire.connect(wire.number).ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, 2)
    second.gives([shard_slot(first)], first)
    assert first.shard("g").hard.offsets["g"]["t", 0].offset == 8
    assert second.shard("g").hard.offsets == {}


def test_a_partition_moves_with_its_records(nodes: tuple[NodeWire, NodeWire]) -> None:
    first, second = nodes
    client, other = first.connect(1), second.connect(2)
    client.create_topic("t")
    second.look()
    assert other.produced(produce_request("t", batch("no"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    client.produce("t", "a", "b")
    reader = first.connect(1)
    reader.send(fetch_request("t", 2, max_wait_ms=5_000), 11)
    assert reader.responses == []
    slot = slot_of(first.partitions("t")[0].log)
    first.gives([slot], second)
    assert reader.take().responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert client.produced(produce_request("t", batch("no"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert other.produce("t", "c") == 2
    assert other.values("t") == [b"a", b"b", b"c"]
    for wire in nodes:
        [topic] = wire.connect(wire.number).ask(MetadataRequest(topics=None), 9).topics
        assert (topic.partitions[0].leader_id, topic.partitions[0].leader_epoch) == (2, 1)


def test_the_controller_moves(nodes: tuple[NodeWire, NodeWire]) -> None:
    first, second = nodes
    first.connect(1).create_topic("t", 3)
    first.gives([CONTROLLER_SLOT], second)
    assert first.broker.state.controller_id == second.broker.state.controller_id == 2
    topic_id = second.connect(2).create_topic("u", 3)
    first.look()
    assert first.broker.state.catalog.topics["u"].topic_id == topic_id
    first.connect(1).produce("u", "a", partition=2)  # the logs of its slots are there


def test_a_node_that_was_away_deletes_the_logs_of_deleted_topics(nodes: tuple[NodeWire, NodeWire]) -> None:
    first, second = nodes
    first.connect(1).create_topic("t", 3)
    slots = [slot_of(partition.log) for partition in first.partitions("t")]
    first.gives(slots[:1], second)
    first.connect(1).ask(delete_topics("t"), 5)
    left = [info.key for info in second.storage.logs() if slot_of(info.key) == slots[0]]
    assert len(left) == 1
    # The second node dies before it learns of the deletion.
    database = first.database
    database.owners[slots[0]], database.epochs[slots[0]] = 1, 5
    database.served[2].clear()
    first.look()
    assert [info.key for info in first.storage.logs() if slot_of(info.key) == slots[0]] == []


def create(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=2, assignments=(), configs=())
    return CreateTopicsRequest(topics=(topic,))


def test_a_request_for_the_controller(nodes: tuple[NodeWire, NodeWire]) -> None:
    first, second = nodes
    client = second.connect(2)
    assert client.ask(create("t"), 7).topics[0].error_code == ErrorCode.NOT_CONTROLLER
    asks: list[Ask] = []
    second.slots.asks.send = asks.append
    client.send(create("t"), 7)
    assert client.responses == []
    [ask] = asks
    answers: list[Release] = []
    first.release = answers.append  # type: ignore[method-assign, assignment]
    first.step(Opened(ConnectionId(-1), 1, ask.host), Frame(ConnectionId(-1), ask.frame))
    [answer] = answers
    assert isinstance(answer, Send)
    second.step(AskAnswered(ask.request_id, answer.whole[4:]))
    assert client.take().topics[0].error_code == ErrorCode.NONE
    second.look()
    assert "t" in second.broker.state.catalog.topics
    # An answer that does not come.
    client.send(create("u"), 7)
    second.step(AskAnswered(asks[1].request_id, b""))
    assert client.take().topics[0].error_code == ErrorCode.NOT_CONTROLLER
    # Metadata that creates a topic
    wanted = MetadataRequest(topics=(MetadataRequestTopic(name="v"),))
    for _ in range(2):
        [topic] = client.ask(wanted, 9).topics
        assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert len(asks) == 3


def test_producer_ids_come_from_blocks(nodes: tuple[NodeWire, NodeWire]) -> None:
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    found = [wire.connect(wire.number).ask(asked, 4).producer_id for wire in nodes for _ in range(2)]
    assert found == [1000, 1001, 2000, 2001]
    nodes[0].broker.state.topics.producer_ids.clear()
    assert nodes[0].connect(1).ask(asked, 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
