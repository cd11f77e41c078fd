"""A simulated user of `Coordinator`: the library's order of callbacks, on our sans-IO member.

It does in virtual time what `Session` and `Coordinator` do on an event loop: callbacks run one at a time and may take a
while; the member heartbeats meanwhile.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from kohort.client.coordination.callback_order import (
    Active,
    CallbackOrder,
    Complete,
    Divide,
    Failed,
    Join,
    Prepare,
    Step,
    Wait,
)
from kohort.client.membership.classic import Lost, Membership, Phase, Settings
from kohort.simulator.actors.member import NEWEST
from kohort.simulator.actors.participant import Participant
from kohort.simulator.checks.holders import Holders
from kohort.simulator.plan import Faults
from kohort.simulator.world.process import Process
from kohort.simulator.world.world import Millis, World
from kohort.wire.schemas.join_group import JoinGroupResponseMember

LOOK_AGAIN_MS = 200


class LibraryUser(Participant):
    membership: Membership
    protocol_type = ""

    def __init__(
        self, world: World, process: Process, faults: Faults, name: str, holders: Holders, options: dict[str, Any]
    ) -> None:
        super().__init__(world, process, faults, name, options)
        self.holders = holders
        self.rounds = CallbackOrder(Membership(self._settings()))
        self._busy = False
        self._watch = 0

    def _settings(self) -> Settings:
        session = self.options["session_ms"]
        return Settings(
            self.group,
            (),
            protocol_type=self.protocol_type,
            session_timeout_ms=session,
            rebalance_timeout_ms=2 * session,
            heartbeat_interval_ms=session // 4,
            request_timeout_ms=self.options["patience_ms"],
            rejoins=False,
        )

    # -- for the kinds of users

    @abstractmethod
    def metadata(self) -> Mapping[str, bytes]: ...

    @abstractmethod
    def divide(self, members: Sequence[JoinGroupResponseMember]) -> Mapping[str, bytes]: ...

    @abstractmethod
    def joined(self, generation: int, assignment: bytes) -> None: ...

    @abstractmethod
    def lapse(self) -> None:
        """Its lease is over, or its assignment lost."""

    @abstractmethod
    def holds(self, thing: str) -> bool:
        """Whether it believes, by the clock, that it holds the thing."""

    # -- its life

    def begin(self) -> None:
        self.rounds = CallbackOrder(Membership(self._settings()))
        self.membership = self.rounds.membership
        self._busy = False
        self._watch += 1
        self.advance()

    def say_goodbye(self, *, static_too: bool) -> None:
        self.forget()
        self.membership.leave(self.world.now, "it is done")

    @property
    def content(self) -> bool:
        return self.running and not self.paused and self.membership.phase is Phase.STABLE and self.rounds.active

    @property
    def lease_lasts(self) -> bool:
        return self.running and self.membership.lease_left(self.world.now) > 0

    def watch_lease(self) -> None:
        """Like LeaseWatch, from each round on."""
        self._watch += 1
        self._look_at_lease(self._watch)

    def stop_watching(self) -> None:
        self._watch += 1

    def _look_at_lease(self, watch: int) -> None:
        if watch != self._watch:
            return
        left = self.membership.lease_left(self.world.now)
        if left > 0:
            self.soon(left, self._look_at_lease, watch)
        else:
            self.lapse()
            self.soon(LOOK_AGAIN_MS, self._look_whether_kept, watch)

    def _look_whether_kept(self, watch: int) -> None:
        if watch != self._watch:
            return
        if self.lease_lasts and self.rounds.active:
            self.rejoin("the lease was over")
        else:
            self.soon(LOOK_AGAIN_MS, self._look_whether_kept, watch)

    # -- the membership's actions and the round

    def act(self) -> None:
        super().act()
        if self.running:
            self.soon(0, self._go_on, self.membership)

    def version_of(self, request: Any) -> int:
        return NEWEST[type(request)]

    def on_action(self, action: Any) -> None:
        self.rounds.on_event(action)
        if isinstance(action, Lost):
            self.tell(f"has lost generation {action.generation_id}: {action.reason}")
            self.stop_watching()
            self.lapse()

    def _go_on(self, membership: Membership) -> None:
        if membership is self.membership and not self._busy:
            self.advance()

    def advance(self) -> None:
        """Run the callback that is due; it may take a while."""
        step = self.rounds.step()
        if isinstance(step, Failed | Wait | Active):
            return
        self._busy = True
        self.soon(self._takes(step), self._done, self.membership, step)

    def _takes(self, step: Step) -> Millis:
        if self.is_late(0.2):
            return self.random.randrange(1_000, 2 * self.options["session_ms"])
        return self.random.choice((0, 0, 1, 50))

    def _done(self, membership: Membership, step: Step) -> None:
        if membership is not self.membership:
            return  # of a former life
        self._busy = False
        now = self.world.now
        match step:
            case Prepare():
                self.rounds.prepared()
            case Join():
                self.rounds.join(self.metadata(), now)
            case Divide():
                self.rounds.divided(step, self.divide(step.assign.members), now)
            case Complete(assigned):
                self.joined(assigned.generation_id, bytes(assigned.assignment))
                self.rounds.completed(step, now)
        self.act()

    def rejoin(self, reason: str) -> None:
        self.rounds.rejoin(reason, self.world.now)
        self.act()
