"""A coordinator's place in its group, on an event loop: a membership, the callbacks that are due, and a failure.

`Coordinator` calls it in the application's loop. `BlockingCoordinator` calls it from the application's threads, in a
loop of its own. After a failure the next `step` begins with a new membership; after FENCED_INSTANCE_ID it fails again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from kohort.client.coordination.callback_order import (
    CallbackOrder,
    Complete,
    Divide,
    Failed,
    Generation,
    Join,
    Prepare,
    Step,
)
from kohort.client.errors import Misuse, server_error
from kohort.client.membership.classic import Assign, Assigned, LetGo, Lost, Membership, Phase, Settings
from kohort.client.membership.coordinator_requests import Ended
from kohort.client.membership.driver import AsyncMember, clock_ms
from kohort.client.wire.discovery import Discovery
from kohort.wire.errors import ErrorCode

Event = LetGo | Assign | Assigned | Lost | Ended

CLOSED = "it was closed"
"""Why a member has left whose program has stopped."""
LEAVE_MS = 5_000
"""How long a member that leaves waits for the answer to LeaveGroup."""

log = logging.getLogger("kohort.client")


class Session:
    """The properties may be read in any thread. `bind` binds it to the running loop; all else belongs there."""

    def __init__(
        self,
        settings: Settings,
        discovery: Discovery,
        bootstrap_timeout_ms: int,
        on_lost: Callable[[int, str, str], None],
    ) -> None:
        self.settings = settings
        self.left = False
        self._bound = False
        self._quiet = False
        self._discovery = discovery
        self._bootstrap_timeout_ms = bootstrap_timeout_ms
        self._on_lost = on_lost
        self._order = CallbackOrder(Membership(settings))
        self._failure: Exception | None = None
        self._member: AsyncMember
        self._woken: asyncio.Event

    def bind(self) -> None:
        """Bind the session to the running event loop. It sends nothing before the first round."""
        self._woken = asyncio.Event()
        self._member = self._new_member()
        self._bound = True

    # -- what is known

    @property
    def member_id(self) -> str:
        return self._order.membership.member_id

    @property
    def generation(self) -> Generation:
        return self._order.generation

    @property
    def generation_if_stable(self) -> Generation | None:
        order = self._order
        generation = order.generation
        return generation if generation.generation_id >= 0 and order.membership.owns(clock_ms()) else None

    @property
    def lease_left_ms(self) -> int:
        return self._order.membership.lease_left(clock_ms())

    @property
    def lasting_generations(self) -> bool:
        return self._bound and self._member.lasting_generations

    @property
    def joined(self) -> bool:
        """Whether the member is in the group, or joining."""
        return self._order.membership.phase not in (Phase.OUTSIDE, Phase.LEAVING, Phase.ENDED)

    @property
    def settled(self) -> bool:
        """True if no callback is due."""
        return self._failure is None and self._order.active

    # -- a round

    def step(self) -> Step:
        """The step that is due. Raises a failure once."""
        failure = self._failure
        if failure is None:
            step = self._order.step()
            if not isinstance(step, Failed):
                return step
            self._begin_anew()  # it has left without an error
            return self._order.step()
        if getattr(failure, "code", None) != ErrorCode.FENCED_INSTANCE_ID:
            self._begin_anew()
        raise failure

    def done(self, step: Step, result: Any = None) -> None:
        """The callback of a step has returned `result`."""
        order = self._order
        match step:
            case Prepare():
                order.prepared()
            case Join():
                order.join(result, clock_ms())
            case Divide():
                strangers = set(result) - {member.member_id for member in step.assign.members}
                if strangers:
                    group = self.settings.group_id
                    raise Misuse(f"perform_assignment: no members of group {group}: {sorted(strangers)}")
                order.divided(step, result, clock_ms())
            case Complete():
                order.completed(step, clock_ms())
        self._member.act()

    async def changed(self) -> None:
        """Returns after the next event."""
        self._woken.clear()
        await self._woken.wait()

    def wake(self) -> None:
        """Wake those that wait in `changed`."""
        self._woken.set()

    def request_rejoin(self, reason: str) -> None:
        self._order.rejoin(reason, clock_ms())
        self._member.act()

    # -- the end

    def retire(self, reason: str, *, quietly: bool = False) -> None:
        """Leave the group; the next `step` joins again. `quietly`: without on_lost, as the application has let go."""
        self._quiet = quietly
        self._order.membership.leave(clock_ms(), reason)
        self._member.act()
        self._quiet = False

    async def leave(self, leave: bool | None) -> None:
        """Leave for good. `leave`: send LeaveGroup always (True), never (False), unless the member is static (None)."""
        self.left = True
        membership = self._order.membership
        try:
            if leave is not False:
                membership.leave(clock_ms(), CLOSED, static_too=bool(leave))
                self._member.act()
                async with asyncio.timeout(LEAVE_MS / 1000):
                    while membership.phase is not Phase.ENDED:
                        await self.changed()
        except TimeoutError:
            pass  # the coordinator removes the member when its session ends
        finally:
            self._member.close()
            self._order.on_event(Ended(0))
            self._woken.set()

    # -- inside

    def _new_member(self) -> AsyncMember:
        return AsyncMember(
            self._order.membership,
            self._discovery,
            bootstrap_timeout_ms=self._bootstrap_timeout_ms,
            on_event=self._on_event,
            on_failure=self._on_failure,
        )

    def _begin_anew(self) -> None:
        self._failure = None
        self._member.close()
        self._order = self._order.anew(Membership(self.settings))
        self._member = self._new_member()

    def _on_event(self, event: Event) -> None:
        member_id = self._order.generation.member_id
        self._order.on_event(event)
        if isinstance(event, Lost) and not self.left and not self._quiet:
            log.warning("group %s: lost generation %d: %s", self.settings.group_id, event.generation_id, event.reason)
            try:
                self._on_lost(event.generation_id, member_id, event.reason)
            except Exception:
                log.exception("group %s: on_lost raised", self.settings.group_id)
        if isinstance(event, Ended) and event.error:
            self._failure = self._refused(event.error)
        self._woken.set()

    def _refused(self, error: int) -> Exception:
        hint = None
        if error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            offered = ", ".join(protocol.name for protocol in self._order.membership.settings.protocols)
            hint = f"its members are not of type {self.settings.protocol_type!r}, or none of {offered} is common to all"
        elif error == ErrorCode.FENCED_INSTANCE_ID:
            hint = f"another member has joined as {self.settings.instance_id!r}"
        elif error == ErrorCode.INVALID_SESSION_TIMEOUT:
            hint = (
                f"session_timeout_ms is {self.settings.session_timeout_ms}, outside of the broker's bounds "
                "group.min.session.timeout.ms (6000 by default) and group.max.session.timeout.ms"
            )
        return server_error(error, f"group {self.settings.group_id}", hint)

    def _on_failure(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            self.retire("")  # it cannot learn any more that its assignment is lost
            self._woken.set()
