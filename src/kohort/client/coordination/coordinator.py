"""Group membership for any work that several processes share, as in Kafka's internal class AbstractCoordinator.

    class Workers(Coordinator):
        protocol_type = "workers"

        def metadata(self):                                        # ordered: the group takes the first that all have
            return {"by-name": b"data about me for the leader"}

        def perform_assignment(self, leader_id, protocol, members):    # on one member, the leader
            return {member.member_id: b"what it should do" for member in members}

        async def on_join_complete(self, generation, member_id, protocol, assignment):
            self.work = asyncio.create_task(...)

        async def on_join_prepare(self, generation, member_id):
            ...                                                    # stop the work; another member may begin then

    async with Workers("localhost:9092", "my-workers") as workers:
        while True:
            await workers.ensure_active_group()
            await workers.wait_for_rejoin()

It works with every Kafka cluster. The server never looks into metadata and assignments: their bytes are yours.

Order of the calls. All callbacks but `on_lost` run inside `ensure_active_group`, one at a time, in this order:
`on_join_prepare`, `metadata`, on the leader `perform_assignment`, `on_join_complete`. The first round begins with
`on_join_prepare(-1, "")`; later rounds pass the generation that ends. If it is -1, the assignment is lost already and
others may work on it. Before it leaves, the coordinator calls `on_leave_prepare`. Callbacks may be plain functions or
coroutine functions. If a callback raises, `ensure_active_group` raises its exception, and the next call calls the
callback again.

What runs where. There is one thread, the event loop's, so there is no lock: state changes between two awaits.
Heartbeats are sent by the loop while your code awaits, in callbacks too. `generation`, `generation_if_stable`,
`member_id` and `rejoin_needed` may be read in any thread; everything else belongs to the loop in which the coordinator
was first used. Inside a callback, `ensure_active_group` and `close` raise Misuse. Code that blocks the loop blocks the
heartbeats: use `asyncio.to_thread`. A callback that blocks it for longer than the session raises Misuse.

When the group rebalances, members have `rebalance_timeout_ms` to call `ensure_active_group` again. A member that does
not is removed from the group, and its next call joins again.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

from kohort.client.concurrency.callback import limited
from kohort.client.concurrency.loop_thread import entered_loop
from kohort.client.coordination.callback_order import NO_GENERATION, Active, Generation, Wait
from kohort.client.coordination.callbacks import Callbacks, JoinedMember
from kohort.client.errors import Closed, Misuse

__all__ = ["NO_GENERATION", "Coordinator", "Generation", "JoinedMember"]


class Coordinator(Callbacks):
    """One member of a group: subclass it. The module's docstring gives the order of the callbacks.

    `group_instance_id` makes a static member (KIP-345): it keeps its place when it is closed and comes back within the
    session. The timeouts are Kafka's, in milliseconds. A member without an accepted heartbeat for `session_timeout_ms`
    is removed; `heartbeat_interval_ms` is 3,000 by default, or a third of a session below 9,000. All members have
    `rebalance_timeout_ms` to come back when the group rebalances. `bootstrap_timeout_ms` limits the first contact,
    because a cluster that never answers is most often a wrong address; a cluster that has answered once is waited for.
    `security` are security properties in Kafka's names, or a `Security`. Raises
    ValueError for impossible settings, TypeError for unknown ones.
    """

    _loop: asyncio.AbstractEventLoop | None = None
    _turn: asyncio.Lock
    _busy: asyncio.Task[Any] | None = None
    """The task that runs a callback."""
    _closed = False

    # -- what is done; in the loop

    async def ensure_active_group(self) -> None:
        """Join or rejoin the group if needed; return when this member is part of it and its callbacks have run.

        Waits for as long as it takes. The call may be cancelled, for example by `asyncio.timeout`; the next call
        continues from there. Raises what a callback raised; Closed; Misuse; ServerError where the coordinator
        refused: FENCED_INSTANCE_ID (82: another member has this one's instance id; for good),
        INCONSISTENT_GROUP_PROTOCOL (23: a group of another protocol type, or with none of the protocols in common),
        GROUP_MAX_SIZE_REACHED (81), INVALID_SESSION_TIMEOUT (26), GROUP_AUTHORIZATION_FAILED (30); KafkaError where
        no broker can be reached. After these the next call tries again.
        """
        self._enter("ensure_active_group")
        async with self._turn:
            while not isinstance(step := self._step(), Active):
                if isinstance(step, Wait):
                    await self._session.changed()
                else:
                    callback, arguments = self._callback(step)
                    self._session.done(step, await self._call(callback, *arguments))

    async def wait_for_rejoin(self) -> None:
        """Return when `rejoin_needed`: the group rebalances, the assignment was lost, or the membership has failed.

        Raises Closed when the coordinator is closed meanwhile.
        """
        self._enter("wait_for_rejoin")
        while not self.rejoin_needed:
            await self._session.changed()
            if self._closed:
                raise Closed(f"group {self.group_id}: the coordinator was closed")

    def request_rejoin(self, reason: str) -> None:
        """Make the group rebalance, for instance because `metadata` has changed. `reason` goes to the broker's log."""
        self._enter("request_rejoin")
        self._session.request_rejoin(reason)

    async def close(self, *, leave: bool | None = None) -> None:
        """Leave the group. Closing twice does nothing; an `ensure_active_group` in another task raises Closed.

        `leave` None: a dynamic member tells the coordinator, so that the others need not wait; a static member says
        nothing, so that it can come back. Waits for a callback that is running. Raises what `on_leave_prepare` raised,
        after it has left; Misuse inside a callback.
        """
        if self._closed and self._session.left:
            return
        self._enter("close", closing=True)
        self._closed = True
        self._session.wake()
        async with self._turn:
            if self._session.left:
                return  # another task has closed it meanwhile
            try:
                if self.generation.generation_id >= 0:
                    await self._call(self.on_leave_prepare)
            finally:
                await self._session.leave(leave)

    async def __aenter__(self) -> Self:
        self._enter("async with")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- inside

    async def _take_part(self) -> None:
        while True:
            await self.ensure_active_group()
            await self.wait_for_rejoin()

    def _enter(self, call: str, *, closing: bool = False) -> None:
        """Checks that every call begins with."""
        loop = entered_loop(call, self._loop, "coordinator")
        if self._loop is None:
            self._loop = loop
            self._turn = asyncio.Lock()
            self._session.bind()
        if self._closed and not closing:
            raise Closed(f"{call}: the coordinator of group {self.group_id} is closed")
        if call in ("ensure_active_group", "close") and self._busy is asyncio.current_task():
            raise Misuse(f"{call} was called inside a callback of the same coordinator")

    def _step(self) -> Any:
        if self._closed:
            raise Closed(f"group {self.group_id}: the coordinator was closed")
        return self._session.step()

    async def _call(self, callback: Any, *args: Any) -> Any:
        self._busy = asyncio.current_task()
        try:
            return await limited(
                callback,
                args,
                timeout_ms=self._settings.rebalance_timeout_ms,
                session_ms=self._settings.session_timeout_ms,
                heartbeat_ms=self._settings.heartbeat_interval_ms,
            )
        except Exception as error:
            error.add_note(f"in {callback.__name__} of group {self.group_id}")
            raise
        finally:
            self._busy = None
