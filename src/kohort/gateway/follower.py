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
from kohort.client.errors import KafkaError, Unreachable, check
from kohort.client.security.security import Security
from kohort.client.wire.async_connection import AsyncConnection
from kohort.gateway.versions import told
from kohort.gateway.view import AnotherCluster, View, has_address
from kohort.server import log
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kohort.wire.schemas.metadata import MetadataRequest, MetadataResponse

REFRESH_S = 5.0
TIMEOUT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
LEAST_PAUSE_S = 0.1
"""Clients make the next round begin earlier: by creating topics, and by asking for metadata with new brokers. Between
two rounds there is this pause, or one as long as the last round, so they cannot keep the gateway busy with rounds."""
ENDS_S = 3.0
"""How long one broker's ends of logs are waited for. Its partitions keep the ends of the last time."""
LATEST = -1
ANY = 1
"""In a filter of ACLs."""
CLIENT_ID = "kohort-gateway"
ENDS_AN_EVENT = 5_000


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
        self._soon = asyncio.Event()
        self.failure = "it has not been seen yet"
        """Why the last round failed; "" if it succeeded."""
        self.failing_since = time.monotonic()
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
                    if self.failure:
                        log.info("the upstream cluster answers", brokers=len(self._view.present))
                    self.failure, pause_s, self._has_seen = "", FIRST_PAUSE_S, True
                    self._seen()
                    await asyncio.sleep(min(max(LEAST_PAUSE_S, time.monotonic() - began), self._refresh_s))
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
        asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata = await connection.ask(asked, MetadataResponse)
        known = {(broker.host, broker.port) for broker in metadata.brokers if has_address(broker)}
        for address in self._versions.keys() - known - {_address(connection)}:
            del self._versions[address]
            if (left := self._connections.pop(address, None)) is not None:
                left.close()
        # A broker that has closed its connection may come back with other versions. They are asked side by side:
        # several may have gone, and Metadata does not know yet.
        await asyncio.gather(*(self._read_versions(address) for address in known if not self._is_connected(address)))
        apis = told(self._versions.values(), consumer_groups=self._state.serves_consumer_groups)
        self._untold.extend(self._view.see(metadata, apis, time.monotonic()))
        await self.tell_all()
        await self._read_acls(connection)
        await self._read_ends()

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
        brokers = self._view.brokers
        asking = [
            self._ends_of((brokers[leader].host, brokers[leader].port), partitions)
            for leader, partitions in self._view.leaders_of(sorted(names)).items()
            if leader in brokers
        ]
        found = [end for ends in await asyncio.gather(*asking) for end in ends]
        for first in range(0, len(found), ENDS_AN_EVENT):
            await self._tell(UpstreamSeen(ends=tuple(found[first : first + ENDS_AN_EVENT])))

    async def _ends_of(
        self, address: tuple[str, int], partitions: list[tuple[str, int]]
    ) -> list[tuple[bytes, int, int]]:
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for name, index in partitions:
            row = ListOffsetsPartition(partition_index=index, timestamp=LATEST)
            by_topic.setdefault(name, []).append(row)
        topics = tuple(ListOffsetsTopic(name=name, partitions=tuple(rows)) for name, rows in by_topic.items())
        try:
            async with asyncio.timeout(ENDS_S):
                connection = await self._to(address)
                answer = await connection.ask(ListOffsetsRequest(replica_id=-1, topics=topics), ListOffsetsResponse)
        except KafkaError:
            return []  # the leader is away; Metadata will name another one
        except TimeoutError:
            if (stalled := self._connections.pop(address, None)) is not None:
                stalled.close()
            return []
        ids = {name: topic.topic_id for name, topic in self._view.topics.items() if name in by_topic}
        return [
            (ids[topic.name], row.partition_index, row.offset)
            for topic in answer.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE and row.offset >= 0 and topic.name in ids
        ]


def _address(connection: AsyncConnection) -> tuple[str, int]:
    host, _, port = connection.address.rpartition(":")
    return host.strip("[]"), int(port)
