"""A consumer in a group, for asyncio: it is told which partitions are its own, reads them and commits.

    class Billing(GroupConsumer):
        async def on_assigned(self, partitions): ...       # begin with these
        async def on_revoked(self, partitions): ...        # end with these, and commit: they are given up after this
        def on_lost(self, partitions): ...                 # others may have these already

    async with Billing("localhost:9092", "billing") as consumer:
        consumer.subscribe(["orders"])
        while True:
            for fetched in await consumer.fetch(positions): ...
            await consumer.commit({("orders", 0): 42})

It shares its group with the consumers of other clients, speaks both protocols, and works with every Kafka cluster; what
kohort has besides is that a fetch is refused for what is not this member's (docs/wire-extensions.md).

What runs where. `on_assigned` and `on_revoked` run in a task of the consumer's own, one at a time, whatever the program
does meanwhile; heartbeats go on while they wait. `on_lost` is a plain function and runs at once, also while one of
the others does: it must only tell. A callback that raises ends the consumer: it leaves the group, and the next call
raises that exception; but not NotOwned, where what the callback was told of has been lost meanwhile. Everything belongs
to the event loop in which the consumer was entered; the properties may be read in any thread.

A partition is this member's own, for fetches and commits, from before `on_assigned` until `on_revoked` has returned. No
other member is told of it before that, unless it is lost: the session ended, or `on_revoked` took longer than the
rebalance timeout. Its commits are refused then.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar, Unpack

from kohort.client.admin.groups import Committed
from kohort.client.backoff import Backoff
from kohort.client.cluster import Cluster, Isolation
from kohort.client.concurrency.callback import limited
from kohort.client.concurrency.worker_thread import WorkerThread
from kohort.client.consumer import lookups as questions
from kohort.client.consumer.options import ConsumerOptions, checked, classic_tenure, consumer_tenure, wanted
from kohort.client.consumer.ownership import Divide, GiveUp, Name, Over, Partitions, Step, Take, Tenure, Wait, Wanted
from kohort.client.errors import Closed, KafkaError, Misuse, NotOwned, server_error
from kohort.client.membership.driver import AsyncMember, clock_ms
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import FetchedPartition, GroupMember
from kohort.client.security.security import Security
from kohort.client.wire.discovery import Discovery
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

T = TypeVar("T")

LEAVE_MS = 5_000
"""Who leaves waits this long for the answer."""

REFUSED_UPGRADE = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND})
"""What a cluster answers that has KIP-848's API and not the protocol; and a classic group that is to stay one."""
SOON = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})
"""A commit is taken with the next generation, or epoch."""
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
"""Answers that say: not yours."""

log = logging.getLogger("kohort.client")


class GroupConsumer:
    """One member of a group of consumers. See the module's text, and `ConsumerOptions` for the settings.

    Raises ValueError for settings that cannot be. It joins when it is entered and subscribed.
    """

    _loop: asyncio.AbstractEventLoop | None = None
    _pump: asyncio.Task[None]
    _news: asyncio.Event
    _closed = False
    _failure: BaseException | None = None
    _busy: asyncio.Task[Any] | None = None

    def __init__(
        self, bootstrap_servers: str | Sequence[str], group_id: str, **options: Unpack[ConsumerOptions]
    ) -> None:
        self._options = checked(group_id, options)
        self._group_id = group_id
        self._servers = bootstrap_servers
        self._discovery = Discovery(
            bootstrap_servers,
            client_id=self._options["client_id"],
            connect_timeout_ms=self._options["connect_timeout_ms"],
            request_timeout_ms=self._options["request_timeout_ms"],
            security=Security.of(self._options["security"]),
        )
        self._asked, self._fetched = self._cluster(), self._cluster()
        self._asking = WorkerThread(f"kohort-ask-{group_id}", self._asked.close)
        self._fetching = WorkerThread(f"kohort-fetch-{group_id}", self._fetched.close)
        self._backoff = Backoff(self._options["retry_backoff_ms"], self._options["retry_backoff_max_ms"])
        self._wanted: Wanted | None = None
        self._tenure: Tenure | None = None
        self._member: AsyncMember | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._refused: Exception | None = None
        self._leave: bool | None = None

    # -- to be overridden

    def on_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """These are this member's own, besides what it has."""
        return None

    def on_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """End the work on these, and commit: when this returns they are given up. Also called by `close`."""
        return None

    def on_lost(self, partitions: Partitions) -> None:
        """These are not this member's own any more; a commit would be refused. It joins again by itself."""
        return

    # -- what is known; from any thread

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def protocol(self) -> str | None:
        """ "classic" or "consumer"; None before it is known."""
        tenure = self._tenure
        return None if tenure is None else ("classic" if tenure.reader() is None else "consumer")

    @property
    def member_id(self) -> str:
        """Empty before the group has given it."""
        return "" if self._tenure is None else self._tenure.committer().member_id

    @property
    def epoch(self) -> int:
        """The member's epoch (KIP-848), or the group's generation: what a commit says now."""
        return -1 if self._tenure is None else self._tenure.committer().generation_id_or_epoch

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        """What is this member's own now, each partition with the epoch (or generation) in which it came."""
        return MappingProxyType(dict(self._tenure.owned) if self._tenure is not None else {})

    @property
    def lease_left_ms(self) -> int:
        """For how long nobody else can have what this member owns, by the clock; 0 where others may have it.

        A coordinator that cannot be reached may have removed this member, which goes on with what it has until it is
        told (its commits are refused then): who must not do so asks this.
        """
        return 0 if self._tenure is None else self._tenure.lease_left(clock_ms())

    @property
    def reader(self) -> GroupMember | None:
        """In whose name to fetch, so that kohort refuses what is not this member's; None with the classic protocol."""
        return None if self._tenure is None else self._tenure.reader()

    @property
    def failure(self) -> BaseException | None:
        """What has ended this consumer, which every call raises from then on."""
        return self._failure

    # -- what is done; in the loop

    def subscribe(self, topics: str | Iterable[str] = (), *, pattern: str | None = None) -> None:
        """What to consume: topics, or those whose whole name matches. It may change; topics need not exist yet.

        A pattern is RE2 on the server (KIP-848), and Python's `re` with the classic protocol. Raises ValueError.
        """
        self._enter("subscribe")
        self._wanted = wanted(topics, pattern)
        self._news.set()

    async def commit(self, offsets: Mapping[TopicPartition, int | Committed]) -> None:
        """Commit the positions of the next records, as this member. Waits while the group is between generations.

        Raises NotOwned where a partition is not this member's: by what is known, and nothing is committed then; or by
        the coordinator's answer. Raises KafkaError; Closed; what has ended the consumer.
        """
        self._enter("commit", in_callback=True)
        attempts, offsets = 0, dict(offsets)
        since = self.owned
        while offsets:
            await self._check_owned("commit", offsets, since)  # what came back meanwhile may stand further on
            assert self._tenure is not None
            committer = self._tenure.committer()
            refused = await self._ask(questions.commit, self._group_id, offsets, committer)
            for code in refused.values():
                self._tenure.commit_answered(code, committer, clock_ms())
            self._act()
            hopeless = {place: code for place, code in refused.items() if code not in SOON}
            if hopeless:
                (topic, index), code = next(iter(hopeless.items()))
                what = f"commit {topic}-{index} for group {self._group_id}"
                raise NotOwned(code, server_error(code, what).message) if code in FENCED else server_error(code, what)
            offsets = {place: offsets[place] for place in refused}
            if offsets:
                attempts += 1
                await asyncio.sleep(self._backoff.pause(attempts, random.random()) / 1000)

    async def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Committed]:
        """The group's committed offsets, of what this member owns where nothing is said. Those without are left out."""
        self._enter("committed", in_callback=True)
        places = list(self.owned if partitions is None else partitions)
        return await self._ask(questions.committed, self._group_id, places)

    async def offsets(
        self, partitions: Iterable[TopicPartition], at: Any = "latest", *, isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """As `Cluster.offsets`: "earliest", "latest" or a time."""
        self._enter("offsets", in_callback=True)
        return await self._ask(questions.offsets, list(partitions), at, isolation)

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

        What is not this member's any more when the answer comes is left out. One call at a time.
        """
        self._enter("fetch", in_callback=True)
        since = self.owned
        await self._check_owned("fetch", positions, since)
        limits = {"max_wait_ms": max_wait_ms, "max_bytes": max_bytes, "partition_max_bytes": partition_max_bytes}
        fetched = await self._fetching.run(
            questions.fetch, self._fetched, dict(positions), limits, isolation, self.reader
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
        if self._loop is None:
            self._closed = True
            return
        if self._closed and self._pump.done():
            return
        self._enter("close", closing=True)
        self._closed, self._leave = True, leave
        self._news.set()
        already = self._failure
        await asyncio.wait([self._pump])
        if self._failure is not None and self._failure is not already:
            raise self._failure

    async def abandon(self) -> None:
        """Leave the group at once, without `on_revoked`: for a process that is about to end. A static member stays."""
        self._closed = True
        if self._tenure is not None and self._member is not None:
            self._tenure.leave(clock_ms(), static_too=False)
            self._member.act()
            async with asyncio.timeout(LEAVE_MS / 1000):
                while not isinstance(self._tenure.step(clock_ms()), Over):
                    await self._changed()
            self._member.close()

    async def __aenter__(self) -> Self:
        self._enter("async with")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- inside: calls

    def _enter(self, call: str, *, closing: bool = False, in_callback: bool = False) -> None:
        """Checks that every call begins with."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise Misuse(f"{call}: no event loop runs in this thread") from None
        if self._failure is not None and not closing:
            raise self._failure
        if self._closed and not closing and not (in_callback and self._busy is not None):
            raise Closed(f"{call}: the consumer of group {self._group_id} is closed")
        if self._loop is None:
            self._loop = loop
            self._news = asyncio.Event()
            self._pump = loop.create_task(self._run())
        if loop is not self._loop:
            raise Misuse(f"{call}: this consumer belongs to another event loop, the one in which it was first used")
        if closing and self._busy is asyncio.current_task():
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

    async def _ask(self, question: Callable[..., T], *args: Any) -> T:
        return await self._asking.run(question, self._asked, *args)

    def _cluster(self) -> Cluster:
        options = self._options
        return Cluster(
            self._servers,
            options["client_id"],
            request_timeout_ms=options["request_timeout_ms"],
            api_timeout_ms=options["api_timeout_ms"],
            bootstrap_timeout_ms=options["bootstrap_timeout_ms"],
            connect_timeout_ms=options["connect_timeout_ms"],
            security=options["security"],
        )

    # -- inside: the pump

    async def _run(self) -> None:
        try:
            while self._wanted is None and not self._closed:
                await self._changed()
            if not self._closed:
                await self._join(await self._protocol())
            while not self._closed:
                await self._carry_out(self._step())
        except asyncio.CancelledError:
            self._let_go()  # the loop ends: without a word
            raise
        except Exception as error:
            if self._failure is None and not (self._closed and isinstance(error, KafkaError)):
                self._failure = error
        await self._end()

    async def _join(self, protocol: str) -> None:
        make = consumer_tenure if protocol == "consumer" else classic_tenure
        tenure = make(self._group_id, self._options)
        await self._resubscribe(tenure)
        self._tenure = tenure
        self._member = AsyncMember(
            tenure.membership,
            self._discovery,
            bootstrap_timeout_ms=self._options["bootstrap_timeout_ms"],
            tell=self._heard,
            give_up=self._gave_up,
        )
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def _step(self) -> Step:
        if self._refused is not None:
            raise self._refused
        assert self._tenure is not None
        step = self._tenure.step(clock_ms())
        self._act()
        return step

    async def _carry_out(self, step: Step) -> None:
        tenure = self._tenure
        assert tenure is not None
        match step:
            case Wait():
                await self._changed()
            case Take():
                await self._call(self.on_assigned, step.partitions)
            case GiveUp():
                await self._revoke(step.partitions)
                tenure.given_up(step, clock_ms())
            case Name() | Divide():
                try:
                    await self._look_up(step)
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    log.info("group %s: %s", self._group_id, error)
                    await self._changed(self._options["retry_backoff_max_ms"])
            case Over():
                await self._over(step.error)

    async def _over(self, error: int) -> None:
        """The membership has ended by itself: another may do, else it is over."""
        assert self._member is not None
        self._member.close()
        if not error:
            return await self._join(self.protocol or "classic")  # it was overdue
        told = self.epoch
        if error in REFUSED_UPGRADE and self._options["group_protocol"] == "auto" and self.protocol == "consumer":
            log.info("group %s stays a classic one (error %d, epoch %d)", self._group_id, error, told)
            return await self._join("classic")
        hint = None
        if error == ErrorCode.FENCED_INSTANCE_ID:
            hint = f"another member has joined as {self._options['group_instance_id']!r}"
        elif error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            hint = "its members are no consumers, or have no assignor in common with this one"
        elif error == ErrorCode.UNSUPPORTED_VERSION:
            hint = "this cluster does not serve group_protocol=consumer (KIP-848)"
        raise server_error(error, f"group {self._group_id}", hint)

    async def _look_up(self, step: Name | Divide) -> None:
        assert self._tenure is not None
        if isinstance(step, Divide):
            self._tenure.divided(step, await self._ask(questions.sizes, step.topics), clock_ms())
            return self._act()
        names = await self._ask(questions.names, step.topics)
        self._tenure.named(names)
        if not names:
            await self._changed(self._options["retry_backoff_ms"])  # the broker does not know the topic yet
        return None

    async def _revoke(self, partitions: Partitions) -> None:
        """Within the rebalance timeout; then it leaves, so that others need not wait, and joins anew."""
        assert self._loop is not None
        overdue = self._loop.call_later(self._options["rebalance_timeout_ms"] / 1000, self._overdue)
        try:
            await self._call(self.on_revoked, partitions)
        finally:
            overdue.cancel()

    def _overdue(self) -> None:
        log.warning("group %s: on_revoked took longer than the rebalance timeout", self._group_id)
        assert self._tenure is not None
        self._tenure.leave(clock_ms(), static_too=True)
        self._act()

    async def _call(self, callback: Callable[[Partitions], Any], partitions: Partitions) -> None:
        self._busy = asyncio.current_task()
        options, since = self._options, self.owned
        try:
            await limited(
                callback,
                (partitions,),
                timeout_ms=None,
                session_ms=options["session_timeout_ms"],
                heartbeat_ms=options["heartbeat_interval_ms"],
            )
        except Exception as error:
            if isinstance(error, NotOwned) and self._lost_since(error, partitions, since):
                log.info("group %s: %s: %s", self._group_id, callback.__name__, error)
                return
            error.add_note(f"in {callback.__name__} of group {self._group_id}")
            self._failure = error
            raise
        finally:
            self._busy = None

    def _lost_since(self, error: NotOwned, partitions: Partitions, since: Mapping[TopicPartition, int]) -> bool:
        """Whether the coordinator has said so, or what is known here does. A program that commits what it never had is
        wrong."""
        owned = self.owned
        return error.code is not None or not any(owned.get(place) == since.get(place) for place in partitions)

    async def _end(self) -> None:
        """Give up, leave, and let go of the connections."""
        try:
            if self._tenure is not None and self._member is not None:
                owned = frozenset(self._tenure.owned)
                if owned and self._failure is None:
                    await self._revoke(owned)
        except Exception as error:
            self._failure = error
        finally:
            self._closed = True
            try:
                await self._leave_group()
            finally:
                self._let_go()

    def _let_go(self) -> None:
        """Of the connections and threads."""
        self._closed = True
        if self._member is not None:
            self._member.close()
        if self._watcher is not None:
            self._watcher.cancel()
        self._asking.close()
        self._fetching.close()

    async def _leave_group(self) -> None:
        tenure, member = self._tenure, self._member
        if tenure is None or member is None:
            return
        lost = frozenset(tenure.owned) if self._failure is not None else frozenset()
        tenure.given_up(GiveUp(frozenset(tenure.owned)), clock_ms())
        if lost:
            self._tell_lost(lost)
        try:
            if self._leave is not False:
                tenure.leave(clock_ms(), static_too=bool(self._leave))
                member.act()
                async with asyncio.timeout(LEAVE_MS / 1000):
                    while not isinstance(tenure.step(clock_ms()), Over):
                        await self._changed()
        except TimeoutError:
            pass  # its session will end

    # -- inside: topics

    async def _protocol(self) -> str:
        """The one that was asked for, or the best that the cluster has. Raises KafkaError."""
        options = self._options
        if options["group_protocol"] != "auto":
            return options["group_protocol"]

        async def pause(pause_ms: float) -> bool:
            await self._changed(pause_ms)
            return not self._closed

        _, connection = await self._discovery.open_coordinator(
            self._group_id, self._backoff, options["bootstrap_timeout_ms"], pause
        )
        exchange = connection.exchange
        connection.close()
        level = exchange.finalized.get("group.version", 0)
        return "consumer" if level >= 1 and exchange.serves(ConsumerGroupHeartbeatRequest) else "classic"

    async def _resubscribe(self, tenure: Tenure) -> None:
        """Tell the tenure what is wanted; with the classic protocol, a pattern is looked up here."""
        want = self._wanted
        assert want is not None
        topics: Iterable[str] = want.topics
        if want.pattern is not None and tenure.reader() is None:
            topics = [name for name in await self._ask(questions.all_topics) if re.fullmatch(want.pattern, name)]
        tenure.subscribe(want, topics, clock_ms())

    async def _watch(self) -> None:
        """Look after topics where the server does not, and after a new subscription."""
        told, looked = self._wanted, clock_ms()
        while True:
            while self._wanted is told and (left := looked + self._topics_last_ms() - clock_ms()) > 0:
                await self._changed(left)
            looked = clock_ms()
            tenure, told = self._tenure, self._wanted
            if tenure is None or self._closed:
                return
            try:
                await self._resubscribe(tenure)
                if tenure.watched():
                    tenure.sized(await self._ask(questions.sizes, tenure.watched()), clock_ms())
                self._act()
            except KafkaError as error:
                log.info("group %s: %s", self._group_id, error)
            except Exception as error:
                self._gave_up(error)
                return

    def _topics_last_ms(self) -> int:
        """For how long what is known of topics will do; a missing one may just be on its way to the broker asked."""
        lacks = self._tenure is not None and self._tenure.lacks()
        return self._options["retry_backoff_max_ms" if lacks else "metadata_max_age_ms"]

    # -- inside: what is heard

    def _act(self) -> None:
        if self._member is not None:
            self._member.act()

    def _heard(self, news: Any) -> None:
        assert self._tenure is not None
        lost = self._tenure.heard(news, clock_ms())
        if lost:
            log.warning("group %s: lost %d partitions", self._group_id, len(lost))
            self._tell_lost(lost)
        self._news.set()

    def _tell_lost(self, lost: Partitions) -> None:
        try:
            self.on_lost(lost)
        except Exception:
            log.exception("group %s: on_lost raised", self._group_id)

    def _gave_up(self, error: Exception) -> None:
        """No KafkaError where a token provider of the program's own has raised."""
        if self._refused is None:
            self._refused = error
            self._news.set()

    async def _changed(self, timeout_ms: float | None = None) -> None:
        """Returns when something has been heard or asked for."""
        self._news.clear()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            pass
