"""Fields in the record of a consumer group's member that speaks the classic protocol (ConsumerGroupMember.java).

The record has all protocols of the member, so that the group can become a classic group again.
"""

from __future__ import annotations

from kohort.coordinator.classic.protocols import Protocols
from kohort.coordinator.events import Client, Millis
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)


def is_classic(member: ConsumerGroupMemberMetadataValue) -> bool:
    """A record without the field is a record with no protocols: the member speaks the consumer protocol."""
    metadata = member.classic_member_metadata
    return metadata is not None and bool(metadata.supported_protocols)


def protocols_of(member: ConsumerGroupMemberMetadataValue) -> Protocols:
    metadata = member.classic_member_metadata
    return () if metadata is None else tuple((p.name, p.metadata) for p in metadata.supported_protocols)


def session_timeout_of(member: ConsumerGroupMemberMetadataValue) -> Millis:
    metadata = member.classic_member_metadata
    assert metadata is not None
    return metadata.session_timeout_ms


def classic_value(
    instance_id: str | None,
    client: Client,
    subscription: ConsumerProtocolSubscription,
    protocols: Protocols,
    session_timeout_ms: Millis,
    rebalance_timeout_ms: Millis,
) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=instance_id,
        rack_id=subscription.rack_id or None,
        client_id=client.client_id,
        client_host=client.host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=rebalance_timeout_ms,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=session_timeout_ms,
            supported_protocols=tuple(ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols),
        ),
    )
