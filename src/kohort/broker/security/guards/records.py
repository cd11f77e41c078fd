"""The guards of APIs about records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords,
DescribeProducers."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from kohort.broker.authorization import Operation, Resource
from kohort.broker.handlers.transactional_produce import TOPIC_IDS as PRODUCE_IDS
from kohort.broker.handlers.transactional_produce import is_transactional
from kohort.broker.request import CloseConnection
from kohort.broker.security.authorizer import Rights
from kohort.broker.security.guards.ask import DESCRIBE, GROUP, READ, TOPIC, WRITE, Ask, Narrowed, Refused, Verdict
from kohort.broker.security.guards.rows import TopicRows, by_topic
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import check_topic_name
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import delete_records as deleted
from kohort.wire.schemas import describe_producers as producers
from kohort.wire.schemas import fetch as fetched
from kohort.wire.schemas import list_offsets as listed
from kohort.wire.schemas import offset_for_leader_epoch as epochs
from kohort.wire.schemas import produce as produced

_O, _R = Operation, Resource
FETCH_IDS = 13
"""The first version of Fetch that names topics by their ids."""
FEW = 20
"""Topics that are checked in one go."""


# -- Produce


def _unwritten(topic: produced.TopicProduceData, error: ErrorCode) -> produced.TopicProduceResponse:
    return produced.TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=tuple(
            produced.PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1)
            for data in topic.partition_data
        ),
    )


WRITTEN = TopicRows("topic_data", "responses", _unwritten, produced.ProduceResponse, ids_from=PRODUCE_IDS)


def may_produce(state: BrokerState, rights: Rights, request: produced.ProduceRequest, version: int) -> bool:
    """True if the guard would let all of a request pass. The usual requests are decided by this: False may also mean
    that the guard must look."""
    if version >= PRODUCE_IDS or len(request.topic_data) > FEW:
        return False
    for topic in request.topic_data:
        if not rights.allows(WRITE, TOPIC, topic.name):
            return False
        for data in topic.partition_data:
            if is_transactional(data.records):
                return False
    return True


def produce(ask: Ask, request: produced.ProduceRequest) -> Verdict | Generator[int, None, Verdict]:
    """With acks=0 there is no answer: a refusal closes the connection, as other errors do (W8)."""
    if (request.transactional_id is None or not ask.sees(WRITE, _R.TRANSACTIONAL_ID, request.transactional_id)) and (
        any(is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data)
    ):
        if request.transactional_id is not None:
            ask.may(WRITE, _R.TRANSACTIONAL_ID, request.transactional_id)
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return Refused(_spoken(request, _all_unwritten(request, error)))
    verdict = by_topic(WRITTEN, WRITE, ask, request)
    return _silent(request, verdict) if request.acks == 0 else verdict


def _silent(request: produced.ProduceRequest, steps: Generator[int, None, Verdict]) -> Generator[int, None, Verdict]:
    verdict = yield from steps
    if isinstance(verdict, Refused):
        return Refused(_spoken(request, verdict.answer))
    return verdict if verdict is None else Narrowed(verdict.request, partial(_closed, request))


def _all_unwritten(request: produced.ProduceRequest, error: ErrorCode) -> produced.ProduceResponse:
    return produced.ProduceResponse(responses=tuple(_unwritten(topic, error) for topic in request.topic_data))


def _spoken(request: produced.ProduceRequest, answer: produced.ProduceResponse) -> Any:
    return answer if request.acks != 0 else _closed(request, None)


def _closed(request: produced.ProduceRequest, answer: Any) -> CloseConnection:
    return CloseConnection("produce with acks=0 failed: it is not allowed")


# -- Fetch


def _unread(topic: fetched.FetchTopic, error: ErrorCode) -> fetched.FetchableTopicResponse:
    return fetched.FetchableTopicResponse(
        topic=topic.topic,
        topic_id=topic.topic_id,
        partitions=tuple(
            fetched.PartitionData(partition_index=asked.partition, error_code=error, high_watermark=-1, records=b"")
            for asked in topic.partitions
        ),
    )


FETCHED = TopicRows("topics", "responses", _unread, fetched.FetchResponse, name="topic", ids_from=FETCH_IDS)


def may_fetch(state: BrokerState, rights: Rights, request: fetched.FetchRequest, version: int) -> bool:
    """As `may_produce`."""
    if request.as_member is not fetched.NOBODY or len(request.topics) > FEW:
        return False
    for asked in request.topics:
        if version >= FETCH_IDS:
            topic = state.catalog.by_id.get(asked.topic_id)
            if topic is not None and not rights.allows(READ, TOPIC, topic.name):
                return False
        elif not rights.allows(READ, TOPIC, asked.topic):
            return False
    return True


def fetch(ask: Ask, request: fetched.FetchRequest) -> Verdict | Generator[int, None, Verdict]:
    """A fetch that names the member of a group which reads learns what the member owns, as a heartbeat does."""
    member = request.as_member
    if member is not fetched.NOBODY and member != fetched.NOBODY and not ask.may(READ, GROUP, member.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return Refused(fetched.FetchResponse(error_code=error, responses=()))
    return by_topic(FETCHED, READ, ask, request)


# -- offsets of logs


def _unlisted(topic: listed.ListOffsetsTopic, error: ErrorCode) -> listed.ListOffsetsTopicResponse:
    return listed.ListOffsetsTopicResponse(
        name=topic.name,
        partitions=tuple(
            listed.ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error)
            for asked in topic.partitions
        ),
    )


LISTED = TopicRows("topics", "topics", _unlisted, listed.ListOffsetsResponse)


def list_offsets(ask: Ask, request: listed.ListOffsetsRequest) -> Generator[int, None, Verdict]:
    return by_topic(LISTED, DESCRIBE, ask, request)


def _without_epoch(topic: epochs.OffsetForLeaderTopic, error: ErrorCode) -> epochs.OffsetForLeaderTopicResult:
    return epochs.OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=tuple(
            epochs.EpochEndOffset(partition=asked.partition, error_code=error) for asked in topic.partitions
        ),
    )


EPOCHS = TopicRows("topics", "topics", _without_epoch, epochs.OffsetForLeaderEpochResponse, name="topic")


def offset_for_leader_epoch(
    ask: Ask, request: epochs.OffsetForLeaderEpochRequest
) -> Verdict | Generator[int, None, Verdict]:
    if ask.sees_cluster(_O.CLUSTER_ACTION):
        return None
    return by_topic(EPOCHS, DESCRIBE, ask, request)


def _kept(topic: deleted.DeleteRecordsTopic, error: ErrorCode) -> deleted.DeleteRecordsTopicResult:
    return deleted.DeleteRecordsTopicResult(
        name=topic.name,
        partitions=tuple(
            deleted.DeleteRecordsPartitionResult(
                partition_index=asked.partition_index, low_watermark=-1, error_code=error
            )
            for asked in topic.partitions
        ),
    )


DELETED = TopicRows("topics", "topics", _kept, deleted.DeleteRecordsResponse)


def delete_records(ask: Ask, request: deleted.DeleteRecordsRequest) -> Generator[int, None, Verdict]:
    return by_topic(DELETED, _O.DELETE, ask, request)


def _without_producers(topic: producers.TopicRequest, error: ErrorCode) -> producers.TopicResponse:
    return producers.TopicResponse(
        name=topic.name,
        partitions=tuple(
            producers.PartitionResponse(
                partition_index=index, error_code=error, error_message=error.message, active_producers=()
            )
            for index in topic.partition_indexes
        ),
    )


PRODUCERS = TopicRows("topics", "topics", _without_producers, producers.DescribeProducersResponse)


def describe_producers(ask: Ask, request: producers.DescribeProducersRequest) -> Generator[int, None, Verdict]:
    def allowed(name: str) -> bool:
        return check_topic_name(name) is not None or ask.may(READ, TOPIC, name)

    return by_topic(PRODUCERS, READ, ask, request, allowed=allowed)
