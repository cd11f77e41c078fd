"""`Gateway`: what a server needs to stand before another cluster.

Each broker of the upstream cluster has listeners of its own: those of the settings, moved by its slot. A slot is a
broker's for as long as the data directory lives, so a broker's port stays the same over restarts of the gateway and of
the cluster. The listeners of the settings themselves are for the first contact; their clients reach any broker.

Groups are coordinated behind the listener of one broker, the one with the lowest id, because all listeners belong to
the same coordinator. The others take requests of groups too, so a client that comes to the old place is served; only
lists of groups are empty there, because administrators ask all brokers and add up.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from kohort.broker.authorization import Principal
from kohort.broker.state import BrokerState
from kohort.broker.turn import Arrived, FollowedTopic, UpstreamSeen
from kohort.client.security.security import Security
from kohort.config import Address, ConfigError
from kohort.gateway.buffers import Buffers
from kohort.gateway.follower import REFRESH_S, Follower
from kohort.gateway.link import Link
from kohort.gateway.metadata import Beginning
from kohort.gateway.view import GONE_AFTER_S, AnotherCluster, View
from kohort.server import log
from kohort.server.connection import Connection
from kohort.server.connections import Connections
from kohort.server.http.health import Check
from kohort.server.listeners import ListenFailed
from kohort.server.security.tls_link import Inside
from kohort.server.server import Server
from kohort.server.turns import TurnLoop
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic

TARGET_S = 4.0
"""How long one of several brokers may take to be connected, before the next one is tried."""
BEATS = 3
"""Heartbeats in the shortest session."""
FIRST_CONTACT = 0
"""The place of the listeners of the settings. That of a broker's listeners is its slot + 1."""


class Gateway:
    """Made for one `Server`, as its front. Raises ValueError for an `upstream` that is no list of addresses."""

    def __init__(
        self,
        upstream: Sequence[tuple[str, int]],
        security: Security,
        *,
        ports: Sequence[int] = (),
        refresh_s: float = REFRESH_S,
        gone_after_s: float = GONE_AFTER_S,
    ) -> None:
        self.clients_authenticate = security.sasl is not None
        """The upstream cluster asks clients for a login, as it asks the gateway."""
        self._ports = list(ports)
        """By slot: the ports of the first of the settings' listeners. Other slots have those above that listener's."""
        self._bootstrap = list(upstream)
        self._security = security
        self._refresh_s = refresh_s
        self._gone_after_s = gone_after_s
        self.links: dict[Link, None] = {}
        self.listening: dict[int, dict[str, Address]] = {}
        """By slot: the addresses that clients get, by the name of the listener."""
        self._without_listener: dict[int, str] = {}
        """Slots that cannot listen, and why."""
        self._following: asyncio.Task[None] | None = None
        self._server: Server
        self._turns: TurnLoop
        self._connections: Connections
        self._view: View
        self._follower: Follower

    # -- of the server

    def attach(self, server: Server, state: BrokerState, connections: Connections, turns: TurnLoop) -> None:
        self._server = server
        self._turns = turns
        self._connections = connections
        self.log = connections.log
        self.max_bytes = server.config.socket_request_max_bytes
        self.user_claim = server.config.sasl_oauthbearer_sub_claim_name
        self.buffers = Buffers(connections)
        self.beat_s = server.config.group_min_session_timeout_ms / 1000 / BEATS
        followed = [
            FollowedTopic(topic.name, topic.topic_id, tuple(part.replicas for part in topic.partitions))
            for topic in state.catalog.topics.values()
            if topic.is_followed
        ]
        self._view = View(state.catalog.upstream, followed, gone_after_s=self._gone_after_s)
        self._follower = Follower(
            self._bootstrap, self._security, self._view, state, self._tell, self._listen, self._refresh_s
        )
        self._listen()
        self._following = asyncio.get_running_loop().create_task(self._follower.run())
        self._following.add_done_callback(self._over)

    def around(self, connection: Connection, place: int) -> Inside:
        return Link(self, connection, place)

    def checks(self) -> Sequence[Check]:
        text = f"the cluster {self._view.cluster.cluster_id}" if self._view.cluster is not None else "unknown"
        if self._follower.failure:
            since = time.monotonic() - self._follower.failing_since
            text = f"{text} has not answered for {since:.0f} s: {self._follower.failure}"
        checks = [Check("upstream", not self._follower.failure, text)]
        if self._follower.unfit:
            checks.append(Check("versions", False, self._follower.unfit))
        for slot, why in self._without_listener.items():
            checks.append(Check("listening", False, f"slot {slot}: {why}"))
        return checks

    def stop(self) -> None:
        for link in list(self.links):
            link.stop()

    def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
        for link in list(self.links):
            link.abort()
        if hasattr(self, "buffers"):
            self.buffers.close()

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._server.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    # -- the upstream cluster

    async def _tell(self, event: UpstreamSeen) -> None:
        await self._turns.control(event)

    def learn(self, metadata: MetadataResponse) -> None:
        self._learn(metadata.cluster_id, metadata.brokers, metadata.topics)

    def learn_beginning(self, beginning: Beginning) -> None:
        self._learn(beginning.cluster_id, beginning.brokers, ())
        self._follower.hurry()

    def _learn(
        self,
        cluster_id: str | None,
        brokers: Sequence[MetadataResponseBroker],
        topics: Sequence[MetadataResponseTopic],
    ) -> None:
        try:
            for event in self._view.learn(cluster_id, topics):
                self._turns.arrive(event)
        except AnotherCluster as error:
            raise ProtocolError(str(error)) from None
        if self._view.has_new_brokers(brokers):
            self._follower.hurry()

    def topics_changed(self) -> None:
        self._follower.hurry()

    def _listen(self) -> None:
        """Each broker of the cluster has its listeners, until it has left. Open connections stay."""
        now = self.clock()
        for broker in self._view.brokers.values():
            slot = broker.slot
            if self._view.has_left(broker.id, now):
                self._without_listener.pop(slot, None)
                if self.listening.pop(slot, None) is not None:
                    self._server.added.remove(slot + 1)
                    log.info("a broker has left", broker=broker.id)
                continue
            if slot in self.listening:
                continue
            try:
                port = self._ports[slot] if slot < len(self._ports) else None
                bound = self._server.added.add(slot + 1, port)
            except (ListenFailed, ConfigError) as error:
                if slot not in self._without_listener:
                    log.error("a broker has no listener", broker=broker.id, why=str(error))
                self._without_listener[slot] = str(error)
                continue
            self._without_listener.pop(slot, None)
            self.listening[slot] = {
                name: Address(self._server.advertised[name][0].host, address.port)
                for name, address in bound.items()
                if name in self._server.advertised
            }
            log.info(
                "a broker has a listener",
                broker=broker.id,
                upstream=f"{broker.host}:{broker.port}",
                listeners=", ".join(str(address) for address in self.listening[slot].values()),
            )

    # -- of links

    @property
    def is_known(self) -> bool:
        return self._view.cluster is not None

    def arrive(self, event: Arrived) -> None:
        self._turns.arrive(event)

    def address_of(self, broker: int, listener: str) -> Address | None:
        found = self._view.brokers.get(broker)
        return None if found is None else self.listening.get(found.slot, {}).get(listener)

    def coordinator(self) -> int:
        return self._view.coordinator

    def is_coordinator_at(self, place: int) -> bool:
        found = self._view.brokers.get(self._view.coordinator)
        return place == FIRST_CONTACT or (found is not None and found.slot + 1 == place)

    async def connect(self, place: int, protocol: Callable[[], asyncio.Protocol]) -> None:
        tls = self._security.tls
        context = None if tls is None else tls.context()
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        targets = self._targets(place)
        for host, port in targets:
            try:
                async with asyncio.timeout(TARGET_S if len(targets) > 1 else None):
                    await loop.create_connection(
                        protocol, host, port, ssl=context, server_hostname=None if tls is None else host
                    )
            except OSError as error:
                failure = error
            else:
                return
        raise failure or OSError("the broker is not known")

    def _targets(self, place: int) -> list[tuple[str, int]]:
        if place != FIRST_CONTACT:
            return [(b.host, b.port) for b in self._view.brokers.values() if b.slot + 1 == place]
        present = [(b.host, b.port) for b in self._view.brokers.values() if b.id in self._view.present]
        random.shuffle(present)
        return list(dict.fromkeys((*present, *self._bootstrap)))

    def own_of(self, own: Connection, user: str, software: tuple[str, str]) -> Connection:
        return Connection(self._connections, own.broker_id, own.listener, Principal(user), software)

    def clock(self) -> float:
        return time.monotonic()

    def opened(self, link: Link) -> None:
        self.links[link] = None

    def closed(self, link: Link) -> None:
        self.links.pop(link, None)
        self.buffers.forget(link)
