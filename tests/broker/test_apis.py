"""The table of APIs: every advertised version of every API is answered, in both outcomes, in that version's form."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from group_driver import commit_request, consumer_join, join_request, sync_request
from quota_driver import PRODUCE, quota_change
from share_requests import share_requests
from wire_driver import batch, fetch_request, produce_request, with_topic

from kohort.broker import handlers
from kohort.broker.apis import APIS, OF_CONSUMER_GROUPS, OF_SHARE_GROUPS, advertised
from kohort.wire.schema import schema_of
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from kohort.wire.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kohort.wire.schemas.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kohort.wire.schemas.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.schemas.describe_acls import DescribeAclsRequest
from kohort.wire.schemas.describe_client_quotas import DescribeClientQuotasRequest
from kohort.wire.schemas.describe_cluster import DescribeClusterRequest
from kohort.wire.schemas.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kohort.wire.schemas.describe_producers import DescribeProducersRequest
from kohort.wire.schemas.describe_producers import TopicRequest as ProducersTopic
from kohort.wire.schemas.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from kohort.wire.schemas.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kohort.wire.schemas.describe_transactions import DescribeTransactionsRequest
from kohort.wire.schemas.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kohort.wire.schemas.elect_leaders import ElectLeadersRequest, TopicPartitions
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.incremental_alter_configs import AlterableConfig as IncrementalConfig
from kohort.wire.schemas.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from kohort.wire.schemas.incremental_alter_configs import IncrementalAlterConfigsRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.schemas.list_config_resources import ListConfigResourcesRequest
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kohort.wire.schemas.list_transactions import ListTransactionsRequest
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kohort.wire.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.schemas.produce import ProduceRequest
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kohort.wire.schemas.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest


def requests(topic: str) -> list[Any]:
    """One request of every API about a topic, which exists or does not."""
    partition = {"partition_index": 0}
    resource: dict[str, Any] = {"resource_type": 2, "resource_name": topic}
    config = {"name": "retention.ms", "value": "9"}
    fetched = {"name": topic, "partition_indexes": (0,)}
    return [
        produce_request(topic, batch("a")),
        fetch_request(topic),
        ListOffsetsRequest(
            replica_id=-1,
            topics=(ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(**partition, timestamp=-1),)),),
        ),
        MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=True),
        commit_request(1, topic=topic),
        OffsetFetchRequest(
            group_id="g",
            topics=(OffsetFetchRequestTopic(**fetched),),
            groups=(OffsetFetchRequestGroup(group_id="g", topics=(OffsetFetchRequestTopics(**fetched),)),),
        ),
        FindCoordinatorRequest(key="g", coordinator_keys=("g",)),
        join_request("other", "unknown"),
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        LeaveGroupRequest(group_id="g", member_id="m", members=(MemberIdentity(member_id="m"),)),
        sync_request("m", 1, protocol_type="c", protocol_name="p"),
        DescribeGroupsRequest(groups=("g",)),
        ListGroupsRequest(),
        ApiVersionsRequest(client_software_name="a", client_software_version="1"),
        CreateTopicsRequest(topics=(CreatableTopic(name=topic, num_partitions=1, replication_factor=1),)),
        CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=topic, count=5),), timeout_ms=1, validate_only=True),
        DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(name=topic, partitions=(DeleteRecordsPartition(**partition, offset=0),)),),
            timeout_ms=1,
        ),
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1),
        OffsetForLeaderEpochRequest(
            topics=(OffsetForLeaderTopic(topic=topic, partitions=(OffsetForLeaderPartition(partition=0),)),)
        ),
        DescribeConfigsRequest(
            resources=(DescribeConfigsResource(**resource, configuration_keys=None),), include_synonyms=True
        ),
        AlterConfigsRequest(resources=(AlterConfigsResource(**resource, configs=(AlterableConfig(**config),)),)),
        IncrementalAlterConfigsRequest(
            resources=(IncrementalResource(**resource, configs=(IncrementalConfig(**config),)),)
        ),
        DeleteGroupsRequest(groups_names=("g",)),
        OffsetDeleteRequest(
            group_id="g",
            topics=(OffsetDeleteRequestTopic(name=topic, partitions=(OffsetDeleteRequestPartition(**partition),)),),
        ),
        DescribeClusterRequest(),
        consumer_join("m", topic, group="n"),
        ConsumerGroupDescribeRequest(group_ids=("n",)),
        DescribeTopicPartitionsRequest(topics=(TopicRequest(name=topic),)),
        DescribeProducersRequest(topics=(ProducersTopic(name=topic, partition_indexes=(0,)),)),
        DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic=topic, partitions=(0,)),)),
        DescribeQuorumRequest(
            topics=(
                DescribeQuorumRequestTopic(
                    topic_name=topic, partitions=(DescribeQuorumRequestPartition(partition_index=0),)
                ),
            )
        ),
        ListConfigResourcesRequest(),
        ElectLeadersRequest(topic_partitions=(TopicPartitions(topic=topic, partitions=(0,)),)),
        ListPartitionReassignmentsRequest(
            topics=(ListPartitionReassignmentsTopics(name=topic, partition_indexes=(0,)),)
        ),
        DescribeAclsRequest(
            resource_type_filter=2,
            resource_name_filter=topic,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        CreateAclsRequest(
            creations=(
                AclCreation(
                    resource_type=2,
                    resource_name=topic,
                    principal="User:a",
                    host="*",
                    operation=3,
                    permission_type=3,
                ),
            )
        ),
        DeleteAclsRequest(
            filters=(
                DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter=topic,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                ),
            )
        ),
        DescribeClientQuotasRequest(components=(), strict=False),
        quota_change(PRODUCE, 1e9, user="u"),
        DescribeUserScramCredentialsRequest(users=(UserName(name="u"),)),
        AlterUserScramCredentialsRequest(deletions=(ScramCredentialDeletion(name="u", mechanism=1),), upsertions=()),
        SaslHandshakeRequest(mechanism="PLAIN"),
        SaslAuthenticateRequest(auth_bytes=b"x"),
        *transaction_requests(topic),
        *share_requests((topic,), (bytes(16),), (0,)).values(),
        DeleteTopicsRequest(topic_names=(topic,), topics=(DeleteTopicState(name=topic),), timeout_ms=1),
    ]


def transaction_requests(topic: str) -> list[Any]:
    producer: dict[str, Any] = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
    places = (AddPartitionsToTxnTopic(name=topic, partitions=(0,)),)
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    offsets = TxnOffsetCommitRequestTopic(name=topic, partitions=(offset,))
    marker = WritableTxnMarker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=(0,)),),
        coordinator_epoch=0,
    )
    return [
        AddPartitionsToTxnRequest(
            transactions=(AddPartitionsToTxnTransaction(**producer, topics=places),),
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=places,
        ),
        AddOffsetsToTxnRequest(**producer, group_id="g"),
        TxnOffsetCommitRequest(**producer, group_id="g", topics=(offsets,)),
        EndTxnRequest(**producer, committed=True),
        WriteTxnMarkersRequest(markers=(marker,)),
        DescribeTransactionsRequest(transactional_ids=("x",)),
        ListTransactionsRequest(state_filters=(), producer_id_filters=()),
    ]


SPOKEN: dict[type, dict[str, Any]] = {
    ProduceRequest: {"acks": 1},
    MetadataRequest: {"topics": ()},
    OffsetFetchRequest: {"topics": ()},
}
"""Where a default has no form in the oldest version, or no answer."""


@pytest.mark.parametrize(
    ("api", "version"),
    [
        pytest.param(api, version, id=f"{api.name}-v{version}")
        for api in APIS.values()
        for version in range(api.first, api.last + 1)
    ],
)
def test_every_version_is_answered(api: Any, version: int) -> None:
    client = with_topic(auto_create_topics_enable=False, group_share_enable=True)
    client.ask(commit_request(1, topic="t"), 7)
    for topic in ("absent", "t"):
        request = next(request for request in requests(topic) if type(request) is api.request)
        assert client.ask(request, version) is not None
    empty = api.request(**SPOKEN.get(api.request, {}))
    assert client.ask(empty, version) is not None, "every field at its default"


def test_advertised_versions() -> None:
    assert [entry.api_key for entry in advertised(True, True)] == sorted(APIS)
    assert [entry.api_key for entry in advertised(True, False)] == sorted(set(APIS) - OF_SHARE_GROUPS)
    assert [entry.api_key for entry in advertised(False, True)] == sorted(set(APIS) - OF_CONSUMER_GROUPS)
    for key, api in APIS.items():
        versions = schema_of(api.request).versions
        assert versions is not None
        assert versions.first <= api.first <= api.last <= versions.last
        assert api.advertised_first <= api.first
        assert api.key == key


def test_every_handler_is_in_the_table() -> None:
    """A public function of a handler module that takes a request is some API's."""
    named = {api.handler.__name__ for api in APIS.values()}
    takes = ["state", "request", "context"]
    folder = Path(handlers.__path__[0])
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and [arg.arg for arg in node.args.args] == takes:
                assert node.name in named, f"{path.name}: {node.name}"
