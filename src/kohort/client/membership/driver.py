"""A member of a group on an event loop: carries out what a membership without IO asks for, of any protocol.

It sends requests and passes their answers in, finds the coordinator, and wakes the membership at its deadlines. Events
for the application (LetGo, Assign, Assigned, Lost, Ended; or those of the other memberships) go to `on_event`, at once
and in order. An error that makes it impossible to go on goes to `on_failure`. Everything runs in the loop's thread.

Heartbeats are timers of the loop: they go on while the application awaits something and stop while it blocks the loop.
A late wake-up is logged, because a member that sends its heartbeat late may have lost its session.

If the system has a clock that continues while the machine sleeps, this clock is used, because the coordinator's
session continues too.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kohort.client.backoff import Backoff
from kohort.client.errors import KafkaError
from kohort.client.membership.classic import Membership
from kohort.client.membership.consumer import ConsumerMembership
from kohort.client.membership.coordinator_requests import Ask, FindCoordinator, Millis
from kohort.client.membership.share import ShareMembership
from kohort.client.wire.async_connection import AsyncConnection
from kohort.client.wire.discovery import Address, Discovery
from kohort.wire.schemas.api_versions import LASTING_GENERATIONS
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupResponse

ANSWERS: dict[type, type] = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
    ShareGroupHeartbeatRequest: ShareGroupHeartbeatResponse,
}

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

log = logging.getLogger("kohort.client")


def clock_ms() -> Millis:
    """The current time, for memberships."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


class AsyncMember:
    """Belongs to the event loop in which it is made. Call `act` after each call of `membership`."""

    def __init__(
        self,
        membership: Membership | ConsumerMembership | ShareMembership,
        discovery: Discovery,
        *,
        bootstrap_timeout_ms: Millis,
        on_event: Callable[[Any], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.membership = membership
        self._discovery = discovery
        self._bootstrap_timeout_ms = bootstrap_timeout_ms
        self._on_event = on_event
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._connection: AsyncConnection | None = None
        self._address: Address | None = None
        self._task: asyncio.Task[None] | None = None
        """The search for the coordinator."""
        self._timer: asyncio.TimerHandle | None = None
        self._planned: Millis = 0
        self._acting = False
        self._closed = False
        self.lasting_generations = False
        """True if the last coordinator never uses a generation twice."""

    def close(self) -> None:
        """Close the connection. The group is not left."""
        self._closed = True
        self._drop()
        if self._timer is not None:
            self._timer.cancel()

    def act(self) -> None:
        """Carry out the membership's actions."""
        if self._acting or self._closed:
            return  # the outer call continues until no action is left
        self._acting = True
        try:
            while actions := self.membership.take():
                for action in actions:
                    match action:
                        case Ask():
                            self._ask(action)
                        case FindCoordinator():
                            self._drop()
                            self._task = self._loop.create_task(self._find())
                        case _:
                            self._on_event(action)
        finally:
            self._acting = False
        self._arm()

    # -- time

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = None if self._closed else self.membership.next_deadline()
        if deadline is not None:
            self._planned = deadline
            self._timer = self._loop.call_later(max(0, deadline - clock_ms()) / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = clock_ms()
        late = now - self._planned
        if late > self.membership.heartbeat_interval_ms:
            log.warning(
                "group %s: the event loop was blocked for %d ms, in which no heartbeat was sent; "
                "run blocking code in a thread (asyncio.to_thread)",
                self.membership.settings.group_id,
                late,
            )
        self.membership.wake(now, random.random())
        self.act()

    # -- requests

    def _ask(self, action: Ask) -> None:
        connection = self._connection
        if connection is None:
            self._loop.call_soon(self._failed, None)
        elif isinstance(action.request, LeaveGroupRequest) and "JoinGroup" in connection.unanswered:
            # The broker reads no further request before it has answered a parked JoinGroup.
            self._task = self._loop.create_task(self._ask_elsewhere(action))
        else:
            self._ask_on(connection, action)

    def _ask_on(self, connection: AsyncConnection, action: Ask) -> None:
        try:
            answer: asyncio.Future[Any] = connection.ask(action.request, ANSWERS[type(action.request)])
        except KafkaError as error:
            self._loop.call_soon(self._on_failure, error)
            return
        answer.add_done_callback(partial(self._answered, action.number, connection))

    async def _ask_elsewhere(self, action: Ask) -> None:
        former, address = self._connection, self._address
        assert address is not None
        try:
            self._connection = await self._discovery.open(address)
        except Exception as error:
            log.info("group %s: %s", self.membership.settings.group_id, error)
            return self._failed(former)  # its session will end
        self._ask_on(self._connection, action)
        if former is not None:
            former.close()
        return None

    def _answered(self, number: int, connection: AsyncConnection, answer: asyncio.Future[Any]) -> None:
        if self._closed or answer.cancelled() or connection is not self._connection:
            return
        error = answer.exception()
        if error is not None:
            log.info("group %s: %s", self.membership.settings.group_id, error)
            self._failed(connection)
            return
        self.membership.received(number, answer.result(), clock_ms(), random.random())
        self.act()

    def _failed(self, connection: AsyncConnection | None) -> None:
        if not self._closed and connection is self._connection:
            self.membership.failed(clock_ms(), random.random())
            self.act()

    # -- the coordinator

    def _drop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _find(self) -> None:
        settings = self.membership.settings
        backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        try:
            address, connection = await self._discovery.open_coordinator(
                settings.group_id, backoff, self._bootstrap_timeout_ms
            )
        except Exception as error:
            self._task = None
            return self._on_failure(error)
        self._address, self._connection, self._task = address, connection, None
        self.lasting_generations = LASTING_GENERATIONS in connection.exchange.features
        self.membership.coordinator_found(clock_ms())
        return self.act()
