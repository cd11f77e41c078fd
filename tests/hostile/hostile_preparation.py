"""What hostile clients find on the server: topics, groups and records, made by well-behaved requests before."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from typing import IO

from hostile_requests import (
    commit,
    consumer_join,
    create_topics,
    fetch_offsets,
    find_transactions,
    grow_topic,
    init_producer,
    produce,
    produce_batch,
)

from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.schemas.offset_commit import OffsetCommitRequestPartition

WIDE = "wide"
"""A topic with many partitions."""
WIDE_PARTITIONS = 8_000
METADATA = 2_500
HEAVY = "heavy"
"""A group with 2.5 kB of metadata in each of its 8,000 offsets: an OffsetFetch answers 20 MB."""
GROUPS = 5_000
CROWD = "crowd"
"""A consumer group with 3,000 members."""
CROWD_MEMBERS = 3_000
FULL = "full"
"""A topic with 16 partitions and some megabytes in each."""
FULL_PARTITIONS = 16
TIMED = "timed"
"""A topic with 1,000 partitions and a batch of 100 records in each."""
TIMED_PARTITIONS, TIMED_RECORDS = 1_000, 100
TOPICS = 2_000
PRODUCERS = 400
PRODUCER_IDS: dict[int, tuple[int, int]] = {}
"""The producer id and the epoch of each transactional id's number."""
AT_ONCE = 20
"""Requests under way. What they hold must stay small: the preparation is no attack."""


def group(number: int) -> str:
    return f"hostile-group-{number % GROUPS:04}"


def topic(number: int) -> str:
    return f"hostile-topic-{number % TOPICS:04}"


def transactional_id(number: int) -> str:
    return f"hostile-{number % PRODUCERS:03}"


class Preparation:
    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._done: set[str] = set()

    def wide(self) -> None:
        if self._first("wide"):
            half = WIDE_PARTITIONS // 2  # a request creates up to 5,000
            self._ask([create_topics({WIDE: half}), grow_topic(WIDE, WIDE_PARTITIONS)])

    def heavy(self) -> None:
        """The state behind an answer of 20 MB."""
        if self._first("heavy"):
            self.wide()
            self._ask(self._heavy_commits())
            [size] = self._ask([fetch_offsets(HEAVY)])
            if size < WIDE_PARTITIONS * METADATA:
                raise AssertionError(f"the answer that is to be large has {size} bytes")

    def _heavy_commits(self) -> Iterator[bytes]:
        for first in range(0, WIDE_PARTITIONS, 200):
            partitions = tuple(
                OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=1, committed_metadata="m" * METADATA
                )
                for number in range(first, min(first + 200, WIDE_PARTITIONS))
            )
            yield commit(HEAVY, WIDE, partitions)

    def groups(self) -> None:
        """Five thousand groups without members."""
        if self._first("groups"):
            self._ask([create_topics({"small": 1})])
            one = (OffsetCommitRequestPartition(partition_index=0, committed_offset=1),)
            self._ask(commit(group(number), "small", one) for number in range(GROUPS))

    def crowd(self) -> None:
        if self._first("crowd"):
            self.small()
            self._ask(consumer_join(CROWD, f"m-{number}", topics=("small",)) for number in range(CROWD_MEMBERS))

    def topics(self) -> None:
        """Two thousand topics."""
        if self._first("topics"):
            self._ask(
                create_topics({topic(number): 1 for number in range(first, first + 200)})
                for first in range(0, TOPICS, 200)
            )

    def full(self) -> None:
        """64 MB of records."""
        if self._first("full"):
            self._ask([create_topics({FULL: FULL_PARTITIONS})])
            value = bytes(1_000_000)
            self._ask(produce(FULL, number % FULL_PARTITIONS, value) for number in range(64))

    def timed(self) -> None:
        """Twice as many records as one search by time reads."""
        if self._first("timed"):
            self._ask([create_topics({TIMED: TIMED_PARTITIONS})])
            batch = encode_batch([NewRecord(None, bytes(10), at) for at in range(TIMED_RECORDS)])
            self._ask(produce_batch(TIMED, partition, batch) for partition in range(TIMED_PARTITIONS))

    def producers(self) -> None:
        """Transactional ids without a transaction."""
        if self._first("producers"):
            self.wide()
            self._ask([find_transactions(transactional_id(0))])
            answers = self._answers(init_producer(transactional_id(number)) for number in range(PRODUCERS))
            for number, answer in enumerate(answers):
                # correlation id, no tags, throttle time, error, producer id, epoch
                error, producer_id, epoch = struct.unpack_from(">hqh", answer, 9)
                if error:
                    raise AssertionError(f"InitProducerId failed with {error}")
                PRODUCER_IDS[number] = (producer_id, epoch)

    def small(self) -> None:
        if self._first("small"):
            self._ask([create_topics({"small": 1})])

    def _first(self, what: str) -> bool:
        fresh = what not in self._done
        self._done.add(what)
        return fresh

    def _ask(self, frames: Iterable[bytes]) -> list[int]:
        """Send the requests, some at a time, and read the answers; returns their sizes."""
        return [len(answer) for answer in self._answers(frames)]

    def _answers(self, frames: Iterable[bytes]) -> list[bytes]:
        answers_read: list[bytes] = []
        with socket.create_connection(self._address, timeout=60) as opened, opened.makefile("rb") as answers:
            under_way = 0
            for frame in frames:
                opened.sendall(frame)
                under_way += 1
                if under_way == AT_ONCE:
                    answers_read.append(_answer(answers))
                    under_way -= 1
            for _ in range(under_way):
                answers_read.append(_answer(answers))
        return answers_read


def _answer(answers: IO[bytes]) -> bytes:
    length = answers.read(4)
    if len(length) < 4:
        raise ConnectionError("the server closed the connection during the preparation")
    return answers.read(struct.unpack(">i", length)[0])
