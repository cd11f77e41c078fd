"""The table of APIs: key, messages, the versions advertised, and the handler.

To add an API: a schema in wire/schemas, a handler in broker/handlers, a row here, a scenario in the tests. A version is
advertised only when its behaviour is there; `served` differs from it for Produce alone, which has to be advertised from
0 for librdkafka's sake (KAFKA-18659) and is served from 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kohort.broker.handlers import (
    cluster,
    config_changes,
    configs,
    consumer_groups,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    producer_ids,
    records,
    topics_admin,
)
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.wire.schema import schema_of
from kohort.wire.schemas.alter_configs import AlterConfigsRequest
from kohort.wire.schemas.api_versions import ApiVersion, ApiVersionsRequest
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest
from kohort.wire.schemas.create_topics import CreateTopicsRequest
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_records import DeleteRecordsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest
from kohort.wire.schemas.describe_cluster import DescribeClusterRequest
from kohort.wire.schemas.describe_configs import DescribeConfigsRequest
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.describe_topic_partitions import DescribeTopicPartitionsRequest
from kohort.wire.schemas.fetch import FetchRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.incremental_alter_configs import IncrementalAlterConfigsRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.leave_group import LeaveGroupRequest
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.list_offsets import ListOffsetsRequest
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.offset_delete import OffsetDeleteRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest
from kohort.wire.schemas.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kohort.wire.schemas.produce import ProduceRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest

Result = Any
"""A response message, or Parked, CloseConnection, or None for no response at all."""

Handler = Callable[[BrokerState, Any, RequestContext], Result]


class Api(msgspec.Struct, frozen=True):
    key: int
    name: str
    request: type
    handler: Handler
    first: int
    """The first version served."""
    last: int
    advertised_first: int
    flexible_from: int
    limited_by: str
    """The setting that bounds its requests, of `Config`; that of every frame if it is empty."""
    limits: int
    """How many times that setting a request may have."""


def _api(
    request: type,
    handler: Handler,
    versions: str,
    *,
    advertised_from: int | None = None,
    limited_by: str = "admin_request_max_bytes",
    limits: int = 1,
) -> Api:
    schema = schema_of(request)
    assert schema.api_key is not None
    assert schema.versions is not None
    first, _, last = versions.partition("-")
    api = Api(
        schema.api_key,
        schema.name.removesuffix("Request"),
        request,
        handler,
        int(first),
        int(last),
        int(first) if advertised_from is None else advertised_from,
        schema.flexible.first if schema.flexible.first <= schema.flexible.last else 32767,
        limited_by,
        limits,
    )
    assert api.first in schema.versions, api.name
    assert api.last in schema.versions, api.name
    return api


def _group(request: type, handler: Handler, versions: str, *, limits: int = 1) -> Api:
    return _api(request, handler, versions, limited_by="group_request_max_bytes", limits=limits)


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        _api(ProduceRequest, produce.produce, "3-13", advertised_from=0, limited_by=""),
        _api(FetchRequest, fetch.fetch, "4-18", limits=4),
        _api(ListOffsetsRequest, records.list_offsets, "1-11"),
        _api(MetadataRequest, metadata.metadata, "0-13"),
        _group(OffsetCommitRequest, offsets.offset_commit, "2-10"),
        _group(OffsetFetchRequest, offsets.offset_fetch, "1-10"),
        _group(FindCoordinatorRequest, cluster.find_coordinator, "0-5"),
        _group(JoinGroupRequest, groups.join_group, "0-9"),
        _group(HeartbeatRequest, groups.heartbeat, "0-4"),
        _group(LeaveGroupRequest, groups.leave_group, "0-5"),
        _group(SyncGroupRequest, groups.sync_group, "0-5", limits=4),
        _group(DescribeGroupsRequest, groups.describe_groups, "0-6"),
        _group(ListGroupsRequest, groups.list_groups, "0-5"),
        _api(ApiVersionsRequest, cluster.api_versions, "0-4"),
        _api(CreateTopicsRequest, topics_admin.create_topics, "2-7"),
        _api(DeleteTopicsRequest, topics_admin.delete_topics, "1-6"),
        _api(DeleteRecordsRequest, records.delete_records, "0-2"),
        _api(InitProducerIdRequest, producer_ids.init_producer_id, "0-5"),
        _api(OffsetForLeaderEpochRequest, records.offset_for_leader_epoch, "2-4"),
        _api(DescribeConfigsRequest, configs.describe_configs, "1-4"),
        _api(AlterConfigsRequest, config_changes.alter_configs, "0-2"),
        _api(CreatePartitionsRequest, topics_admin.create_partitions, "0-3"),
        _group(DeleteGroupsRequest, groups.delete_groups, "0-2"),
        _api(IncrementalAlterConfigsRequest, config_changes.incremental_alter_configs, "0-1"),
        _group(OffsetDeleteRequest, offsets.offset_delete, "0-0"),
        _api(DescribeClusterRequest, cluster.describe_cluster, "0-2"),
        _group(ConsumerGroupHeartbeatRequest, consumer_groups.heartbeat, "0-1"),
        _group(ConsumerGroupDescribeRequest, consumer_groups.describe, "0-1"),
        _api(DescribeTopicPartitionsRequest, metadata.describe_topic_partitions, "0-0"),
    )
}

FETCH = APIS[1]
API_VERSIONS = APIS[18]
OFFSET_COMMIT = APIS[8]
LEAVE_GROUP = APIS[13]
HEARTBEATS = frozenset((12, 68))
"""The keys of the APIs whose answers may be held."""


OF_CONSUMER_GROUPS = frozenset((68, 69))
"""The keys of the APIs that are there only where consumer groups are served."""


def advertised(*, consumer_groups: bool) -> tuple[ApiVersion, ...]:
    """What ApiVersions answers."""
    return tuple(
        ApiVersion(api_key=api.key, min_version=api.advertised_first, max_version=api.last)
        for api in sorted(APIS.values(), key=lambda api: api.key)
        if consumer_groups or api.key not in OF_CONSUMER_GROUPS
    )
