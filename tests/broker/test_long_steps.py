"""No request of a thousand names is handled in one step: the other clients would wait for all of it.

A step is measured in bytecode instructions, so that the figures are the same on every machine. Each API has a row: a
large request, or the reason why none of its requests has many parts.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from group_driver import commit, commit_request, committed, consumer_join, join, join_request, stable
from quota_driver import PRODUCE, entry
from share_requests import share_requests
from wire_driver import Wire, with_topic

from kohort.broker.apis import APIS, CHANGES, Api
from kohort.broker.request import STEP_BYTES, InSteps, RequestContext
from kohort.broker.turn import Arrived, Closed, ConnectionId
from kohort.broker.waits.reads import Read
from kohort.coordinator.described import PARTITION_BYTES
from kohort.coordinator.events import Client, RequestId
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kohort.wire.schemas.alter_client_quotas import AlterClientQuotasRequest
from kohort.wire.schemas.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kohort.wire.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.schemas.describe_client_quotas import DescribeClientQuotasRequest
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
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.incremental_alter_configs import AlterableConfig as IncrementalConfig
from kohort.wire.schemas.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from kohort.wire.schemas.incremental_alter_configs import IncrementalAlterConfigsRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.join_group import JoinGroupRequestProtocol
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
from kohort.wire.schemas.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kohort.wire.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kohort.wire.schemas.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

MANY = 2_000
"""Names in a large request."""
OPERATIONS = 90_000
"""Bytecode instructions of the longest step: 2 to 3 ms. A look at each name of a large request fits, work on it does
not."""
NAMES = tuple(f"name-{index}" for index in range(MANY))
INDEXES = range(MANY)
RESOURCE: dict[str, Any] = {"resource_type": 2}

REQUESTS: dict[str, list[Any]] = {
    "Produce": [
        ProduceRequest(
            acks=1,
            timeout_ms=1,
            topic_data=(
                TopicProduceData(
                    name="t", partition_data=tuple(PartitionProduceData(index=index, records=b"") for index in INDEXES)
                ),
            ),
        ),
    ],
    "Fetch": [
        FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            replica_id=-1,
            topics=(
                FetchTopic(
                    topic="t",
                    partitions=tuple(
                        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in INDEXES
                    ),
                ),
            ),
        ),
    ],
    "ListOffsets": [
        ListOffsetsRequest(
            replica_id=-1,
            topics=(
                ListOffsetsTopic(
                    name="t",
                    partitions=tuple(ListOffsetsPartition(partition_index=index, timestamp=-1) for index in INDEXES),
                ),
            ),
        )
    ],
    "Metadata": [
        MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in NAMES)),
        MetadataRequest(topics=(MetadataRequestTopic(name="t"),)),
        MetadataRequest(topics=None),
    ],
    "OffsetFetch": [
        OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id="g", topics=(OffsetFetchRequestTopics(name="t", partition_indexes=tuple(INDEXES)),)
                ),
            )
        ),
        OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=name) for name in NAMES)),
        OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),), with_lag=True),
    ],
    "FindCoordinator": [FindCoordinatorRequest(coordinator_keys=NAMES)],
    "JoinGroup": [
        join_request("g", protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=b"") for name in NAMES))
    ],
    "LeaveGroup": [LeaveGroupRequest(group_id="none", members=tuple(MemberIdentity(member_id=name) for name in NAMES))],
    "SyncGroup": [
        SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id="m",
            assignments=tuple(SyncGroupRequestAssignment(member_id=name, assignment=b"") for name in NAMES),
        )
    ],
    "DescribeGroups": [DescribeGroupsRequest(groups=NAMES)],
    "ListGroups": [ListGroupsRequest()],
    "CreateTopics": [
        CreateTopicsRequest(
            topics=tuple(CreatableTopic(name=f"new-{name}", num_partitions=1, replication_factor=1) for name in NAMES)
        )
    ],
    "DeleteTopics": [DeleteTopicsRequest(topics=tuple(DeleteTopicState(name=name) for name in NAMES), timeout_ms=1)],
    "DeleteRecords": [
        DeleteRecordsRequest(
            topics=(
                DeleteRecordsTopic(
                    name="t",
                    partitions=tuple(DeleteRecordsPartition(partition_index=index, offset=0) for index in INDEXES),
                ),
            ),
            timeout_ms=1,
        )
    ],
    "OffsetForLeaderEpoch": [
        OffsetForLeaderEpochRequest(
            topics=(
                OffsetForLeaderTopic(
                    topic="t", partitions=tuple(OffsetForLeaderPartition(partition=index) for index in INDEXES)
                ),
            )
        ),
        OffsetForLeaderEpochRequest(
            topics=tuple(
                OffsetForLeaderTopic(topic=name, partitions=(OffsetForLeaderPartition(partition=0),)) for name in NAMES
            )
        ),
    ],
    "DescribeConfigs": [
        DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(**RESOURCE, resource_name=name, configuration_keys=None) for name in NAMES
            )
        )
    ],
    "AlterConfigs": [
        AlterConfigsRequest(
            resources=tuple(
                AlterConfigsResource(
                    **RESOURCE, resource_name=name, configs=(AlterableConfig(name="retention.ms", value="9"),)
                )
                for name in NAMES
            )
        )
    ],
    "IncrementalAlterConfigs": [
        IncrementalAlterConfigsRequest(
            resources=tuple(
                IncrementalResource(
                    **RESOURCE, resource_name=name, configs=(IncrementalConfig(name="retention.ms", value="9"),)
                )
                for name in NAMES
            )
        )
    ],
    "CreatePartitions": [
        CreatePartitionsRequest(topics=tuple(CreatePartitionsTopic(name=name, count=2) for name in NAMES), timeout_ms=1)
    ],
    "DeleteGroups": [DeleteGroupsRequest(groups_names=NAMES)],
    "OffsetDelete": [
        OffsetDeleteRequest(
            group_id="g",
            topics=(
                OffsetDeleteRequestTopic(
                    name="t", partitions=tuple(OffsetDeleteRequestPartition(partition_index=index) for index in INDEXES)
                ),
            ),
        )
    ],
    "ConsumerGroupHeartbeat": [consumer_join("m", *NAMES, group="n")],
    "ConsumerGroupDescribe": [ConsumerGroupDescribeRequest(group_ids=NAMES)],
    "DescribeTopicPartitions": [
        DescribeTopicPartitionsRequest(topics=tuple(TopicRequest(name=name) for name in NAMES)),
        DescribeTopicPartitionsRequest(topics=(TopicRequest(name="t"),)),
        DescribeTopicPartitionsRequest(topics=tuple(TopicRequest(name=f"new-{name}") for name in NAMES)),
    ],
    "DescribeLogDirs": [
        DescribeLogDirsRequest(topics=tuple(DescribableLogDirTopic(topic=name, partitions=(0,)) for name in NAMES)),
        DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic="t", partitions=tuple(INDEXES)),)),
    ],
    "DescribeProducers": [
        DescribeProducersRequest(topics=(ProducersTopic(name="t", partition_indexes=tuple(INDEXES)),))
    ],
    "ElectLeaders": [
        ElectLeadersRequest(topic_partitions=(TopicPartitions(topic="t", partitions=tuple(INDEXES)),)),
        ElectLeadersRequest(topic_partitions=None),
    ],
    "DescribeClientQuotas": [DescribeClientQuotasRequest(components=(), strict=False)],
    "AlterClientQuotas": [
        AlterClientQuotasRequest(
            entries=tuple(entry((PRODUCE, 1000), user=name) for name in NAMES), validate_only=False
        )
    ],
    "CreateAcls": [
        CreateAclsRequest(
            creations=tuple(
                AclCreation(
                    resource_type=2, resource_name=name, principal="User:a", host="*", operation=3, permission_type=3
                )
                for name in NAMES
            )
        )
    ],
    "DeleteAcls": [
        DeleteAclsRequest(
            filters=tuple(
                DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter=name,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
                for name in NAMES
            )
        )
    ],
    "ListPartitionReassignments": [
        ListPartitionReassignmentsRequest(
            topics=tuple(ListPartitionReassignmentsTopics(name=name, partition_indexes=(0,)) for name in NAMES)
        )
    ],
    "DescribeUserScramCredentials": [
        DescribeUserScramCredentialsRequest(users=tuple(UserName(name=name) for name in NAMES))
    ],
    "AlterUserScramCredentials": [
        AlterUserScramCredentialsRequest(
            deletions=(),
            upsertions=tuple(
                ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=bytes(32))
                for name in NAMES
            ),
        ),
    ],
    "DescribeQuorum": [
        DescribeQuorumRequest(
            topics=tuple(
                DescribeQuorumRequestTopic(
                    topic_name=name, partitions=(DescribeQuorumRequestPartition(partition_index=0),)
                )
                for name in NAMES
            )
        )
    ],
    "ListConfigResources": [ListConfigResourcesRequest()],
    "AddPartitionsToTxn": [
        AddPartitionsToTxnRequest(
            transactions=tuple(
                AddPartitionsToTxnTransaction(
                    transactional_id="x", producer_id=0, producer_epoch=0, verify_only=verify_only, topics=topics
                )
                for topics in (
                    (AddPartitionsToTxnTopic(name="t", partitions=tuple(INDEXES)),),
                    tuple(AddPartitionsToTxnTopic(name=name, partitions=(0,)) for name in NAMES),
                )
            )
        )
        for verify_only in (False, True)
    ],
    "WriteTxnMarkers": [
        WriteTxnMarkersRequest(
            markers=(
                WritableTxnMarker(
                    producer_id=1,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=topics,
                    coordinator_epoch=0,
                ),
            )
        )
        for topics in (
            (WritableTxnMarkerTopic(name="t", partition_indexes=tuple(INDEXES)),),
            tuple(WritableTxnMarkerTopic(name=name, partition_indexes=(0,)) for name in NAMES),
        )
    ],
    "DescribeTransactions": [DescribeTransactionsRequest(transactional_ids=NAMES)],
    "ListTransactions": [
        ListTransactionsRequest(
            state_filters=NAMES, producer_id_filters=tuple(INDEXES), transactional_id_pattern="(a|b)*c+"
        )
    ],
    "TxnOffsetCommit": [
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=0,
            producer_epoch=0,
            topics=(
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=tuple(
                        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in INDEXES
                    ),
                ),
            ),
        )
    ],
    "OffsetCommit": [
        commit_request(
            1,
            topics=(
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=tuple(
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in INDEXES
                    ),
                ),
            ),
        )
    ],
}


SHARES = share_requests(NAMES, [bytes(16)], INDEXES)
REQUESTS |= {name: [request] for name, request in SHARES.items()}


VERSIONS = {"Produce": 9, "Fetch": 11, "OffsetCommit": 9, "OffsetFetch": 9, "TxnOffsetCommit": 5}
"""Versions with topic names; others are asked with their last version."""

ONE_STEP = {
    "OffsetCommit": "a step has COMMIT_STEP partitions, some five milliseconds; fewer could not be repeated",
    "AddPartitionsToTxn": "the partitions of a transaction are one record; MOST_PLACES bounds them",
    "ConsumerGroupHeartbeat": "a member subscribes as a whole, and gets its assignment; MOST_NAMES bounds it",
    "ShareGroupHeartbeat": "as ConsumerGroupHeartbeat; AT_ONCE bounds the partitions that get a state",
    "AlterShareGroupOffsets": "the group's next epoch is that of all offsets; MOST_OFFSETS bounds them",
    "DeleteShareGroupOffsets": "the topics of a group with a state are one record",
}
"""APIs whose long requests are one step, and why."""
SMALL = {
    "Heartbeat": "about one member",
    "ApiVersions": "its answer is a constant",
    "SaslHandshake": "its answer is a constant",
    "SaslAuthenticate": "its answer is a constant",
    "InitProducerId": "about one producer",
    "AddOffsetsToTxn": "about one partition",
    "EndTxn": "about one producer; MARKERS_AT_ONCE bounds the markers of a step",
    "DescribeCluster": "about the brokers of the process",
    "DescribeAcls": "there are none without an authorizer; with one, it is in steps",
}
"""APIs whose requests have no parts to handle."""
ROWS = [
    pytest.param(name, request, id=f"{name}-{at}")
    for name, large in REQUESTS.items()
    for at, request in enumerate(large)
    if name not in ONE_STEP
]
READS = [
    (api.name, request)
    for api in APIS.values()
    if api.key not in CHANGES and api.name not in SHARES
    for request in REQUESTS.get(api.name, ())
]


@pytest.fixture
def wire() -> Wire:
    client = with_topic(MANY, group_share_enable=True)
    for first in range(0, MANY, 500):
        names = NAMES[first : first + 500]
        topics = tuple(CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names)
        client.ask(CreateTopicsRequest(topics=topics), 4)  # later answers have all settings of each topic
    client.ask(commit_request(1), 7)
    client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=("x",)), 4)
    init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    assert client.ask(init, 5).error_code == 0
    return client.wire


def called(wire: Wire, name: str) -> tuple[Api, RequestContext]:
    """An API, and the context of a request to it, in a turn that has begun."""
    api = next(api for api in APIS.values() if api.name == name)
    version = VERSIONS.get(name, api.last)
    wire.broker.state.turn.begin(wire.now)
    return api, RequestContext(RequestId(1), ConnectionId(1), 1, api.key, version, 1, Client("", ""), wire.now)


def longest_step(wire: Wire, name: str, request: Any) -> int:
    """The bytecode instructions of the longest step of a handler."""
    api, context = called(wire, name)
    state = wire.broker.state
    longest = count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    def step(handle: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal longest, count
        count = 0
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return handle(*arguments)
        finally:
            sys.settrace(before)
            longest = max(longest, count)

    result = step(api.handler, state, request, context)
    while isinstance(result, InSteps):
        try:
            while True:
                step(next, result.steps)
        except StopIteration as done:
            result = done.value
    return longest


def test_every_api_has_a_row() -> None:
    assert {api.name for api in APIS.values()} == set(REQUESTS) | set(SMALL)


@pytest.mark.parametrize(("name", "asked"), ROWS)
def test_no_step_is_long(wire: Wire, name: str, asked: Any) -> None:
    if name in SHARES:
        topics = wire.broker.state.catalog.topics
        asked = share_requests(NAMES, [topics["t"].topic_id], INDEXES)[name]
        member = share_requests(["t"], [], ())["ShareGroupHeartbeat"]
        assert next(iter(wire.connections.values())).ask(member, 1).error_code == 0
    assert longest_step(wire, name, asked) < OPERATIONS


# -- sizes


def test_an_answer_is_no_larger_than_its_steps_say(wire: Wire) -> None:
    """In memory, beside 50 kB. Answers to changes are small."""
    for name, asked in READS:
        memory_of_answer(wire, name, asked)  # what is kept of it for others is made once
        told, taken = memory_of_answer(wire, name, asked)
        assert taken < told + 50_000, (name, told, taken)
        assert told < 10 * taken + 100_000, (name, told, taken)


def memory_of_answer(wire: Wire, name: str, request: Any) -> tuple[int, int]:
    """What the steps of a handler say, and what its answer takes."""
    api, context = called(wire, name)
    told = 0
    tracemalloc.start()
    try:
        result = api.handler(wire.broker.state, request, context)
        while isinstance(result, InSteps):
            result, steps = yield_from(result)
            told += sum(STEP_BYTES if step is None else step for step in steps if not isinstance(step, Read))
        return told, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def yield_from(work: InSteps) -> tuple[Any, list[Any]]:
    """What it returns, and what its steps yield."""
    steps = []
    try:
        while True:
            steps.append(next(work.steps))
    except StopIteration as done:
        return done.value, steps


# -- limits of what is one step


def test_a_commit_has_a_limit_of_partitions() -> None:
    client = with_topic()
    entry = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    for count, error in ((10_000, ErrorCode.NONE), (10_001, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)):
        topics = (OffsetCommitRequestTopic(name="t", partitions=(entry,) * count),)
        [topic] = client.ask(commit_request(1, topics=topics, group=f"g-{count}"), 8).topics
        assert {partition.error_code for partition in topic.partitions} == {error}
        assert len(topic.partitions) == count
    assert committed(client, "g-10000") == 1
    assert committed(client, "g-10001") == -1, "no part of it is kept"


def test_a_deletion_of_offsets_has_a_limit_of_partitions() -> None:
    client = with_topic()
    commit(client, 5)
    entry = OffsetDeleteRequestPartition(partition_index=0)
    topics = (OffsetDeleteRequestTopic(name="t", partitions=(entry,) * 10_001),)
    assert client.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0).error_code == ErrorCode.INVALID_REQUEST
    assert committed(client) == 5


def test_many_offsets_are_deleted_in_steps() -> None:
    client = with_topic(3_000)
    entries = tuple(OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(2_000))
    client.ask(commit_request(1, topics=(OffsetCommitRequestTopic(name="t", partitions=entries),)), 8)
    indexes = (*range(2_500), 7, 4_000)  # without an offset, twice, and unknown
    partitions = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in indexes)
    request = OffsetDeleteRequest(group_id="g", topics=(OffsetDeleteRequestTopic(name="t", partitions=partitions),))
    one_step(client.wire, client.frame(request, 0))
    assert client.wire.broker.busy, "the request is under way"
    client.wire.step()
    answer = client.take()
    assert answer.error_code == ErrorCode.NONE
    errors = {partition.partition_index: partition.error_code for partition in answer.topics[0].partitions}
    assert errors.pop(4_000) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(errors.values()) == {ErrorCode.NONE}, "the group is gone with the last offset"
    assert len(answer.topics[0].partitions) == 2_501
    assert client.ask(request, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_no_step_of_a_deletion_of_many_offsets_is_long() -> None:
    client = with_topic(MANY)
    entries = tuple(OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in INDEXES)
    client.ask(commit_request(1, topics=(OffsetCommitRequestTopic(name="t", partitions=entries),)), 8)
    [request] = REQUESTS["OffsetDelete"]
    assert longest_step(client.wire, "OffsetDelete", request) < OPERATIONS
    assert not client.wire.shard().hard.has_offsets("g")


def test_a_member_has_a_limit_of_subscribed_names() -> None:
    client = with_topic()
    names = tuple(f"name-{index}" for index in range(10_001))
    refused = client.ask(consumer_join("m", *names), 1)
    assert (refused.error_code, refused.member_epoch) == (ErrorCode.INVALID_REQUEST, 0)
    assert refused.error_message == ("SubscribedTopicNames has 10001 names, more than 10000. Use SubscribedTopicRegex.")
    assert client.ask(consumer_join("m", *names[1:]), 1).error_code == ErrorCode.NONE


def test_a_member_has_a_limit_of_protocols() -> None:
    client = with_topic()
    protocols = tuple(JoinGroupRequestProtocol(name=f"p-{index}", metadata=b"") for index in range(1_001))
    refused = client.ask(join_request(protocols=protocols), 3)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    join(client, protocols=protocols[1:])


def test_no_step_of_the_description_of_a_large_group_is_long() -> None:
    """A share group has fewer members."""
    client = with_topic(MANY)
    for index in range(1_000):
        assert client.ask(consumer_join(f"m-{index}", "t"), 1).error_code == ErrorCode.NONE
        client.wire.step(client.wire.connect().frame(join_request("c"), 3))
    for name, request in (
        ("DescribeGroups", DescribeGroupsRequest(groups=("c",))),
        ("ConsumerGroupDescribe", ConsumerGroupDescribeRequest(group_ids=("g",))),
    ):
        assert longest_step(client.wire, name, request) < OPERATIONS
        told, taken = memory_of_answer(client.wire, name, request)
        assert taken < told + 50_000, (name, told, taken)


def test_no_step_of_the_description_of_members_with_many_topics_is_long() -> None:
    client = with_topic(1, group_consumer_assignment_interval_ms=0)
    for index in range(5):
        names = [f"t-{index}-{number}" for number in range(250)]
        for name in names:
            client.create_topic(name)
        assert client.ask(consumer_join(f"m-{index}", *names), 1).error_code == ErrorCode.NONE
    request = ConsumerGroupDescribeRequest(group_ids=("g",))
    assert longest_step(client.wire, "ConsumerGroupDescribe", request) < OPERATIONS
    told, taken = memory_of_answer(client.wire, "ConsumerGroupDescribe", request)
    assert told > 2 * 5 * 250 * PARTITION_BYTES
    assert taken < told + 50_000


# -- changes in steps


def one_step(wire: Wire, arrived: Arrived) -> None:
    """A turn that has time for one step."""
    polls = iter((False, False))
    wire.end(wire.broker.step([arrived], wire.now, lambda: next(polls, True)))


def test_a_change_goes_on_when_the_client_has_gone() -> None:
    client = with_topic()
    wire = client.wire
    names = tuple(f"g-{index}" for index in range(40))
    for name in names:
        commit(client, 1, group=name)
    gone = wire.connect()
    one_step(wire, gone.frame(DeleteGroupsRequest(groups_names=names), 2))
    assert wire.broker.busy, "the request is under way"
    wire.step(Closed(gone.id))
    assert [name for name in names if committed(client, name) != -1] == []


def test_an_answer_under_way_ends_when_the_client_has_gone() -> None:
    client = with_topic()
    wire = client.wire
    gone = wire.connect()
    one_step(wire, gone.frame(FindCoordinatorRequest(coordinator_keys=NAMES), 5))
    assert wire.broker.busy, "the request is under way"
    one_step(wire, Closed(gone.id))
    assert not wire.broker.busy


def test_members_leave_in_steps() -> None:
    client = with_topic()
    joined = stable(client)
    strangers = tuple(MemberIdentity(member_id=f"stranger-{index}") for index in range(1_200))
    members = (*strangers, MemberIdentity(member_id=joined.member_id))
    left = client.ask(LeaveGroupRequest(group_id="g", members=members), 4)
    assert [member.member_id for member in left.members] == [member.member_id for member in members]
    assert {member.error_code for member in left.members[:-1]} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert (left.error_code, left.members[-1].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert client.ask(DescribeGroupsRequest(groups=("g",)), 4).groups[0].members == ()


def test_a_topic_that_goes_between_two_steps() -> None:
    """Other clients delete topics between the steps of a request."""
    client = with_topic()
    wire, other = client.wire, client.wire.connect()
    names = tuple(f"t-{index}" for index in range(200))
    for name in names:
        client.create_topic(name)
    one_step(wire, client.frame(DeleteTopicsRequest(topic_names=names, timeout_ms=1), 5))
    assert wire.broker.busy, "the request is under way"
    gone = [topic for topic in names if topic in wire.broker.state.catalog.topics][-1]
    one_step(wire, other.frame(DeleteTopicsRequest(topic_names=(gone,), timeout_ms=1), 5))
    wire.step()
    errors = {result.name: result.error_code for result in client.take().responses}
    assert errors.pop(gone) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(errors.values()) == {ErrorCode.NONE}
    assert other.take().responses[0].error_code == ErrorCode.NONE


def test_new_topics_cost_a_shard_without_patterns_little() -> None:
    topics = tuple(CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES[:200])
    few, many = (Wire(offsets_topic_num_partitions=shards) for shards in (5, 25))
    request = CreateTopicsRequest(topics=topics), 7
    cost = [wire.operations(wire.connect().frame(*request)) for wire in (few, many)]
    assert (cost[1] - cost[0]) / 20 / len(topics) < 20, "instructions of a shard for each topic"
