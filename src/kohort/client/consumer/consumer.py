"""A consumer in a group, for asyncio: it is assigned partitions, reads them and commits.

    class Billing(GroupConsumer):
        async def on_assigned(self, partitions): ...       # begin to work on these
        async def on_revoked(self, partitions): ...        # end the work on these and commit; then they are given up
        def on_lost(self, partitions): ...                 # others may have these already

    async with Billing("localhost:9092", "billing") as consumer:
        consumer.subscribe(["orders"])
        while True:
            for fetched in await consumer.fetch(positions): ...
            await consumer.commit({("orders", 0): 42})

It shares its group with the consumers of other clients, speaks both protocols, and works with every Kafka cluster.
kohort also refuses fetches of partitions that the member does not own (docs/wire-extensions.md).

What runs where. `on_assigned` and `on_revoked` run in a task of the consumer's own, one at a time; heartbeats go on
meanwhile. `on_lost` is a plain function. It runs at once, also while another callback runs, so it must return quickly.
A callback that raises ends the consumer: it leaves the group, and the next call raises that exception. The exception is
NotOwned, if the partitions of the callback were lost while it ran. The consumer belongs to the event loop in which it
was entered; the properties may be read in any thread.

The member owns a partition, for fetches and commits, from before `on_assigned` until `on_revoked` has returned. No
other member is assigned it in that time, unless it is lost: the session ended, or `on_revoked` took longer than the
rebalance timeout. Commits for lost partitions are refused.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, Unpack

from kohort.client.admin.groups import Committed
from kohort.client.concurrency.loop_thread import entered_loop
from kohort.client.connection_options import cluster_of, discovery_of
from kohort.client.consumer.lookups import Lookups
from kohort.client.consumer.options import ConsumerOptions, checked, wanted
from kohort.client.consumer.ownership import Partitions
from kohort.client.consumer.session import ConsumerSession
from kohort.client.errors import Closed, Misuse, NotOwned, server_error
from kohort.client.membership.driver import clock_ms
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import FetchedPartition, GroupMember, Isolation
from kohort.wire.errors import ErrorCode

SOON = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
"""Errors after which the same commit is accepted in the next generation or epoch, if the member still owns the
partitions. A cooperative member keeps partitions, but may not know the group's current generation yet."""
FENCED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""A commit or fetch is refused so for partitions that the member does not own."""


class GroupConsumer:
    """One member of a group of consumers. See the module's text, and `ConsumerOptions` for the settings.

    Raises ValueError for settings that cannot be. It joins when it is entered and subscribed.
    """

    _loop: asyncio.AbstractEventLoop | None = None
    _task: asyncio.Task[None]

    def __init__(
        self, bootstrap_servers: str | Sequence[str], group_id: str, **options: Unpack[ConsumerOptions]
    ) -> None:
        self._options = checked(group_id, options)
        self._group_id = group_id
        discovery = discovery_of(bootstrap_servers, self._options)
        self._lookups = Lookups(f"kohort-ask-{group_id}", cluster_of(bootstrap_servers, self._options))
        self._fetches = Lookups(f"kohort-fetch-{group_id}", cluster_of(bootstrap_servers, self._options))
        self._session = ConsumerSession(group_id, self._options, discovery, self._lookups, self, self._release)

    # -- to be overridden

    def on_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """The member has got these partitions, in addition to those that it owns."""
        return None

    def on_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """End the work on these, and commit: when this returns they are given up. Also called by `close`."""
        return None

    def on_lost(self, partitions: Partitions) -> None:
        """The member no longer owns these partitions; a commit would be refused. It rejoins without a call."""

    # -- what is known; from any thread

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def protocol(self) -> str | None:
        """ "classic" or "consumer"; None before it is known."""
        return self._session.protocol

    @property
    def member_id(self) -> str:
        """Empty before the group has given it."""
        ownership = self._session.ownership
        return "" if ownership is None else ownership.committer().member_id

    @property
    def epoch(self) -> int:
        """The member's epoch (KIP-848), or the group's generation, as commits send it now."""
        return self._session.epoch

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        """The partitions that this member owns now, each with the epoch (or generation) in which it was assigned."""
        return MappingProxyType(dict(self._session.owned))

    @property
    def lease_left_ms(self) -> int:
        """For how long no other member can own what this member owns, by the clock; 0 where another may.

        If the coordinator cannot be reached, it may have removed this member. The member goes on until it learns so;
        its commits are refused then. An application that must stop earlier checks this.
        """
        ownership = self._session.ownership
        return 0 if ownership is None else ownership.lease_left(clock_ms())

    @property
    def reader(self) -> GroupMember | None:
        """The member to name in fetches, so that kohort can fence it; None with the classic protocol."""
        ownership = self._session.ownership
        return None if ownership is None else ownership.reader()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended this consumer; every later call raises it."""
        return self._session.failure

    # -- what is done; in the loop

    def subscribe(self, topics: str | Iterable[str] = (), *, pattern: str | None = None) -> None:
        """Consume these topics, or all topics whose whole name matches a pattern. It may change; topics need not
        exist yet.

        A pattern is RE2 on the server (KIP-848), and Python's `re` with the classic protocol. Raises ValueError.
        """
        self._enter("subscribe")
        self._session.subscribe(wanted(topics, pattern))

    async def commit(self, offsets: Mapping[TopicPartition, int | Committed]) -> None:
        """Commit the positions of the next records, as this member. Waits while the group is between generations.

        Raises NotOwned for partitions that the member knows it does not own (then it commits nothing) or that the
        coordinator refuses. Raises KafkaError; Closed; the exception that ended the consumer.
        """
        self._enter("commit", in_callback=True)
        attempts, offsets = 0, dict(offsets)
        since = self.owned
        while offsets:
            await self._check_owned("commit", offsets, since)  # other members may have committed later ones
            refused = await self._commit_once(offsets)
            hopeless = {place: code for place, code in refused.items() if code not in SOON}
            if hopeless:
                (topic, index), code = next(iter(hopeless.items()))
                what = f"commit {topic}-{index} for group {self._group_id}"
                raise NotOwned(code, server_error(code, what).message) if code in FENCED else server_error(code, what)
            offsets = {place: offsets[place] for place in refused}
            if offsets:
                attempts += 1
                await asyncio.sleep(self._session.backoff.pause(attempts, random.random()) / 1000)

    async def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Committed]:
        """The group's committed offsets, by default of the partitions that this member owns. Partitions without one
        are left out."""
        self._enter("committed", in_callback=True)
        places = list(self.owned if partitions is None else partitions)
        return await self._lookups.run(lambda cluster: cluster.committed(self._group_id, places))

    async def offsets(
        self, partitions: Iterable[TopicPartition], at: Any = "latest", *, isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """As `Cluster.offsets`: "earliest", "latest" or a time."""
        self._enter("offsets", in_callback=True)
        places = list(partitions)
        return await self._lookups.run(lambda cluster: cluster.offsets(places, at, isolation=isolation))

    async def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 52_428_800,
        partition_max_bytes: int = 1_048_576,
        isolation: Isolation = "read_uncommitted",
    ) -> list[FetchedPartition]:
        """Fetch from a position of each partition, which must be owned (else NotOwned); as `Cluster.fetch`.

        Records of partitions that this member has lost meanwhile are left out. One call at a time.
        """
        self._enter("fetch", in_callback=True)
        positions = dict(positions)
        since = self.owned
        await self._check_owned("fetch", positions, since)
        reader = self.reader
        fetched = await self._fetches.run(
            lambda cluster: cluster.fetch(
                positions,
                max_wait_ms=max_wait_ms,
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
                isolation=isolation,
                as_member=reader,
            )
        )
        owned = self.owned
        return [
            one
            for one in fetched
            if one.error not in FENCED
            and (one.topic, one.partition) in owned
            and owned[one.topic, one.partition] == since[one.topic, one.partition]
        ]

    async def close(self, *, leave: bool | None = None) -> None:
        """Give up what is owned (`on_revoked`) and leave the group. Closing twice does nothing.

        `leave` None: a static member keeps its place, to come back within its session. Raises what `on_revoked` raised,
        after it has left; Misuse inside a callback.
        """
        session = self._session
        if self._loop is None:
            session.closed = True
            return
        if session.closed and self._task.done():
            return
        self._enter("close", closing=True)
        session.close(leave)
        failure = session.failure
        await asyncio.wait([self._task])
        if session.failure is not None and session.failure is not failure:
            raise session.failure

    async def abandon(self) -> None:
        """Leave the group at once, without `on_revoked`: for a process that is about to end. A static member stays."""
        await self._session.abandon()

    async def __aenter__(self) -> Self:
        self._enter("async with")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- inside

    def _enter(self, call: str, *, closing: bool = False, in_callback: bool = False) -> None:
        """Checks that every call begins with."""
        loop = entered_loop(call, self._loop, "consumer")
        session = self._session
        if session.failure is not None and not closing:
            raise session.failure
        if session.closed and not closing and not (in_callback and session.callback_task is not None):
            raise Closed(f"{call}: the consumer of group {self._group_id} is closed")
        if self._loop is None:
            self._loop = loop
            self._task = loop.create_task(session.run())
        if closing and session.callback_task is asyncio.current_task():
            raise Misuse(f"{call} was called inside a callback of the same consumer")

    async def _check_owned(
        self, call: str, partitions: Iterable[TopicPartition], since: Mapping[TopicPartition, int]
    ) -> None:
        """Whether they are owned, and have been ever since. Raises NotOwned."""
        owned = self.owned
        foreign = sorted(place for place in partitions if place not in owned or owned[place] != since.get(place))
        if foreign:
            await asyncio.sleep(0)  # a program that just tries again must not stop the loop
            names = ", ".join(f"{topic}-{index}" for topic, index in foreign)
            raise NotOwned(None, f"{call}: not this member's in group {self._group_id}: {names}")

    async def _commit_once(self, offsets: Mapping[TopicPartition, int | Committed]) -> dict[TopicPartition, ErrorCode]:
        """The refused partitions, with the reasons."""
        ownership = self._session.ownership
        assert ownership is not None
        committer = ownership.committer()
        refused = await self._lookups.run(lambda cluster: cluster.commit_as(self._group_id, offsets, committer))
        for code in refused.values():
            ownership.commit_answered(code, committer, clock_ms())
        self._session.act()
        return refused

    def _release(self) -> None:
        """Close what is left when the session has ended."""
        self._lookups.close()
        self._fetches.close()
