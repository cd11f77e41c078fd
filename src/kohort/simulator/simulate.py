"""One run of a plan: faults for a while, then healing, then the checks of the end state."""

from __future__ import annotations

import math
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kohort.broker.broker import Broker
from kohort.broker.turn import MoveGroup
from kohort.coordinator.shard import partition_for
from kohort.simulator.actors.auditor import Auditor
from kohort.simulator.actors.candidate import Candidate
from kohort.simulator.actors.consumer import Consumer
from kohort.simulator.actors.guest import Guest
from kohort.simulator.actors.history import History
from kohort.simulator.actors.hostile import Hostile
from kohort.simulator.actors.impostor import Impostor
from kohort.simulator.actors.library_user import LibraryUser
from kohort.simulator.actors.member import Member, Owners
from kohort.simulator.actors.operator import Operator
from kohort.simulator.actors.overseer import Overseer
from kohort.simulator.actors.participant import Participant
from kohort.simulator.actors.reader import Reader
from kohort.simulator.actors.share_member import Feeder, ShareMember
from kohort.simulator.actors.sharer import ITEMS, Sharer
from kohort.simulator.actors.transactor import Transactor
from kohort.simulator.actors.workload import Admin, Committer, Liar, Paced, Producer, Storm, quotas_request
from kohort.simulator.checks.classic_checks import running
from kohort.simulator.checks.holders import Holders
from kohort.simulator.checks.list_append import check_history
from kohort.simulator.checks.onlooker import Onlooker
from kohort.simulator.plan import (
    CONSUMER_GROUPS,
    GROUPS,
    JOB_PARTITIONS,
    JOBS,
    MIXED,
    NOBODYS,
    TOPICS,
    TOPICS_OF_TRANSACTIONS,
    Cast,
    Plan,
    plan_of,
)
from kohort.simulator.world.process import Process
from kohort.simulator.world.world import Millis, Violation, World

STABLE_WITHIN_MS = 90_000
"""Time limit after the healing: sessions, two rebalance timeouts and the join timeout of new members, with a margin."""
GOES_ON_WITHIN_MS = 15_000
"""After this limit, the run goes on while members of share groups finish another record within this time."""
READ_WITHIN_MS = 90_000
"""Time limit for a reader of all that transactions have written."""
LOOK_EVERY_MS = 1_000
PACED: dict[str, type[Paced]] = {
    "committer": Committer,
    "producer": Producer,
    "admin": Admin,
    "liar": Liar,
    "impostor": Impostor,
    "operator": Operator,
    "hostile": Hostile,
    "guest": Guest,
    "reader": Reader,
    "zombie": Reader,
    "transactor": Transactor,
    "auditor": Auditor,
    "share": ShareMember,
    "feeder": Feeder,
    "overseer": Overseer,
}
DISTURBING = ("liar", "impostor", "committer", "zombie")
"""Actors that commit for partitions that they do not own."""


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    digest: str
    """Equal for equal seeds, on any machine and with any hash seed."""
    violation: Violation | None
    plan: Plan
    now: Millis = 0
    """The simulated time at the end."""
    events: int = 0
    story: list[str] = field(default_factory=list)
    """The events, a line each; empty unless requested."""
    scenario: list[str] = field(default_factory=list)
    """The requests to the violation's group, as a scenario file."""


def run(seed: int, *, duration_ms: Millis | None = None, telling: bool = False) -> Result:
    """Run one seed. The first broken promise is the result's violation."""
    return run_plan(plan_of(seed, duration_ms), telling=telling)


def run_plan(plan: Plan, *, telling: bool = False) -> Result:
    simulation = Simulation(plan, telling=telling)
    violation: Violation | None = None
    try:
        simulation.run()
    except Violation as found:
        violation = found
        simulation.world.tell("VIOLATION", str(found))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        violation = Violation("the simulator itself does not fail", f"{type(error).__name__}: {error} ({where})")
    world = simulation.world
    scenario = []
    if world.scribe is not None and violation is not None and violation.group:
        scenario = world.scribe.text(plan.seed, violation.group, str(violation))
    return Result(plan.seed, world.digest(), violation, plan, world.now, world.events, world.story, scenario)


class Simulation:
    def __init__(self, plan: Plan, *, telling: bool = False) -> None:
        self.plan = plan
        self.world = World(plan.seed, telling=telling)
        self.world.topics.update(TOPICS)
        self.process = Process(self.world, plan)
        self.checkers = Onlooker(self.world, self.process.config, self.process.disk.storage)
        self.checkers.classic.subscribed = frozenset(TOPICS)
        self.process.observer = self.checkers
        self.owners = Owners()
        self.holders = Holders()
        self.holders.requests_come_twice = plan.faults.duplicate > 0
        self.history = History()
        self.members: list[Member | Consumer | LibraryUser] = []
        self.others: list[Paced | Storm] = []
        self._groups = sorted({str(cast.options["group"]) for cast in plan.cast if "group" in cast.options}) or [
            "alpha"
        ]
        for cast in plan.cast:
            self._enlist(cast)
        disturbed = {str(cast.options.get("group")) for cast in plan.cast if cast.kind in DISTURBING}
        if any(cast.kind == "admin" for cast in plan.cast):
            disturbed.add(MIXED)  # commits by name do not distinguish a topic that was created again
        self.checkers.ledger.honest = frozenset((*GROUPS, *CONSUMER_GROUPS, MIXED)) - disturbed
        beliefs = self.checkers.consumers.beliefs
        beliefs.consumers = self._consumers
        beliefs.classic_members = lambda: [member for member in self._classic() if member.group == MIXED]
        beliefs.requests_come_twice = plan.faults.duplicate > 0

    def run(self) -> None:
        self._start()
        self.world.run(self.plan.duration_ms, self.plan.steps)
        self._heal()
        self._until_stable()
        for other in self.others:
            if isinstance(other, Producer):
                other.check()
            elif isinstance(other, Hostile):
                other.check_end()
        if self.process.broker is not None:
            self.checkers.transactions.check_end(self.process.broker)
        if self.checkers.transactions.transactors:
            self._read_whole_lists()
            check_history(self.history)
        self.checkers.check_replay()

    # -- actors

    def _enlist(self, cast: Cast) -> None:
        common = (self.world, self.process, self.plan.faults, cast.name)
        options = dict(cast.options)
        match cast.kind:
            case "member":
                self.members.append(Member(*common, self.owners, options))
            case "consumer":
                self.members.append(Consumer(*common, options))
            case "candidate":
                self.members.append(Candidate(*common, self.holders, options))
            case "sharer":
                self.members.append(Sharer(*common, self.holders, options))
            case "storm":
                self.others.append(Storm(*common, self.owners, options))
            case _:
                other = PACED[cast.kind](*common, options)
                other.members, other.consumers = self._classic, self._consumers
                if isinstance(other, Overseer):
                    other.sharing = self._sharing
                if isinstance(other, Transactor | Auditor):
                    other.check, other.history = self.checkers.transactions.read, self.history
                if isinstance(other, Transactor):
                    self.checkers.transactions.transactors.append(other)
                self.others.append(other)

    def _everybody(self) -> list[Member | Consumer | LibraryUser]:
        storms = [other for other in self.others if isinstance(other, Storm)]
        return [*self.members, *(member for storm in storms for member in storm.members)]

    def _classic(self) -> list[Member]:
        return [member for member in self._everybody() if isinstance(member, Member)]

    def _consumers(self) -> list[Consumer]:
        return [member for member in self._everybody() if isinstance(member, Consumer)]

    def _sharing(self) -> list[tuple[str, str]]:
        return [(other.group, other.member_id) for other in self.others if isinstance(other, ShareMember)]

    def _start(self) -> None:
        world, faults = self.world, self.plan.faults
        self.process.start()
        setup = Admin(world, self.process, type(faults)(), "setup", {"groups": [], "pace_ms": 1})
        setup.running = True
        link = setup.connect(self.process.config.broker_id)
        for topic, count in self._topics().items():
            world.after(5, setup.create, link, topic, count)
        if self.plan.quotas:
            world.after(5, link.ask, quotas_request(self.plan.quotas), 1, "quotas")
        for member in self.members:
            world.at(20 + member.random.randrange(3_000), member.revive)
        for other in self.others:
            world.at(20, other.start)
        self._misfortunes()

    def _topics(self) -> dict[str, int]:
        transactional = any(isinstance(other, Transactor) for other in self.others)
        shared = any(isinstance(other, ShareMember) for other in self.others)
        return {
            **TOPICS,
            "events": 1,
            NOBODYS: 1,
            **(TOPICS_OF_TRANSACTIONS if transactional else {}),
            **({JOBS: JOB_PARTITIONS} if shared else {}),
        }

    # -- faults with their own timers

    def _misfortunes(self) -> None:
        faults, random = self.plan.faults, self.world.random("misfortunes")
        for every, what in (
            (faults.crash_every_ms, self._crash),
            (faults.shutdown_every_ms, self._shutdown),
            (faults.server_pause_every_ms, self._pause_server),
            (faults.client_pause_every_ms, self._pause_client),
            (faults.move_every_ms, self._move),
        ):
            if every:
                self._again(every, what, Random(random.random()))

    def _again(self, every: float, what: Any, random: Random) -> None:
        if not self.world.healed:
            self.world.after(int(random.expovariate(1 / every)) + 1, self._strike, every, what, random)

    def _strike(self, every: float, what: Any, random: Random) -> None:
        if not self.world.healed:
            what(random)
            self._again(every, what, random)

    def _crash(self, random: Random) -> None:
        self.process.crash("it is killed")

    def _shutdown(self, random: Random) -> None:
        self.world.tell("server", "is told to stop")
        self.process.stop()

    def _pause_server(self, random: Random) -> None:
        self.process.pause(random.choice((100, 2_000, 7_000, 12_000)))

    def _pause_client(self, random: Random) -> None:
        if self.members:
            member = random.choice(self.members)
            session_ms = member.options.get("session_ms", self.process.config.group_consumer_session_timeout_ms)
            member.pause(random.randrange(100, 2 * session_ms))

    def _move(self, random: Random) -> None:
        group, broker = random.choice(self._groups), self.process.config.broker_id + random.randrange(self.plan.brokers)
        self.world.tell("server", f"the shard of {group} goes to broker {broker}")
        self.process.arrive(MoveGroup(group, broker))
        if self.world.scribe is not None:
            self.world.scribe.happened(self.world.now, "unload", group)
            self.world.scribe.happened(self.world.now, "load", group)

    # -- the healing

    def _heal(self) -> None:
        self.world.tell("world", "the faults are over")
        self.world.healed = True
        self.process.heal()
        for other in self.others:
            if isinstance(other, ShareMember):
                other.calm()
            else:
                other.end()
        for member in self._everybody():
            member.go_on()
            if self.plan.faults.duplicate:
                # The id went to the copy of a request: no client knows it. Real connections send no copies.
                member.reconnect()
            if stays(member) and member in self.members:
                member.revive()
            elif member.random.random() < 0.5:
                member.leave()
            else:
                member.die()

    def _until_stable(self) -> None:
        world = self.world
        end = world.now + STABLE_WITHIN_MS
        good, least = 0, math.inf
        why = ""
        while world.now < end:
            world.run(world.now + LOOK_EVERY_MS, self.plan.steps)
            why = self._unstable()
            if self.process.broker is not None:
                left = sum(self.checkers.shares.open_records(self.process.broker).values())
                if 0 < left < least:  # a slow member has time, as long as it goes on
                    least, end = left, max(end, world.now + GOES_ON_WITHIN_MS)
            good = good + 1 if not why else 0
            if good == 2:
                return
        raise Violation("every live group becomes stable", why, why.partition(":")[0])

    def _read_whole_lists(self) -> None:
        """A reader that was not there before reads all that is committed."""
        options = {"pace_ms": 20, "restless": False, "cuts": False}
        reader = Auditor(self.world, self.process, self.plan.faults, "reader of all", options)
        reader.check, reader.history = self.checkers.transactions.read, self.history
        reader.start()
        end = self.world.now + READ_WITHIN_MS
        while [*reader.at.values()] != [fold.end for fold in self.checkers.transactions.partitions]:
            if self.world.now >= end:
                raise Violation("committed records can be read", f"up to {reader.at}")
            self.world.run(self.world.now + 100, self.plan.steps)
        reader.end()
        self.history.whole = reader.polls

    def _unstable(self) -> str:
        broker = self.process.broker
        if broker is None:
            return "the server is down"
        is_consumer = bool(self.checkers.consumers.durable(MIXED).members)
        for group in (*CONSUMER_GROUPS, *GROUPS, MIXED):
            of_consumers = group in CONSUMER_GROUPS or (group == MIXED and is_consumer)
            if why := (self._unsettled if of_consumers else self._unstable_classic)(broker, group):
                return why
        return self.checkers.transactions.unsettled() or self.checkers.shares.undrained(broker)

    def _present(self, group: str) -> list[Member | Consumer | LibraryUser]:
        return [member for member in self.members if member.group == group and stays(member)]

    def _unsettled(self, broker: Broker, group: str) -> str:
        present = self._present(group)
        consumers = [member for member in present if isinstance(member, Consumer)]
        classic = [member for member in present if isinstance(member, Member)]
        catalog = broker.state.catalog.topics.values()
        topics = {topic.name: (topic.topic_id, len(topic.partitions)) for topic in catalog}
        return self.checkers.consumers.beliefs.unsettled(group, consumers, classic, topics)

    def _unstable_classic(self, broker: Broker, group: str) -> str:
        present = self._present(group)
        shard = broker.state.shards[partition_for(group, len(broker.state.shards))]
        held = running(shard).get(group)
        absent = [m.name for m in present if not m.content or isinstance(m, Consumer)]
        if absent:
            return f"{group}: {', '.join(absent)} not stable, the group is {held and held.phase.value}"
        if present and (held is None or held.phase.value != "Stable"):
            return f"{group}: {held and held.phase.value}"
        ids = sorted(m.membership.member_id for m in present if not isinstance(m, Consumer))
        if held is not None and sorted(held.members) != ids:
            return f"{group}: has {sorted(held.members)}, alive are {ids}"
        return _unheld(group, [m for m in present if isinstance(m, LibraryUser)])


def _unheld(group: str, present: list[LibraryUser]) -> str:
    """Why a group of the client library has not settled after the healing; "" if it has."""
    leaders = [member.name for member in present if isinstance(member, Candidate) and member.leads]
    if len(leaders) != 1 and any(isinstance(member, Candidate) for member in present):
        return f"{group}: {leaders or 'nobody'} leads"
    shares = [member.holdings for member in present if isinstance(member, Sharer)]
    if shares:
        counts = [len(share.held) for share in shares]
        if sorted(item for share in shares for item in share.claims()) != ITEMS or max(counts) - min(counts) > 1:
            return f"{group}: {[share.claims() for share in shares]} of {len(ITEMS)} items"
    return ""


def stays(member: Participant) -> bool:
    """True if the actor is present at the end of the run."""
    return member.life in ("stays", "restarts")
