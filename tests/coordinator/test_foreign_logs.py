"""A `__consumer_offsets` log that another coordinator wrote, such as Apache Kafka's."""

from __future__ import annotations

from kohort.config import Config
from kohort.coordinator.events import Client, GroupRequested, Loaded, RequestId
from kohort.coordinator.records import generation_record, group_record
from kohort.coordinator.shard import Shard
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.group_records import GroupMetadataValue


def test_a_deleted_group_leaves_its_generation_behind() -> None:
    """Kafka keeps no record of generations beside the group; ours must exist before the group goes."""
    shard = Shard(0, Config())
    value = GroupMetadataValue(protocol_type="consumer", generation=7, current_state_timestamp=0, members=())
    shard.apply(group_record("orders", value), 0)
    shard.step(Loaded(), 0)
    request = DeleteGroupsRequest(groups_names=("orders",))
    effects = shard.step(GroupRequested(RequestId(1), 2, Client("admin", "/h"), request), 1)
    assert effects.records == (generation_record("orders", 7), group_record("orders", None))
