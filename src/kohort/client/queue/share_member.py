"""A worker's place in a share group: its membership, and a share session with each broker that leads its partitions.

The group's coordinator assigns partitions; their leaders have the records. Leaders are looked up when the assignment
changes, when a broker refuses or disappears, and from time to time.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kohort.client.backoff import Backoff
from kohort.client.cluster import Cluster
from kohort.client.consumer.lookups import Lookups
from kohort.client.errors import KafkaError, server_error
from kohort.client.membership.coordinator_requests import Ended
from kohort.client.membership.driver import AsyncMember, clock_ms
from kohort.client.membership.share import Fetches, ShareMembership, ShareSettings
from kohort.client.queue.backlog import TopicTurns
from kohort.client.queue.broker_session import BrokerSession, Owner
from kohort.client.queue.options import Settings
from kohort.client.queue.share_session import Place
from kohort.client.wire.discovery import Address, Discovery

LOOK_AGAIN_S = 30.0
"""The longest time without a look at the leaders."""
GATHER_S = 0.02
"""Changes within this time of each other cost one look."""
LEAVE_S = 5.0
RETRY_BACKOFF_MS, RETRY_BACKOFF_MAX_MS = 100, 1_000

log = logging.getLogger("kohort.client")


class Member:
    """Belongs to the event loop in which it is made; it joins at once."""

    def __init__(self, owner: Owner, settings: Settings, discovery: Discovery, lookups: Lookups) -> None:
        options = settings.options
        self.member_id = str(uuid.uuid4())
        self._owner = owner
        self._weights = settings.weights
        self._discovery = discovery
        self._lookups = lookups
        self._request_timeout_ms = options["request_timeout_ms"]
        self._places: frozenset[Place] = frozenset()
        self._names: dict[bytes, str] = {}
        self._sessions: dict[Address, BrokerSession] = {}
        self._stale = asyncio.Event()
        self._ended = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()
        """Tasks that end sessions with brokers that lead no partition of this member any more."""
        share = ShareSettings(
            settings.group_id,
            self.member_id,
            tuple(settings.weights),
            options["rack"],
            request_timeout_ms=options["request_timeout_ms"],
        )
        self._membership = ShareMembership(share)
        self._driver = AsyncMember(
            self._membership,
            discovery,
            bootstrap_timeout_ms=options["bootstrap_timeout_ms"],
            on_event=self._happened,
            on_failure=owner.failed,
        )
        self._watch = asyncio.get_running_loop().create_task(self._follow_leaders())
        self._membership.join(clock_ms())
        self._driver.act()

    @property
    def sessions(self) -> list[BrokerSession]:
        """Sessions with the brokers that lead partitions of this member."""
        return [session for session in self._sessions.values() if session.places]

    @property
    def epoch(self) -> int:
        """Of the member; 0 while it has not joined."""
        return self._membership.epoch

    def name_of(self, place: Place) -> str:
        """The topic's name."""
        return self._names.get(place[0], place[0].hex())

    def changed(self) -> None:
        """There may be something to fetch or to send."""
        for session in self._sessions.values():
            session.changed()

    def leaders_changed(self) -> None:
        self._stale.set()

    async def close(self) -> None:
        """End the sessions, so that brokers give records back, and leave the group."""
        self._watch.cancel()
        await asyncio.wait((self._watch,))
        await asyncio.gather(*(session.close() for session in self._sessions.values()), *self._ending)
        self._membership.leave(clock_ms())
        self._driver.act()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._ended.wait()
        self._driver.close()

    # -- inside

    def _happened(self, event: Any) -> None:
        match event:
            case Fetches():
                self._places = event.partitions
                self._stale.set()
            case Ended():
                self._ended.set()
                if event.error:
                    self._owner.failed(server_error(event.error, f"membership in share group {self._owner.group_id}"))
            case _:
                what = server_error(event.error, f"share group {self._owner.group_id}")
                log.warning("%s; the member asks again", what)

    async def _follow_leaders(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self._stale.wait()
            await asyncio.sleep(GATHER_S)
            self._stale.clear()
            try:
                leaders = await self._lookups.run(self._leaders)
            except KafkaError as error:
                log.info("group %s: %s", self._owner.group_id, error)
                if not error.retriable:
                    self._owner.failed(error)
                    return
                self._stale.set()
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
                continue
            if None in leaders.values():
                self._stale.set()  # some have no leader now
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
            self._follow(leaders)

    def _leaders(self, cluster: Cluster) -> dict[Place, Address | None]:
        """In the thread of the lookups."""
        places = self._places
        if not places:
            return {}
        nodes = cluster.nodes()
        found: dict[Place, Address | None] = {}
        for name, topic in cluster.topics(self._weights).items():
            if topic.error or topic.topic_id is None:
                continue
            self._names[topic.topic_id] = name
            for partition in topic.partitions:
                place = topic.topic_id, partition.index
                if place in places:
                    node = nodes.get(partition.leader)
                    found[place] = None if node is None else (node.host, node.port)
        return found

    def _follow(self, leaders: Mapping[Place, Address | None]) -> None:
        by_address: dict[Address, list[Place]] = {}
        for place, address in sorted(leaders.items()):
            if address is not None:
                by_address.setdefault(address, []).append(place)
        for address, session in list(self._sessions.items()):
            session.places = tuple(by_address.get(address, ()))
            if not session.places and not session.held:
                del self._sessions[address]
                task = asyncio.get_running_loop().create_task(session.close())
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
        for address, places in by_address.items():
            if address not in self._sessions:
                self._sessions[address] = BrokerSession(
                    self._owner,
                    self._discovery,
                    address,
                    self.member_id,
                    TopicTurns(self._weights),
                    request_timeout_ms=self._request_timeout_ms,
                    backoff=Backoff(RETRY_BACKOFF_MS, RETRY_BACKOFF_MAX_MS),
                )
                self._sessions[address].places = tuple(places)
        self.changed()
