"""A share session on an event loop: the connection to one broker, its fetches, acknowledgements and renewals.

One fetch and one acknowledgement are under way at a time. A fetch waits at the broker for records. An acknowledgement
is sent behind it at once: kohort answers both then, Apache Kafka when the fetch has waited. So a fetch waits only
briefly there, while the member holds records.

A lock is renewed when half of it has passed, for as long as its holder wants it. When the connection ends, the broker
gives all records back, so the locks are lost; the session is opened again on a new connection.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kohort.client.backoff import Backoff
from kohort.client.errors import KafkaError, UnsupportedVersion, server_error
from kohort.client.queue.acquired import AcquiredRecord, acquired_records
from kohort.client.queue.backlog import TopicTurns
from kohort.client.queue.share_session import (
    AGAIN,
    GAP,
    LOST_SESSION,
    RELEASE,
    RENEW,
    Ack,
    Place,
    ShareSession,
)
from kohort.client.wire.async_connection import AsyncConnection
from kohort.client.wire.discovery import Address, Discovery
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.api_versions import LASTING_GENERATIONS
from kohort.wire.schemas.share_acknowledge import ShareAcknowledgeResponse
from kohort.wire.schemas.share_fetch import PartitionData, ShareFetchRequest, ShareFetchResponse

LONG_WAIT_MS = 5_000
"""How long a fetch waits for records, at a broker that ends the wait for the request behind it."""
WAIT_MS = 500
"""The same at other brokers."""
SHORT_WAIT_MS = 100
"""The same at other brokers while the member holds records."""
CLOSE_S = 5.0
"""How long the end of a session may take."""
RENEWING_VERSION = 2
"""Of ShareFetch: the first with the limit of records and with renewals."""
STALE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""Errors after which the leaders are looked up again."""
REFUSES = frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST})
"""Errors of a whole fetch after which no other fetch can succeed."""

log = logging.getLogger("kohort.client")


@dataclass(slots=True, eq=False)
class Held:
    """A record that this member has locked."""

    session: BrokerSession
    place: Place
    offset: int
    deliveries: int
    until: float
    """When the lock ends, by the loop's clock: never later than at the broker."""
    extended_until: float
    """The lock is not renewed after this instant."""
    is_renewable: bool = True
    is_renewing: bool = False
    is_settled: bool = False
    """Its outcome is on the way to the broker."""
    is_lost: bool = False

    def is_valid(self, now: float) -> bool:
        """True if no other member can have the record."""
        return not self.is_lost and now < self.until


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the next fetch asks for; `most` 0: nothing."""

    places: Sequence[Place]
    most: int
    topic: str | None = None
    """If the fetch asks one topic alone; then it does not wait for records."""


class Owner(Protocol):
    """The queue, as its sessions see it."""

    @property
    def group_id(self) -> str: ...
    def wanted(self, session: BrokerSession) -> Wanted: ...
    def acquired(self, session: BrokerSession, place: Place, records: Sequence[AcquiredRecord]) -> None: ...
    def fetched(self, session: BrokerSession, asked: Wanted, count: int) -> None: ...
    def lost(self, held: Held) -> None: ...
    def leaders_changed(self) -> None: ...
    def failed(self, error: Exception) -> None: ...
    def extension_of(self, now: float) -> float: ...
    def name_of(self, place: Place) -> str: ...


class BrokerSession:
    """Call `changed` after anything that may lead to a request."""

    def __init__(
        self,
        owner: Owner,
        discovery: Discovery,
        address: Address,
        member_id: str,
        turns: TopicTurns,
        *,
        request_timeout_ms: int,
        backoff: Backoff,
    ) -> None:
        self.address = address
        self.held: dict[tuple[Place, int], Held] = {}
        self.places: tuple[Place, ...] = ()
        """Those that this broker leads, among the member's."""
        self.turns = turns
        self.lock_s = 30.0
        """How long a lock lasts; of the last answer."""
        self._owner = owner
        self._discovery = discovery
        self._request_timeout_ms = request_timeout_ms
        self._backoff = backoff
        self._session = ShareSession(owner.group_id, member_id)
        self._loop = asyncio.get_running_loop()
        self._connection: AsyncConnection | None = None
        self._answers_early = False
        """The broker ends the wait of a fetch for the request behind it."""
        self._wakes = asyncio.Event()
        self._fetching: asyncio.Future[Any] | None = None
        self._acking: asyncio.Future[Any] | None = None
        self._fetch_after = 0.0
        """When the next fetch may be sent, by the loop's clock."""
        self._failures = 0
        """Fetches in a row that were refused."""
        self._renew_at = float("inf")
        self._closing = False
        self._task = self._loop.create_task(self._run())

    def __repr__(self) -> str:
        return f"<share session of {self._owner.group_id!r} at {self.address[0]}:{self.address[1]}>"

    def changed(self) -> None:
        self._wakes.set()

    def settle(self, held: Held, kind: int) -> asyncio.Future[int]:
        """Acknowledge a record. The future has the error code: 0, or why the broker has refused."""
        held.is_settled = True
        answer: asyncio.Future[int] = self._loop.create_future()
        self._add(held, kind, answer)
        return answer

    def extend(self, held: Held) -> asyncio.Future[int]:
        """Renew a lock now."""
        answer: asyncio.Future[int] = self._loop.create_future()
        self._renew(held, answer)
        return answer

    async def close(self) -> None:
        """Send what waits to be sent, and end the session: the broker gives back what is still locked."""
        self._closing = True
        with suppress(TimeoutError, KafkaError):
            async with asyncio.timeout(CLOSE_S):
                await self._leave()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _leave(self) -> None:
        connection = self._connection
        if connection is None:
            return
        while not connection.closed and self._session.is_open and (self._session.has_acks or self._acking is not None):
            self.changed()
            acking = self._acking
            if acking is None:
                await asyncio.sleep(0.001)
            else:
                await asyncio.wait((acking,))
        if not connection.closed and self._session.is_open:
            request, _ = self._session.close()
            await connection.ask(request, ShareAcknowledgeResponse)

    # -- the connection

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                connection = await self._discovery.open(self.address)
            except KafkaError as error:
                log.info("group %s: %s", self._owner.group_id, error)
                if not error.retriable:
                    self._owner.failed(error)
                    return
                failures += 1
                self._owner.leaders_changed()
                await asyncio.sleep(self._backoff.pause(failures, random.random()) / 1000)
                continue
            failures = 0
            try:
                self._check(connection)
                self._connection = connection
                connection.on_close = self.changed
                self._answers_early = LASTING_GENERATIONS in connection.exchange.features
                await self._serve(connection)
            except UnsupportedVersion as error:
                self._owner.failed(error)
                return
            finally:
                self._connection = None
                connection.close()
                self._all_lost()
            self._owner.leaders_changed()
            await asyncio.sleep(self._backoff.pause(1, random.random()) / 1000)

    def _check(self, connection: AsyncConnection) -> None:
        version = connection.exchange.version_of(ShareFetchRequest)
        if version < RENEWING_VERSION:
            raise UnsupportedVersion(
                f"the broker at {connection.address} serves ShareFetch up to version {version}; a work queue needs "
                f"version {RENEWING_VERSION} (Apache Kafka 4.2, or kohort)"
            )

    async def _serve(self, connection: AsyncConnection) -> None:
        while not connection.closed:
            self._wakes.clear()
            self._send(connection)
            pause = min(self._renew_at, self._fetch_after if self._wants_later() else float("inf")) - self._loop.time()
            handle = self._loop.call_later(max(pause, 0), self.changed) if pause < float("inf") else None
            try:
                await self._wakes.wait()
            finally:
                if handle is not None:
                    handle.cancel()

    def _wants_later(self) -> bool:
        return self._fetching is None and self._fetch_after > self._loop.time()

    def _all_lost(self) -> None:
        self._fetching = self._acking = None
        self._fetch_after = 0.0
        self._session.reopen()
        self._session.fail_all(ErrorCode.SHARE_SESSION_NOT_FOUND)
        for held in list(self.held.values()):
            self._lose(held)

    def _lose(self, held: Held) -> None:
        self.held.pop((held.place, held.offset), None)
        if not held.is_lost:
            held.is_lost = True
            self._owner.lost(held)

    # -- requests

    def _send(self, connection: AsyncConnection) -> None:
        """Send what can be sent now."""
        session = self._session
        if session.is_broken:
            if self._fetching is not None or self._acking is not None:
                return  # their answers belong to the old session
            session.reopen()
        self._renew_due()
        if session.is_open and session.has_acks and self._acking is None:
            request, sent = session.acknowledge()
            self._acking = self._ask(connection, request, ShareAcknowledgeResponse, 0)
            self._acking.add_done_callback(partial(self._acknowledged, sent, self._loop.time()))
        if self._fetching is None and not self._closing and self._loop.time() >= self._fetch_after:
            self._fetch(connection)

    def _fetch(self, connection: AsyncConnection) -> None:
        wanted = self._owner.wanted(self)
        reopens = not self._session.is_open and self._session.has_acks
        if not wanted.most and not reopens:
            return
        wait_ms = LONG_WAIT_MS if self._answers_early else SHORT_WAIT_MS if self.held else WAIT_MS
        if wanted.topic is not None or not wanted.most:
            wait_ms = 0
        request = self._session.fetch(wanted.places, wanted.most, wait_ms)
        self._fetching = self._ask(connection, request, ShareFetchResponse, wait_ms)
        self._fetching.add_done_callback(partial(self._fetched, wanted, self._loop.time()))

    def _ask(self, connection: AsyncConnection, request: Any, kind: type, wait_ms: int) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = connection.ask(request, kind)
        late_s = (self._request_timeout_ms + wait_ms) / 1000
        timer = self._loop.call_later(late_s, connection.close, f"no answer within {late_s:g} s")
        answer.add_done_callback(lambda _: timer.cancel())
        return answer

    def _add(self, held: Held, kind: int, answer: asyncio.Future[int]) -> None:
        if held.is_lost or self._connection is None:
            answer.set_result(ErrorCode.SHARE_SESSION_NOT_FOUND)
            return
        self._session.add(Ack(held.place, held.offset, held.offset, kind, partial(self._settled, held, kind, answer)))
        self.changed()

    def _settled(self, held: Held, kind: int, answer: asyncio.Future[int], error: int) -> None:
        if error in AGAIN and held.is_valid(self._loop.time()) and not self._closing:
            self._loop.call_later(self._backoff.first / 1000, self._add, held, kind, answer)
            return
        self.held.pop((held.place, held.offset), None)
        if not answer.done():
            answer.set_result(error)

    # -- renewals

    def _renew_due(self) -> None:
        now = self._loop.time()
        if now < self._renew_at:
            return
        self._renew_at = float("inf")
        for held in list(self.held.values()):
            if held.is_settled:
                continue
            if now >= held.until:
                self._lose(held)
            elif held.is_renewing or not held.is_renewable or now >= held.extended_until:
                self._renew_at = min(self._renew_at, held.until)
            elif now >= held.until - self.lock_s / 2:
                self._renew(held, None)
                self._renew_at = min(self._renew_at, held.until)
            else:
                self._renew_at = min(self._renew_at, held.until - self.lock_s / 2)

    def _renew(self, held: Held, answer: asyncio.Future[int] | None) -> None:
        if held.is_lost or held.is_settled or self._connection is None:
            if answer is not None:
                answer.set_result(ErrorCode.INVALID_RECORD_STATE)
            return
        held.is_renewing = True
        self._session.add(Ack(held.place, held.offset, held.offset, RENEW, partial(self._renewed, held, answer)))
        self.changed()

    def _renewed(self, held: Held, answer: asyncio.Future[int] | None, error: int) -> None:
        held.is_renewing = False
        if error in STALE or error in LOST_SESSION:
            self._lose(held)
        elif error == ErrorCode.INVALID_RECORD_STATE and not held.is_settled:
            held.is_renewable = False  # the group forbids it, or the lock has ended: both end at `until`
            log.warning(
                "group %s: the lock of %s, offset %d, cannot be extended",
                self._owner.group_id,
                self._owner.name_of(held.place),
                held.offset,
            )
        elif error:
            self._renew_at = min(self._renew_at, self._loop.time() + self._backoff.first / 1000)
        if answer is not None and not answer.done():
            answer.set_result(error)

    # -- answers

    def _acknowledged(self, sent: Sequence[Ack], asked_at: float, answer: asyncio.Future[Any]) -> None:
        self._acking = None if answer is self._acking else self._acking
        error = answer.exception() if not answer.cancelled() else ConnectionError()
        if error is not None:
            for ack in sent:
                ack.done(ErrorCode.SHARE_SESSION_NOT_FOUND)  # the outcome is unknown
        else:
            response: ShareAcknowledgeResponse = answer.result()
            self._note_lock(response.acquisition_lock_timeout_ms)
            for ack, code in self._session.answered(sent, response):
                if ack.kind == RENEW and not code:
                    self._prolong(ack, asked_at)
                if code in STALE:
                    self._owner.leaders_changed()
                ack.done(code)
        self.changed()

    def _prolong(self, ack: Ack, asked_at: float) -> None:
        held = self.held.get((ack.place, ack.first))
        if held is not None:
            held.until = max(held.until, asked_at + self.lock_s)
            self._renew_at = 0.0  # look again

    def _note_lock(self, lock_ms: int) -> None:
        if lock_ms > 0:
            self.lock_s = lock_ms / 1000

    def _fetched(self, wanted: Wanted, asked_at: float, answer: asyncio.Future[Any]) -> None:
        if answer is not self._fetching:
            return  # of an earlier connection
        self._fetching = None
        self.changed()
        if answer.cancelled() or answer.exception() is not None:
            log.info("group %s: %s", self._owner.group_id, answer.exception() if not answer.cancelled() else "ended")
            return
        response: ShareFetchResponse = answer.result()
        self._note_lock(response.acquisition_lock_timeout_ms)
        if response.error_code:
            self._refused(response)
            return
        count = 0
        failed = False
        for topic in response.responses:
            for row in topic.partitions:
                place = topic.topic_id, row.partition_index
                if row.error_code:
                    failed = True
                    self._failed_row(place, row)
                else:
                    count += self._take(place, row, asked_at)
        self._failures = self._failures + 1 if failed else 0
        if failed:
            self._pause()
        self._owner.fetched(self, wanted, count)

    def _refused(self, response: ShareFetchResponse) -> None:
        code = response.error_code
        if code in LOST_SESSION:
            self._session.is_broken = True
            return
        if code in REFUSES:
            self._owner.failed(server_error(code, f"fetch for group {self._owner.group_id}", response.error_message))
            return
        log.info("group %s: a fetch was refused with error %d", self._owner.group_id, code)
        self._session.is_broken = True  # its counter may not have moved
        self._failures += 1
        self._pause()

    def _pause(self) -> None:
        self._fetch_after = self._loop.time() + self._backoff.pause(max(self._failures, 1), random.random()) / 1000

    def _failed_row(self, place: Place, row: PartitionData) -> None:
        log.info("group %s: %s: error %d", self._owner.group_id, self._owner.name_of(place), row.error_code)
        if row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._owner.failed(server_error(row.error_code, f"fetch {self._owner.name_of(place)}", row.error_message))
        elif row.error_code in STALE:
            self._owner.leaders_changed()

    def _take(self, place: Place, row: PartitionData, asked_at: float) -> int:
        """Note what was acquired, and hand it on. Returns the number of records."""
        if not row.acquired_records:
            return 0
        now = self._loop.time()
        # The broker has locked the records after the request came and before the answer left.
        until = now + self.lock_s - min(now - asked_at, self.lock_s / 10)
        try:
            found, gaps = acquired_records(row, self._owner.name_of(place))
        except KafkaError as error:
            log.error("group %s: %s; the records are given back", self._owner.group_id, error)
            for span in row.acquired_records:
                self._session.add(Ack(place, span.first_offset, span.last_offset, RELEASE, _ignore))
            self._failures += 1
            self._pause()
            return 0
        for first, last in gaps:
            self._session.add(Ack(place, first, last, GAP, _ignore))
        for one in found:
            key = place, one.record.offset
            extension = self._owner.extension_of(now)
            self.held[key] = Held(self, place, one.record.offset, one.deliveries, until, extension)
        self._renew_at = min(self._renew_at, until - self.lock_s / 2)
        self._owner.acquired(self, place, found)
        return len(found)


def _ignore(_: int) -> None:
    pass
