"""ApiVersions, FindCoordinator, DescribeCluster."""

from __future__ import annotations

import base64
import re
from collections.abc import Generator

from kohort.broker.authorization import CLUSTER_OPERATIONS, NOT_ASKED
from kohort.broker.request import RequestContext, in_steps, rows
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.coordinator.classic.checks import not_too_often
from kohort.coordinator.shares.events import ShareKey
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.api_versions import (
    LASTING_GENERATIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kohort.wire.schemas.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kohort.wire.schemas.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP_VERSION = "group.version"
"""The feature whose level 1 is consumer groups (KIP-848); at level 0 it is not among the finalized ones."""
METADATA_VERSION = "metadata.version"
"""The feature by which tools tell the version of a cluster: level 7 is Kafka 3.3, level 30 is Kafka 4.3, whose answers
kohort gives (MetadataVersion.java)."""
OLDEST_METADATA, METADATA = 7, 30
TRANSACTION_VERSION = "transaction.version"
"""The feature whose level 2 gives producers a new epoch with each end of a transaction (KIP-890)."""
TRANSACTION_VERSIONS = 2
SHARE_VERSION = "share.version"
"""The feature whose level 1 is share groups (KIP-932), and whose level 2 is their dead-letter topics (KIP-1191), which
Kafka has since 4.4."""
OWN_FEATURES = (SupportedFeatureKey(name=LASTING_GENERATIONS, min_version=1, max_version=1),)
GROUP, TRANSACTION, SHARE = 0, 1, 2
"""FindCoordinator's key types."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_BROKERS = 1


def api_versions(state: BrokerState, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
    # Clients of versions before 4 treat a lowest version of 0 as an error (KAFKA-17011).
    lowest = 0 if context.api_version >= 4 else 1
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=state.advertised_apis,
        supported_features=(
            SupportedFeatureKey(name=METADATA_VERSION, min_version=OLDEST_METADATA, max_version=METADATA),
            SupportedFeatureKey(name=GROUP_VERSION, min_version=lowest, max_version=1),
            SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=lowest, max_version=TRANSACTION_VERSIONS),
            *(
                (SupportedFeatureKey(name=SHARE_VERSION, min_version=lowest, max_version=_share_level(state)),)
                if state.shares.is_served
                else ()
            ),
            *(OWN_FEATURES if state.config.deviations.extensions else ()),
        ),
        finalized_features_epoch=0,
        finalized_features=_finalized(state),
    )


def _finalized(state: BrokerState) -> tuple[FinalizedFeatureKey, ...]:
    """The levels in force; a feature at level 0 is not among them."""
    levels = {
        METADATA_VERSION: METADATA,
        GROUP_VERSION: 1 if state.serves_consumer_groups else 0,
        TRANSACTION_VERSION: state.config.transaction_version,
        SHARE_VERSION: _share_level(state) if state.shares.is_served else 0,
    }
    return tuple(
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in levels.items()
        if level
    )


def _share_level(state: BrokerState) -> int:
    return 2 if state.config.deviations.extensions else 1


@in_steps
def find_coordinator(
    state: BrokerState, request: FindCoordinatorRequest, context: RequestContext
) -> Generator[int, None, FindCoordinatorResponse]:
    if context.api_version >= 4:
        keys = not_too_often(request.coordinator_keys)
        found = yield from rows(keys, lambda key: _coordinator(state, request.key_type, key, context.listener))
        return FindCoordinatorResponse(coordinators=found)
    one = _coordinator(state, request.key_type, request.key, context.listener)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(state: BrokerState, key_type: int, key: str, listener: str) -> Coordinator:
    if key_type == TRANSACTION and state.slots is not None:
        text = "Transactions are not served while several nodes serve at once (cluster.serving=all)"
        return _no_coordinator(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
    if key_type == TRANSACTION:
        return _transaction_coordinator(state, key, listener)
    if key_type == SHARE and state.shares.is_served:
        return _share_coordinator(state, key, listener)
    if key_type != GROUP:
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, f"There are no coordinators of key type {key_type}")
    if not state.config.deviations.instant_topics and not state.topics.is_used(state.catalog.topics[OFFSETS_TOPIC]):
        state.topics.used.add(OFFSETS_TOPIC)
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE.message)
    state.topics.used.add(OFFSETS_TOPIC)
    return _coordinator_at(state, listener, state.coordinator_of(state.shard_of(key)), key)


def _transaction_coordinator(state: BrokerState, key: str, listener: str) -> Coordinator:
    is_new = not state.transactions.shards
    state.transactions.create()
    broker = state.transactions.coordinator_of(key)
    if broker is None or broker in state.absent or (is_new and not state.config.deviations.instant_topics):
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE.message)
    return _coordinator_at(state, listener, broker, key)


def _share_coordinator(state: BrokerState, key: str, listener: str) -> Coordinator:
    """`key`: group, topic id and partition, split from the right (SH2)."""
    group, _, rest = key.rpartition(":")
    group, _, topic_id = group.rpartition(":")
    try:
        raw = base64.urlsafe_b64decode(topic_id + "==")
    except ValueError:
        raw = b""
    if not group or len(raw) != 16 or not rest.isascii() or not rest.isdigit() or len(rest) > 9:
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, "A key is group:topicId:partition")
    state.shares.create()
    broker = state.shares.coordinator_of(ShareKey(group, raw, int(rest)))
    if broker is None or broker in state.absent:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE.message)
    return _coordinator_at(state, listener, broker, key)


def _coordinator_at(state: BrokerState, listener: str, broker_id: int, key: str) -> Coordinator:
    node = state.node_at(listener, broker_id)
    if node is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE.message)
    return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_message="")


def _no_coordinator(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=message)


def describe_cluster(
    state: BrokerState, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            if request.endpoint_type != 2
            else ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="This is a broker's endpoint",
            endpoint_type=request.endpoint_type,
            cluster_id="",
            brokers=(),
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=state.catalog.cluster_id,
        controller_id=state.controller_id,
        brokers=tuple(
            DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in state.nodes_at(context.listener)
        ),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
