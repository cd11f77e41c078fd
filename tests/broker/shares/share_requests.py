"""A request of each API of share groups, about some topics, and some partitions of the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kohort.wire.schemas import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    write_share_group_state,
)


def share_requests(names: Sequence[str], topic_ids: Sequence[bytes], indexes: Sequence[int]) -> dict[str, Any]:
    """By the name of the API."""
    ack = share_fetch.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=(1,))
    fetched = tuple(share_fetch.FetchPartition(partition_index=index) for index in indexes)
    acked = tuple(
        share_acknowledge.AcknowledgePartition(partition_index=index, acknowledgement_batches=(ack,))
        for index in indexes
    )

    def states(module: Any, row: Any, **fields: Any) -> Any:
        partitions = tuple(module.PartitionData(partition=index, **fields) for index in indexes)
        return tuple(row(topic_id=topic_id, partitions=partitions) for topic_id in topic_ids)

    return {
        "ShareGroupHeartbeat": share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=tuple(names)
        ),
        "ShareGroupDescribe": share_group_describe.ShareGroupDescribeRequest(group_ids=("s", *names)),
        "ShareFetch": share_fetch.ShareFetchRequest(
            group_id="s",
            member_id="m",
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            max_records=100,
            batch_size=100,
            topics=tuple(share_fetch.FetchTopic(topic_id=topic_id, partitions=fetched) for topic_id in topic_ids),
        ),
        "ShareAcknowledge": share_acknowledge.ShareAcknowledgeRequest(
            group_id="s",
            member_id="m",
            share_session_epoch=1,
            topics=tuple(
                share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=acked) for topic_id in topic_ids
            ),
        ),
        "InitializeShareGroupState": initialize_share_group_state.InitializeShareGroupStateRequest(
            group_id="s",
            topics=states(
                initialize_share_group_state,
                initialize_share_group_state.InitializeStateData,
                state_epoch=1,
                start_offset=0,
            ),
        ),
        "ReadShareGroupState": read_share_group_state.ReadShareGroupStateRequest(
            group_id="s", topics=states(read_share_group_state, read_share_group_state.ReadStateData, leader_epoch=0)
        ),
        "WriteShareGroupState": write_share_group_state.WriteShareGroupStateRequest(
            group_id="s",
            topics=states(
                write_share_group_state,
                write_share_group_state.WriteStateData,
                state_epoch=1,
                leader_epoch=0,
                start_offset=0,
                state_batches=(),
            ),
        ),
        "DeleteShareGroupState": delete_share_group_state.DeleteShareGroupStateRequest(
            group_id="s", topics=states(delete_share_group_state, delete_share_group_state.DeleteStateData)
        ),
        "ReadShareGroupStateSummary": read_share_group_state_summary.ReadShareGroupStateSummaryRequest(
            group_id="s",
            topics=states(
                read_share_group_state_summary, read_share_group_state_summary.ReadStateSummaryData, leader_epoch=0
            ),
        ),
        "DescribeShareGroupOffsets": describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            groups=(
                describe_share_group_offsets.OffsetsAskedGroup(
                    group_id="s",
                    topics=tuple(
                        describe_share_group_offsets.OffsetsAskedTopic(
                            topic_name=name, partitions=tuple(indexes if at == 0 else ())
                        )
                        for at, name in enumerate(names)
                    ),
                ),
            )
        ),
        "AlterShareGroupOffsets": alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            group_id="s",
            topics=tuple(
                alter_share_group_offsets.NewOffsetsTopic(
                    topic_name=name,
                    partitions=tuple(
                        alter_share_group_offsets.NewOffset(partition_index=index, start_offset=0)
                        for index in (indexes if at == 0 else ())
                    ),
                )
                for at, name in enumerate(names)
            ),
        ),
        "DeleteShareGroupOffsets": delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            group_id="s",
            topics=tuple(delete_share_group_offsets.NamedTopic(topic_name=name) for name in names),
        ),
    }
