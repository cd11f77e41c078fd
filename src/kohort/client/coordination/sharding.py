"""Items divided among the workers of a group: tenants, tables, URLs, anything that has a name.

    async def crawl(shard):
        while True:
            await visit(shard.item, token=shard.token)

    async with shards("localhost:9092", "crawlers", ["a.example", "b.example", "c.example"]) as sharding:
        await sharding.run(crawl)       # a task for each item of this worker, cancelled when the item goes elsewhere

All workers are members of one group. Its leader assigns the items: evenly by weight and capacity, and so that few of
them move (`client/coordination/item_assignment.py`). An item that moves is given up first: its task is cancelled, and
another worker begins only when the task has ended. Work on items that do not move continues during a rebalance.

A worker owns its items under a *lease*, as a leader does (`client/coordination/election.py`): when no heartbeat has
been accepted for a session, its tasks are cancelled before another worker can get their items. A task that does not
end when it is cancelled blocks the hand-over of its item, but only while its worker's lease lasts. For the time after
that there is `shard.token`, the group's generation in which this worker got the item. It is larger than the tokens of
the earlier owners. A system that receives the worker's writes can therefore refuse a token that is smaller than the
largest token so far. On kohort it is a LastingToken, on clusters whose generations may restart at 1 a GroupToken
(`client/coordination/tokens.py`).
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from kohort.client.coordination.callbacks import SESSION_TIMEOUT_MS, JoinedMember, check_settings
from kohort.client.coordination.coordinator import Coordinator
from kohort.client.coordination.held_items import HeldItems
from kohort.client.coordination.item_assignment import Worker, divide
from kohort.client.coordination.lease import Leased, LeaseWatch, outlast, started
from kohort.client.coordination.session import CLOSED
from kohort.client.coordination.tokens import Token, of_generation
from kohort.client.errors import BadAnswer, Misuse
from kohort.wire.embedded import SHARDS_PROTOCOL

Weighed = Mapping[str, float] | Iterable[str]
"""Item names with their weights, or names alone, which all have the same weight."""
Items = Weighed | Callable[[], Weighed | Awaitable[Weighed]]

PROTOCOL = "shards"
MAX_BYTES = 64 * 1024 * 1024
"""The most that a member's claims or items may have when they are unpacked."""
GATHER_S = 0.2
"""Items given up within this time of each other cost one rebalance."""

log = logging.getLogger("kohort.client")


class Shard(Leased):
    """An item of this worker, for as long as the worker owns it. Belongs to the event loop of its sharding."""

    def __init__(self, sharding: Sharding, item: str, token: Token) -> None:
        super().__init__(sharding)
        self.item = item
        self.token = token
        """The fencing token, larger than that of every earlier owner of the item; its type says how far that goes."""

    def __repr__(self) -> str:
        return f"<shard {self.item!r}, token {self.token}{'' if self.valid else ', over'}>"


Work = Callable[[Shard], Awaitable[Any]]


class Sharding(Coordinator):
    """One worker; made by `shards`."""

    protocol_type = SHARDS_PROTOCOL

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        items: Items,
        *,
        capacity: float,
        refresh_ms: int,
        session_timeout_ms: int,
        **settings: Any,
    ) -> None:
        settings |= {"session_timeout_ms": session_timeout_ms, "rebalance_timeout_ms": 2 * session_timeout_ms}
        super().__init__(bootstrap_servers, group_id, **settings)
        if not 0 < capacity < inf:
            raise ValueError(f"shards: capacity is {capacity}; it must be a number above 0")
        if refresh_ms <= 0:
            raise ValueError(f"shards: refresh_ms is {refresh_ms}; it must be above 0")
        self._items = items if callable(items) else weighed(items)
        self._capacity = capacity
        self._refresh_s = refresh_ms / 1000
        self._held = HeldItems()
        self._shards: dict[str, Shard] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By item; of an item that was lost and came back the newest, which waits for the task before it."""
        self._released = asyncio.Event()
        self._divided: dict[str, float] | None = None
        """The items that this worker assigned as the leader; None while it does not lead."""
        self._listed: dict[str, float] | None = None
        self._lease = LeaseWatch(self, self._lose, "the worker's lease was over")
        self._work: Work | None = None
        self._failure: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        if self._closed:
            state = "closed"
        elif self._work is None:
            state = "not running"
        else:
            state = f"{len(self.shards)} items"
        return f"<sharding of {self.group_id!r}, {state}>"

    @property
    def shards(self) -> Mapping[str, Shard]:
        """The shards that this worker owns now, by item."""
        return {item: shard for item, shard in self._shards.items() if shard.valid}

    async def run(self, work: Work) -> None:
        """Take part: the coroutine `work(shard)` runs in a task of its own for each item, for as long as the worker
        owns the item.

        When an item is given up or lost, its task is cancelled. If `work` returns, the worker still owns the item.
        `run` lasts until it is cancelled or raises: the exception of a task; the error that ended the membership, like
        `ensure_active_group`; TypeError and ValueError for impossible items. When all tasks have ended, the worker
        leaves the group, so that others get its items. `run` may be called again.
        """
        if self._work is not None:
            raise Misuse("run: this worker runs already")
        self._work = work
        self._failure = asyncio.get_running_loop().create_future()
        for shard in self.shards.values():  # of a round before this call: no task works on them yet
            if shard.item in self._tasks:
                self._tasks[shard.item].cancel()
            self._begin(shard)
        parts = [asyncio.create_task(part) for part in (self._take_part(), self._refresh(), self._give_up())]
        try:
            await asyncio.wait((*parts, self._failure), return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed = any(one.done() for one in (*parts, self._failure))
            for part in parts:
                part.cancel()
            try:
                await asyncio.wait(parts)
                await self._stop_all()
                if not self._closed:
                    self._session.retire("its work has failed" if failed else CLOSED, quietly=True)
            finally:
                self._work = None
            if self._failure.done():
                self._failure.exception()  # retrieved, also if this call was cancelled
        for done in (self._failure, *parts):
            if done.done() and not done.cancelled():
                done.result()

    def update(self, items: Items) -> None:
        """Replace the items, or the function that lists them. The list of the group's leader counts."""
        self._items = items if callable(items) else weighed(items)
        if self._work is not None:
            self.request_rejoin("the items have changed")

    # -- what goes on while it runs

    async def _refresh(self) -> None:
        """The leader lists the items again from time to time, and makes the group rebalance if they have changed."""
        while True:
            await asyncio.sleep(self._refresh_s)
            if self._divided is not None and callable(self._items) and await self._list() != self._divided:
                self.request_rejoin("the items have changed")

    async def _give_up(self) -> None:
        """Make the group rebalance when items were given up."""
        while True:
            await self._released.wait()
            if self._held.ending:
                await asyncio.sleep(GATHER_S)
            self._released.clear()
            self.request_rejoin("items were given up")

    async def _list(self) -> dict[str, float]:
        """The items now; the last known ones if the function fails."""
        try:
            items = self._items() if callable(self._items) else self._items
            self._listed = weighed(await items if inspect.isawaitable(items) else items)
        except Exception:
            if self._listed is None:
                raise
            log.warning("group %s: the items cannot be listed; the last list stays", self.group_id, exc_info=True)
        return self._listed

    # -- the group

    def metadata(self) -> Mapping[str, bytes]:
        return {PROTOCOL: _pack({"capacity": self._capacity, "claims": self._held.claims()})}

    async def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes]:
        weights = self._divided = await self._list()
        workers = {member.member_id: _worker(_unpack(member.metadata)) for member in members}
        # The weights are for `kohort groups describe`: workers read only the names, which are the keys.
        named = set(weights.values()) <= {1.0}
        return {
            member_id: _pack(items if named else {item: weights[item] for item in items})
            for member_id, items in divide(weights, workers).items()
        }

    def on_join_prepare(self, generation: int, member_id: str) -> None:
        self._divided = None

    def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        change = self._held.assigned(generation, _unpack(assignment) if assignment else ())
        for item in change.ended:
            self._cancel(item)
        for item, token in change.begun.items():
            self._begin(Shard(self, item, of_generation(token, self.lasting_generations)))
        if change.again:
            self._released.set()
        self._lease.begin()

    def on_lost(self, generation: int, member_id: str, reason: str) -> None:
        self._lose()

    async def on_leave_prepare(self) -> None:
        await self._stop_all()

    # -- the tasks

    def _begin(self, shard: Shard) -> None:
        self._shards[shard.item] = shard
        before = self._tasks.get(shard.item)
        task = asyncio.create_task(self._carry_out(shard, before), name=f"{self.group_id} {shard.item}")
        self._tasks[shard.item] = task
        task.add_done_callback(lambda _: self._ended(shard, task))

    async def _carry_out(self, shard: Shard, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await outlast(before)
        if shard.valid and self._work is not None:
            await started(self._work, shard)
        await shard.ended()

    def _ended(self, shard: Shard, task: asyncio.Task[None]) -> None:
        if self._tasks.get(shard.item) is task:
            del self._tasks[shard.item]
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            error.add_note(f"in the work on item {shard.item!r} of group {self.group_id}")
            self._failure.set_exception(error)
        if shard.item not in self._tasks and self._held.released(shard.item):
            self._released.set()

    def _cancel(self, item: str) -> None:
        shard = self._shards.pop(item, None)
        if shard is not None:
            shard._end()
        if item in self._tasks:
            self._tasks[item].cancel()
        elif self._held.released(item):
            self._released.set()

    def _lose(self) -> None:
        self._lease.end()
        for item in self._held.lost():
            self._cancel(item)

    async def _stop_all(self) -> None:
        """Cancel all tasks, and give up every item when they have ended."""
        for item in list(self._shards):
            self._cancel(item)
        while self._tasks:
            await asyncio.wait(self._tasks.values())
        self._lose()


def shards(
    bootstrap_servers: str | Sequence[str],
    group_id: str,
    items: Items,
    *,
    capacity: float = 1.0,
    refresh_ms: int = 10_000,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    **settings: Any,
) -> Sharding:
    """A worker of a group that divides items among its members; use it in `async with`.

    `items` are names, a mapping from names to weights (above 0), or a plain or coroutine function that returns either.
    The group's leader calls its function when the group rebalances and every `refresh_ms`, and makes the group
    rebalance when the items have changed. Give every worker the same items: only the leader's count. `capacity` is the
    share of the load that this worker takes, in relation to the others'. The items of a worker that dies move after
    `session_timeout_ms`, those of a worker that leaves at once. `settings` are those of `Coordinator`, except for
    `rebalance_timeout_ms` and `group_instance_id`, as with `lead`. Raises ValueError, TypeError.
    """
    check_settings("shards", settings, ("capacity", "refresh_ms"))
    return Sharding(
        bootstrap_servers,
        group_id,
        items,
        capacity=capacity,
        refresh_ms=refresh_ms,
        session_timeout_ms=session_timeout_ms,
        **settings,
    )


def weighed(items: Weighed) -> dict[str, float]:
    """Items with their weights. Raises TypeError, ValueError."""
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise TypeError(f"items are names, or a mapping from names to weights, not {type(items).__name__}")
    weights = dict(items) if isinstance(items, Mapping) else dict.fromkeys(items, 1.0)
    for item, weight in weights.items():
        if not isinstance(item, str):
            raise TypeError(f"item {item!r}: an item's name is a str, not {type(item).__name__}")
        if not isinstance(weight, int | float) or not 0 < weight < inf:
            raise ValueError(f"item {item!r}: its weight is {weight!r}; it must be a number above 0")
    return weights


# -- bytes: JSON, compressed, since item names share prefixes and brokers limit a group's size


def _pack(value: Mapping[str, Any] | Collection[str]) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode())


def _unpack(data: bytes) -> Any:
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(data, MAX_BYTES)
        if not unpacking.eof:
            raise ValueError("cut short, or too much")
        return json.loads(text)
    except (ValueError, zlib.error) as error:
        raise BadAnswer("the group", f"a member speaks another language: {error}") from None


def _worker(claimed: Any) -> Worker:
    try:
        claims = {str(item): int(token) for item, token in claimed["claims"].items()}
        return Worker(float(claimed["capacity"]), claims)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadAnswer("the group", f"a member speaks another language: {error!r}") from None
