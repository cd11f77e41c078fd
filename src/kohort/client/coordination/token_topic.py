"""Fencing tokens that never regress, on any Kafka cluster: a counter for each key in a compacted topic.

`next_token` reads the last token of a key and writes the next one, in a transaction of a producer whose transactional
id belongs to the key. It begins with InitProducerId, which raises the producer's epoch: every earlier call for the key
is fenced then, also if its write is still on the way, and its open transaction ends before the answer comes. So only
the newest call for a key can write, after the writes of all others, and no token is given twice.

The topic has one partition and `cleanup.policy=compact`: the newest token of each key stays for ever. No other
program may write to the topic. Source: KIP-98, and KIP-360 for the right to raise an epoch.
"""

from __future__ import annotations

import time

from kohort.client.admin.configs import ResourceType, describe_configs
from kohort.client.admin.topics import create_topic, topics
from kohort.client.errors import KafkaError, ServerError, TimedOut, check
from kohort.client.records.fetched_records import next_position, records
from kohort.client.records.partition_leaders import EARLIEST, LATEST, Fetching, FetchSettings, list_offsets
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import TRANSACTION, Router
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kohort.wire.schemas.end_txn import EndTxnRequest, EndTxnResponse
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

TRANSACTION_TIMEOUT_MS = 10_000
COMMIT_ATTEMPTS = 5
"""The result of a commit that the server neither accepts nor refuses."""
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class Overtaken(KafkaError):
    """Another process has begun to take a token of the same key meanwhile."""


def next_token(router: Router, topic: str, key: str) -> int:
    """The next token of a key, as `Cluster.next_token` says."""
    _ensure(router, topic)
    counter = _Counter(router, topic, key)
    try:
        counter.begin()
        token = _last(router, topic, key) + 1
        counter.add_partition()
        router.retrying(lambda: counter.write(token))
        counter.commit()
    except ServerError as error:
        if error.code in FENCED:
            raise Overtaken(error.code, f"another process is taking a token of {key!r} in {topic}") from None
        raise
    return token


def _ensure(router: Router, topic: str) -> None:
    """Create the topic if it is missing. Raises KafkaError if it is not compacted."""
    found = topics(router, [topic], internal=True, create=False)[topic]
    if found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        try:
            create_topic(router, topic, 1, -1, {"cleanup.policy": "compact"})
        except ServerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    else:
        check(found.error, f"topic {topic}")
    settings = describe_configs(router, ResourceType.TOPIC, [topic])[topic]
    policy = next((entry.value for entry in settings if entry.name == "cleanup.policy"), None)
    if policy != "compact":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"topic {topic} has cleanup.policy={policy}; to keep tokens it must be compact"
        )


def _last(router: Router, topic: str, key: str) -> int:
    """The newest token of the key; 0 if there is none. Waits for open transactions."""
    place = (topic, 0)
    position = list_offsets(router, {place: EARLIEST}, False)[place]
    end = list_offsets(router, {place: LATEST}, False)[place]
    fetching = Fetching(router)
    deadline = time.monotonic() + 2 * TRANSACTION_TIMEOUT_MS / 1000
    last = 0
    while position < end:
        for fetched in fetching.fetch({place: position}, FetchSettings(isolation="read_committed")):
            check(fetched.error, f"cannot read {topic}-0 at offset {position}")
            for record in records(fetched, position):
                if record.key == key.encode() and record.value is not None:
                    last = max(last, int(record.value))
            reached = next_position(fetched, position)
            if reached == position and time.monotonic() > deadline:
                raise TimedOut(f"{topic}-0 has a transaction that stays open at offset {position}")
            position = reached
    return last


class _Counter:
    """One transaction, step by step."""

    def __init__(self, router: Router, topic: str, key: str) -> None:
        self._router = router
        self._topic = topic
        self._key = key.encode()
        self._id = f"{topic}-{key}"
        self._producer_id = -1
        self._epoch = -1

    def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)

        def ask(connection: Connection) -> None:
            answer = connection.request(request, InitProducerIdResponse)
            check(answer.error_code, f"producer id of {self._id}")
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

        self._router.at_coordinator(self._id, ask, TRANSACTION)

    def add_partition(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=self._topic, partitions=(0,)),),
        )

        def ask(connection: Connection) -> None:
            answer = connection.request(request, AddPartitionsToTxnResponse)
            for topic in answer.results_by_topic_v3_and_below:
                for row in topic.results_by_partition:
                    check(row.partition_error_code, f"transaction of {self._id}")

        self._router.at_coordinator(self._id, ask, TRANSACTION)

    def write(self, token: int) -> None:
        """One attempt. A retry has the same sequence number, so the broker writes the batch once."""
        batch = encode_batch(
            [NewRecord(self._key, str(token).encode(), time.time_ns() // 1_000_000)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = TopicProduceData(name=self._topic, partition_data=(PartitionProduceData(index=0, records=batch),))
        request = ProduceRequest(
            transactional_id=self._id, acks=-1, timeout_ms=self._router.timing.request, topic_data=(data,)
        )
        grouped, failed = self._router.by_leader([(self._topic, 0)], "Produce")
        for failure in failed.values():
            raise failure
        answer = self._router.connection(next(iter(grouped))).request(request, ProduceResponse)
        for topic in answer.responses:
            for row in topic.partition_responses:
                if row.error_code:
                    self._router.forget_leader((self._topic, 0))
                check(row.error_code, f"Produce {self._topic}-0", row.error_message)

    def commit(self) -> None:
        """If a transaction ends while its producer is fenced, Apache Kafka 4.3 answers UNKNOWN_SERVER_ERROR. Asked
        again a moment later, it answers which of the two happened."""
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=True
        )

        def ask(connection: Connection) -> None:
            check(connection.request(request, EndTxnResponse).error_code, f"transaction of {self._id}")

        for attempt in range(1, COMMIT_ATTEMPTS + 1):
            try:
                self._router.at_coordinator(self._id, ask, TRANSACTION)
                return
            except ServerError as error:
                if error.code != ErrorCode.UNKNOWN_SERVER_ERROR or attempt == COMMIT_ATTEMPTS:
                    raise
            time.sleep(self._router.backoff(attempt))
