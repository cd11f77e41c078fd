"""The common part of members of both protocols: a process that starts and ends, and a connection to the coordinator.

Each life of the process has a new sans-IO membership of the client library. The participant does its IO: it finds the
coordinator, keeps one connection to it, and wakes the membership at its deadlines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from kohort.client.membership.classic import Membership
from kohort.client.membership.consumer import ConsumerMembership
from kohort.client.membership.coordinator_requests import Ask, Ended, FindCoordinator
from kohort.simulator.actors.actor import Actor
from kohort.simulator.plan import Faults
from kohort.simulator.world.network import Link
from kohort.simulator.world.process import Process
from kohort.simulator.world.world import Millis, World
from kohort.wire.known_clients import JAVA
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

HELD_CLIENT = ApiVersionsRequest(client_software_name=JAVA, client_software_version="4.1.0")
"""The name of a client whose heartbeats the server may hold."""


class Participant(Actor, ABC):
    membership: Membership | ConsumerMembership
    greeting = HELD_CLIENT
    """The ApiVersions request that it sends if it has the option `held`."""

    def __init__(self, world: World, process: Process, faults: Faults, name: str, options: dict[str, Any]) -> None:
        super().__init__(world, process, faults, name)
        self.options = options
        self.group: str = options["group"]
        self.instance: str | None = options.get("instance")
        self.life: str = options.get("life", "stays")
        self.lives = 0
        self._link: Link | None = None
        self._finder: Link | None = None
        self._wake_at: Millis | None = None

    # -- its life

    def start(self) -> None:
        """Start a new process; a static member keeps its instance id. Nobody comes after the faults only to go."""
        if self.world.healed and self.life in ("leaves", "dies"):
            return
        self.lives += 1
        self.running = True
        self._wake_at = None
        self.tell("starts")
        self.begin()
        if not self.world.healed:
            plan = {"restarts": self._restart, "leaves": self.leave, "dies": self.die}.get(self.life)
            if plan is not None:
                self.soon(self.random.randrange(1_000, self.options.get("lasts_ms", 15_000)), plan)

    @abstractmethod
    def begin(self) -> None:
        """Create the membership and join."""

    def act(self) -> None:
        """Carry out the membership's actions."""
        for action in self.membership.take():
            match action:
                case Ask():
                    self.ask(action)
                case FindCoordinator():
                    self.drop_coordinator()
                    self.find()
                case Ended():
                    self.over(action.error)
                    return
                case _:
                    self.on_action(action)
        self.plan_wake()

    def ask(self, action: Ask) -> None:
        self.send(action.request, self.version_of(action.request), action.number)

    @abstractmethod
    def version_of(self, request: Any) -> int:
        """The version in which it sends a request of its membership."""

    @abstractmethod
    def on_action(self, action: Any) -> None:
        """Carry out an action of the membership of this kind."""

    @abstractmethod
    def forget(self) -> None:
        """Stop work: the process owns nothing any more."""

    def _restart(self) -> None:
        if self.world.healed:
            return
        if self.random.random() < 0.5:
            self.die()
        else:
            self.leave()
        self.world.after(self.random.choice((10, 1_000, 8_000)), self.revive)

    def revive(self) -> None:
        if not self.running:
            self.start()

    def leave(self) -> None:
        """An orderly end; a static member may end without leaving."""
        if self.running and not self.paused:
            self.tell("leaves")
            self.say_goodbye(static_too=self.random.random() < 0.3)
            self.act()

    def say_goodbye(self, *, static_too: bool) -> None:
        self.membership.leave(self.world.now, static_too=static_too)

    def die(self) -> None:
        """SIGKILL: the operating system closes the connections."""
        if not self.running:
            return
        self.tell("is killed")
        for link in (self._link, self._finder):
            if link is not None:
                link.close()
        self.stop()

    def stop(self) -> None:
        self.forget()
        self._link = self._finder = None
        self.end()

    def over(self, error: int) -> None:
        """Its membership has ended."""
        self.tell(f"its membership ends, error {error}")
        for link in (self._link, self._finder):
            if link is not None:
                self.world.after(5, link.close)
        self.stop()
        if self.life in ("stays", "restarts"):
            self.world.after(self.random.choice((500, 2_000)), self.revive)

    # -- time

    def pace(self) -> Millis:
        """The time until it works again."""
        return self.random.randrange(self.options["work_ms"] // 2, self.options["work_ms"] * 2)

    def is_late(self, chance: float) -> bool:
        """True if a slow member takes too long this time. After the healing none does: members that miss the group's
        timeouts one after the other rightly keep the group from becoming stable."""
        return bool(self.options.get("slow")) and self.random.random() < chance and not self.world.healed

    def plan_wake(self) -> None:
        deadline = self.membership.next_deadline()
        if deadline is not None and (self._wake_at is None or deadline < self._wake_at):
            self._wake_at = deadline
            self.soon(max(deadline - self.world.now, 0), self._wake, self.membership, deadline)

    def _wake(self, membership: Membership | ConsumerMembership, planned: Millis) -> None:
        if membership is not self.membership or self._wake_at != planned:
            return
        self._wake_at = None
        membership.wake(self.world.now, self.random.random())
        self.act()

    # -- the coordinator

    def drop_coordinator(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def find(self) -> None:
        if self._finder is not None:
            self._finder.close()
        self._finder = self.connect(self.any_broker())
        self._finder.ask(FindCoordinatorRequest(key=self.group, coordinator_keys=(self.group,)), 4, "found")
        self.soon(2_000, self._find_again, self._finder)

    def _find_again(self, finder: Link) -> None:
        if finder is self._finder:
            self.find()

    def _found(self, response: FindCoordinatorResponse) -> None:
        assert self._finder is not None
        self._finder.close()
        self._finder = None
        coordinator = response.coordinators[0]
        self.drop_coordinator()  # as clients do: requests under way there must not arrive after the next ones
        self._link = self.connect(coordinator.node_id)
        if self.options.get("held"):
            self._link.ask(self.greeting, 3)
        self.membership.coordinator_found(self.world.now)
        self.act()

    def on_cut(self, link: Link) -> None:
        if link is self._finder:
            self._finder = None
            self.soon(self.random.randrange(50, 300), self._look_again)
        elif link is self._link:
            self._link = None
            self.membership.failed(self.world.now, self.random.random())
            self.act()

    def reconnect(self) -> None:
        """Drop the connection: the member sends its full state again."""
        if self.running and self._link is not None:
            self._link.close()
            self.on_cut(self._link)

    def _look_again(self) -> None:
        if self._finder is None and self._link is None:
            self.find()

    # -- requests

    def send(self, request: Any, version: int, tag: Any) -> None:
        """`tag`: the number of a membership's request, or a function that takes the answer."""
        if self._link is not None:
            self._link.ask(request, version, tag)

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        if link is self._finder:
            self._found(response)
        elif link is self._link:
            if isinstance(tag, int):
                self.membership.received(tag, response, self.world.now, self.random.random())
                self.act()
            else:
                tag(response)
