"""What happens to each answer of the upstream cluster on its way to a client."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kohort.config import Address
from kohort.gateway.answers import BeginningRewriting, Rewriting
from kohort.gateway.metadata import beginning_of, with_brokers
from kohort.gateway.owner import Owner
from kohort.gateway.requests import DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA, TOPIC_CHANGES, Request
from kohort.gateway.rewriting import (
    decoded_answer,
    encoded_answer,
    moved_brokers,
    moved_cluster,
    moved_coordinators,
    moved_metadata,
)
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.describe_cluster import DescribeClusterResponse
from kohort.wire.schemas.find_coordinator import FindCoordinatorResponse
from kohort.wire.schemas.metadata import MetadataResponse

AddressOf = Callable[[int], Address | None]


def rewritings_of(request: Request, owner: Owner, listener: str) -> tuple[Rewriting | None, BeginningRewriting | None]:
    """How the answer to a forwarded request is rewritten, if it is small, and if it is large. Both raise
    ProtocolError, and ValueError for what cannot be encoded again."""
    key = request.key
    if key == METADATA:
        whole = _moved(request, owner, listener, MetadataResponse, partial(_metadata, owner))
        return whole, partial(_beginning, owner, listener, request.version)
    if key == DESCRIBE_CLUSTER:
        return _moved(request, owner, listener, DescribeClusterResponse, moved_cluster), None
    if key == FIND_COORDINATOR:
        return _moved(request, owner, listener, FindCoordinatorResponse, moved_coordinators), None
    if key in TOPIC_CHANGES:
        return partial(_topics_changed, owner), partial(_topics_changed, owner)
    return None, None


def _moved(
    request: Request, owner: Owner, listener: str, response: type, move: Callable[[Any, AddressOf], Any]
) -> Rewriting:
    def rewriting(answer: bytes) -> bytes:
        found = decoded_answer(request, answer, response)
        return encoded_answer(request, move(found, lambda broker: owner.address_of(broker, listener)))

    return rewriting


def _metadata(owner: Owner, found: MetadataResponse, address_of: AddressOf) -> MetadataResponse:
    owner.learn(found)
    return moved_metadata(found, address_of)


def _beginning(owner: Owner, listener: str, version: int, data: bytes) -> bytes | None:
    """Of a large answer, the brokers alone are read; the gateway asks for topics itself."""
    try:
        beginning = beginning_of(data, version)
    except ProtocolError:
        return None  # the rest is to come
    owner.learn_beginning(beginning)
    return with_brokers(
        data, version, beginning, moved_brokers(beginning.brokers, lambda broker: owner.address_of(broker, listener))
    )


def _topics_changed(owner: Owner, answer: bytes) -> bytes:
    owner.topics_changed()
    return answer
