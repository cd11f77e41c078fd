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
from kohort.client.transactions.reactions import ENDED_BY_OTHERS
from kohort.client.transactions.writer import TransactionalWriter
from kohort.client.wire.routing import Router
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode

TRANSACTION_TIMEOUT_MS = 10_000


class Overtaken(KafkaError):
    """Another process has begun to take a token of the same key meanwhile."""


def next_token(router: Router, topic: str, key: str) -> int:
    """The next token of a key, as `Cluster.next_token` says."""
    _ensure(router, topic)
    place = (topic, 0)
    writer = TransactionalWriter(router, f"{topic}-{key}", timeout_ms=TRANSACTION_TIMEOUT_MS)
    try:
        writer.init()
        token = _last(router, topic, key) + 1
        writer.begin()
        writer.produce({place: [NewRecord(key.encode(), str(token).encode(), time.time_ns() // 1_000_000)]})
        writer.commit()
    except KafkaError as error:
        if error.code in ENDED_BY_OTHERS:
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
