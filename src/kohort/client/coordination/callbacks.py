"""The common part of both coordinators: the settings, the callbacks that a subclass overrides, and the properties.

`Coordinator` (asyncio) and `BlockingCoordinator` (threads) add the calls. The order of the callbacks is described in
`client/coordination/coordinator.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, ClassVar, Never

from kohort.client.coordination.callback_order import Complete, Divide, Generation, Join, Prepare, Step
from kohort.client.coordination.session import Session
from kohort.client.membership.classic import Settings
from kohort.client.security.security import Security
from kohort.client.settings import heartbeat_interval, refuse_unknown
from kohort.client.wire.discovery import Discovery


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member of the group, as its leader sees it."""

    member_id: str
    metadata: bytes
    """Its `metadata` for the protocol that the group chose."""
    instance_id: str | None = None


class Callbacks(ABC):
    """See `Coordinator`. Raises ValueError for impossible settings, TypeError for unknown ones."""

    protocol_type: ClassVar[str] = ""
    """The kind of group. Members of another kind cannot join (error 23). Kafka's consumers have `consumer`."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        *,
        client_id: str = "kohort",
        group_instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        heartbeat_interval_ms: int | None = None,
        request_timeout_ms: int = 30_000,
        connect_timeout_ms: int = 10_000,
        bootstrap_timeout_ms: int = 10_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
        security: Security | Mapping[str, str] | None = None,
        **unknown: Never,
    ) -> None:
        if unknown:
            refuse_unknown(type(self).__name__, unknown, SETTINGS)
        if not group_id:
            raise ValueError("the group id is empty")
        if not self.protocol_type:
            raise ValueError(f"{type(self).__name__} has no protocol_type")
        settings = Settings(
            group_id,
            (),
            protocol_type=self.protocol_type,
            instance_id=group_instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval(heartbeat_interval_ms, session_timeout_ms),
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
        """The protocols that this member supports, best first, each with data about the member for the leader.

        Called before each JoinGroup. The group chooses a protocol that all members have: most members' first choice."""

    @abstractmethod
    def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes] | Awaitable[Mapping[str, bytes]]:
        """On the leader, which is `leader_id`: the assignment of each member, by member id. A member that is missing
        from the result gets b""."""

    @abstractmethod
    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, assignment: bytes
    ) -> Awaitable[None] | None:
        """The member owns the assignment until `on_join_prepare` has returned or `on_lost` is called."""

    def on_join_prepare(self, generation: int, member_id: str) -> Awaitable[None] | None:
        """Give up the assignment: the member owns it until this returns, unless `generation` is -1."""
        return None

    def on_leave_prepare(self) -> Awaitable[None] | None:
        """Give up the assignment before the member leaves the group for good. Not called without an assignment."""
        return None

    def on_lost(self, generation: int, member_id: str, reason: str) -> None:
        """The member does not own the assignment of this generation any more: others may work on it already.

        Called in the loop as soon as this is known, at the latest when the session ends by this member's own clock,
        which is not later than at the coordinator. A plain function that must return quickly. Unless `on_join_prepare`
        was called for this assignment already, the next `ensure_active_group` calls `on_join_prepare(-1, …)`. Also
        called if the member is removed while the group rebalances, because the application may keep its work then.
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
        """The last generation that this member was part of; NO_GENERATION's id once its assignment is lost."""
        return self._session.generation

    @property
    def generation_if_stable(self) -> Generation | None:
        """The generation, if this member owns its assignment at this instant; None from when it lets go.

        The clock decides: once the session has ended by it, this is None, even if no code has run since then. One case
        is not covered: a member that takes longer than the rebalance timeout to let go is removed, and learns of it
        with the answer to its next heartbeat.
        """
        return self._session.generation_if_stable

    @property
    def lease_left_ms(self) -> int:
        """The least time for which the coordinator keeps this member, by the clock; 0 if it may have removed the
        member.

        The session, counted from when the last accepted request was sent. Unlike `generation_if_stable`, it counts
        also while the group rebalances, for applications that keep work over a rebalance. The order is safe if
        `rebalance_timeout_ms` is at least twice `session_timeout_ms`.
        """
        return self._session.lease_left_ms

    @property
    def lasting_generations(self) -> bool:
        """Whether the coordinator never uses a generation of this group twice, whatever happens: True on kohort.

        Known from the first round on. Other clusters count from 1 again in a group that was deleted or has expired.
        """
        return self._session.lasting_generations

    @property
    def rejoin_needed(self) -> bool:
        """True if `ensure_active_group` has work to do."""
        return not self._session.settled

    # -- inside

    def _tell_lost(self, generation: int, member_id: str, reason: str) -> None:
        self.on_lost(generation, member_id, reason)

    def _callback(self, step: Step) -> tuple[Any, tuple[Any, ...]]:
        """The callback of a step, and its arguments."""
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


_PARAMETERS = signature(Callbacks.__init__).parameters
SETTINGS = frozenset(name for name in _PARAMETERS if _PARAMETERS[name].kind is Parameter.KEYWORD_ONLY)
"""The settings of a coordinator."""

FIXED = frozenset({"group_instance_id", "rebalance_timeout_ms"})
"""The settings of a coordinator that `lead` and `shards` choose themselves."""

SESSION_TIMEOUT_MS = 10_000
"""The default session of leaders and workers: after this time, others take over what a dead one had."""


def check_settings(call: str, settings: Mapping[str, Any], others: Iterable[str]) -> None:
    """Check the `settings` of a call that makes a coordinator; `others` are its parameters besides. Raises ValueError,
    TypeError."""
    for name in sorted(FIXED & settings.keys()):
        raise ValueError(f"{call}: {name} cannot be chosen")
    refuse_unknown(call, settings, (SETTINGS - FIXED) | {"session_timeout_ms", *others})
