"""Records of the `__share_group_state` log, in Kafka's schema (KIP-932).

Type 0 is a snapshot of a share-partition, type 1 a change since its last snapshot.
"""

from kohort.wire.schema import Uuid, field, message


@message(versions="0")
class ShareSnapshotKey:
    group_id: str = field("string")
    topic_id: Uuid = field("uuid")
    partition: int = field("int32")


@message()
class StateBatch:
    first_offset: int = field("int64")
    last_offset: int = field("int64")
    delivery_state: int = field("int8")
    delivery_count: int = field("int16")


@message(versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: int = field("int32")
    state_epoch: int = field("int32")
    leader_epoch: int = field("int32")
    start_offset: int = field("int64")
    delivery_complete_count: int = field("int32", tag=0, default=-1)
    create_timestamp: int = field("int64")
    write_timestamp: int = field("int64")
    state_batches: tuple[StateBatch, ...] = field([StateBatch])


@message(versions="1")
class ShareUpdateKey:
    group_id: str = field("string")
    topic_id: Uuid = field("uuid")
    partition: int = field("int32")


@message(versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: int = field("int32")
    leader_epoch: int = field("int32")
    start_offset: int = field("int64")
    delivery_complete_count: int = field("int32", tag=0, default=-1)
    state_batches: tuple[StateBatch, ...] = field([StateBatch])
