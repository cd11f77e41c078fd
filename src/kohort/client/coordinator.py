"""Group membership for anything that many workers share: what Kafka keeps to itself as AbstractCoordinator.

    class Workers(Coordinator):
        protocol_type = "workers"

        def metadata(self):                                        # ordered: the group takes the first that all have
            return {"by-name": b"what the leader should know of me"}

        def perform_assignment(self, leader_id, protocol, members):    # on one member, the leader
            return {member.member_id: b"what it should do" for member in members}

        async def on_join_complete(self, generation, member_id, protocol, assignment):
            self.work = asyncio.create_task(...)

        async def on_join_prepare(self, generation, member_id):
            ...                                                    # stop the work; whoever gets it may begin after this

    async with Workers("localhost:9092", "my-workers") as workers:
        while True:
            await workers.ensure_active_group()
            await workers.wait_for_rejoin()

It works with every Kafka cluster. The server never looks into metadata and assignments: their bytes are yours.

Order of the calls. All callbacks but `on_lost` run inside `ensure_active_group`, one at a time, in this order:
`on_join_prepare`, `metadata`, on the leader `perform_assignment`, `on_join_complete`. The first round begins with
`on_join_prepare(-1, "")`; later ones give the generation that ends. If that is -1 the assignment is lost already and
others may work on it. Before it leaves, the coordinator calls `on_leave_prepare`. Callbacks may be plain functions or
coroutine functions. One that raises ends `ensure_active_group` with its exception, and is due again at the next call.

What runs where. There is one thread, the event loop's, so there is no lock: state changes between two awaits.
Heartbeats are sent by the loop while your code awaits, in callbacks too. `generation`, `generation_if_stable`,
`member_id` and `rejoin_needed` may be read anywhere, also in other threads; everything else belongs to the loop in
which the coordinator was first used. Inside a callback, `ensure_active_group` and `close` raise Misuse. Code that
blocks the loop blocks the heartbeats: use `asyncio.to_thread`. A callback that blocks it for longer than the session
raises Misuse.

When the group rebalances, members have `rebalance_timeout_ms` to come back to `ensure_active_group`; one that does not
is removed from the group, and its next call begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Self

from kohort.client.async_member import AsyncMember, News, clock_ms
from kohort.client.callback import limited
from kohort.client.discovery import Discovery
from kohort.client.errors import Closed, Misuse, server_error
from kohort.client.membership import Ended, Lost, Membership, Phase, Settings
from kohort.client.rounds import (
    NO_GENERATION,
    Active,
    Complete,
    Divide,
    Failed,
    Generation,
    Join,
    Prepare,
    Rounds,
    Wait,
)
from kohort.wire.errors import ErrorCode

__all__ = ["NO_GENERATION", "Coordinator", "Generation", "JoinedMember"]

LEAVE_MS = 5_000
"""A coordinator that closes waits this long for the answer to its LeaveGroup."""

log = logging.getLogger("kohort.client")


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member of the group, as its leader sees it."""

    member_id: str
    metadata: bytes
    """What its `metadata` gave for the protocol that the group chose."""
    instance_id: str | None = None


class Coordinator:
    """One member of a group: subclass it. See the module's text for what is called when.

    `group_instance_id` makes a static member (KIP-345): it keeps its place when it is closed and comes back within the
    session. The timeouts are Kafka's, in milliseconds: `session_timeout_ms` of silence remove a member,
    `rebalance_timeout_ms` is what all have to come back when the group rebalances. `bootstrap_timeout_ms` bounds the
    first contact: a cluster that never answers is most often a wrong address; one that has answered is waited for.
    Raises ValueError for settings that cannot be.
    """

    protocol_type: ClassVar[str] = ""
    """The kind of group. Members of another kind cannot join it (error 23); `consumer` is that of Kafka's consumers."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        *,
        client_id: str = "kohort",
        group_instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        heartbeat_interval_ms: int = 3_000,
        request_timeout_ms: int = 30_000,
        connect_timeout_ms: int = 10_000,
        bootstrap_timeout_ms: int = 10_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
    ) -> None:
        if not group_id:
            raise ValueError("the group id is empty")
        if not self.protocol_type:
            raise ValueError(f"{type(self).__name__} has no protocol_type")
        if not 0 < heartbeat_interval_ms < session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be above 0 and below session_timeout_ms")
        self._settings = Settings(
            group_id,
            (),
            protocol_type=self.protocol_type,
            instance_id=group_instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            rejoins=False,
        )
        self._discovery = Discovery(
            bootstrap_servers,
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )
        self._bootstrap_timeout_ms = bootstrap_timeout_ms
        self._rounds = Rounds(Membership(self._settings))
        self._member: AsyncMember | None = None
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: asyncio.Lock
        self._news: asyncio.Event
        self._busy: asyncio.Task[Any] | None = None
        """The task that runs a callback."""
        self._closed = False

    # -- to be overridden

    def metadata(self) -> Mapping[str, bytes] | Awaitable[Mapping[str, bytes]]:
        """The protocols that this member supports, best first, each with what the leader should know of the member.

        Called before each JoinGroup. The group takes a protocol that all have, most members' first choice."""
        raise NotImplementedError

    def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes] | Awaitable[Mapping[str, bytes]]:
        """On the leader, which is `leader_id`: what each member is assigned, by member id. Who is left out gets b""."""
        raise NotImplementedError

    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, assignment: bytes
    ) -> Awaitable[None] | None:
        """The assignment is this member's own, until `on_join_prepare` has returned or `on_lost` is called."""
        raise NotImplementedError

    def on_join_prepare(self, generation: int, member_id: str) -> Awaitable[None] | None:
        """Let go of the assignment: until this returns it is still this member's own, unless `generation` is -1."""
        return None

    def on_leave_prepare(self) -> Awaitable[None] | None:
        """The same, before the member leaves the group for good. Not called where there is nothing to let go of."""
        return None

    def on_lost(self, generation: int, member_id: str, reason: str) -> None:
        """The assignment of this generation is not this member's own any more: others may work on it already.

        Called in the loop the moment that it is known, at the latest when the session is over by this member's own
        clock: not later than at the coordinator. A plain function that only tells others: it must not take long.
        `on_join_prepare(-1, …)` follows in the next `ensure_active_group`.
        """
        return

    # -- what is known; from any thread

    @property
    def group_id(self) -> str:
        return self._settings.group_id

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave; empty before it did, and after it has forgotten this member."""
        return self._rounds.membership.member_id

    @property
    def generation(self) -> Generation:
        """The last generation of which this member was part; NO_GENERATION's id where it has been lost."""
        return self._rounds.generation

    @property
    def generation_if_stable(self) -> Generation | None:
        """The generation, where this member owns its assignment at this very instant; None from when it lets go.

        The clock decides, not what has been heard: once the session is over by it, this is None, even if the loop has
        stood still meanwhile.
        """
        rounds = self._rounds
        generation = rounds.generation
        return generation if generation.generation_id >= 0 and rounds.membership.owns(clock_ms()) else None

    @property
    def rejoin_needed(self) -> bool:
        """Whether `ensure_active_group` has something to do."""
        return self._failure is not None or not self._rounds.active

    # -- what is done; in the loop

    async def ensure_active_group(self) -> None:
        """Join the group, or rejoin it, if need be: returns when this member is part of it and its callbacks have run.

        Waits for as long as it takes; it may be cancelled, as by `asyncio.timeout`, and goes on where it was at the
        next call. Raises what a callback raised; Closed; Misuse; ServerError where the coordinator refused:
        FENCED_INSTANCE_ID (82: another member has this one's instance id; for good), INCONSISTENT_GROUP_PROTOCOL (23:
        a group of another protocol type, or with none of the protocols in common), GROUP_MAX_SIZE_REACHED (81),
        INVALID_SESSION_TIMEOUT (26), GROUP_AUTHORIZATION_FAILED (30); KafkaError where no broker can be reached.
        After these the next call tries again.
        """
        self._enter("ensure_active_group")
        async with self._turn:
            while not isinstance(step := self._step(), Active):
                if isinstance(step, Wait):
                    self._news.clear()
                    await self._news.wait()
                else:
                    await self._carry_out(step)

    async def wait_for_rejoin(self) -> None:
        """Returns when `rejoin_needed`: the group rebalances, the assignment was lost, or the membership has failed.

        Raises Closed when the coordinator is closed meanwhile.
        """
        self._enter("wait_for_rejoin")
        while not self.rejoin_needed:
            self._news.clear()
            await self._news.wait()
            if self._closed:
                raise Closed(f"group {self.group_id}: the coordinator was closed")

    def request_rejoin(self, reason: str) -> None:
        """Make the group rebalance, for instance because `metadata` has changed. `reason` goes to the broker's log."""
        member = self._enter("request_rejoin")
        self._rounds.reason = reason
        membership = member.membership
        membership.subscribe(membership.settings.protocols, clock_ms(), reason)
        member.act()

    async def close(self, *, leave: bool | None = None) -> None:
        """Leave the group. Closing twice does nothing; an `ensure_active_group` in another task raises Closed.

        `leave` None: a dynamic member tells the coordinator, so that the others need not wait; a static member says
        nothing, so that it can come back. Waits for a callback that is running. Raises what `on_leave_prepare` raised,
        after it has left; Misuse inside a callback.
        """
        if self._closed and self._member is None:
            return
        member = self._enter("close", closing=True)
        self._closed = True
        self._news.set()
        async with self._turn:
            if self._member is None:
                return  # another task has closed it meanwhile
            try:
                if self._rounds.generation.generation_id >= 0:
                    await self._call(self.on_leave_prepare)
            finally:
                await self._leave(member, leave)

    async def __aenter__(self) -> Self:
        self._enter("async with")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- inside

    def _enter(self, call: str, *, closing: bool = False) -> AsyncMember:
        """Checks that every call begins with."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise Misuse(f"{call}: no event loop runs in this thread") from None
        if self._loop is None:
            self._loop = loop
            self._turn = asyncio.Lock()
            self._news = asyncio.Event()
        if loop is not self._loop:
            raise Misuse(f"{call}: this coordinator belongs to another event loop, the one in which it was first used")
        if self._closed and not closing:
            raise Closed(f"{call}: the coordinator of group {self.group_id} is closed")
        if call in ("ensure_active_group", "close") and self._busy is asyncio.current_task():
            raise Misuse(f"{call} was called inside a callback of the same coordinator")
        if self._member is None:
            self._member = self._new_member()
        return self._member

    def _new_member(self) -> AsyncMember:
        return AsyncMember(
            self._rounds.membership,
            self._discovery,
            bootstrap_timeout_ms=self._bootstrap_timeout_ms,
            tell=self._heard,
            give_up=self._gave_up,
        )

    def _heard(self, news: News) -> None:
        member_id = self._rounds.generation.member_id
        self._rounds.heard(news)
        if isinstance(news, Lost) and not self._closed:
            log.warning("group %s: lost generation %d: %s", self.group_id, news.generation_id, news.reason)
            try:
                self.on_lost(news.generation_id, member_id, news.reason)
            except Exception:
                log.exception("group %s: on_lost raised", self.group_id)
        if isinstance(news, Ended) and news.error:
            self._failure = self._refused(news.error)
        self._news.set()

    def _refused(self, error: int) -> Exception:
        hint = None
        if error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            offered = ", ".join(protocol.name for protocol in self._rounds.membership.settings.protocols)
            hint = f"its members are not of type {self.protocol_type!r}, or none of {offered} is common to all"
        elif error == ErrorCode.FENCED_INSTANCE_ID:
            hint = f"another member has joined as {self._settings.instance_id!r}"
        return server_error(error, f"group {self.group_id}", hint)

    def _gave_up(self, error: Exception) -> None:
        if self._failure is None and self._member is not None:
            self._failure = error
            self._member.membership.leave(clock_ms())  # it could not be told any more that it has lost something
            self._member.act()
            self._news.set()

    def _step(self) -> Any:
        if self._closed:
            raise Closed(f"group {self.group_id}: the coordinator was closed")
        failure = self._failure
        if failure is None:
            return self._rounds.step()
        if getattr(failure, "code", None) != ErrorCode.FENCED_INSTANCE_ID:
            self._begin_anew()
        raise failure

    def _begin_anew(self) -> None:
        self._failure = None
        if self._member is not None:
            self._member.close()
        self._rounds = self._rounds.anew(Membership(self._settings))
        self._member = self._new_member()

    async def _carry_out(self, step: Any) -> None:
        rounds = self._rounds
        match step:
            case Prepare():
                await self._call(self.on_join_prepare, step.generation.generation_id, step.generation.member_id)
                rounds.prepared()
            case Join():
                rounds.join(await self._call(self.metadata), clock_ms())
            case Divide():
                joined = step.assign.members
                members = [JoinedMember(m.member_id, bytes(m.metadata), m.group_instance_id) for m in joined]
                leader_id = rounds.membership.member_id
                divided = await self._call(self.perform_assignment, leader_id, step.assign.protocol, members)
                strangers = set(divided) - {member.member_id for member in members}
                if strangers:
                    raise Misuse(f"perform_assignment: no members of group {self.group_id}: {sorted(strangers)}")
                rounds.divided(step, divided, clock_ms())
            case Complete():
                new = step.assigned
                await self._call(
                    self.on_join_complete, new.generation_id, new.member_id, new.protocol, bytes(new.assignment)
                )
                rounds.completed(step)
            case Failed():
                raise AssertionError(step)  # _failure came first
        if self._member is not None:
            self._member.act()

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

    async def _leave(self, member: AsyncMember, leave: bool | None) -> None:
        membership = member.membership
        try:
            if leave is False:
                return
            membership.leave(clock_ms(), "the coordinator was closed", static_too=bool(leave))
            member.act()
            deadline = clock_ms() + LEAVE_MS
            while membership.phase is not Phase.ENDED and clock_ms() < deadline:
                self._news.clear()
                try:
                    async with asyncio.timeout((deadline - clock_ms()) / 1000):
                        await self._news.wait()
                except TimeoutError:
                    break
        finally:
            member.close()
            self._member = None
            self._rounds.heard(Ended(0))
            self._news.set()
