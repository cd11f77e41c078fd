"""kill -9 of a server under load, again and again, and what must hold after each: the cycles and their checks.

A cycle: load; SIGKILL at a moment that the seed chose; the workers are asked what was acknowledged; a pause; the server
starts again on its port and directory (and is perhaps killed while it starts, several times, as it was when it started
first, on no data at all); then

- each committed offset is at least what was acknowledged or served before, and no larger than what was ever sent;
- no commit of a fenced member was accepted, and no generation was given twice (the probes check this all the time);
- every group is stable again, and each of its partitions has a new acknowledged commit, within the timeouts;
- if the outage was shorter than the sessions, also as the members saw it, they have kept their partitions in the same
  generation, and no member had to give up or take a partition.

Now and then the workers pause, and the committed offsets are exactly the last acknowledged ones.

Kinds of cycles: `load`, killed while it commits; `start`, killed also while it starts; `member`, a worker has been
killed before, so a rebalance may be under way, and the dead members' ids join the zombies; `outage`, longer than the
sessions, so every member has to join again.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crash_clients import PARTITIONS, GroupView, Workers, acks_of, wait_until
from crash_cycles import kill_while_starting, kinds_of, repeatable
from crash_probes import FENCED_OFFSET, Churn, Identity, Zombies
from crash_server import CrashServer, of_directory

from kohort.client.admin.groups import GroupDescription
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError

TOPIC = "load"
GROUPS = [
    {"name": "dynamic", "strategy": "range", "static": False},
    {"name": "static", "strategy": "range", "static": True},
    {"name": "cooperative", "strategy": "cooperative-sticky", "static": False},
    {"name": "consumer", "strategy": "consumer", "static": False},
    {"name": "consumer-static", "strategy": "consumer", "static": True},
]
"""The strategy is an assignor of the classic protocol, or the consumer protocol (KIP-848)."""
SESSION_MS = 6_000
HEARTBEAT_MS = 300
REBALANCE_MS = 8_000
KEPT_SILENCE_S = 4.0
"""Members must keep what they have if they have been without a heartbeat up to this long when the server is ready
again, and if no member of their group has been without an acknowledged commit for longer: the rest of the session is
time to succeed with a heartbeat, on a slow machine too. librdkafka can need seconds to return: each of the commits
that fail with a connection marks the coordinator dead, which closes the next connection (5 s were seen)."""
HEARD_S = 3 * HEARTBEAT_MS / 1000
"""A server has answered a heartbeat of each member this long after all of them had commits acknowledged."""
PATIENCE_S = 6 * (SESSION_MS + REBALANCE_MS) / 1000
"""The time for groups to become stable. A session and a rebalance are enough, unless clients get hardly any CPU;
figures say it."""
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.storm.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "2000",  # held, or every 250 ms from those who commit
    "offsets.topic.num.partitions": "5",
    "log.retention.check.interval.ms": "400",  # compaction never rests
    "offsets.topic.history.bytes": "20000",  # nor does that of committed offsets
    "log.format": "logfmt",
}
KINDS = ["load"] * 14 + ["start"] * 4 + ["member", "outage"]
"""Of twenty cycles."""


@dataclass(slots=True)
class Figures:
    kills: int = 0
    kills_while_starting: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    rates: list[float] = field(default_factory=list)
    """Acknowledged commits a second, from the stable group to the kill."""
    settled: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from ready to stable with new commits everywhere, by kind."""
    starts: list[float] = field(default_factory=list)
    kept: Counter[str] = field(default_factory=Counter)
    """Of each group: how often a member kept its partitions and generation."""
    late: Counter[str] = field(default_factory=Counter)
    """Members that `kept` does not count, because a member of their group returned too late."""
    checked: int = 0
    exact: int = 0
    log_records: int = 0
    log_bytes: int = 0
    """Of all logs at the end: how many records were ever written, and what compaction has left of them."""


class Run:
    def __init__(
        self,
        directory: Path,
        cycles: int,
        seed: int,
        rate: float = 8_000,
        workers: int = 3,
        say: Callable[[str], None] = print,
        server: Callable[[Path, dict[str, str]], CrashServer] = of_directory,
    ) -> None:
        self.cycles = cycles
        self.seed = seed
        self.figures = Figures()
        self._say = say
        self._directory = directory
        self._server = server(directory, SETTINGS)
        self._options = {
            "bootstrap": self._server.address,
            "topic": TOPIC,
            "groups": GROUPS,
            "session_ms": SESSION_MS,
            "heartbeat_ms": HEARTBEAT_MS,
            "rebalance_ms": REBALANCE_MS,
            "rate": rate / workers,
        }
        self._count = workers
        self._workers: Workers
        self._churn: Churn
        self._zombies: Zombies
        self._least: dict[tuple[str, int], tuple[int, int]] = {}
        """Of each group and partition: the generation that said so last, and the least offset that must be there."""
        self._start_s = 0.6
        self._settled_at = 0.0
        self._heard_at = 0.0
        """When all members had certainly had a heartbeat answered: an outage adds to one right before it."""
        self._at_end: list[Callable[[], None]] = []

    # -- the whole

    def run(self) -> Figures:
        """Raises Violation, its message with what it takes to repeat the run."""
        with repeatable("", self.cycles, self.seed, self._directory):
            try:
                self._begin()
                for cycle, kind in enumerate(kinds_of(KINDS, self.cycles, self.seed)):
                    self._cycle(cycle, kind)
                self._check_exactly()
                self._measure_logs()
                late = self.figures.late.total()  # on a slow machine many; if each outage is too long, there are none
                if self.figures.kept.total() < late // 3:
                    raise AssertionError(f"too few members kept anything: {self.figures}")
            finally:
                self._end()
        return self.figures

    def _begin(self) -> None:
        self._kill_while_starting(random.Random(f"{self.seed} first starts"))
        self._server.spawn()
        self._server.wait_ready()
        with Cluster(self._server.address) as cluster:
            cluster.create_topic(TOPIC, PARTITIONS)
        self._zombies = Zombies(self._server.address, TOPIC)
        self._churn = Churn(self._server.address, TOPIC, f"{self.seed} churn", lambda: self._server.ready_at)
        self._workers = Workers(self._count, self._options)
        self._at_end = [self._workers.close, self._zombies.stop, self._churn.stop]
        self._zombies.start()
        self._churn.start()
        self._settle(self._workers.ask())

    def _end(self) -> None:
        self._server.stop()
        self.figures.kills = self._server.kills
        for stop in self._at_end:
            stop()

    # -- a cycle

    def _cycle(self, cycle: int, kind: str) -> None:
        chance = random.Random(f"{self.seed} cycle {cycle}")
        before = self._workers.ask()
        began = time.monotonic()
        replaced = self._replace_a_worker(chance, before) if kind == "member" else []
        load_s = chance.uniform(0.2, HEARD_S) if chance.random() < 0.2 else chance.uniform(HEARD_S, 1.5)
        time.sleep(load_s + (chance.uniform(0, SESSION_MS / 1000) if kind == "member" else 0))
        if time.monotonic() - self._settled_at > HEARD_S:
            self._heard_at = time.monotonic() - HEARD_S
        self._server.kill()
        killed = time.monotonic()
        self._workers.tell("killed")
        after = self._workers.ask()
        if kind != "member":
            acknowledged = acks_of(after) - acks_of(before)
            self.figures.acknowledged += acknowledged
            self.figures.rates.append(acknowledged / (killed - began))
        self._note_least(after)
        time.sleep(SESSION_MS / 1000 + chance.uniform(0.5, 1.5) if kind == "outage" else chance.uniform(0, 0.4))
        if kind == "start":
            self._kill_while_starting(chance)
            self._note_least(self._workers.ask())
        self._start()
        outage = self._server.ready_at - killed
        self._check_offsets()
        settled = self._settle(after)
        took = time.monotonic() - self._server.ready_at
        self._zombies.add(replaced)
        self._check_probes()
        silence = self._server.ready_at - self._heard_at
        kept = kind != "member" and silence <= KEPT_SILENCE_S and all(v.is_shared_out() for v in before.values())
        if kept:
            kept = self._check_kept(cycle, before, after, settled, outage)
        self.figures.kinds[kind] += 1
        self.figures.settled.setdefault("kept" if kept else kind, []).append(took)
        if cycle % 10 == 9:
            self._check_exactly()
        self._say(
            f"cycle {cycle + 1:3} {kind:6} {self.figures.rates[-1] if self.figures.rates else 0:7,.0f} commits/s, "
            f"down {outage:4.1f} s, stable after {took:4.1f} s{', all kept' if kept else ''}"
        )

    def _start(self) -> None:
        began = time.monotonic()
        self._server.spawn()
        self._server.wait_ready()
        self._start_s = self._server.ready_at - began
        self.figures.starts.append(self._start_s)

    def _kill_while_starting(self, chance: random.Random) -> None:
        self.figures.kills_while_starting += kill_while_starting(self._server, chance, self._start_s)

    def _replace_a_worker(self, chance: random.Random, before: dict[str, GroupView]) -> list[Identity]:
        """kill -9 of one. Returns the identities of its members. They are fenced once the groups are stable without
        them."""
        self._note_least(self._workers.ask())
        number = chance.randrange(self._count)
        self._workers.replace(number)
        dead = []
        for group in GROUPS:
            member = before[str(group["name"])].members[number]
            instance = f"instance-{number}" if group["static"] else None
            if member["member"]:  # a client that is still joining has no id
                dead.append(Identity(str(group["name"]), member["member"], member["generation"], instance))
        return dead

    # -- stable again

    def _settle(self, since: dict[str, GroupView]) -> dict[str, GroupView]:
        """Wait until every group is shared out, and each partition has a commit acknowledged since then."""
        views = since

        def settled() -> bool:
            nonlocal views
            if not self._server.is_running():
                raise AssertionError("the server ended by itself; see its log")
            views = self._workers.ask()
            return all(is_going_on(views[name], since[name]) for name in views) and self._are_stable(views)

        try:
            wait_until(settled, PATIENCE_S, "every group stable, with new commits of each partition")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._story(views)}") from error
        self._settled_at = time.monotonic()
        return views

    def _are_stable(self, views: dict[str, GroupView]) -> bool:
        """The server sees it in the same way: the members that live, and no others."""
        try:
            with Cluster(self._server.address) as cluster:
                described = cluster.describe_groups(views)
                return all(is_as_said(described[name], view) for name, view in views.items())
        except KafkaError:
            return False

    def _story(self, views: dict[str, GroupView]) -> str:
        lines = [f"\n  {name}: {view.shares()} {view.acks()}" for name, view in views.items()]
        errors = {
            f"{name}/{number}": member["errors"]
            for name, view in views.items()
            for number, member in view.members.items()
        }
        return "".join(lines) + f"\n  errors: {errors}"

    # -- checks

    def _note_least(self, views: dict[str, GroupView]) -> None:
        for name, view in views.items():
            for member in view.members.values():
                if member["violations"]:
                    raise AssertionError(member["violations"])
                for partition, place in member["places"].items():
                    key = (name, int(partition))
                    generation, least = self._least.get(key, (-1, 0))
                    if place["generation"] > generation and place["least"] < least:
                        raise AssertionError(
                            f"{name}-{partition}: {least} had been acknowledged; in generation {place['generation']} "
                            f"its member went on from {place['least']}"
                        )
                    if place["generation"] >= generation:
                        self._least[key] = (place["generation"], place["least"])

    def _check_offsets(self) -> None:
        churned = self._churn.acknowledged
        with Cluster(self._server.address) as cluster:
            found = {str(group["name"]): cluster.committed(str(group["name"])) for group in GROUPS}
            churn = cluster.committed("churn")
        if churned and churn[TOPIC, 0].offset < churned:
            raise AssertionError(f"churn: {churned} was acknowledged, {churn[TOPIC, 0].offset} is committed")
        sent = self._sent()
        for (name, partition), (_, least) in self._least.items():
            committed = found[name].get((TOPIC, partition))
            offset = committed.offset if committed is not None else 0
            if offset < least:
                raise AssertionError(f"{name}-{partition}: {least} was acknowledged, {offset} is committed")
            if offset > sent[name, partition]:
                raise AssertionError(
                    f"{name}-{partition}: {offset} is committed, nobody sent more than {sent[name, partition]}"
                    f"{' except a member that is fenced' if offset >= FENCED_OFFSET else ''}"
                )
            self.figures.checked += 1

    def _sent(self) -> dict[tuple[str, int], int]:
        """The highest offset sent of each partition. A worker that was killed took its own with it, but it never had
        more than some hundred under way."""
        sent: dict[tuple[str, int], int] = {key: least + 10_000_000 for key, (_, least) in self._least.items()}
        for name, view in self._workers.ask().items():
            for partition, owner in (
                (int(partition), place)
                for member in view.members.values()
                for partition, place in member["places"].items()
                if int(partition) in member["assigned"]
            ):
                sent[name, partition] = owner["sent"]
        return sent

    def _check_kept(
        self,
        cycle: int,
        before: dict[str, GroupView],
        killed: dict[str, GroupView],
        settled: dict[str, GroupView],
        outage: float,
    ) -> bool:
        """False if a group was late, so that nothing is known of its members."""
        late = self.figures.late.copy()
        for name, view in before.items():
            heard = [self._server.ready_at - member["heard_at"] for member in killed[name].members.values()]
            silences = [member["silence_s"] for member in settled[name].members.values()]
            if not heard or max(*heard, *silences, 0.0) > KEPT_SILENCE_S:
                self.figures.late[name] += len(view.members)
                continue
            if view.shares() != settled[name].shares():
                raise AssertionError(
                    f"cycle {cycle + 1}: members of {name} did not keep what they had through an outage of "
                    f"{outage:.1f} s:\n  {view.shares()}\n  {settled[name].shares()}{self._story(settled)}"
                )
            self.figures.kept[name] += len(view.members)
        return self.figures.late == late

    def _check_probes(self) -> None:
        if violations := [*self._churn.violations, *self._zombies.violations]:
            raise AssertionError("; ".join(violations[:5]))

    def _check_exactly(self) -> None:
        """The workers pause; when all is answered, the committed offsets are what was acknowledged last."""
        self._workers.tell("pause")
        views = self._workers.ask()

        def quiet() -> bool:
            nonlocal views
            views = self._workers.ask()
            places = [place for v in views.values() for m in v.members.values() for place in m["places"].values()]
            return not any(place["open"] for place in places) and all(v.is_shared_out() for v in views.values())

        wait_until(quiet, PATIENCE_S, "all commits answered")
        with Cluster(self._server.address) as cluster:
            for name, view in views.items():
                committed = cluster.committed(name)
                for member in view.members.values():
                    for partition in member["assigned"]:
                        place = member["places"][str(partition)]
                        offset = committed[TOPIC, partition].offset
                        if offset not in place["possible"]:
                            raise AssertionError(f"{name}-{partition}: {offset} is committed, not {place['possible']}")
                        self.figures.exact += 1
        self._workers.tell("resume")

    def _measure_logs(self) -> None:
        self.figures.log_records, self.figures.log_bytes = self._server.logs()

    # -- the result

    def told(self) -> str:
        """The figures, in lines."""
        figures = self.figures
        rates = figures.rates or [0.0]
        lines = [
            f"{sum(figures.kinds.values())} cycles ({dict(sorted(figures.kinds.items()))}), {figures.kills} kills, "
            f"{figures.kills_while_starting} of them before the server was ready; seed {self.seed}",
            f"{figures.acknowledged:,} commits acknowledged; a second: median {statistics.median(rates):,.0f}, "
            f"least {min(rates):,.0f}",
            f"{figures.checked:,} committed offsets checked after kills, {figures.exact:,} compared exactly; "
            f"{figures.kept.total():,} times a member kept its partitions and generation; {figures.late.total():,} "
            "times one of its group returned too late",
            f"{sum(self._zombies.answers.values()):,} commits of fenced members, refused with "
            f"{dict(sorted(self._zombies.answers.items()))}",
            f"{len(self._churn.generations):,} generations of a group that churns, up to "
            f"{max(self._churn.generations, default=0):,}; {self._churn.kept} assignments found again",
            f"{figures.log_records:,} records written to logs; {figures.log_bytes:,} bytes of them left by compaction",
            f"starts: median {statistics.median(figures.starts):.2f} s, worst {max(figures.starts):.2f} s",
        ]
        for kind, times in sorted(figures.settled.items()):
            lines.append(
                f"stable again, {kind}: median {statistics.median(times):.1f} s, worst {max(times):.1f} s after ready"
            )
        return "\n".join(lines)


def is_going_on(now: GroupView, since: GroupView) -> bool:
    if not now.is_shared_out():
        return False
    for number, member in now.members.items():
        earlier = since.members.get(number, {"places": {}, "member": None})
        for partition in member["assigned"]:
            place = member["places"][str(partition)]
            # A worker that was replaced counts from zero again.
            past = earlier["places"].get(str(partition), {"acks": 0}) if earlier["member"] == member["member"] else None
            if place["acks"] <= (past["acks"] if past is not None else 0):
                return False
    return True


def is_as_said(described: GroupDescription, view: GroupView) -> bool:
    return described.state == "Stable" and {member.member_id for member in described.members} == {
        member["member"] for member in view.members.values()
    }
