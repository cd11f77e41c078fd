"""Which callback of a coordinator is due, without IO: the membership's events go in, the next step comes out.

    order.on_event(event)                    # what an AsyncMember hands out
    match order.step():
        case Failed():    the membership has ended, with this error
        case Prepare():   call on_join_prepare, then `prepared`
        case Join():      call metadata, then `join`
        case Divide():    call perform_assignment, then `divided`
        case Complete():  call on_join_complete, then `completed`
        case Wait():      nothing to do until the next event
        case Active():    the member owns its assignment, and the application knows it

A round is Prepare, Join, Divide on the leader, Complete. A callback that has failed is due again until it succeeds or
the group has gone on without the member. Prepare is due once for each assignment that the application knows, and before
the first round. If the assignment is lost before Prepare, Prepare has NO_GENERATION's id: others may own the assignment
then. If it is lost after Prepare, the round begins again with Join, so that `metadata` describes what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kohort.client.membership.classic import Assign, Assigned, LetGo, Lost, Membership, Phase, Protocol
from kohort.client.membership.coordinator_requests import Ended, Millis


@dataclass(frozen=True, slots=True)
class Generation:
    """The proof that a member belongs to the group; an offset commit carries the first two fields."""

    generation_id: int
    member_id: str
    protocol: str | None
    """The name of the protocol that the group chose."""


NO_GENERATION = Generation(-1, "", None)


@dataclass(frozen=True, slots=True)
class Failed:
    error: int


@dataclass(frozen=True, slots=True)
class Prepare:
    generation: Generation


@dataclass(frozen=True, slots=True)
class Join:
    pass


@dataclass(frozen=True, slots=True)
class Divide:
    assign: Assign


@dataclass(frozen=True, slots=True)
class Complete:
    assigned: Assigned


@dataclass(frozen=True, slots=True)
class Wait:
    pass


@dataclass(frozen=True, slots=True)
class Active:
    pass


Step = Failed | Prepare | Join | Divide | Complete | Wait | Active


class CallbackOrder:
    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.generation = NO_GENERATION
        self._prepare_due = True
        self._assign: Assign | None = None
        self._assigned: Assigned | None = None
        """An assignment for which on_join_complete was not called yet."""
        self._error: int | None = None
        self._rejoin_reason: str | None = None
        """Why another round is due. That round needs a call of `metadata` after this instant."""

    def anew(self, membership: Membership) -> CallbackOrder:
        """The order for a new membership of the same application, which first lets go of its assignment."""
        order = CallbackOrder(membership)
        order._prepare_due = self._prepare_due
        return order

    def on_event(self, event: LetGo | Assign | Assigned | Lost | Ended) -> None:
        match event:
            case Assign():
                self._assign = event
            case Assigned():
                self._assigned = event
                self.generation = Generation(event.generation_id, event.member_id, event.protocol or None)
            case LetGo():
                self._assigned = None
            case Lost():
                self._assigned = None
                member_id = self.membership.member_id
                self.generation = Generation(-1, member_id, None) if member_id else NO_GENERATION
            case Ended():
                self._assigned = None
                self.generation = NO_GENERATION
                self._error = event.error

    def step(self) -> Step:
        """The callback that is due now."""
        if self._error is not None:
            return Failed(self._error)
        match self.membership.phase:
            case Phase.OUTSIDE | Phase.LETTING_GO if self._prepare_due:
                return Prepare(self.generation)
            case Phase.OUTSIDE | Phase.LETTING_GO:
                self._rejoin_reason = None
                return Join()
            case Phase.ASSIGNING if self._assign is not None:
                return Divide(self._assign)
            case Phase.STABLE if self._assigned is not None:
                self._prepare_due = True  # also if the callback fails half-way
                return Complete(self._assigned)
            case Phase.STABLE if self.generation.generation_id == self.membership.generation_id:
                return Active()
            case _:
                return Wait()

    @property
    def active(self) -> bool:
        """Whether nothing is due."""
        return (
            self._error is None
            and self.membership.phase is Phase.STABLE
            and self._assigned is None
            and self.generation.generation_id == self.membership.generation_id
        )

    # -- the callbacks' results

    def prepared(self) -> None:
        self._prepare_due = False

    def join(self, protocols: Mapping[str, bytes], now: Millis) -> None:
        """Ignored if the group has started another round."""
        offered = tuple(Protocol(name, metadata) for name, metadata in protocols.items())
        match self.membership.phase:
            case Phase.OUTSIDE:
                self.membership.subscribe(offered, now)
                self.membership.join(now)
            case Phase.LETTING_GO:
                self.membership.subscribe(offered, now)
                self.membership.let_go(now)

    def divided(self, step: Divide, assignments: Mapping[str, bytes], now: Millis) -> None:
        if self._assign is step.assign:
            self._assign = None
            self.membership.assign(step.assign.generation_id, assignments, now)

    def completed(self, step: Complete, now: Millis) -> None:
        if self._assigned is step.assigned:
            self._assigned = None
            if self._rejoin_reason is not None:
                self.rejoin(self._rejoin_reason, now)

    # -- what the application wants

    def rejoin(self, reason: str, now: Millis) -> None:
        """Begin another round after the present one, with a new call of `metadata`."""
        self._rejoin_reason = reason
        if self.active:
            self.membership.subscribe(self.membership.settings.protocols, now, reason)
