"""Answers that name brokers: their addresses become those of the gateway's listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.broker.messages import changed
from kohort.config import Address
from kohort.gateway.requests import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, Request
from kohort.wire.codec import decode_bounded, decode_prefix, encode_response
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.framing import body_offset, read_response_header
from kohort.wire.schema import schema_of
from kohort.wire.schemas.alter_configs import AlterConfigsRequest
from kohort.wire.schemas.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from kohort.wire.schemas.describe_configs import DescribeConfigsRequest
from kohort.wire.schemas.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.incremental_alter_configs import IncrementalAlterConfigsRequest
from kohort.wire.schemas.list_groups import ListGroupsResponse
from kohort.wire.schemas.metadata import MetadataResponse, MetadataResponseBroker

Addresses = Callable[[int], Address | None]
"""The address of a broker's listener; None if it has none, and then clients do not learn of it."""

MANY_KEYS = 4
"""The first version of FindCoordinator that takes many keys."""
CONTROLLERS = 2
"""DescribeCluster's type of endpoints that are no brokers."""

GROUP = 32
"""The type of a resource of configs (ConfigResource.java)."""
CONFIG_REQUESTS: dict[int, type] = {
    DESCRIBE_CONFIGS: DescribeConfigsRequest,
    ALTER_CONFIGS: AlterConfigsRequest,
    INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsRequest,
}


def decoded_answer(request: Request, answer: bytes, response: type) -> Any:
    """`answer` is a frame with its length. Raises ProtocolError."""
    frame = answer[4:]
    flexible = request.version in schema_of(response).flexible
    _, start = read_response_header(frame, flexible=flexible, api_key=request.key)
    return decode_prefix(response, request.version, frame, start)[0]


def encoded_answer(request: Request, message: Any) -> bytes:
    return encode_response(message, request.version, request.correlation_id, api_key=request.key)


def decoded_request(request: Request, frame: bytes, message: type) -> Any:
    """`frame` has its length. Raises ProtocolError, also for one with too many elements."""
    body = frame[4:]
    start = body_offset(body, request.version in schema_of(message).flexible)
    return decode_bounded(message, request.version, body, start)[0]


def moved_brokers(
    found: tuple[MetadataResponseBroker, ...], address_of: Addresses
) -> tuple[MetadataResponseBroker, ...]:
    """Raises ProtocolError if there are brokers and none has a listener: clients would take the cluster for empty."""
    brokers = tuple(
        MetadataResponseBroker(node_id=broker.node_id, host=at.host, port=at.port, rack=broker.rack)
        for broker in found
        if (at := address_of(broker.node_id)) is not None
    )
    if found and not brokers:
        raise ProtocolError("the gateway has no listener yet for any broker that the answer names")
    return brokers


def moved_metadata(found: MetadataResponse, address_of: Addresses) -> MetadataResponse:
    return changed(found, brokers=moved_brokers(found.brokers, address_of))


def moved_cluster(found: DescribeClusterResponse, address_of: Addresses) -> DescribeClusterResponse:
    if found.endpoint_type == CONTROLLERS:
        return found
    brokers = tuple(
        DescribeClusterBroker(
            broker_id=broker.broker_id, host=at.host, port=at.port, rack=broker.rack, is_fenced=broker.is_fenced
        )
        for broker in found.brokers
        if (at := address_of(broker.broker_id)) is not None
    )
    return changed(found, brokers=brokers)


def moved_coordinators(found: FindCoordinatorResponse, address_of: Addresses) -> FindCoordinatorResponse:
    rows = tuple(_moved_coordinator(row, address_of) for row in found.coordinators)
    return changed(found if rows else _moved_coordinator(found, address_of), coordinators=rows)


def _moved_coordinator(found: Any, address_of: Addresses) -> Any:
    if found.error_code:
        return found
    at = address_of(found.node_id)
    if at is None:  # a new broker, which has no listener yet: clients ask again
        return changed(found, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1)
    return changed(found, host=at.host, port=at.port)


def own_coordinator(
    request: Request, asked: FindCoordinatorRequest, node_id: int, at: Address | None
) -> FindCoordinatorResponse:
    """Where groups are coordinated."""
    error, host, port = ErrorCode.NONE, "", -1
    if at is None:
        error, node_id = ErrorCode.COORDINATOR_NOT_AVAILABLE, -1
    else:
        host, port = at
    why = error.message if error else None
    if request.version >= MANY_KEYS:
        rows = tuple(
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=why)
            for key in dict.fromkeys(asked.coordinator_keys)
        )
        return FindCoordinatorResponse(coordinators=rows)
    return FindCoordinatorResponse(error_code=error, error_message=why, node_id=node_id, host=host, port=port)


def names_groups(request: Request, frame: bytes) -> bool:
    """Whether a request about configs is about groups alone. Those of other resources are the upstream cluster's, and
    so are requests about both."""
    resources = decoded_request(request, frame, CONFIG_REQUESTS[request.key]).resources
    return bool(resources) and all(resource.resource_type == GROUP for resource in resources)


def no_groups() -> ListGroupsResponse:
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=())
