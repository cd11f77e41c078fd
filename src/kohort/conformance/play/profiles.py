"""The servers that a scenario needs: their settings, and how fast their time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

FACTOR = 1 / 3
"""How many real seconds a second of a scenario takes. With a smaller factor, ordinary delays would be longer than the
time between two events."""

SLOWEST = 2
"""The factor of the last repetitions. A busy machine is often a third of a second late, and rarely two seconds."""

TIMES = {
    "group.initial.rebalance.delay.ms": 3_000,
    "group.min.session.timeout.ms": 6_000,
    "group.max.session.timeout.ms": 1_800_000,
    "group.consumer.session.timeout.ms": 45_000,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.max.session.timeout.ms": 60_000,
    "group.consumer.heartbeat.interval.ms": 5_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
    "group.consumer.max.heartbeat.interval.ms": 15_000,
    "group.consumer.assignment.interval.ms": 1_000,
}
"""Kafka's defaults, on which scenarios count, in the time of scenarios."""


@dataclass(frozen=True)
class Profile:
    name: str
    times: Mapping[str, int] = field(default_factory=lambda: TIMES)
    """Settings in the time of scenarios, in milliseconds."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Settings that are the same however fast time goes."""
    factor: float = FACTOR
    parked_s: float = 0.0
    """A request without an answer after this time is parked: by then even a late rebalance that waits for no member has
    ended."""

    @property
    def settings(self) -> dict[str, str]:
        return {name: str(int(value * self.factor)) for name, value in self.times.items()} | dict(self.others)

    def slower(self, factor: float) -> Profile:
        """The same in slower time. Offsets expire after minutes, in any time."""
        return self if self.name == EXPIRING.name else replace(self, factor=max(factor, self.factor))


AT_ONCE = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}
USUAL = Profile("usual")
PROMPT = Profile("prompt", others=AT_ONCE, parked_s=0.25)
PAIRS = Profile("pairs", others={"group.max.size": "2", "group.consumer.max.size": "2"})
SINGLE = Profile("single", others={"group.max.size": "1"})
PATIENT = Profile(
    "patient",
    TIMES | {"group.consumer.assignment.interval.ms": 3_000, "group.consumer.heartbeat.interval.ms": 7_000},
)
UNHURRIED = Profile("unhurried", TIMES | {"group.consumer.assignment.interval.ms": 2_000})
RETENTION_MINUTES = 1
_OFTEN = {"offsets.retention.check.interval.ms": "900"}
EXPIRING = Profile(
    "expiring",
    {},
    {name: str(value) for name, value in TIMES.items()}
    | AT_ONCE
    | _OFTEN
    | {"group.min.session.timeout.ms": "1", "offsets.retention.minutes": str(RETENTION_MINUTES)},
    factor=1,
)
"""Kafka keeps offsets for a minute at least: here a retention of any length is one, by a factor of each scenario."""

RESTARTED = Profile("restarted", others=_OFTEN, factor=1)
"""A scenario that restarts its servers uses them alone. Members' sessions begin with the start, before the groups are
known to be loaded. In faster time, this delay would count more."""
RESTARTED_PROMPT = replace(RESTARTED, name="restarted-prompt", others=_OFTEN | AT_ONCE, parked_s=0.25)

BY_CONFIG = {
    "group_initial_rebalance_delay_ms=0": PROMPT,
    "group_consumer_assignment_interval_ms=0": PROMPT,
    "group_consumer_max_size=2": PAIRS,
    "group_max_size=2": PAIRS,
    "group_max_size=1": SINGLE,
    "group_consumer_assignment_interval_ms=2000": UNHURRIED,
    "group_consumer_assignment_interval_ms=3000": PATIENT,
    "group_consumer_heartbeat_interval_ms=7000": PATIENT,
    "group_consumer_assignment_interval_ms=1000": USUAL,
    "group_consumer_min_session_timeout_ms=1000": USUAL,
}


DAYS_OF_KAFKA = 7 * 24 * 60
LONG = {"commit_retention": DAYS_OF_KAFKA, "new_member_five_minutes": RETENTION_MINUTES}
"""Files that wait for long without a setting for it, and the minutes for which they keep offsets."""


def profile_for(name: str, commands: Sequence[str]) -> Profile:
    """The profile of the scenario of that name."""
    return profile_of(commands, LONG.get(name))


def profile_of(commands: Sequence[str], retention_minutes: int | None = None) -> Profile:
    """`retention_minutes`: how long offsets are kept, for a scenario that waits for this time without a setting of it.
    Raises KeyError if no servers have the settings."""
    words = [word for command in commands if command.startswith("config ") for word in command.split()[1:]]
    retention = [int(word.partition("=")[2]) for word in words if word.startswith("offsets_retention_minutes=")]
    if retention_minutes is not None:
        retention.append(retention_minutes)
    if retention:
        return replace(EXPIRING, factor=RETENTION_MINUTES / retention[0])
    profiles = {BY_CONFIG[word].name: BY_CONFIG[word] for word in words}
    if len(profiles) > 1:
        raise KeyError(f"no servers for {words}")
    found = next(iter(profiles.values()), USUAL)
    if not any(command.startswith("restart") for command in commands):
        return found
    return {USUAL.name: RESTARTED, PROMPT.name: RESTARTED_PROMPT}[found.name]
