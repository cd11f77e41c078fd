"""Requests to the leaders of partitions: list offsets, produce, fetch, delete records.

A call over many partitions becomes one request to each leading broker. All requests are sent before the first answer is
read, so that brokers work at the same time without threads. If a leader has moved or a broker is gone, the partitions
concerned are asked for again; answers that have arrived are kept.

A long-polling fetch over several brokers would delay one broker's data until another answers. So the first round asks
every broker for the data that it has now; only if no broker has any, a second round waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, TypeVar

from kohort.client.errors import ConnectionFailed, KafkaError, ServerError, TimedOut, error_code, server_error
from kohort.client.metadata import TopicPartition
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import LEADER_MOVED, Router
from kohort.wire.embedded import by_topic
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kohort.wire.schemas.fetch import (
    NOBODY,
    FetchingMember,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kohort.wire.schemas.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

Request = TypeVar("Request")
Response = TypeVar("Response")
Row = TypeVar("Row")

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
CONSUMER = -1
"""The replica id of a client."""

Failures = dict[TopicPartition, KafkaError]

Isolation = Literal["read_uncommitted", "read_committed"]


class _Throttled(KafkaError):
    """A quota of the client is used up: the broker answered a Fetch without its partitions (KafkaApis, since 2.0) and
    does not read from the connection for `wait_s`. This is not a failure, so it is not retried like a failure."""

    def __init__(self, throttle_time_ms: int) -> None:
        super().__init__(None, f"a quota is used up: the broker answers no fetches for {throttle_time_ms} ms")
        self.wait_s = throttle_time_ms / 1000


class _LeftOut(KafkaError):
    """An answer lacks a partition of the request."""

    retriable = True

    def __init__(self, what: str, partition: TopicPartition) -> None:
        super().__init__(None, f"{what} {partition[0]}-{partition[1]}: the answer leaves the partition out")


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The answer of one Fetch for a partition.

    `records` are record batches, the last one possibly cut; `kohort.client.records` reads them. `error` is
    OFFSET_OUT_OF_RANGE if the position is outside of the log, or another error that a retry does not cure; then there
    are no records. `aborted` are the (producer id, first offset) pairs of a read_committed fetch.
    """

    topic: str
    partition: int
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes
    aborted: tuple[tuple[int, int], ...] = ()
    fenced: bool = False
    """Whether the broker has checked the ownership, as `as_member` asks; only kohort does."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group (KIP-848), at its last epoch."""

    group_id: str
    member_id: str
    member_epoch: int


def list_offsets(
    router: Router, wanted: Mapping[TopicPartition, int], read_committed: bool
) -> dict[TopicPartition, int]:
    """The offset for each partition's timestamp (milliseconds, EARLIEST, LATEST, MAX_TIMESTAMP), -1 for none."""

    def request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=int(read_committed),
            timeout_ms=router.timing.request,
            topics=tuple(
                ListOffsetsTopic(
                    name=topic,
                    partitions=tuple(
                        ListOffsetsPartition(partition_index=index, timestamp=wanted[topic, index]) for index in indexes
                    ),
                )
                for topic, indexes in by_topic(partitions)
            ),
        )

    def rows(answer: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, ListOffsetsPartitionResponse]]:
        return (((topic.name, row.partition_index), row) for topic in answer.topics for row in topic.partitions)

    return _from_leaders(router, wanted, "ListOffsets", request, ListOffsetsResponse, rows, attrgetter("offset"))


def produce(router: Router, batches: Mapping[TopicPartition, bytes], acks: int) -> dict[TopicPartition, int]:
    """Append one record batch to each partition. Returns base offsets, -1 with acks=0."""
    stored: dict[TopicPartition, int] = {}

    def request(partitions: Sequence[TopicPartition]) -> ProduceRequest:
        return ProduceRequest(
            acks=acks,
            timeout_ms=router.timing.request,
            topic_data=tuple(
                TopicProduceData(
                    name=topic,
                    partition_data=tuple(
                        PartitionProduceData(index=index, records=batches[topic, index]) for index in indexes
                    ),
                )
                for topic, indexes in by_topic(partitions)
            ),
        )

    def rows(answer: ProduceResponse) -> Iterator[tuple[TopicPartition, PartitionProduceResponse]]:
        return (((topic.name, row.index), row) for topic in answer.responses for row in topic.partition_responses)

    def attempt() -> None:
        rest = [partition for partition in batches if partition not in stored]
        if acks == 0:
            failed = tell_leaders(router, rest, "Produce", request)
            stored.update(dict.fromkeys((partition for partition in rest if partition not in failed), -1))
            raise_worst(router, failed)
            return
        answered, failed = ask_leaders(router, rest, "Produce", request, ProduceResponse, rows)
        for partition, row in answered.items():
            if row.error_code:
                failed[partition] = _failure("Produce", partition, row.error_code, row.error_message)
            else:
                stored[partition] = row.base_offset
        raise_worst(router, failed)

    router.retrying(attempt)
    return stored


def delete_records(router: Router, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Where each partition begins after its records before an offset (-1: the end) are deleted."""

    def request(partitions: Sequence[TopicPartition]) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(
            topics=tuple(
                DeleteRecordsTopic(
                    name=topic,
                    partitions=tuple(
                        DeleteRecordsPartition(partition_index=index, offset=before[topic, index]) for index in indexes
                    ),
                )
                for topic, indexes in by_topic(partitions)
            ),
            timeout_ms=router.timing.request,
        )

    def rows(answer: DeleteRecordsResponse) -> Iterator[tuple[TopicPartition, DeleteRecordsPartitionResult]]:
        return (((topic.name, row.partition_index), row) for topic in answer.topics for row in topic.partitions)

    low_watermark = attrgetter("low_watermark")
    return _from_leaders(router, before, "DeleteRecords", request, DeleteRecordsResponse, rows, low_watermark)


def _from_leaders(
    router: Router,
    partitions: Collection[TopicPartition],
    what: str,
    request: Callable[[Sequence[TopicPartition]], object],
    response_class: type[Response],
    rows: Callable[[Response], Iterable[tuple[TopicPartition, Any]]],
    value: Callable[[Any], int],
) -> dict[TopicPartition, int]:
    """The value of each partition's row. Partitions without one are asked for again."""
    found: dict[TopicPartition, int] = {}

    def attempt() -> None:
        rest = [partition for partition in partitions if partition not in found]
        answered, failed = ask_leaders(router, rest, what, request, response_class, rows)
        for partition, row in answered.items():
            if row.error_code:
                failed[partition] = _failure(what, partition, row.error_code)
            else:
                found[partition] = value(row)
        raise_worst(router, failed)

    router.retrying(attempt)
    return found


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The parameters of a fetch besides the positions; in milliseconds and bytes."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    partition_max_bytes: int = 1_048_576
    isolation: Isolation = "read_uncommitted"
    as_member: GroupMember | None = None


class Fetching:
    """The fetches of one client: rotates the partitions, and keeps since when each has failed."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._failing_since: dict[TopicPartition, float] = {}
        self._turn = 0

    def fetch(self, positions: Mapping[TopicPartition, int], settings: FetchSettings) -> list[FetchedPartition]:
        """Fetch from each position; retry while no partition is answered. Returns nothing after the api timeout, if
        quotas allow nothing for so long."""
        if not positions:
            return []
        self._turn += 1
        # Brokers fill an answer in the order of the request, so the partitions take turns to be first.
        order = list(positions)
        first = self._turn % len(order)
        order = order[first:] + order[:first]

        def attempt() -> list[FetchedPartition]:
            grouped, _ = self._router.by_leader(order, "Fetch")
            if len(grouped) > 1:
                fetched = self._round(order, positions, replace(settings, max_wait_ms=0))
                if settings.max_wait_ms == 0 or any(one.records or one.error for one in fetched):
                    return fetched
            return self._round(order, positions, settings)

        deadline = time.monotonic() + self._router.timing.api / 1000
        while True:
            try:
                return self._router.retrying(attempt)
            except _Throttled as throttled:
                if not self._wait(throttled, deadline):
                    return []

    def _wait(self, throttled: _Throttled, deadline: float) -> bool:
        """Wait until the broker reads again. Returns whether that is before the deadline."""
        time.sleep(max(0.0, min(throttled.wait_s, deadline - time.monotonic())))
        return time.monotonic() < deadline

    def fetch_ahead(
        self, positions: Mapping[TopicPartition, int], settings: FetchSettings
    ) -> Callable[[], list[FetchedPartition]]:
        """Send the request now if one broker leads all partitions; return a function that waits for the answer."""

        def fetch() -> list[FetchedPartition]:
            return self.fetch(positions, settings)

        try:
            grouped, without = self._router.by_leader(positions, "Fetch")
            if without or len(grouped) != 1:
                return fetch
            [(node_id, led)] = grouped.items()
            connection = self._router.connection(node_id)
            timeout_ms = self._router.timing.request + settings.max_wait_ms
            connection.send(_fetch_request(led, positions, settings), timeout_ms=timeout_ms)
        except KafkaError:
            return fetch

        def receive() -> list[FetchedPartition]:
            if connection.closed:
                return fetch()
            try:
                answered = dict(_fetch_rows(connection.receive(FetchResponse, timeout_ms=timeout_ms)))
            except _Throttled as throttled:
                self._wait(throttled, time.monotonic() + self._router.timing.api / 1000)
                return fetch()
            except (ConnectionFailed, TimedOut, ServerError):
                return fetch()
            rows = [answered.get(partition) for partition in led]
            if any(row is None or error_code(row[0].error_code).retriable for row in rows):
                return fetch()
            return [_fetched(partition, *row) for partition, row in zip(led, rows, strict=True) if row is not None]

        return receive

    def _round(
        self, order: Sequence[TopicPartition], positions: Mapping[TopicPartition, int], settings: FetchSettings
    ) -> list[FetchedPartition]:
        def request(partitions: Sequence[TopicPartition]) -> FetchRequest:
            return _fetch_request(partitions, positions, settings)

        answered, failed = ask_leaders(
            self._router, order, "Fetch", request, FetchResponse, _fetch_rows, extra_ms=settings.max_wait_ms
        )
        fetched = []
        for partition, (row, fenced) in answered.items():
            if row.error_code and (failure := _failure("Fetch", partition, row.error_code)).retriable:
                failed[partition] = failure
            else:
                self._failing_since.pop(partition, None)
                fetched.append(_fetched(partition, row, fenced))
        self._judge(failed, some_answered=bool(fetched))
        return fetched

    def _judge(self, failed: Failures, *, some_answered: bool) -> None:
        """Raise if nothing was answered, or if a partition has failed for longer than the api timeout."""
        now = time.monotonic()
        lasting: Failures = {}
        throttled = [failed.pop(partition) for partition, why in list(failed.items()) if isinstance(why, _Throttled)]
        for partition, failure in failed.items():
            since = self._failing_since.setdefault(partition, now)
            if now - since > self._router.timing.api / 1000:
                lasting[partition] = failure.because(f"for {now - since:.0f} s")
        if not some_answered:
            raise_worst(self._router, failed)
            for failure in throttled:
                raise failure
        forget_leaders(self._router, failed)
        for failure in lasting.values():
            raise failure


def _fetch_request(
    partitions: Sequence[TopicPartition], positions: Mapping[TopicPartition, int], settings: FetchSettings
) -> FetchRequest:
    member = NOBODY
    if (named := settings.as_member) is not None:
        member = FetchingMember(group_id=named.group_id, member_id=named.member_id, member_epoch=named.member_epoch)
    return FetchRequest(
        as_member=member,
        max_wait_ms=settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=int(settings.isolation == "read_committed"),
        topics=tuple(
            FetchTopic(
                topic=topic,
                partitions=tuple(
                    FetchPartition(
                        partition=index,
                        fetch_offset=positions[topic, index],
                        partition_max_bytes=settings.partition_max_bytes,
                    )
                    for index in indexes
                ),
            )
            for topic, indexes in by_topic(partitions)
        ),
    )


def _fetch_rows(answer: FetchResponse) -> Iterator[tuple[TopicPartition, tuple[PartitionData, bool]]]:
    if answer.error_code:
        raise server_error(answer.error_code, "Fetch")
    if answer.throttle_time_ms > 0 and not answer.responses:
        raise _Throttled(answer.throttle_time_ms)
    return (
        ((topic.topic, row.partition_index), (row, answer.fenced))
        for topic in answer.responses
        for row in topic.partitions
    )


def _fetched(partition: TopicPartition, row: PartitionData, fenced: bool) -> FetchedPartition:
    return FetchedPartition(
        partition[0],
        partition[1],
        error_code(row.error_code),
        row.high_watermark,
        row.last_stable_offset,
        row.log_start_offset,
        row.records or b"",
        tuple((aborted.producer_id, aborted.first_offset) for aborted in row.aborted_transactions or ()),
        fenced,
    )


def ask_leaders(
    router: Router,
    partitions: Sequence[TopicPartition],
    what: str,
    request: Callable[[Sequence[TopicPartition]], object],
    response_class: type[Response],
    rows: Callable[[Response], Iterable[tuple[TopicPartition, Row]]],
    *,
    extra_ms: int = 0,
    version: Callable[[Connection], int | None] = lambda _: None,
) -> tuple[dict[TopicPartition, Row], Failures]:
    """Ask every leader once. Returns the answered rows, and the failure of each other partition.

    `extra_ms`, how long the broker may wait on purpose, is added to the request timeout. `version` is that of the
    request on a connection; None: the highest common one.
    """
    grouped, failed = router.by_leader(partitions, what)
    answered: dict[TopicPartition, Row] = {}
    asked: list[tuple[Connection, list[TopicPartition]]] = []
    try:
        for node_id, led in grouped.items():
            try:
                connection = router.connection(node_id)
                connection.send(request(led), version=version(connection), timeout_ms=router.timing.request + extra_ms)
                asked.append((connection, led))
            except (ConnectionFailed, TimedOut) as error:
                failed.update(dict.fromkeys(led, error))
        while asked:
            connection, led = asked[0]
            try:
                answered.update(rows(connection.receive(response_class)))
                failed.update({missed: _LeftOut(what, missed) for missed in led if missed not in answered})
            except (ConnectionFailed, TimedOut, ServerError, _Throttled) as error:
                failed.update(dict.fromkeys(led, error))
            del asked[0]
    finally:
        for connection, _ in asked:
            connection.close()  # left early: its answer must not be read as the next one's
    return answered, failed


def tell_leaders(
    router: Router,
    partitions: Sequence[TopicPartition],
    what: str,
    request: Callable[[Sequence[TopicPartition]], object],
) -> Failures:
    """Send each leader a request that has no answer. Returns the failures."""
    grouped, failed = router.by_leader(partitions, what)
    for node_id, led in grouped.items():
        try:
            router.connection(node_id).send_unanswered(request(led))
        except (ConnectionFailed, TimedOut) as error:
            failed.update(dict.fromkeys(led, error))
    return failed


def raise_worst(router: Router, failed: Failures) -> None:
    """Raise one of the failures, if there are any; preferably one that cannot be retried."""
    forget_leaders(router, failed)
    for failure in sorted(failed.values(), key=lambda failure: failure.retriable):
        raise failure


def forget_leaders(router: Router, failed: Failures) -> None:
    for partition, failure in failed.items():
        if not isinstance(failure, ServerError) or failure.code in LEADER_MOVED:
            router.forget_leader(partition)


def _failure(what: str, partition: TopicPartition, code: int, text: str | None = None) -> ServerError:
    return server_error(code, f"{what} {partition[0]}-{partition[1]}", text)
