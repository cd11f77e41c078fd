"""Which servers a scenario needs: its settings, and how much faster than in process time goes there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

FACTOR = 1 / 3
"""A second of a scenario, in seconds. With a smaller factor, an event that is due a second later would be lost in the
noise."""


def _scaled(factor: float) -> dict[str, str]:
    """Kafka's defaults, as scenarios count on them, in scaled time."""
    defaults = {
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
    return {name: str(int(value * factor)) for name, value in defaults.items()}


@dataclass(frozen=True)
class Profile:
    name: str
    settings: Mapping[str, str] = field(hash=False)
    factor: float = FACTOR
    parked_s: float = 0.0
    """For how long a request is surely parked: a rebalance that waits for nobody has ended then, whoever is late."""


AT_ONCE = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}
USUAL = Profile("usual", _scaled(FACTOR))
PROMPT = Profile("prompt", _scaled(FACTOR) | AT_ONCE, parked_s=0.25)
PAIRS = Profile("pairs", _scaled(FACTOR) | {"group.max.size": "2", "group.consumer.max.size": "2"})
SINGLE = Profile("single", _scaled(FACTOR) | {"group.max.size": "1"})
PATIENT = Profile(
    "patient",
    _scaled(FACTOR) | {"group.consumer.assignment.interval.ms": "1000", "group.consumer.heartbeat.interval.ms": "2333"},
)
RETENTION_MINUTES = 1
EXPIRING = Profile(
    "expiring",
    _scaled(1)
    | AT_ONCE
    | {
        "group.min.session.timeout.ms": "1",
        "offsets.retention.minutes": str(RETENTION_MINUTES),
        "offsets.retention.check.interval.ms": "900",
    },
    factor=1,
)
"""Kafka keeps offsets for a minute at least: here a retention of any length is one, by a factor of each scenario."""

_OFTEN = {"offsets.retention.check.interval.ms": "900"}
RESTARTED = Profile("restarted", _scaled(1) | _OFTEN, factor=1)
"""What starts its servers again has them for itself meanwhile. Members' sessions begin with the start, and it takes a
moment until it is known that the groups are there: time goes as fast as in process, or the moment would count more."""
RESTARTED_PROMPT = replace(RESTARTED, name="restarted-prompt", settings=RESTARTED.settings | AT_ONCE, parked_s=0.25)

BY_CONFIG = {
    "group_initial_rebalance_delay_ms=0": PROMPT,
    "group_consumer_assignment_interval_ms=0": PROMPT,
    "group_consumer_max_size=2": PAIRS,
    "group_max_size=2": PAIRS,
    "group_max_size=1": SINGLE,
    "group_consumer_assignment_interval_ms=3000": PATIENT,
    "group_consumer_heartbeat_interval_ms=7000": PATIENT,
    "group_consumer_min_session_timeout_ms=1000": USUAL,
}


def profile_of(commands: Sequence[str], retention_minutes: int | None = None) -> Profile:
    """`retention_minutes`: how long offsets are kept, where no setting says so, of one that waits for it: such run
    beside the others. Raises KeyError where no servers have the settings."""
    words = [word for command in commands if command.startswith("config ") for word in command.split()[1:]]
    retention = [int(word.partition("=")[2]) for word in words if word.startswith("offsets_retention_minutes=")]
    if retention_minutes is not None:
        retention.append(retention_minutes)
    if retention:
        return Profile(EXPIRING.name, EXPIRING.settings, RETENTION_MINUTES / retention[0])
    profiles = {BY_CONFIG[word].name: BY_CONFIG[word] for word in words}
    if len(profiles) > 1:
        raise KeyError(f"no servers for {words}")
    found = next(iter(profiles.values()), USUAL)
    if not any(command.startswith("restart") for command in commands):
        return found
    return {USUAL: RESTARTED, PROMPT: RESTARTED_PROMPT}[found]
