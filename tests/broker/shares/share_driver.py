"""Members of share groups for the broker's tests (wire_driver.py)."""

from __future__ import annotations

from typing import Any

from wire_driver import GROUP, SET, Connection, Wire

from kohort.wire.batches import decode_records, split_batches
from kohort.wire.schemas.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from kohort.wire.schemas.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def share_wire(**settings: Any) -> Wire:
    return Wire(**({"group_share_enable": True, "share_coordinator_state_topic_num_partitions": 3} | settings))


class Member:
    """A member with a connection of its own; its session's epoch counts as a client's does."""

    def __init__(self, wire: Wire, name: str, topic_id: bytes = b"", *, group: str = "g", **connect: Any) -> None:
        self.wire = wire
        self.name = name
        self.group = group
        self.topic_id = topic_id
        self.connection: Connection = wire.connect(**connect)
        self.epoch = 0
        self.member_epoch = 0

    def request_to_join(self, *topics: str, epoch: int | None = None) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=self.member_epoch if epoch is None else epoch,
            subscribed_topic_names=topics or None,
        )

    def beat(self, *topics: str, epoch: int | None = None) -> ShareGroupHeartbeatResponse:
        answer: ShareGroupHeartbeatResponse = self.connection.ask(self.request_to_join(*topics, epoch=epoch), 1)
        if not answer.error_code:
            self.member_epoch = answer.member_epoch
        return answer

    def request(self, acks: Any = (), partitions: Any = None, **fields: Any) -> ShareFetchRequest:
        """`acks`: first offset, last offset and types of each batch, of partition 0."""
        if partitions is None:
            partitions = (0,) if self.epoch == 0 or acks else ()
        usual = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            "topics": (
                FetchTopic(
                    topic_id=self.topic_id,
                    partitions=tuple(
                        FetchPartition(
                            partition_index=index, acknowledgement_batches=batches_of(acks) if index == 0 else ()
                        )
                        for index in partitions
                    ),
                ),
            )
            if partitions
            else (),
        }
        return ShareFetchRequest(**(usual | fields))

    def send(self, acks: Any = (), **fields: Any) -> None:
        self.connection.send(self.request(acks, **fields), 2)
        self.epoch += 1

    def fetch(self, acks: Any = (), version: int = 2, **fields: Any) -> ShareFetchResponse:
        answer: ShareFetchResponse = self.connection.ask(self.request(acks, **fields), version)
        if not answer.error_code and self.epoch >= 0:
            self.epoch += 1
        return answer

    def take(self, acks: Any = (), **fields: Any) -> list[tuple[int, int, int]]:
        """The records of partition 0 that a fetch gets."""
        return ranges(self.fetch(acks, **fields))

    def ack(self, *batches: Any, epoch: int | None = None, version: int = 2, **fields: Any) -> int:
        """Returns the error of the request, or else of the partition."""
        answer = self.acknowledge(*batches, epoch=epoch, version=version, **fields)
        return answer.error_code or answer.responses[0].partitions[0].error_code

    def acknowledge(
        self, *batches: Any, epoch: int | None = None, version: int = 2, **fields: Any
    ) -> ShareAcknowledgeResponse:
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=(
                AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=(AcknowledgePartition(partition_index=0, acknowledgement_batches=batches_of(batches)),),
                ),
            )
            if batches
            else (),
            **fields,
        )
        answer: ShareAcknowledgeResponse = self.connection.ask(request, version)
        if not answer.error_code and epoch is None:
            self.epoch += 1
        return answer

    def forget(self, *partitions: int) -> Any:
        return (ForgottenTopic(topic_id=self.topic_id, partitions=partitions),)


def batches_of(acks: Any) -> tuple[AcknowledgementBatch, ...]:
    return tuple(
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
        for first, last, *types in acks
    )


def row(answer: ShareFetchResponse, index: int = 0) -> PartitionData:
    [found] = [one for topic in answer.responses for one in topic.partitions if one.partition_index == index]
    return found


def ranges(answer: ShareFetchResponse, index: int = 0) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer.error_message
    return [
        (got.first_offset, got.last_offset, got.delivery_count)
        for topic in answer.responses
        for one in topic.partitions
        if one.partition_index == index
        for got in one.acquired_records
    ]


def values(answer: ShareFetchResponse, index: int = 0) -> list[bytes | None]:
    """Of the records that were acquired."""
    found = row(answer, index)
    held = {at for got in found.acquired_records for at in range(got.first_offset, got.last_offset + 1)}
    return [
        record.value
        for header, batch in split_batches(found.records or b"")
        for record in decode_records(batch, header)
        if record.offset in held
    ]


def share_world(
    records: int = 10, members: str = "ab", reset: str = "earliest", **settings: Any
) -> tuple[Wire, Connection, list[Member]]:
    """A topic `t` with this many records, one a batch, and members of the group `g`."""
    wire = share_wire(**settings)
    client = wire.connect()
    topic_id = client.create_topic("t", message_timestamp_type="LogAppendTime")
    assert client.alter_configs("g", GROUP, ("share.auto.offset.reset", SET, reset)) == (0, None)
    for index in range(records):
        client.produce("t", str(index))
    found = [Member(wire, name, topic_id) for name in members]
    for member in found:
        member.beat("t")
    return wire, client, found
