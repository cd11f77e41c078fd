"""A consumer's place in its group, on an event loop: joins, calls the callbacks that are due, watches topics, leaves.

`GroupConsumer` is the public face. Its session runs in one task (`run`), which carries out the steps of an `Ownership`
one after the other; an `AsyncMember` sends the heartbeats meanwhile. Everything belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from kohort.client.backoff import Backoff
from kohort.client.concurrency.callback import limited
from kohort.client.consumer.lookups import Lookups
from kohort.client.consumer.options import ConsumerOptions, classic_ownership, consumer_ownership
from kohort.client.consumer.ownership import (
    CountPartitions,
    GiveUp,
    NameTopics,
    Over,
    Ownership,
    Partitions,
    Step,
    Take,
    Wait,
    Wanted,
)
from kohort.client.errors import KafkaError, NotOwned, server_error
from kohort.client.membership.driver import AsyncMember, clock_ms
from kohort.client.metadata import TopicPartition
from kohort.client.wire.discovery import Discovery
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

LEAVE_MS = 5_000
"""How long a member that leaves waits for the coordinator's answer."""

REFUSED_UPGRADE = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND})
"""Answers to a first KIP-848 heartbeat after which a consumer with group_protocol=auto joins as a classic member: the
cluster has the API and not the protocol, or the group is a classic one that is not to be converted."""

log = logging.getLogger("kohort.client")


class Callbacks(Protocol):
    """The callbacks that the application overrides."""

    def on_assigned(self, partitions: Partitions) -> Awaitable[None] | None: ...

    def on_revoked(self, partitions: Partitions) -> Awaitable[None] | None: ...

    def on_lost(self, partitions: Partitions) -> None: ...


class ConsumerSession:
    """`release` is called once, at the end: it closes everything else that the consumer has opened."""

    def __init__(
        self,
        group_id: str,
        options: ConsumerOptions,
        discovery: Discovery,
        lookups: Lookups,
        callbacks: Callbacks,
        release: Callable[[], None],
    ) -> None:
        self.ownership: Ownership | None = None
        """None before the protocol is known."""
        self.closed = False
        self.failure: BaseException | None = None
        """The error that ended the consumer."""
        self.callback_task: asyncio.Task[Any] | None = None
        """The task that runs a callback now."""
        self.backoff = Backoff(options["retry_backoff_ms"], options["retry_backoff_max_ms"])
        self._group_id = group_id
        self._options = options
        self._discovery = discovery
        self._lookups = lookups
        self._callbacks = callbacks
        self._release = release
        self._wanted: Wanted | None = None
        self._member: AsyncMember | None = None
        self._topic_watch: asyncio.Task[None] | None = None
        self._fatal: Exception | None = None
        """The member cannot go on; raised by the next step."""
        self._leave: bool | None = None
        self._woken = asyncio.Event()

    # -- what is known; from any thread

    @property
    def protocol(self) -> str | None:
        ownership = self.ownership
        return None if ownership is None else ("classic" if ownership.reader() is None else "consumer")

    @property
    def epoch(self) -> int:
        return -1 if self.ownership is None else self.ownership.committer().generation_id_or_epoch

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        return {} if self.ownership is None else self.ownership.owned

    # -- what the consumer does

    def subscribe(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._woken.set()

    def close(self, leave: bool | None) -> None:
        """`run` ends soon."""
        self.closed, self._leave = True, leave
        self._woken.set()

    async def abandon(self) -> None:
        """Leave the group at once, without a callback. A static member stays."""
        self.closed = True
        if self.ownership is not None and self._member is not None:
            await self._leave_group(static_too=False)
            self._member.close()

    def act(self) -> None:
        """Carry out what the membership asks for. Due after every call of `ownership`."""
        if self._member is not None:
            self._member.act()

    # -- the task

    async def run(self) -> None:
        """Take part in the group until the consumer is closed, or until an error ends it (`failure`)."""
        try:
            while self._wanted is None and not self.closed:
                await self._wait()
            if not self.closed:
                await self._join(await self._choose_protocol())
            while not self.closed:
                await self._carry_out(self._step())
        except asyncio.CancelledError:
            self._close_all()  # the loop ends: there is no time to leave
            raise
        except Exception as error:
            if self.failure is None and not (self.closed and isinstance(error, KafkaError)):
                self.failure = error
        await self._end()

    async def _join(self, protocol: str) -> None:
        make = consumer_ownership if protocol == "consumer" else classic_ownership
        ownership = make(self._group_id, self._options)
        await self._resubscribe(ownership)
        self.ownership = ownership
        self._member = AsyncMember(
            ownership.membership,
            self._discovery,
            bootstrap_timeout_ms=self._options["bootstrap_timeout_ms"],
            on_event=self._on_event,
            on_failure=self._on_failure,
        )
        if self._topic_watch is None:
            self._topic_watch = asyncio.get_running_loop().create_task(self._watch_topics())

    def _step(self) -> Step:
        if self._fatal is not None:
            raise self._fatal
        assert self.ownership is not None
        step = self.ownership.step(clock_ms())
        self.act()
        return step

    async def _carry_out(self, step: Step) -> None:
        assert self.ownership is not None
        match step:
            case Wait():
                await self._wait()
            case Take():
                await self._call(self._callbacks.on_assigned, step.partitions)
            case GiveUp():
                ownership = self.ownership
                await self._revoke(step.partitions)
                ownership.given_up(step, clock_ms())
            case NameTopics() | CountPartitions():
                try:
                    await self._look_up(step)
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    log.info("group %s: %s", self._group_id, error)
                    await self._wait(self._options["retry_backoff_max_ms"])
            case Over():
                await self._over(step.error)

    async def _over(self, error: int) -> None:
        """The membership has ended: join with a new one, or raise."""
        assert self._member is not None
        self._member.close()
        if not error:
            return await self._join(self.protocol or "classic")  # on_revoked was overdue
        if error in REFUSED_UPGRADE and self._options["group_protocol"] == "auto" and self.protocol == "consumer":
            log.info("group %s stays a classic one (error %d, epoch %d)", self._group_id, error, self.epoch)
            return await self._join("classic")
        hint = None
        if error == ErrorCode.FENCED_INSTANCE_ID:
            hint = f"another member has joined as {self._options['group_instance_id']!r}"
        elif error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            hint = "its members are not consumers, or have no assignor in common with this one"
        elif error == ErrorCode.UNSUPPORTED_VERSION:
            hint = "this cluster does not serve group_protocol=consumer (KIP-848)"
        raise server_error(error, f"group {self._group_id}", hint)

    # -- callbacks

    async def _revoke(self, partitions: Partitions) -> None:
        """Call on_revoked. After the rebalance timeout the member leaves, so that others need not wait, and rejoins."""
        overdue = asyncio.get_running_loop().call_later(
            self._options["rebalance_timeout_ms"] / 1000, self._revoke_overdue
        )
        try:
            await self._call(self._callbacks.on_revoked, partitions)
        finally:
            overdue.cancel()

    def _revoke_overdue(self) -> None:
        log.warning("group %s: on_revoked took longer than the rebalance timeout", self._group_id)
        assert self.ownership is not None
        self.ownership.leave(clock_ms(), static_too=True)
        self.act()

    async def _call(self, callback: Callable[[Partitions], Any], partitions: Partitions) -> None:
        self.callback_task = asyncio.current_task()
        options, before = self._options, dict(self.owned)
        try:
            await limited(
                callback,
                (partitions,),
                timeout_ms=None,
                session_ms=options["session_timeout_ms"],
                heartbeat_ms=options["heartbeat_interval_ms"],
            )
        except Exception as error:
            if isinstance(error, NotOwned) and self._lost_since(error, partitions, before):
                log.info("group %s: %s: %s", self._group_id, callback.__name__, error)
                return
            error.add_note(f"in {callback.__name__} of group {self._group_id}")
            self.failure = error
            raise
        finally:
            self.callback_task = None

    def _lost_since(self, error: NotOwned, partitions: Partitions, before: Mapping[TopicPartition, int]) -> bool:
        """True if the partitions were lost while the callback ran, according to the coordinator or to this member. A
        callback that commits partitions that the member never owned has a bug."""
        owned = self.owned
        return error.code is not None or not any(owned.get(place) == before.get(place) for place in partitions)

    def _call_on_lost(self, lost: Partitions) -> None:
        try:
            self._callbacks.on_lost(lost)
        except Exception:
            log.exception("group %s: on_lost raised", self._group_id)

    # -- the end

    async def _end(self) -> None:
        """Give up the owned partitions, leave, and close everything."""
        try:
            owned = frozenset(self.owned)
            if owned and self.failure is None:
                await self._revoke(owned)
        except Exception as error:
            self.failure = error
        finally:
            self.closed = True
            try:
                await self._give_up_and_leave()
            finally:
                self._close_all()

    async def _give_up_and_leave(self) -> None:
        if self.ownership is None or self._member is None:
            return
        owned = frozenset(self.owned)
        self.ownership.given_up(GiveUp(owned), clock_ms())
        if owned and self.failure is not None:
            self._call_on_lost(owned)
        if self._leave is not False:
            with suppress(TimeoutError):  # the coordinator removes it when its session ends
                await self._leave_group(static_too=bool(self._leave))

    async def _leave_group(self, *, static_too: bool) -> None:
        """Raises TimeoutError."""
        assert self.ownership is not None
        self.ownership.leave(clock_ms(), static_too=static_too)
        self.act()
        async with asyncio.timeout(LEAVE_MS / 1000):
            while not isinstance(self.ownership.step(clock_ms()), Over):
                await self._wait()

    def _close_all(self) -> None:
        self.closed = True
        if self._member is not None:
            self._member.close()
        if self._topic_watch is not None:
            self._topic_watch.cancel()
        self._release()

    # -- protocol and topics

    async def _choose_protocol(self) -> str:
        """The option's protocol; with "auto" the newest that the cluster has. Raises KafkaError."""
        options = self._options
        if options["group_protocol"] != "auto":
            return options["group_protocol"]

        async def pause(pause_ms: float) -> bool:
            await self._wait(pause_ms)
            return not self.closed

        _, connection = await self._discovery.open_coordinator(
            self._group_id, self.backoff, options["bootstrap_timeout_ms"], pause
        )
        exchange = connection.exchange
        connection.close()
        level = exchange.finalized.get("group.version", 0)
        return "consumer" if level >= 1 and exchange.serves(ConsumerGroupHeartbeatRequest) else "classic"

    async def _look_up(self, step: NameTopics | CountPartitions) -> None:
        assert self.ownership is not None
        if isinstance(step, CountPartitions):
            self.ownership.partitions_counted(step, await self._lookups.partition_counts(step.topics), clock_ms())
            return self.act()
        names = await self._lookups.names(step.topics)
        self.ownership.topics_named(names)
        if not names:
            await self._wait(self._options["retry_backoff_ms"])  # the broker does not know the topic yet
        return None

    async def _resubscribe(self, ownership: Ownership) -> None:
        """Pass the subscription on. The classic protocol has no patterns: they are matched here."""
        wanted = self._wanted
        assert wanted is not None
        topics: Iterable[str] = wanted.topics
        if wanted.pattern is not None and ownership.reader() is None:
            topics = [name for name in await self._lookups.all_topics() if re.fullmatch(wanted.pattern, name)]
        ownership.subscribe(wanted, topics, clock_ms())

    async def _watch_topics(self) -> None:
        """Pass on each new subscription, and look for new topics and partitions where the server does not."""
        known, looked = self._wanted, clock_ms()
        while True:
            while self._wanted is known and (left := looked + self._topics_max_age_ms() - clock_ms()) > 0:
                await self._wait(left)
            looked = clock_ms()
            ownership, known = self.ownership, self._wanted
            if ownership is None or self.closed:
                return
            try:
                await self._resubscribe(ownership)
                if ownership.watched_topics():
                    counts = await self._lookups.partition_counts(ownership.watched_topics())
                    ownership.counts_refreshed(counts, clock_ms())
                self.act()
            except KafkaError as error:
                log.info("group %s: %s", self._group_id, error)
            except Exception as error:
                self._on_failure(error)
                return

    def _topics_max_age_ms(self) -> int:
        """After this time topics are looked up again; soon if one is missing, as the broker may not know it yet."""
        missing = self.ownership is not None and self.ownership.topics_missing()
        return self._options["retry_backoff_max_ms" if missing else "metadata_max_age_ms"]

    # -- events of the membership

    def _on_event(self, event: Any) -> None:
        assert self.ownership is not None
        lost = self.ownership.on_event(event, clock_ms())
        if lost:
            log.warning("group %s: lost %d partitions", self._group_id, len(lost))
            self._call_on_lost(lost)
        self._woken.set()

    def _on_failure(self, error: Exception) -> None:
        """Not always a KafkaError: the application's token provider may have raised another exception."""
        if self._fatal is None:
            self._fatal = error
            self._woken.set()

    async def _wait(self, timeout_ms: float | None = None) -> None:
        """Returns when there may be something to do."""
        self._woken.clear()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._woken.wait()
        except TimeoutError:
            pass
