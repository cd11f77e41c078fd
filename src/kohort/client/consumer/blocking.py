"""The consumer in a group for programs with threads: `GroupConsumer` without asyncio.

    class Billing(BlockingGroupConsumer):
        ...                                    # the same callbacks, all plain functions

    with Billing("localhost:9092", "billing") as consumer:
        consumer.subscribe(["orders"])
        for fetched in consumer.fetch(positions): ...

What runs where. Each consumer has a thread with an event loop, in which a `GroupConsumer` lives and sends heartbeats
whatever your code does. Calls may come from any thread. `on_assigned` and `on_revoked` run in a second thread of the
consumer's, one at a time; they may block and call the consumer. `on_lost` runs in the loop's thread, at once, so it
must return quickly. Nothing checks that your own code makes progress: a member may take any time while no partition is
to be given up.

The threads are daemons. At the interpreter's exit, open consumers leave their groups without `on_revoked`, because the
modules that it needs may be gone already. A child of fork does not have the threads; it needs consumers of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from kohort.client.admin.groups import Committed
from kohort.client.concurrency.loop_thread import LateLoopThread
from kohort.client.concurrency.worker_thread import WorkerThread, tamely
from kohort.client.consumer.consumer import GroupConsumer
from kohort.client.consumer.options import ConsumerOptions
from kohort.client.consumer.ownership import Partitions
from kohort.client.errors import Misuse
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import FetchedPartition, GroupMember, Isolation

T = TypeVar("T")


class BlockingGroupConsumer:
    """One member of a group of consumers. Settings, callbacks, properties and calls are those of `GroupConsumer`."""

    def __init__(
        self, bootstrap_servers: str | Sequence[str], group_id: str, **options: Unpack[ConsumerOptions]
    ) -> None:
        self._inner = _Inner(self, bootstrap_servers, group_id, **options)
        self._thread = LateLoopThread(
            f"kohort-consumer-{group_id}",
            self._inner.abandon,
            "consumer",
            f"the consumer of group {group_id} is closed",
        )

    # -- to be overridden

    def on_assigned(self, partitions: Partitions) -> None:
        """The member has got these partitions, in addition to those that it owns."""

    def on_revoked(self, partitions: Partitions) -> None:
        """End the work on these, and commit: when this returns they are given up. Also called by `close`."""

    def on_lost(self, partitions: Partitions) -> None:
        """These are not this member's own any more; a commit would be refused. It joins again by itself."""

    # -- what is known; from any thread

    @property
    def group_id(self) -> str:
        return self._inner.group_id

    @property
    def protocol(self) -> str | None:
        """As GroupConsumer.protocol."""
        return self._inner.protocol

    @property
    def member_id(self) -> str:
        """As GroupConsumer.member_id."""
        return self._inner.member_id

    @property
    def epoch(self) -> int:
        """As GroupConsumer.epoch."""
        return self._inner.epoch

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        """As GroupConsumer.owned."""
        return self._inner.owned

    @property
    def lease_left_ms(self) -> int:
        """As GroupConsumer.lease_left_ms."""
        return self._inner.lease_left_ms

    @property
    def reader(self) -> GroupMember | None:
        """As GroupConsumer.reader."""
        return self._inner.reader

    @property
    def failure(self) -> BaseException | None:
        """The error that ended this consumer; every later call raises it."""
        return self._inner.failure

    # -- what is done; from any thread

    def subscribe(self, topics: str | Iterable[str] = (), *, pattern: str | None = None) -> None:
        """As GroupConsumer.subscribe."""

        async def subscribe() -> None:
            self._inner.subscribe(topics, pattern=pattern)

        self._do("subscribe", subscribe)

    def commit(self, offsets: Mapping[TopicPartition, int | Committed]) -> None:
        """As GroupConsumer.commit."""
        self._do("commit", lambda: self._inner.commit(offsets))

    def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Committed]:
        """As GroupConsumer.committed."""
        return self._do("committed", lambda: self._inner.committed(partitions))

    def offsets(
        self, partitions: Iterable[TopicPartition], at: Any = "latest", *, isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """As GroupConsumer.offsets."""
        return self._do("offsets", lambda: self._inner.offsets(partitions, at, isolation=isolation))

    def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 52_428_800,
        partition_max_bytes: int = 1_048_576,
        isolation: Isolation = "read_uncommitted",
    ) -> list[FetchedPartition]:
        """As GroupConsumer.fetch."""
        return self._do(
            "fetch",
            lambda: self._inner.fetch(
                positions,
                max_wait_ms=max_wait_ms,
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
                isolation=isolation,
            ),
        )

    def close(self, *, leave: bool | None = None) -> None:
        """As GroupConsumer.close; ends the threads. May be called in any thread but those of callbacks, also twice."""
        self._check("close")
        if self._inner.callbacks.is_current:
            raise Misuse("close was called inside a callback of the same consumer")
        self._thread.end("close", lambda: self._inner.close(leave=leave))

    def __enter__(self) -> Self:
        self._do("with", self._inner.__aenter__)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside

    def _do(self, call: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` in the loop's thread. Interrupting the wait cancels the work."""
        self._check(call)
        return self._thread.run(call, work)

    def _check(self, call: str) -> None:
        if self._thread.is_current:
            raise Misuse(f"{call} was called in the consumer's own thread, where on_lost runs")


class _Inner(GroupConsumer):
    """Calls the callbacks in a thread of theirs."""

    def __init__(
        self,
        outer: BlockingGroupConsumer,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(bootstrap_servers, group_id, **options)
        self._outer = outer
        self.callbacks = WorkerThread(f"kohort-callbacks-{group_id}")

    async def on_assigned(self, partitions: Partitions) -> None:
        await self.callbacks.run(_plain, self._outer.on_assigned, partitions)

    async def on_revoked(self, partitions: Partitions) -> None:
        await self.callbacks.run(_plain, self._outer.on_revoked, partitions)

    def on_lost(self, partitions: Partitions) -> None:
        tamely(self._outer.on_lost, partitions)

    def _release(self) -> None:
        super()._release()
        self.callbacks.close()


def _plain(callback: Callable[[Partitions], Any], partitions: Partitions) -> None:
    result = tamely(callback, partitions)
    if inspect.iscoroutine(result):
        result.close()
        raise Misuse(f"{callback.__name__} is a coroutine function: those are for GroupConsumer")
