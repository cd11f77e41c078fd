"""The choices of a seed: the faults and their frequency, the server's settings, the actors.

A plan is data, so shrinking can remove actors and faults and shorten the time. Sizes have a heavy tail: most bugs need
few actors, and small runs are fast, so most runs are small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

from kohort.config import AUTHORIZER
from kohort.coordinator.transactions.transaction import LAST_EPOCH
from kohort.simulator.world.world import Millis
from kohort.wire.compression import GZIP, NONE, ZSTD

TOPICS = {"flights": 4, "orders": 2}
"""Topics that exist from the start, with their numbers of partitions."""


LEDGER = "ledger"
TOPICS_OF_TRANSACTIONS = {LEDGER: 3}
"""The topic of transactional producers. Nobody deletes it."""
JOBS, JOB_PARTITIONS = "jobs", 3
"""The topic of share groups. Nobody deletes it."""
NOBODYS = "nobodys"
"""A topic that no member is assigned: commits for it may come in any order."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The chance of a fault on each occasion, or the mean time between two in ms. 0: the run does not have it."""

    cut: float = 0.0
    """A request or answer: its connection is cut, before or after the delivery."""
    half_open: float = 0.0
    """A request: its connection loses everything from here on, and neither side notices."""
    split: float = 0.0
    """A request: it arrives in pieces."""
    duplicate: float = 0.0
    """A request or answer: it is sent twice."""
    delay: float = 0.0
    """A request or answer: it takes up to two seconds."""
    slow_sync: float = 0.0
    crash_in_commit: float = 0.0
    disk_error: float = 0.0
    crash_every_ms: float = 0.0
    shutdown_every_ms: float = 0.0
    """An orderly stop and start."""
    server_pause_every_ms: float = 0.0
    client_pause_every_ms: float = 0.0
    """Each member: its process pauses for up to twice its session timeout."""
    move_every_ms: float = 0.0
    """A group's shard moves to another broker (a lost lease)."""
    clock_step: float = 0.0
    """A start of the server: its wall clock jumps by up to a minute in either direction."""


FREQUENT: dict[str, tuple[float, float]] = {
    "cut": (0.001, 0.05),
    "half_open": (0.001, 0.02),
    "split": (0.05, 0.5),
    "duplicate": (0.01, 0.1),
    "delay": (0.01, 0.2),
    "slow_sync": (0.02, 0.3),
    "crash_in_commit": (0.005, 0.05),
    "disk_error": (0.002, 0.02),
    "crash_every_ms": (4_000, 30_000),
    "shutdown_every_ms": (8_000, 30_000),
    "server_pause_every_ms": (5_000, 30_000),
    "client_pause_every_ms": (5_000, 30_000),
    "move_every_ms": (2_000, 15_000),
    "clock_step": (0.5, 1.0),
}
"""The bounds between which a fault's chance or time is drawn."""


@dataclass(frozen=True, slots=True)
class Cast:
    """An actor: its kind and its options."""

    kind: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = " ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.kind} {self.name} {options}".rstrip()


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    brokers: int
    config: dict[str, Any]
    faults: Faults
    cast: tuple[Cast, ...]
    duration_ms: Millis
    """How long faults happen; then everything is healed."""
    steps: int = 200_000
    """Limit on the number of events."""
    two_phases: float = 0.0
    """The chance that a transaction ends in two phases although it is small."""
    first_epoch: int = 0
    """Of a producer with a transactional id."""
    task_delays_ms: tuple[Millis, ...] = (1, 1, 30, 400, 3_000)
    """How long the server's work outside of its turns may take."""
    quotas: dict[str, float] = field(default_factory=dict)
    """Of every client, from the start."""
    request_ms: tuple[Millis, ...] = (0,)
    """How long a request takes by the server's stopwatch. The simulated time does not move."""
    parks_reads: bool = False
    """The storage answers reads later, in any order."""
    failed_reads: float = 0.0
    """The chance that such a read fails."""

    def lines(self) -> list[str]:
        """The plan as text."""
        settings = " ".join(f"{name}={value}" for name, value in self.config.items())
        faults = [
            f"{f.name}={getattr(self.faults, f.name):.3g}" for f in fields(Faults) if getattr(self.faults, f.name)
        ]
        return [
            f"seed {self.seed}, {self.brokers} brokers, {self.duration_ms / 1000:g} s of faults",
            f"settings {settings}",
            f"faults {' '.join(faults) or 'none'}",
            f"transactions two_phases={self.two_phases} first_epoch={self.first_epoch}",
            *([f"reads parked failed={self.failed_reads}"] if self.parks_reads else ()),
            *(f"actor {actor}" for actor in self.cast),
        ]


def plan_of(seed: int, duration_ms: Millis | None = None) -> Plan:
    random, random_of_mixed = Random(f"{seed}/plan"), Random(f"{seed}/mixed")
    cast = _mixed(random_of_mixed) if random_of_mixed.random() < 0.2 else _cast(random)
    random_of_sharing = Random(f"{seed}/sharing")
    if random_of_sharing.random() < 0.15:
        cast = _partakers(random_of_sharing)
    plan = Plan(
        seed,
        random.choice((1, 2, 3)),
        _config(random, cast),
        _faults(random),
        (*cast, *_operators(seed, cast)),
        int(random.triangular(8_000, 40_000, 15_000)) if duration_ms is None else duration_ms,
    )
    plan = _with_overseers(_with_shares(_with_guest(_with_transactions(_with_hostile(_fenced(plan))))))
    plan = _with_history(_with_slow_reads(plan))
    return replace(plan, faults=replace(plan.faults, move_every_ms=0)) if plan.brokers == 1 else plan


def _fenced(plan: Plan) -> Plan:
    """Commits and fetches fenced by ownership."""
    random = Random(f"{plan.seed}/fencing")
    config = {**plan.config, "group_consumer_ownership_fencing_enable": random.random() < 0.5}
    groups = {cast.options["group"] for cast in plan.cast if cast.kind == "consumer"}
    readers = []
    for group in sorted(groups):
        if random.random() < 0.4:
            kind = random.choice(("reader", "zombie"))
            options = {"group": group, "pace_ms": random.choice((100, 600)), "commits": kind == "zombie"}
            readers.append(Cast(kind, f"{kind}-{group}", options))
    return replace(plan, config=config, cast=(*plan.cast, *readers))


def _with_hostile(plan: Plan) -> Plan:
    """A hostile client, and little memory for answers."""
    random = Random(f"{plan.seed}/hostile")
    if random.random() >= 0.05:
        return plan
    groups = sorted({str(cast.options["group"]) for cast in plan.cast if "group" in cast.options}) or ["alpha"]
    options = {"group": random.choice(groups), "pace_ms": random.choice((1_000, 3_000))}
    config = {**plan.config, "queued_max_response_bytes": random.choice((1_048_576, 4_194_304))}
    return replace(plan, config=config, cast=(*plan.cast, Cast("hostile", "hostile", options)))


def _with_guest(plan: Plan) -> Plan:
    """A client whose right is taken away and given back. All others are super users."""
    random = Random(f"{plan.seed}/rights")
    if random.random() >= 0.1:
        return plan
    config = {**plan.config, "authorizer_class_name": AUTHORIZER, "super_users": "User:ANONYMOUS"}
    guest = Cast("guest", "guest", {"pace_ms": random.choice((100, 300))})
    return replace(plan, config=config, cast=(*plan.cast, guest))


def _with_transactions(plan: Plan) -> Plan:
    """Transactional producers, some with a zombie of the same id, and a reader of what they commit."""
    random = Random(f"{plan.seed}/transactions")
    if random.random() >= 0.2:
        return plan
    version = random.choice((2, 2, 2, 1, 0))
    random_of_lists = Random(f"{plan.seed}/lists")
    reads = random_of_lists.random() < 0.5
    cast = []
    for index in range(1 + _size(random, 3)):
        options = {
            "id": f"ledger{index}",
            "version": random.choice((1, 2)) if version == 2 else 1,
            "pace_ms": random.choice((40, 300, 1_000)),
            "timeout_ms": random.choice((2_000, 6_000)),
            "patience_ms": random.choice((500, 1_500, 5_000)),
            "restarts": random.choice((0.01, 0.1)),
            "reads": reads,
            "codec": random_of_lists.choice((NONE, GZIP, ZSTD)) if reads else NONE,
        }
        cast.append(Cast("transactor", f"transactor{index}", options))
        if random.random() < 0.3:
            cast.append(Cast("transactor", f"zombie{index}", {**options, "pace_ms": 3_000}))
    cuts = reads and plan.brokers == 1
    cast.append(Cast("auditor", "auditor", {"pace_ms": random.choice((100, 500)), "restless": True, "cuts": cuts}))
    config = {
        **plan.config,
        "transaction_version": version,
        "transaction_state_log_num_partitions": random.choice((1, 3)),
        "offsets_retention_minutes": 10_080,
    }
    others = plan.cast if random.random() < 0.4 else ()
    return replace(
        plan,
        config=config,
        cast=(*others, *cast),
        two_phases=random.choice((0, 0, 0.3, 1)),
        first_epoch=random.choice((0, 0, LAST_EPOCH - 3)),
    )


def _with_shares(plan: Plan) -> Plan:
    """Members of share groups, and producers of what these read."""
    random = Random(f"{plan.seed}/shares")
    if random.random() >= 0.1:
        return plan
    cast = []
    for group in ("theta", "iota")[: random.choice((1, 1, 2))]:
        for index in range(1 + _size(random, 6)):
            options = {
                "group": group,
                "pace_ms": random.choice((50, 200, 600)),
                "restarts": random.choice((0.002, 0.02)),
                "patience_ms": random.choice((3_000, 8_000)),
            }
            cast.append(Cast("share", f"{group}{index}", options))
    cast += [Cast("feeder", f"feeder{index}", {"pace_ms": random.choice((100, 400))}) for index in range(2)]
    config = {
        **plan.config,
        "group_share_enable": True,
        "group_share_min_session_timeout_ms": 6_000,
        "group_share_session_timeout_ms": 6_000,
        "group_share_min_record_lock_duration_ms": 1_000,
        "group_share_record_lock_duration_ms": random.choice((2_000, 5_000)),
        "group_share_delivery_count_limit": random.choice((2, 3, 5)),
        "group_share_partition_max_record_locks": random.choice((100, 200)),
        "group_share_assignment_interval_ms": random.choice((0, 1_000)),
        "share_coordinator_state_topic_num_partitions": random.choice((1, 3)),
        "share_coordinator_snapshot_update_records_per_snapshot": random.choice((5, 100)),
    }
    others = plan.cast if random.random() < 0.3 else ()
    return replace(plan, config=config, cast=(*others, *cast))


def _with_overseers(plan: Plan) -> Plan:
    """Operators of share groups, some of which have dead letters written."""
    random = Random(f"{plan.seed}/overseers")
    if random.random() >= 0.5:
        return plan
    groups = dict.fromkeys(actor.options["group"] for actor in plan.cast if actor.kind == "share")
    cast = []
    for group in groups:
        options = {
            "group": group,
            "pace_ms": random.choice((300, 1_500)),
            "dead_letters": random.random() < 0.6,
            "copies": random.random() < 0.5,
        }
        cast.append(Cast("overseer", f"overseer-{group}", options))
    return replace(plan, cast=(*plan.cast, *cast))


def _with_history(plan: Plan) -> Plan:
    """Compaction keeps the newest records of `__consumer_offsets`, few or many."""
    random = Random(f"{plan.seed}/history")
    if random.random() >= 0.3:
        return plan
    kept = {
        "offsets_topic_history_bytes": random.choice((4_000, 24_000, 160_000)),
        "offsets_topic_history_ms": random.choice((2_000, 20_000, 86_400_000)),
    }
    return replace(plan, config={**plan.config, **kept})


def _with_slow_reads(plan: Plan) -> Plan:
    """Fetches of records that are not in memory are parked; no records, few or all of them are in memory."""
    random = Random(f"{plan.seed}/reads")
    if random.random() >= 0.3:
        return plan
    config = {**plan.config, "log_tail_max_bytes": random.choice((0, 0, 2_000, 1_000_000))}
    return replace(plan, config=config, parks_reads=True, failed_reads=random.choice((0, 0.05, 0.3)))


def _faults(random: Random) -> Faults:
    exist = random.sample(list(FREQUENT), random.choice((0, 1, 2, 2, 3, 3, 4, 6, len(FREQUENT))))
    bounds = {name: FREQUENT[name] for name in exist}
    return Faults(**{name: low * (high / low) ** random.random() for name, (low, high) in bounds.items()})


def _config(random: Random, cast: tuple[Cast, ...]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "offsets_topic_num_partitions": random.choice((1, 2, 3)),
        "group_initial_rebalance_delay_ms": random.choice((0, 100, 1_000, 3_000)),
        "group_new_member_join_timeout_ms": random.choice((8_000, 20_000)),
        "group_heartbeat_hold_max_ms": random.choice((500, 1_500)),
        "group_storm_rebalance_delay_ms": random.choice((0, 3_000)),
        "journal_enable": random.random() < 0.5,
        "offsets_retention_check_interval_ms": random.choice((1_000, 5_000)),
        "offsets_retention_minutes": random.choice((0.1, 0.5, 10_080)),
        "log_retention_check_interval_ms": random.choice((3_000, 10_000)),
        "log_cleaner_min_cleanable_ratio": random.choice((0.01, 0.5)),
        "log_cleaner_delete_retention_ms": random.choice((0, 5_000, 86_400_000)),
        "offsets_topic_history_bytes": 0,
    }
    config.update(_consumer_config(random))
    stayers = Counter(a.options["group"] for a in cast if a.kind in ("member", "consumer", "candidate", "sharer"))
    for limit in ("group_max_size", "group_consumer_max_size"):
        if random.random() < 0.15:
            config[limit] = max(stayers.values(), default=1) + random.randrange(2)
    return config


def _consumer_config(random: Random) -> dict[str, Any]:
    session = random.choice((6_000, 6_000, 10_000))
    return {
        "group_coordinator_rebalance_protocols": "classic,consumer",
        "group_consumer_min_session_timeout_ms": 1_000,
        "group_consumer_session_timeout_ms": session,
        "group_consumer_min_heartbeat_interval_ms": 100,
        "group_consumer_heartbeat_interval_ms": random.choice((600, 1_500, 3_000)),
        "group_consumer_assignment_interval_ms": random.choice((0, 0, 300, 1_000, 4_000)),
        "group_heartbeat_hold_enable": random.random() < 0.85,
        "group_consumer_heartbeat_hold_max_ms": random.choice((500, 1_500, 4_500)),
    }


ELECTION, SHARDS = "zeta", "eta"
"""Groups of the client library: candidates for leadership, workers that share items."""
GROUPS = ("alpha", "beta", ELECTION, SHARDS)
"""Classic groups."""
CANDIDATES, SHARERS = (("candidate", ELECTION),), (("sharer", SHARDS),)
CONSUMER_GROUPS = ("gamma", "delta")
"""Consumer groups (KIP-848)."""
MIXED = "epsilon"
"""A group with members of both protocols, which is upgraded and downgraded with them."""


def _cast(random: Random) -> tuple[Cast, ...]:
    groups = random.choice((("alpha",), ("gamma",), ("alpha", "beta"), ("alpha", "gamma"), ("gamma", "delta")))
    cast: list[Cast] = []
    for group in groups:
        cast += _consumers(random, group) if group in CONSUMER_GROUPS else _members(random, group)
        if random.random() < 0.3:
            cast.append(Cast("storm", f"storm-{group}", {"group": group, "size": _size(random, 6), "wave_ms": 4_000}))
        if random.random() < 0.25:
            kind = "impostor" if group in CONSUMER_GROUPS else "liar"
            cast.append(Cast(kind, f"{kind}-{group}", {"group": group, "pace_ms": random.choice((300, 2_000))}))
    if random.random() < 0.4:
        cast.append(Cast("committer", "committer", {"group": random.choice((*groups, "simple")), "pace_ms": 800}))
    if random.random() < 0.5:
        cast.append(Cast("admin", "admin", {"groups": groups, "pace_ms": random.choice((700, 3_000))}))
    if random.random() < 0.25:
        cast.append(Cast("producer", "producer", {"pace_ms": 700}))
    return tuple(cast)


def _mixed(random: Random) -> tuple[Cast, ...]:
    """Members of one group; those of the classic protocol all support the same assignors."""
    classic = [member for member in _members(random, MIXED) if "instance" not in member.options]
    cast = list(classic)
    consumers = [consumer for consumer in _consumers(random, MIXED) if not consumer.name.endswith("twin")]
    for consumer in consumers[: 1 + _size(random, 4)]:
        life = random.choices(("stays", "restarts", "leaves", "dies"), (2, 3, 3, 2))[0]
        cast.append(replace(consumer, name=f"{consumer.name}new", options={**consumer.options, "life": life}))
    if random.random() < 0.3:
        cast.append(Cast("storm", f"storm-{MIXED}", {"group": MIXED, "size": _size(random, 4), "wave_ms": 4_000}))
    if random.random() < 0.5:
        cast.append(Cast("admin", "admin", {"groups": (MIXED,), "pace_ms": random.choice((700, 3_000))}))
    return tuple(cast)


def _partakers(random: Random) -> tuple[Cast, ...]:
    """Candidates, sharers, or both."""
    cast = []
    for kind, group in random.choice((CANDIDATES, SHARERS, CANDIDATES + SHARERS)):
        session = random.choice((6_000, 10_000))
        for index in range(2 + _size(random, 5)):
            options = {
                "group": group,
                "session_ms": session,
                "patience_ms": random.choice((3_000, 12_000)),
                "held": random.random() < 0.5,
                "slow": random.random() < 0.2,
                "life": random.choices(("stays", "restarts", "leaves", "dies"), (5, 5, 1, 1))[0],
            }
            cast.append(Cast(kind, f"{kind}{index}", options))
    if random.random() < 0.3:
        cast.append(Cast("admin", "admin", {"groups": (ELECTION, SHARDS), "pace_ms": 2_000}))
    return tuple(cast)


def _operators(seed: int, cast: tuple[Cast, ...]) -> tuple[Cast, ...]:
    """Drawn from a generator of their own."""
    random = Random(f"{seed}/operators")
    groups = dict.fromkeys(actor.options["group"] for actor in cast if actor.kind == "consumer")
    return tuple(
        Cast("operator", f"operator-{group}", {"group": group, "pace_ms": random.choice((900, 4_000))})
        for group in groups
        if random.random() < 0.3
    )


def _size(random: Random, most: int) -> int:
    """Mostly small values, with a heavy tail."""
    return min(int(random.paretovariate(1.3)), most)


def _members(random: Random, group: str) -> list[Cast]:
    session = random.choice((6_000, 6_000, 10_000))
    common: dict[str, Any] = {
        "group": group,
        "session_ms": session,
        "heartbeat_ms": session // 3,
        "rebalance_ms": random.choice((4_000, 10_000)),
        "work_ms": random.choice((1_000, 2_500)),
    }
    static = random.random() < 0.4

    def options() -> dict[str, Any]:
        return {
            "old": random.random() < 0.2,
            "life": random.choices(("stays", "restarts", "leaves", "dies"), (5, 3, 1, 1))[0],
            "patience_ms": random.choice((3_000, 12_000)),
            "held": random.random() < 0.4,
            "slow": random.random() < 0.2,
            "ranged": random.random() < 0.6,
        }

    return _company(random, "member", common, static, options)


def _consumers(random: Random, group: str) -> list[Cast]:
    common: dict[str, Any] = {
        "group": group,
        "rebalance_ms": random.choice((4_000, 10_000, 30_000)),
        "work_ms": random.choice((1_000, 2_500)),
    }
    static = random.random() < 0.4
    fickle = random.random() < 0.3
    assignor = random.choice((None, None, "uniform", "range", "rack", "lag", "plugin"))

    def options() -> dict[str, Any]:
        return {
            "life": random.choices(("stays", "restarts", "leaves", "dies"), (5, 3, 1, 1))[0],
            "patience_ms": random.choice((3_500, 6_000, 12_000)),
            "slow": random.random() < 0.2,
            "fickle": fickle and random.random() < 0.5,
            "assignor": assignor,
        }

    return _company(random, "consumer", common, static, options)


def _company(
    random: Random, kind: str, common: dict[str, Any], static: bool, options: Callable[[], dict[str, Any]]
) -> list[Cast]:
    """The members of a group, with a second process for some static members. `options` draws those of one member."""
    group = common["group"]
    members = []
    for index in range(1 + _size(random, 7)):
        instance = {"instance": f"{group}-{index}"} if static and random.random() < 0.7 else {}
        of_one = {**common, **instance, **options()}
        members.append(Cast(kind, f"{group}{index}", of_one))
        if instance and random.random() < 0.25:
            members.append(Cast(kind, f"{group}{index}twin", {**of_one, "life": "leaves"}))
    return members
