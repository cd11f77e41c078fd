"""TxnOffsetCommit 6 (KIP-1319), which kio does not know: version 5 with a topic's id in the place of its name."""

from __future__ import annotations

from msgspec.structs import replace

from kohort.wire.codec import decode, encode
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NAME, TOPIC_ID = "a-topic-name", bytes(range(100, 116))


def as_version_6(version_5: bytes) -> bytes:
    name = bytes((len(NAME) + 1,)) + NAME.encode()
    assert version_5.count(name) == 1
    return version_5.replace(name, TOPIC_ID)


def test_a_request_has_the_topics_id_instead_of_its_name() -> None:
    offset = TxnOffsetCommitRequestPartition(
        partition_index=1, committed_offset=2, committed_leader_epoch=3, committed_metadata="m"
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=4,
        producer_epoch=5,
        generation_id=6,
        member_id="member",
        group_instance_id="i",
        topics=(TxnOffsetCommitRequestTopic(name=NAME, partitions=(offset,)),),
    )
    by_id = replace(request, topics=(TxnOffsetCommitRequestTopic(topic_id=TOPIC_ID, partitions=(offset,)),))
    expected = as_version_6(encode(request, 5))
    assert encode(by_id, 6) == expected
    assert decode(TxnOffsetCommitRequest, 6, expected) == by_id


def test_a_response_has_the_topics_id_instead_of_its_name() -> None:
    result = TxnOffsetCommitResponsePartition(partition_index=1, error_code=113)
    response = TxnOffsetCommitResponse(topics=(TxnOffsetCommitResponseTopic(name=NAME, partitions=(result,)),))
    by_id = TxnOffsetCommitResponse(topics=(TxnOffsetCommitResponseTopic(topic_id=TOPIC_ID, partitions=(result,)),))
    expected = as_version_6(encode(response, 5))
    assert encode(by_id, 6) == expected
    assert decode(TxnOffsetCommitResponse, 6, expected) == by_id
