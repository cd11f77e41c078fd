"""The table of APIs: key, messages, versions, handler, and what a request needs to be allowed.

ARCHITECTURE.md says how to add one. A version is advertised when its behaviour is complete. Only Produce is
advertised from a lower version than it is served from: librdkafka needs version 0 there (KAFKA-18659).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kohort.broker.authorization import Need, Operation, Resource
from kohort.broker.handlers import (
    acls,
    cluster,
    config_changes,
    configs,
    consumer_groups,
    describe_producers,
    fetch,
    groups,
    inspection,
    leader_election,
    metadata,
    offsets,
    produce,
    producer_ids,
    records,
    topics_admin,
    transaction_lists,
    transactional_offsets,
    transactions,
)
from kohort.broker.handlers.security import client_quotas, sasl, scram_credentials
from kohort.broker.handlers.shares import acknowledge as share_acknowledge
from kohort.broker.handlers.shares import fetch as share_fetch
from kohort.broker.handlers.shares import groups as share_groups
from kohort.broker.handlers.shares import offsets as share_offsets
from kohort.broker.handlers.shares import states as share_states
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.wire.schema import schema_of
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from kohort.wire.schemas.add_partitions_to_txn import AddPartitionsToTxnRequest
from kohort.wire.schemas.alter_client_quotas import AlterClientQuotasRequest
from kohort.wire.schemas.alter_configs import AlterConfigsRequest
from kohort.wire.schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kohort.wire.schemas.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kohort.wire.schemas.api_versions import ApiVersion, ApiVersionsRequest
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.create_acls import CreateAclsRequest
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest
from kohort.wire.schemas.create_topics import CreateTopicsRequest
from kohort.wire.schemas.delete_acls import DeleteAclsRequest
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_records import DeleteRecordsRequest
from kohort.wire.schemas.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kohort.wire.schemas.delete_share_group_state import DeleteShareGroupStateRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest
from kohort.wire.schemas.describe_acls import DescribeAclsRequest
from kohort.wire.schemas.describe_client_quotas import DescribeClientQuotasRequest
from kohort.wire.schemas.describe_cluster import DescribeClusterRequest
from kohort.wire.schemas.describe_configs import DescribeConfigsRequest
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.describe_log_dirs import DescribeLogDirsRequest
from kohort.wire.schemas.describe_producers import DescribeProducersRequest
from kohort.wire.schemas.describe_quorum import DescribeQuorumRequest
from kohort.wire.schemas.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kohort.wire.schemas.describe_topic_partitions import DescribeTopicPartitionsRequest
from kohort.wire.schemas.describe_transactions import DescribeTransactionsRequest
from kohort.wire.schemas.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kohort.wire.schemas.elect_leaders import ElectLeadersRequest
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.fetch import FetchRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.incremental_alter_configs import IncrementalAlterConfigsRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.initialize_share_group_state import InitializeShareGroupStateRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.leave_group import LeaveGroupRequest
from kohort.wire.schemas.list_config_resources import ListConfigResourcesRequest
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.list_offsets import ListOffsetsRequest
from kohort.wire.schemas.list_partition_reassignments import ListPartitionReassignmentsRequest
from kohort.wire.schemas.list_transactions import ListTransactionsRequest
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.offset_delete import OffsetDeleteRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest
from kohort.wire.schemas.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kohort.wire.schemas.produce import ProduceRequest
from kohort.wire.schemas.read_share_group_state import ReadShareGroupStateRequest
from kohort.wire.schemas.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest
from kohort.wire.schemas.share_acknowledge import ShareAcknowledgeRequest
from kohort.wire.schemas.share_fetch import ShareFetchRequest
from kohort.wire.schemas.share_group_describe import ShareGroupDescribeRequest
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest
from kohort.wire.schemas.txn_offset_commit import TxnOffsetCommitRequest
from kohort.wire.schemas.write_share_group_state import WriteShareGroupStateRequest
from kohort.wire.schemas.write_txn_markers import WriteTxnMarkersRequest

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
    needs: tuple[Need, ...]
    """The operations that a request needs permission for, by kind of resource; empty for an API that needs no
    permission."""


_O, _R = Operation, Resource
EVERYBODY: tuple[Need, ...] = ()
READ_TOPIC, WRITE_TOPIC, DESCRIBE_TOPIC = (Need(o, _R.TOPIC) for o in (_O.READ, _O.WRITE, _O.DESCRIBE))
CREATE_TOPIC = Need(_O.CREATE, _R.CLUSTER, Need(_O.CREATE, _R.TOPIC))
DESCRIBE_CLUSTER = Need(_O.DESCRIBE, _R.CLUSTER)
WRITE_TRANSACTION, DESCRIBE_TRANSACTION = (Need(o, _R.TRANSACTIONAL_ID) for o in (_O.WRITE, _O.DESCRIBE))
READ_GROUP, DESCRIBE_GROUP = Need(_O.READ, _R.GROUP), Need(_O.DESCRIBE, _R.GROUP)
ON_CLUSTER = (Need(_O.CLUSTER_ACTION, _R.CLUSTER),)
ON_CONFIGS = {
    operation: tuple(Need(operation, resource) for resource in (_R.TOPIC, _R.GROUP, _R.CLUSTER))
    for operation in (_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
}
"""A request about configs needs this of the kinds of resources that it names."""


def _api(
    request: type,
    handler: Handler,
    versions: str,
    needs: tuple[Need, ...],
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
        needs,
    )
    assert api.first in schema.versions, api.name
    assert api.last in schema.versions, api.name
    return api


def _group(request: type, handler: Handler, versions: str, needs: tuple[Need, ...], *, limits: int = 1) -> Api:
    return _api(request, handler, versions, needs, limited_by="group_request_max_bytes", limits=limits)


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        _api(
            ProduceRequest,
            produce.produce,
            "3-13",
            (WRITE_TOPIC, WRITE_TRANSACTION),
            advertised_from=0,
            limited_by="",
        ),
        _api(FetchRequest, fetch.fetch, "4-18", (READ_TOPIC,), limits=4),
        _api(ListOffsetsRequest, records.list_offsets, "1-11", (DESCRIBE_TOPIC,)),
        _api(MetadataRequest, metadata.metadata, "0-13", (DESCRIBE_TOPIC, CREATE_TOPIC)),
        _group(OffsetCommitRequest, offsets.offset_commit, "2-10", (READ_GROUP, READ_TOPIC)),
        _group(OffsetFetchRequest, offsets.offset_fetch, "1-10", (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
        _group(
            TxnOffsetCommitRequest,
            transactional_offsets.txn_offset_commit,
            "0-6",
            (WRITE_TRANSACTION, READ_GROUP, READ_TOPIC),
        ),
        _group(
            FindCoordinatorRequest,
            cluster.find_coordinator,
            "0-6",
            (DESCRIBE_GROUP, DESCRIBE_TRANSACTION, *ON_CLUSTER),
        ),
        _group(JoinGroupRequest, groups.join_group, "0-9", (READ_GROUP,)),
        _group(HeartbeatRequest, groups.heartbeat, "0-4", (READ_GROUP,)),
        _group(LeaveGroupRequest, groups.leave_group, "0-5", (READ_GROUP,)),
        _group(SyncGroupRequest, groups.sync_group, "0-5", (READ_GROUP,), limits=4),
        _group(DescribeGroupsRequest, groups.describe_groups, "0-6", (DESCRIBE_GROUP,)),
        _group(ListGroupsRequest, groups.list_groups, "0-5", (Need(_O.DESCRIBE, _R.CLUSTER, DESCRIBE_GROUP),)),
        _api(ApiVersionsRequest, cluster.api_versions, "0-4", EVERYBODY),
        _api(CreateTopicsRequest, topics_admin.create_topics, "2-7", (CREATE_TOPIC,)),
        _api(
            DeleteTopicsRequest,
            topics_admin.delete_topics,
            "1-6",
            (Need(_O.DELETE, _R.TOPIC, Need(_O.DELETE, _R.CLUSTER)),),
        ),
        _api(DeleteRecordsRequest, records.delete_records, "0-2", (Need(_O.DELETE, _R.TOPIC),)),
        _api(
            InitProducerIdRequest,
            producer_ids.init_producer_id,
            "0-5",
            (Need(_O.WRITE, _R.TRANSACTIONAL_ID, Need(_O.IDEMPOTENT_WRITE, _R.CLUSTER, WRITE_TOPIC)),),
        ),
        _api(
            OffsetForLeaderEpochRequest,
            records.offset_for_leader_epoch,
            "2-4",
            (Need(_O.DESCRIBE, _R.TOPIC, Need(_O.CLUSTER_ACTION, _R.CLUSTER)),),
        ),
        _api(
            AddPartitionsToTxnRequest,
            transactions.add_partitions_to_txn,
            "0-5",
            (WRITE_TRANSACTION, WRITE_TOPIC, Need(_O.CLUSTER_ACTION, _R.CLUSTER)),
        ),
        _api(AddOffsetsToTxnRequest, transactions.add_offsets_to_txn, "0-4", (WRITE_TRANSACTION, READ_GROUP)),
        _api(EndTxnRequest, transactions.end_txn, "0-5", (WRITE_TRANSACTION,)),
        _api(
            WriteTxnMarkersRequest,
            transactions.write_txn_markers,
            "1-2",
            (Need(_O.ALTER, _R.CLUSTER, Need(_O.CLUSTER_ACTION, _R.CLUSTER)),),
        ),
        _api(DescribeConfigsRequest, configs.describe_configs, "1-4", ON_CONFIGS[_O.DESCRIBE_CONFIGS]),
        _api(AlterConfigsRequest, config_changes.alter_configs, "0-2", ON_CONFIGS[_O.ALTER_CONFIGS]),
        _api(CreatePartitionsRequest, topics_admin.create_partitions, "0-3", (Need(_O.ALTER, _R.TOPIC),)),
        _group(DeleteGroupsRequest, groups.delete_groups, "0-2", (Need(_O.DELETE, _R.GROUP),)),
        _api(
            IncrementalAlterConfigsRequest,
            config_changes.incremental_alter_configs,
            "0-1",
            ON_CONFIGS[_O.ALTER_CONFIGS],
        ),
        _group(OffsetDeleteRequest, offsets.offset_delete, "0-0", (Need(_O.DELETE, _R.GROUP), READ_TOPIC)),
        _api(DescribeClusterRequest, cluster.describe_cluster, "0-2", EVERYBODY),
        _api(DescribeProducersRequest, describe_producers.describe_producers, "0-0", (READ_TOPIC,)),
        _group(ConsumerGroupHeartbeatRequest, consumer_groups.heartbeat, "0-1", (READ_GROUP, DESCRIBE_TOPIC)),
        _group(ConsumerGroupDescribeRequest, consumer_groups.describe, "0-1", (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
        _api(DescribeTopicPartitionsRequest, metadata.describe_topic_partitions, "0-0", (DESCRIBE_TOPIC,)),
        _api(DescribeAclsRequest, acls.describe_acls, "1-3", (DESCRIBE_CLUSTER,)),
        _api(CreateAclsRequest, acls.create_acls, "1-3", (Need(_O.ALTER, _R.CLUSTER),)),
        _api(DeleteAclsRequest, acls.delete_acls, "1-3", (Need(_O.ALTER, _R.CLUSTER),)),
        _api(DescribeLogDirsRequest, inspection.describe_log_dirs, "1-5", (DESCRIBE_CLUSTER,)),
        _api(ElectLeadersRequest, leader_election.elect_leaders, "0-2", (Need(_O.ALTER, _R.CLUSTER),)),
        _api(
            DescribeTransactionsRequest,
            transaction_lists.describe_transactions,
            "0-0",
            (DESCRIBE_TRANSACTION, DESCRIBE_TOPIC),
        ),
        _api(ListTransactionsRequest, transaction_lists.list_transactions, "0-2", (DESCRIBE_TRANSACTION,)),
        _api(ListPartitionReassignmentsRequest, inspection.list_partition_reassignments, "0-0", (DESCRIBE_CLUSTER,)),
        _api(
            DescribeClientQuotasRequest,
            client_quotas.describe_client_quotas,
            "0-1",
            (Need(_O.DESCRIBE_CONFIGS, _R.CLUSTER),),
        ),
        _api(
            AlterClientQuotasRequest,
            client_quotas.alter_client_quotas,
            "0-1",
            (Need(_O.ALTER_CONFIGS, _R.CLUSTER),),
        ),
        _api(
            DescribeUserScramCredentialsRequest,
            scram_credentials.describe_user_scram_credentials,
            "0-0",
            (DESCRIBE_CLUSTER,),
        ),
        _api(
            AlterUserScramCredentialsRequest,
            scram_credentials.alter_user_scram_credentials,
            "0-0",
            (Need(_O.ALTER, _R.CLUSTER),),
        ),
        _api(SaslHandshakeRequest, sasl.sasl_handshake, "0-1", EVERYBODY),
        _api(SaslAuthenticateRequest, sasl.sasl_authenticate, "0-2", EVERYBODY),
        _api(DescribeQuorumRequest, inspection.describe_quorum, "0-2", (DESCRIBE_CLUSTER,)),
        _api(
            ListConfigResourcesRequest,
            inspection.list_config_resources,
            "0-1",
            (Need(_O.DESCRIBE_CONFIGS, _R.CLUSTER),),
        ),
        _group(ShareGroupHeartbeatRequest, share_groups.heartbeat, "1-1", (READ_GROUP, DESCRIBE_TOPIC)),
        _group(ShareGroupDescribeRequest, share_groups.describe, "1-1", (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
        _api(ShareFetchRequest, share_fetch.share_fetch, "1-2", (READ_GROUP, READ_TOPIC), limits=4),
        _api(ShareAcknowledgeRequest, share_acknowledge.share_acknowledge, "1-2", (READ_GROUP, READ_TOPIC), limits=4),
        _api(InitializeShareGroupStateRequest, share_states.initialize, "0-0", ON_CLUSTER),
        _api(ReadShareGroupStateRequest, share_states.read, "0-0", ON_CLUSTER),
        _api(WriteShareGroupStateRequest, share_states.write, "0-1", ON_CLUSTER),
        _api(DeleteShareGroupStateRequest, share_states.delete, "0-0", ON_CLUSTER),
        _api(ReadShareGroupStateSummaryRequest, share_states.read_summary, "0-1", ON_CLUSTER),
        _group(
            DescribeShareGroupOffsetsRequest, share_offsets.describe_offsets, "0-1", (DESCRIBE_GROUP, DESCRIBE_TOPIC)
        ),
        _group(AlterShareGroupOffsetsRequest, share_offsets.alter_offsets, "0-0", (READ_GROUP, READ_TOPIC)),
        _group(
            DeleteShareGroupOffsetsRequest,
            share_offsets.delete_offsets,
            "0-0",
            (Need(_O.DELETE, _R.GROUP), READ_TOPIC),
        ),
    )
}

PRODUCE = APIS[0]
FETCH = APIS[1]
API_VERSIONS = APIS[18]
OFFSET_COMMIT = APIS[8]
BEATS = (APIS[68], APIS[76])
"""The heartbeats of consumer groups and share groups, with which members join and leave too."""
FETCHES = (1, 78)
"""The keys of the APIs that wait for records."""
CHANGES = frozenset(
    (0, 8, 13, 19, 20, 21, 22, 24, 25, 26, 27, 28, 30, 31, 33, 37, 42, 43, 44, 47, 49, 51, 68, 76, 83, 85, 86, 91, 92)
)
"""The keys of the APIs that change what outlasts the client. When the client has closed its connection, a change in
steps goes on, and the first request that waits is handled, as in Kafka. Reads are dropped, and so is what only keeps or
makes a member: joins, syncs, and heartbeats of consumer and share groups (68, 76) that do not leave. A share session
ends with its connection, and with it what it fetches and acknowledges (78, 79)."""
LAST_WORDS = frozenset((0, 13, 68, 76))
"""The keys of the APIs with requests that clients send last, and close without waiting for the answer: produce with
acks=0, and leave a group. All of these that have arrived are handled. Other waiting requests are dropped, because
clients repeat them over their next connection: handling both copies would append records twice, or would replace a
committed offset by an older one."""
OF_CLIENTS = frozenset((*range(15), 17, 18, *range(22, 29), 36, 60, 68, 71, 72, 76, 78, 79))
"""What members, consumers and producers send by themselves, the broker's own kind of request among them. The others are
sent by people and tools."""
SECRETS = frozenset((17, 36, 51))
"""The keys of the APIs whose requests may hold a secret."""
HEARTBEATS = frozenset((12, 68))
"""The keys of the APIs whose answers may be held."""


OF_CONSUMER_GROUPS = frozenset((68, 69))
"""The keys of the APIs that are there only where consumer groups are served."""
OF_SHARE_GROUPS = frozenset((*range(76, 80), *range(83, 88), *range(90, 93)))
"""The keys of the APIs that are there only where share groups are served."""
OF_TRANSACTIONS = frozenset(range(24, 29))
"""The keys of the APIs that are there only where one node has all partitions."""


def advertised(consumer_groups: bool, share_groups: bool, transactions: bool = True) -> tuple[ApiVersion, ...]:
    """What ApiVersions answers."""
    hidden = frozenset() if consumer_groups else OF_CONSUMER_GROUPS
    hidden |= frozenset() if share_groups else OF_SHARE_GROUPS
    hidden |= frozenset() if transactions else OF_TRANSACTIONS
    return tuple(
        ApiVersion(api_key=api.key, min_version=api.advertised_first, max_version=api.last)
        for api in sorted(APIS.values(), key=lambda api: api.key)
        if api.key not in hidden
    )


def outlasts(frame: bytes) -> bool:
    """True if this request may have to be handled when its client has gone."""
    return int.from_bytes(frame[:2], "big") in CHANGES


def may_be_last_words(frame: bytes) -> bool:
    return int.from_bytes(frame[:2], "big") in LAST_WORDS


def is_made(api: Api, request: Any, *, is_first: bool) -> bool:
    """True if this request, which `Connection.closes` has kept, is handled although its client has closed the
    connection. `is_first`: it was the first that waited."""
    if api in BEATS:
        return bool(request.member_epoch < 0)
    return is_first or api is not PRODUCE or request.acks == 0
