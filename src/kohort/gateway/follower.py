"""Reads the upstream cluster's metadata, and the ends of the logs that groups read, again and again.

It has a connection to each broker, with the credentials of the gateway. Each round asks one
broker for all topics; what has changed becomes events of the broker (view.py). The APIs that clients are told of are
those of all brokers that have been asked.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from kohort.broker.security.acls import Acl
from kohort.broker.state import BrokerState
from kohort.broker.turn import UpstreamSeen
from kohort.client.errors import BadAnswer, KafkaError, Unreachable, check
from kohort.client.security.security import Security
from kohort.client.wire.async_connection import AsyncConnection
from kohort.gateway.metadata import LENGTH, beginning_of, topics_of
from kohort.gateway.versions import lacking, told
from kohort.gateway.view import AnotherCluster, View, has_address
from kohort.server import log
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.schemas.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kohort.wire.schemas.metadata import MetadataRequest

REFRESH_S = 5.0
TIMEOUT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
LEAST_PAUSE_S = 0.1
"""Clients make the next round begin earlier: by creating topics, and by asking for metadata with new brokers. Between
two rounds there is this pause, or one of PAUSES times the last round, so they cannot keep the gateway busy."""
PAUSES = 5
ENDS_S = 3.0
"""How long one broker's ends of logs are waited for. The partitions that are missing keep the ends of the last time."""
LATEST = -1
ANY = 1
"""In a filter of ACLs."""
CLIENT_ID = "kohort-gateway"
ENDS_AT_ONCE = 1_000
"""Partitions of one request for ends of logs: some milliseconds."""


class Follower:
    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        security: Security,
        view: View,
        state: BrokerState,
        tell: Callable[[UpstreamSeen], Awaitable[None]],
        seen: Callable[[], None],
        refresh_s: float = REFRESH_S,
    ) -> None:
        """`tell` lets the broker take over an event; `seen` is called after each round that succeeds."""
        self._bootstrap = list(bootstrap)
        self._security = security
        self._view = view
        self._state = state
        self._tell = tell
        self._seen = seen
        self._refresh_s = refresh_s
        self._connections: dict[tuple[str, int], AsyncConnection] = {}
        self._versions: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
        self._untold: deque[UpstreamSeen] = deque()
        """Events that the broker has not taken over yet. To take one over twice changes nothing."""
        self._acls: tuple[Acl, ...] | None = None
        self._last = (-1, b"")
        """Of the last answer about all topics: the version, and the bytes from its topics on."""
        self._names: frozenset[str] = frozenset()
        """The names of its topics."""
        self._ends_at = 0.0
        """When the ends of logs are due, in the time of time.monotonic."""
        self._soon = asyncio.Event()
        self.failure = "it has not been seen yet"
        """Why the last round failed; "" if it succeeded."""
        self.failing_since = time.monotonic()
        self.unfit = ""
        """Why clients cannot use the cluster although it answers; "" if they can."""
        self._has_seen = False

    def hurry(self) -> None:
        """Begin the next round soon."""
        self._soon.set()

    async def run(self) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            while True:
                self._soon.clear()
                began = time.monotonic()
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        await self._round()
                except AnotherCluster as error:
                    self._failed(str(error))
                    return  # no more rounds: the data are those of the other cluster
                except (KafkaError, OSError) as error:  # TimeoutError among them
                    self._failed(str(error) or f"no answer in {TIMEOUT_S:.0f} s")
                    self._close()
                    await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))
                    pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                else:
                    self._seen()
                    if self.failure:
                        log.info("the upstream cluster answers", brokers=len(self._view.present))
                    self.failure, pause_s, self._has_seen = "", FIRST_PAUSE_S, True
                    await asyncio.sleep(min(max(LEAST_PAUSE_S, PAUSES * (time.monotonic() - began)), self._refresh_s))
                    await self._sleep(self._refresh_s)
        finally:
            self._close()

    async def _sleep(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._soon.wait()

    def _failed(self, why: str) -> None:
        if not self.failure or self.failure == "it has not been seen yet":
            self.failing_since = time.monotonic()
            log.warning("the upstream cluster does not answer; groups go on", why=why)
        self.failure = why

    def _close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- a round

    async def _round(self) -> None:
        connection = await self._any()
        version, frame = await connection.ask_frame(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        frame = LENGTH.pack(len(frame)) + frame
        try:
            beginning = beginning_of(frame, version)
        except ProtocolError as error:
            raise BadAnswer(connection.address, str(error)) from None
        known = {(broker.host, broker.port) for broker in beginning.brokers if has_address(broker)}
        for address in self._versions.keys() - known - {_address(connection)}:
            del self._versions[address]
            if (left := self._connections.pop(address, None)) is not None:
                left.close()
        # A broker that has closed its connection may come back with other versions. They are asked side by side:
        # several may have gone, and Metadata does not know yet.
        await asyncio.gather(*(self._read_versions(address) for address in known if not self._is_connected(address)))
        apis = told(self._versions.values(), consumer_groups=self._state.serves_consumer_groups)
        unfit = lacking(self._versions.values())
        if unfit and unfit != self.unfit:
            log.error("clients cannot use the upstream cluster", why=unfit)
        self.unfit = unfit
        found = self._view.see_cluster(beginning.cluster_id or "", beginning.brokers, apis, time.monotonic())
        self._untold.extend(found)
        await self._read_topics(connection, version, frame, beginning.topics)
        self._untold.extend(self._view.see_end(self._names, time.monotonic()))
        await self.tell_all()
        await self._read_acls(connection)
        if time.monotonic() >= self._ends_at:
            self._ends_at = time.monotonic() + 0.9 * self._refresh_s
            await self._read_ends()

    async def _read_topics(self, connection: AsyncConnection, version: int, frame: bytes, position: int) -> None:
        """In steps. Most answers equal the last one."""
        last = version, frame[position:]
        if last == self._last:
            return
        self._last = -1, b""
        names: set[str] = set()
        try:
            for topics in topics_of(frame, version, position):
                names.update(topic.name for topic in topics if topic.name)
                self._untold.extend(self._view.see_topics(topics))
                await self.tell_all()
                await asyncio.sleep(0)
        except ProtocolError as error:
            raise BadAnswer(connection.address, str(error)) from None
        self._last, self._names = last, frozenset(names)

    def _is_connected(self, address: tuple[str, int]) -> bool:
        connection = self._connections.get(address)
        return connection is not None and not connection.closed

    async def _read_versions(self, address: tuple[str, int]) -> None:
        with suppress(KafkaError):
            await self._to(address)

    async def tell_all(self) -> None:
        """Also what an interrupted round has left."""
        while self._untold:
            await self._tell(self._untold[0])
            self._untold.popleft()

    async def _any(self) -> AsyncConnection:
        """A connection to one of the known brokers, or else to a bootstrap server; at the start, the other way round:
        the brokers of an earlier process may be those of another cluster."""
        for address, connection in list(self._connections.items()):
            if not connection.closed:
                return connection
            del self._connections[address]
        known = [(broker.host, broker.port) for broker in self._view.brokers.values()]
        random.shuffle(known)
        failures = []
        addresses = (*known, *self._bootstrap) if self._has_seen else (*self._bootstrap, *known)
        for address in dict.fromkeys(addresses):
            try:
                return await self._to(address)
            except KafkaError as error:
                failures.append(error.message)
        raise Unreachable("cannot reach the upstream cluster", "; ".join(failures))

    async def _to(self, address: tuple[str, int]) -> AsyncConnection:
        if not self._is_connected(address):
            timeout_ms = round(TIMEOUT_S * 1000 / 3)
            connection = await AsyncConnection.open(
                *address, client_id=CLIENT_ID, connect_timeout_ms=timeout_ms, security=self._security
            )
            self._connections[address] = connection
            found = connection.exchange.api_versions
            self._versions[address] = {key: (one.first, one.last) for key, one in found.items()}
        return self._connections[address]

    # -- ACLs

    async def _read_acls(self, connection: AsyncConnection) -> None:
        """If the settings name an authorizer: the coordinator decides by the cluster's ACLs. Raises ServerError if the
        gateway may not read them; then those of the last time stay."""
        if self._state.acl_authorizer is None:
            return
        every = DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        answer = await connection.ask(every, DescribeAclsResponse)
        if answer.error_code != ErrorCode.SECURITY_DISABLED:
            check(answer.error_code, "cannot read the ACLs of the upstream cluster", answer.error_message)
        acls = tuple(
            Acl(of.resource_type, of.resource_name, of.pattern_type, acl.principal, acl.host, acl.operation,
                acl.permission_type)
            for of in answer.resources
            for acl in of.acls
        )  # fmt: skip
        if acls != self._acls:
            await self._tell(UpstreamSeen(acls=acls))
            self._acls = acls

    # -- ends of logs

    async def _read_ends(self) -> None:
        """Of the topics that groups have committed offsets of."""
        names = {name for shard in self._state.shards for name in shard.hard.topics}
        by_leader: dict[int, list[tuple[str, int]]] = {}
        for number, (leader, name, index) in enumerate(self._view.leaders_of(sorted(names)), 1):
            by_leader.setdefault(leader, []).append((name, index))
            if not number % (2 * ENDS_AT_ONCE):
                await asyncio.sleep(0)
        brokers = self._view.brokers
        asking = [
            self._ends_of((brokers[leader].host, brokers[leader].port), partitions)
            for leader, partitions in by_leader.items()
            if leader in brokers
        ]
        await asyncio.gather(*asking)

    async def _ends_of(self, address: tuple[str, int], partitions: list[tuple[str, int]]) -> None:
        """In several requests, if there are many."""
        try:
            async with asyncio.timeout(ENDS_S):
                connection = await self._to(address)
                for first in range(0, len(partitions), ENDS_AT_ONCE):
                    await self._ask_ends(connection, partitions[first : first + ENDS_AT_ONCE])
        except KafkaError:
            return  # the leader is away; Metadata will name another one
        except TimeoutError:
            if (stalled := self._connections.pop(address, None)) is not None:
                stalled.close()

    async def _ask_ends(self, connection: AsyncConnection, partitions: list[tuple[str, int]]) -> None:
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for name, index in partitions:
            row = ListOffsetsPartition(partition_index=index, timestamp=LATEST)
            by_topic.setdefault(name, []).append(row)
        topics = tuple(ListOffsetsTopic(name=name, partitions=tuple(rows)) for name, rows in by_topic.items())
        answer = await connection.ask(ListOffsetsRequest(replica_id=-1, topics=topics), ListOffsetsResponse)
        ids = {name: topic.topic_id for name in by_topic if (topic := self._view.topics.get(name)) is not None}
        ends = [
            (ids[topic.name], row.partition_index, row.offset)
            for topic in answer.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE and row.offset >= 0 and topic.name in ids
        ]
        if ends:
            await self._tell(UpstreamSeen(ends=tuple(ends)))


def _address(connection: AsyncConnection) -> tuple[str, int]:
    host, _, port = connection.address.rpartition(":")
    return host.strip("[]"), int(port)
