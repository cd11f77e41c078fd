"""What every kind of coordinator is made of: its settings, the callbacks that a subclass overrides, what is known.

`Coordinator` (asyncio) and `BlockingCoordinator` (threads) add the calls. The order of the callbacks is in
`client/coordination/coordinator.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kohort.client.coordination.callback_order import Complete, Divide, Generation, Join, Prepare, Step
from kohort.client.coordination.session import Session
from kohort.client.membership.classic import Settings
from kohort.client.security.security import Security
from kohort.client.wire.discovery import Discovery


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member of the group, as its leader sees it."""

    member_id: str
    metadata: bytes
    """What its `metadata` gave for the protocol that the group chose."""
    instance_id: str | None = None


class Callbacks(ABC):
    """See `Coordinator`. Raises ValueError for settings that cannot be."""

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
        security: Security | Mapping[str, str] | None = None,
    ) -> None:
        if not group_id:
            raise ValueError("the group id is empty")
        if not self.protocol_type:
            raise ValueError(f"{type(self).__name__} has no protocol_type")
        if not 0 < heartbeat_interval_ms < session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be above 0 and below session_timeout_ms")
        settings = Settings(
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
        self._security = Security.of(security)
        discovery = Discovery(
            bootstrap_servers,
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            security=self._security,
        )
        self._settings = settings
        self._session = Session(settings, discovery, bootstrap_timeout_ms, self._tell_lost)

    # -- to be overridden

    @abstractmethod
    def metadata(self) -> Mapping[str, bytes] | Awaitable[Mapping[str, bytes]]:
        """The protocols that this member supports, best first, each with what the leader should know of the member.

        Called before each JoinGroup. The group takes a protocol that all have, most members' first choice."""

    @abstractmethod
    def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes] | Awaitable[Mapping[str, bytes]]:
        """On the leader, which is `leader_id`: what each member is assigned, by member id. Who is left out gets b""."""

    @abstractmethod
    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, assignment: bytes
    ) -> Awaitable[None] | None:
        """The assignment is this member's own, until `on_join_prepare` has returned or `on_lost` is called."""

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
        `on_join_prepare(-1, …)` follows in the next `ensure_active_group`, unless it was called for this assignment
        already: who is removed while the group rebalances is told as well, for what it may have kept.
        """
        return

    # -- what is known; from any thread

    @property
    def group_id(self) -> str:
        return self._settings.group_id

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave; empty before it did, and after it has forgotten this member."""
        return self._session.member_id

    @property
    def generation(self) -> Generation:
        """The last generation of which this member was part; NO_GENERATION's id where it has been lost."""
        return self._session.generation

    @property
    def generation_if_stable(self) -> Generation | None:
        """The generation, where this member owns its assignment at this very instant; None from when it lets go.

        The clock decides, not what has been heard: once the session is over by it, this is None, even if nothing has
        run meanwhile that could have noticed. One thing it cannot know: a member that takes longer than the rebalance
        timeout to let go is removed, and hears of it with the answer to its next heartbeat.
        """
        return self._session.generation_if_stable

    @property
    def lease_left_ms(self) -> int:
        """For how long the coordinator keeps this member's place at least, by the clock; 0 where it may be gone.

        The session, counted from when the last accepted request was sent. Unlike `generation_if_stable` it goes on
        while the group rebalances, for those who keep something over a rebalance; that is sound where
        `rebalance_timeout_ms` is at least twice `session_timeout_ms`.
        """
        return self._session.lease_left_ms

    @property
    def lasting_generations(self) -> bool:
        """Whether the coordinator never uses a generation of this group twice, whatever happens: on kohort, True.

        Known from the first round on. Other clusters count from 1 again in a group that was deleted or forgotten.
        """
        return self._session.lasting_generations

    @property
    def rejoin_needed(self) -> bool:
        """Whether `ensure_active_group` has something to do."""
        return not self._session.settled

    # -- inside

    def _tell_lost(self, generation: int, member_id: str, reason: str) -> None:
        self.on_lost(generation, member_id, reason)

    def _callback(self, step: Step) -> tuple[Any, tuple[Any, ...]]:
        """What a step calls, and with what."""
        match step:
            case Prepare(generation):
                return self.on_join_prepare, (generation.generation_id, generation.member_id)
            case Join():
                return self.metadata, ()
            case Divide(assign):
                members = [JoinedMember(m.member_id, bytes(m.metadata), m.group_instance_id) for m in assign.members]
                return self.perform_assignment, (self.member_id, assign.protocol, members)
            case Complete(new):
                arguments = (new.generation_id, new.member_id, new.protocol, bytes(new.assignment))
                return self.on_join_complete, arguments
        raise AssertionError(step)
