"""Every limit and default, under Kafka's property names where Kafka has the setting.

`Config` holds typed values; an attribute's property name is the attribute with dots for underscores
(`group_initial_rebalance_delay_ms` is `group.initial.rebalance.delay.ms`). Values come from, later ones winning:
the defaults here, a .properties or TOML file, the environment (`KOHORT_GROUP_INITIAL_REBALANCE_DELAY_MS`), flags.
An unknown name or a bad value is a `ConfigError` that names it and says where it stood. Units last; bounds inclusive.

Kafka has settings of things that kohort does not do. A broker's whole properties file should start a server, so those
names are accepted, without effect, and listed in `Config.without_effect` for one warning at the start. Settings of
security are refused instead: a server that ignores them would be open where its owner believes it closed.

Source of the defaults: Apache Kafka trunk, August 2026 (GroupCoordinatorConfig, ServerConfigs, LogConfig).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

INT_MAX = 2_147_483_647
LONG_MAX = 9_223_372_036_854_775_807


class ConfigError(ValueError):
    """A setting has an unknown name or a bad value; the message names it and says what is allowed."""


def _setting(
    default: Any, doc: str, *, low: int | None = None, high: int | None = None, one_of: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"doc": doc, "low": low, "high": high, "one_of": one_of})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of a server. Build it with `load` (text, checked) or directly with typed values (tests)."""

    # -- where it listens and keeps its data
    listeners: str = _setting(
        "127.0.0.1:9092",
        "HOST:PORT of each broker, comma separated; port 0 picks a free one. A single one for several brokers stands "
        "for consecutive ports",
    )
    advertised_listeners: str = _setting(
        "",
        "HOST:PORT that clients are told, one a broker; HOST alone keeps the listener's port. The listeners when empty",
    )
    brokers: int = _setting(1, "Brokers that this process presents; one listener each", low=1, high=64)
    broker_id: int = _setting(1, "Id of the first broker; the others count up from it", low=0, high=INT_MAX)
    broker_rack: str = _setting("", "Rack of the brokers, comma separated for several; empty for none")
    data_dir: str = _setting("", "Directory of the data; empty keeps everything in memory")

    # -- limits of connections and requests
    max_connections: int = _setting(10_000, "Open connections in all", low=1, high=INT_MAX)
    max_connections_per_ip: int = _setting(10_000, "Open connections of one address", low=1, high=INT_MAX)
    connections_max_idle_ms: int = _setting(600_000, "Idle connections are closed after this time", low=1)
    socket_request_max_bytes: int = _setting(104_857_600, "Largest request frame", low=1024, high=INT_MAX)
    group_request_max_bytes: int = _setting(
        1_048_576,
        "Largest request of a group API; a SyncGroup, in which a leader names all members, may have four times as much",
        low=1024,
        high=INT_MAX,
    )
    admin_request_max_bytes: int = _setting(
        1_048_576,
        "Largest request of an API that is about topics, configs or the cluster; a Fetch may have four times as much",
        low=1024,
        high=INT_MAX,
    )
    queued_max_request_bytes: int = _setting(
        268_435_456, "Bytes of requests read and not yet answered, over all connections", low=1_048_576
    )
    connection_max_queued_bytes: int = _setting(
        16_777_216,
        "Bytes of answers that a slow reader may leave unread before its requests wait",
        low=65_536,
    )

    # -- topics and logs
    auto_create_topics_enable: bool = _setting(True, "Create a topic when a client asks for its metadata")
    num_partitions: int = _setting(1, "Partitions of a topic created without a number", low=1, high=100_000)
    default_replication_factor: int = _setting(1, "Replication factor of such a topic", low=1, high=32767)
    max_partitions: int = _setting(100_000, "Partitions in all", low=1)
    message_max_bytes: int = _setting(1_048_588, "Largest record batch", low=0, high=INT_MAX)
    message_max_uncompressed_bytes: int = _setting(
        16_777_216,
        "Bytes that a compressed batch, and all those of a produce request, may decompress to",
        low=1_048_576,
        high=1_073_741_824,
    )
    message_max_records: int = _setting(
        50_000, "Records of a batch, and of all batches of a produce request", low=1_000, high=INT_MAX
    )
    fetch_max_bytes: int = _setting(57_671_680, "Most bytes in one answer to a fetch", low=1024, high=INT_MAX)
    fetch_turn_max_bytes: int = _setting(
        67_108_864,
        "Most bytes in the answers to all fetches that are handled together; beyond it each gets one batch",
        low=1024,
    )
    log_cleanup_policy: str = _setting(
        "delete", "Default cleanup policy", one_of=("delete", "compact", "compact,delete", "delete,compact")
    )
    log_retention_ms: int = _setting(
        604_800_000, "Records older than this are deleted; -1 never", low=-1, high=LONG_MAX
    )
    log_retention_bytes: int = _setting(-1, "Bytes a partition keeps; -1 no limit", low=-1, high=LONG_MAX)
    log_retention_check_interval_ms: int = _setting(300_000, "How often retention and compaction look", low=1)
    log_segment_bytes: int = _setting(
        1_073_741_824, "Accepted for clients' sake; kohort's logs have no segments", low=14
    )
    log_cleaner_enable: bool = _setting(True, "Compact compacted topics")
    log_cleaner_delete_retention_ms: int = _setting(86_400_000, "How long tombstones stay readable", low=0)
    log_cleaner_min_cleanable_ratio: float = _setting(0.5, "Share of a log not yet compacted that starts a compaction")
    log_message_timestamp_type: str = _setting(
        "CreateTime", "Whose clock stamps records", one_of=("CreateTime", "LogAppendTime")
    )
    producer_id_expiration_ms: int = _setting(86_400_000, "A silent producer id is forgotten after this time", low=1)
    compression_type: str = _setting(
        "producer",
        "Codec that batches are stored with; producer keeps them as they came",
        one_of=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    min_insync_replicas: int = _setting(1, "Accepted for clients' sake", low=1)

    # -- classic groups
    group_min_session_timeout_ms: int = _setting(6_000, "Shortest session timeout a member may ask for", low=1)
    group_max_session_timeout_ms: int = _setting(1_800_000, "Longest session timeout a member may ask for", low=1)
    group_initial_rebalance_delay_ms: int = _setting(3_000, "How long a new group waits for more members", low=0)
    group_max_size: int = _setting(INT_MAX, "Members of one group", low=1, high=INT_MAX)
    group_max_bytes: int = _setting(
        16_777_216,
        "Bytes of all protocols of a group's members, and of the group's record; characters of the topics' names that "
        "a consumer group's members subscribe to; beyond it joins and assignments are refused",
        low=65_536,
        high=INT_MAX // 4,
    )
    group_max_pending_members: int = _setting(
        20_000, "Member ids that a group has given out and that nobody has used yet; the oldest goes first", low=1
    )
    group_max_former_groups: int = _setting(
        1_000,
        "Names of groups that are gone of which a shard remembers the last generation; of older ones it remembers the "
        "highest, and new groups count on from there",
        low=0,
    )
    group_storm_rebalance_delay_ms: int = _setting(
        3_000,
        "From the third rebalance on that begins this soon after the one before, because somebody came or went, each "
        "waits this long for more to come and go; 0 never",
        low=0,
    )
    group_heartbeat_hold_enable: bool = _setting(
        True, "Hold the answers of heartbeats for a while, so that a rebalance is told the moment it starts"
    )
    group_heartbeat_hold_max_ms: int = _setting(
        # The server is not told the interval of classic members. Clients' default is 3 s; the margin is 500 ms.
        2_500,
        "Longest time a heartbeat's answer is held; keep it below the clients' heartbeat.interval.ms. A third of the "
        "member's session timeout is a bound too",
        low=1,
        high=600_000,
    )
    group_heartbeat_hold_clients: str = _setting(
        "apache-kafka-java,librdkafka,kgo,kohort",
        "Clients (the software name that they send) whose heartbeats may be held: those that send them in the "
        "background. Others never wait. librdkafka stands for its bindings too, as confluent-kafka-python",
    )
    group_new_member_join_timeout_ms: int = _setting(300_000, "A new member parked longer than this is removed", low=1)

    # -- consumer groups (KIP-848)
    group_coordinator_rebalance_protocols: str = _setting(
        "classic,consumer",
        "Protocols of groups that are served; classic alone turns the consumer groups of KIP-848 off. share and "
        "streams are accepted without effect",
    )
    group_consumer_session_timeout_ms: int = _setting(
        45_000, "A member that sends no heartbeat for this long is removed", low=1
    )
    group_consumer_min_session_timeout_ms: int = _setting(45_000, "Least session timeout, also of a group", low=1)
    group_consumer_max_session_timeout_ms: int = _setting(60_000, "Largest session timeout, also of a group", low=1)
    group_consumer_heartbeat_interval_ms: int = _setting(5_000, "How often members are told to heartbeat", low=1)
    group_consumer_min_heartbeat_interval_ms: int = _setting(5_000, "Least heartbeat interval, also of a group", low=1)
    group_consumer_max_heartbeat_interval_ms: int = _setting(
        15_000, "Largest heartbeat interval, also of a group", low=1
    )
    group_consumer_max_size: int = _setting(INT_MAX, "Members of one consumer group", low=1, high=INT_MAX)
    group_consumer_assignment_interval_ms: int = _setting(
        1_000, "Least time between two target assignments of a group", low=0
    )
    group_consumer_min_assignment_interval_ms: int = _setting(0, "Least assignment interval, also of a group", low=0)
    group_consumer_max_assignment_interval_ms: int = _setting(
        15_000, "Largest assignment interval, also of a group", low=0
    )
    group_consumer_migration_policy: str = _setting(
        "bidirectional",
        "Whether running groups may change their protocol: a classic group with members becomes a consumer group with "
        "the first member of the consumer protocol (upgrade), and the other way round with the last one (downgrade). "
        "When disabled, no classic member joins a consumer group with members",
        one_of=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_consumer_heartbeat_hold_max_ms: int = _setting(
        4_500,
        "Longest time a consumer group heartbeat's answer is held; 0 never. The told interval less a tenth, at least "
        "500 ms, is a bound too",
        low=0,
    )
    group_consumer_heartbeat_hold_enable: bool = _setting(
        True, "Hold heartbeats of consumer groups; group.heartbeat.hold.enable is the switch for all groups"
    )
    group_consumer_initial_rebalance_delay_ms: int = _setting(
        0,
        "When the first member joins an empty group, partitions are assigned this much later, so that it does not get "
        "everything",
        low=0,
        high=600_000,
    )
    group_consumer_handover_max_partitions: int = _setting(
        0,
        "How many partitions move at a time from running members to members that have just joined; 0 for all at once",
        low=0,
        high=INT_MAX,
    )
    group_consumer_handover_interval_ms: int = _setting(1_000, "Time between two such moves", low=1, high=3_600_000)
    group_consumer_ownership_fencing_enable: bool = _setting(
        False, "Refuse commits for partitions that the member does not own; see docs/wire-extensions.md"
    )
    group_consumer_assignors: str = _setting(
        "uniform,range,rack,lag,*",
        "Assignors that serve consumer groups; the first serves groups that choose none, and * stands for those that "
        "other packages bring. One must be built in, to serve where another fails",
    )
    group_consumer_regex_max_length: int = _setting(
        2_048, "Characters of a regular expression that a member subscribes with", low=1, high=16_384
    )
    group_consumer_regex_max_patterns: int = _setting(
        100, "Different regular expressions of one group's members", low=1, high=10_000
    )
    group_consumer_assignor_timeout_ms: int = _setting(
        5_000, "An assignor of another package that takes longer is stopped, and another one serves", low=1
    )
    group_consumer_hold_max_ms: int = _setting(
        86_400_000, "Longest time for which a group's rebalances may be held (kohort groups hold)", low=1
    )
    group_max_configured: int = _setting(10_000, "Groups that may have settings of their own", low=0, high=INT_MAX)

    # -- offsets
    offsets_topic_num_partitions: int = _setting(
        50, "Shards of the coordinator; fixed at the first start", low=1, high=10_000
    )
    offsets_topic_replication_factor: int = _setting(3, "Capped at the number of brokers", low=1, high=32767)
    offset_metadata_max_bytes: int = _setting(
        # The bound: in UTF-8 they may be three times as many, and older versions of OffsetFetch have room for 32767.
        4_096,
        "Longest metadata of a committed offset, in UTF-16 units",
        low=0,
        high=10_922,
    )
    offsets_retention_minutes: int = _setting(10_080, "Offsets of an empty group are kept this long", low=1)
    offsets_retention_check_interval_ms: int = _setting(600_000, "How often offsets are checked for expiry", low=1)

    # -- the groups' journal
    journal_enable: bool = _setting(True, "Keep the groups' journal in the topic __kohort_journal, over restarts")
    journal_max_stories_per_group: int = _setting(50, "Stories that the journal keeps of a group", low=1, high=10_000)
    journal_max_groups: int = _setting(10_000, "Groups that the journal remembers", low=1)
    journal_max_bytes: int = _setting(8_388_608, "Memory for the journal's stories; a start reads no more", low=65_536)
    journal_retention_ms: int = _setting(
        2_592_000_000, "Age of the topic's oldest stories, set when it is created; -1 no limit", low=-1, high=LONG_MAX
    )
    journal_retention_bytes: int = _setting(
        1_073_741_824, "Size of the topic, set when it is created; -1 no limit", low=-1, high=LONG_MAX
    )

    # -- producers
    transaction_max_timeout_ms: int = _setting(900_000, "Longest transaction timeout a producer may ask for", low=1)

    # -- operation
    log_level: str = _setting("info", "Least severe log lines shown", one_of=("debug", "info", "warning", "error"))
    log_format: str = _setting(
        "auto",
        "Shape of the log; auto is console on a terminal, else logfmt",
        one_of=("auto", "console", "json", "logfmt"),
    )

    without_effect: tuple[str, ...] = ()
    """Names of Kafka's settings that were given and that kohort accepts without doing anything."""

    @property
    def offsets_retention_ms(self) -> int:
        return int(self.offsets_retention_minutes * 60_000)  # the simulator's are parts of a minute


def property_name(attribute: str) -> str:
    """`log_retention_ms` → `log.retention.ms`."""
    return attribute.replace("_", ".")


SETTINGS: dict[str, Any] = {property_name(f.name): f for f in fields(Config) if f.metadata}
"""Property name: dataclass field; `metadata` has doc, low, high, one_of."""

ALIASES: dict[str, tuple[str, int]] = {
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", 3_600_000),
    "node.id": ("broker.id", 1),
}
"""Other names of a setting, and what their value is multiplied by."""


WITHOUT_EFFECT = r"""
    (alter\.log\.dirs|broker\.heartbeat|broker\.session|client\.quota|compression\.(gzip|lz4|zstd)|controlled\.shutdown
    |controller|delegation\.token|election|group\.(consumer|coordinator|share|streams)|initial\.broker
    |kafka\.metrics|leader|log\.(cleaner|flush|index|initial|local|message|roll|segment)|metadata|metrics?
    |offsets\.(commit|load|topic)|producer\.id\.expiration|quota|remote|replica|replication|share|telemetry|transaction
    |transactional|unclean|zookeeper)(\.\w+)+
    | \w+\.(purgatory\.purge\.interval\.requests|policy\.class\.name)
    | auto\.(include\.jmx\.reporter|leader\.rebalance\.enable) | background\.threads | broker\.id\.generation\.enable
    | control\.plane\.listener\.name | delete\.topic\.enable | early\.start\.listeners
    | inter\.broker\.(protocol\.version|listener\.name) | log\.(dir|dirs|dir\.failure\.timeout\.ms|preallocate)
    | max\.(connection\.creation\.rate|connections\.per\.ip\.overrides|incremental\.fetch\.session\.cache\.slots
      |request\.partition\.size\.limit)
    | num\.(io\.threads|network\.threads|recovery\.threads\.per\.data\.dir|replica\.alter\.log\.dirs\.threads
      |replica\.fetchers)
    | process\.roles | queued\.max\.requests | reserved\.broker\.max\.id | server\.max\.startup\.time\.ms
    | socket\.(listen\.backlog\.size|receive\.buffer\.bytes|send\.buffer\.bytes) | unstable\..*
    """
"""Settings of Apache Kafka's brokers for which kohort has no use (or none yet); to be matched verbosely."""

REFUSED = (
    r"(ssl|sasl|security|authorizer|principal|super\.users|password\.encoder|connections\.max\.reauth"
    r"|connection\.failed\.authentication)(\.\w+)*|listener\.name\..*|allow\.everyone\.if\.no\.acl\.found"
)
"""Settings of security."""

NOT_SETTINGS = (
    r"KOHORT_(BOOTSTRAP_SERVER|COMMAND_CONFIG|COMPILED|JOBS|PURE|SPARK_DECODER|SERVICE_(HOST|PORT)|PORT)(_.*)?"
)
"""Environment variables that begin as ours do: the commands' own, and those that Kubernetes sets for a service."""


def load(
    overrides: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Build a Config from a file, the environment (`KOHORT_…`) and overrides; later ones win."""
    values: dict[str, Any] = {}
    without_effect: dict[str, None] = {}
    for origin, texts in (
        (f" (in {file})", _read_file(file) if file is not None else {}),
        (" (in the environment)", _from_environment(os.environ if environ is None else environ)),
        ("", dict(overrides)),
    ):
        # Of two names of one setting in one place, the precise one wins, as log.retention.ms does in Kafka.
        for name in sorted(texts, key=lambda name: name not in ALIASES):
            known, factor = ALIASES.get(name, (name, 1))
            if known in SETTINGS:
                try:
                    values[SETTINGS[known].name] = parse_value(known, texts[name], factor)
                except ConfigError as error:
                    raise ConfigError(f"{error}{origin}") from None
            elif not _accept_without_effect(name, texts[name], origin):
                raise ConfigError(f"unknown setting {name}{origin}{_hint(name)}")
            else:
                without_effect[name] = None
    return check(Config(**values, without_effect=tuple(without_effect)))


def check(config: Config) -> Config:
    """Check what spans several settings. Returns the config, listeners spelled out; raises ConfigError."""
    for name, setting in SETTINGS.items():
        _check_bounds(name, getattr(config, setting.name))
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError("group.min.session.timeout.ms is larger than group.max.session.timeout.ms")
    _check_consumer_groups(config)
    protocols = {name.strip() for name in config.group_coordinator_rebalance_protocols.split(",")}
    if "classic" not in protocols or not protocols <= GROUP_PROTOCOLS:
        given = config.group_coordinator_rebalance_protocols
        raise ConfigError(f"group.coordinator.rebalance.protocols is {given!r}; it takes classic, or classic,consumer")
    if config.default_replication_factor > config.brokers:
        raise ConfigError(
            f"default.replication.factor is {config.default_replication_factor}, larger than brokers ({config.brokers})"
        )
    listeners = _one_each(config.brokers, "listeners", config.listeners)
    advertised = _one_each(config.brokers, "advertised.listeners", config.advertised_listeners)
    if len(racks := config.broker_rack.split(",")) not in (1, config.brokers):
        raise ConfigError(f"broker.rack names {len(racks)} racks, but brokers is {config.brokers}; they must agree")
    return replace(
        config,
        listeners=",".join(map(str, listeners)),
        advertised_listeners=",".join(map(str, advertised)),
    )


BOUNDED = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
"""Settings of consumer groups, without their "group.consumer.", whose bounds are settings themselves."""


def consumer_bounds(config: Config, name: str) -> tuple[int, int]:
    """The least and the largest value of one of BOUNDED, for the server and for single groups."""
    attribute = name.replace(".", "_")
    return getattr(config, f"group_consumer_min_{attribute}"), getattr(config, f"group_consumer_max_{attribute}")


OF_PACKAGES = "*"
"""Among the assignors: those of packages that are not named."""
JAVA_ASSIGNORS = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""What Kafka's configurations call those that it brings, before 4.0."""


def assignor_names(config: Config) -> list[str]:
    """The assignors that shall serve, in order. Raises ConfigError."""
    names = [name.strip() for name in config.group_consumer_assignors.split(",") if name.strip()]
    names = [JAVA_ASSIGNORS.get(name, name) for name in names]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"group.consumer.assignors names {name} twice")
    if not set(names) - {OF_PACKAGES}:
        raise ConfigError("group.consumer.assignors names no assignor; kohort has uniform, range, rack and lag")
    return names


def _check_consumer_groups(config: Config) -> None:
    assignor_names(config)
    for name in BOUNDED:
        low, high = consumer_bounds(config, name)
        if low > high:
            raise ConfigError(f"group.consumer.min.{name} is {low}, larger than group.consumer.max.{name} ({high})")
        value = getattr(config, f"group_consumer_{name.replace('.', '_')}")
        for bound, passed in ((f"min.{name}", value < low), (f"max.{name}", value > high)):
            if passed:
                limit = low if value < low else high
                raise ConfigError(
                    f"group.consumer.{name} is {value}, beyond its bound: group.consumer.{bound} is {limit}; "
                    "set them both"
                )
    session, interval = config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
    if session <= interval:
        raise ConfigError(
            f"group.consumer.session.timeout.ms is {session}; it must be more than "
            f"group.consumer.heartbeat.interval.ms ({interval}), or no member would live to its next heartbeat"
        )


GROUP_PROTOCOLS = frozenset(("classic", "consumer", "share", "streams"))


class Address(NamedTuple):
    """HOST:PORT of a listener. The host "" stands for all of the machine's addresses; the port -1 for "not said"."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port < 0 else f"{host}:{self.port}"


def addresses(name: str, text: str) -> list[Address]:
    """The addresses of a comma separated list; `name` is the setting that an error blames.

    Kafka's way of writing them is understood too: PLAINTEXT://HOST:PORT, of which CONTROLLER://… is left out.
    """
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        protocol, slashes, rest = part.rpartition("://")
        if protocol == "CONTROLLER":
            continue
        if slashes and protocol != "PLAINTEXT":
            raise ConfigError(f"{name} is {part!r}; kohort speaks PLAINTEXT only, no TLS or SASL yet")
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:/\s]*))(?::(\d{1,5}))?", rest)
        port = int(match[3] or -1) if match else -1
        if match is None or port > 65535 or (port < 0 and name != "advertised.listeners"):
            raise ConfigError(f"{name} is {part!r}; it takes HOST:PORT, or [ADDRESS]:PORT for IPv6")
        host = match[1] or match[2] or ""
        if name == "advertised.listeners" and host in ("", "*", "0.0.0.0", "::"):
            raise ConfigError(f"{name} is {part!r}; clients need a host name or address that leads to this machine")
        found.append(Address("" if host == "*" else host, port))
    return found


def _one_each(brokers: int, name: str, text: str) -> list[Address]:
    """An address for each broker: as many as there are, or consecutive ports from a single one on."""
    found = addresses(name, text)
    if not found and name == "advertised.listeners":
        return []
    if len(found) == 1 and brokers > 1:
        host, port = found[0]
        if port + brokers - 1 > 65535:
            raise ConfigError(f"{name} is {text!r}; there are no {brokers} consecutive ports from there on")
        return [Address(host, port + index if port > 0 else port) for index in range(brokers)]
    if len(found) != brokers:
        raise ConfigError(f"{name} names {len(found)} addresses, but brokers is {brokers}; they must agree")
    real = [address for address in found if address.port > 0]
    if len(set(real)) < len(real):
        raise ConfigError(f"{name} is {text!r}; it names an address twice")
    return found


def with_values(config: Config, **values: Any) -> Config:
    """A copy with some attributes replaced, checked."""
    return check(replace(config, **values))


def parse_value(name: str, text: str, factor: int = 1) -> Any:
    """The typed value of a setting's text. Raises ConfigError."""
    setting = SETTINGS[name]
    kind = type(setting.default)
    value: Any
    text = text.strip()
    try:
        if kind is bool:
            value = {"true": True, "false": False}[text.lower()]
        elif kind is int:
            value = int(text)
            value = value * factor if value >= 0 else value
        elif kind is float:
            value = float(text)
        else:
            # Kafka takes the words of a policy in any case.
            value = text.lower() if text.lower() in setting.metadata["one_of"] else text
    except (ValueError, KeyError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"{name} is {text!r}; it takes {wanted}") from None
    _check_bounds(name, value)
    return value


def _check_bounds(name: str, value: Any) -> None:
    meta = SETTINGS[name].metadata
    if meta["low"] is not None and value < meta["low"]:
        raise ConfigError(f"{name} is {value}; the least is {meta['low']}")
    if meta["high"] is not None and value > meta["high"]:
        raise ConfigError(f"{name} is {value}; the most is {meta['high']}")
    if meta["one_of"] and value not in meta["one_of"]:
        raise ConfigError(f"{name} is {value!r}; it takes one of {', '.join(meta['one_of'])}")


def _accept_without_effect(name: str, text: str, origin: str) -> bool:
    if re.fullmatch(REFUSED, name):
        # What says in a roundabout way that nothing is protected is what kohort does.
        if name.startswith("security.") and text.strip() in ("PLAINTEXT", ""):
            return True
        raise ConfigError(f"{name}{origin} is known to Kafka, but not served by kohort yet: no TLS, SASL or ACLs")
    if name == "listener.security.protocol.map":
        return True
    return re.fullmatch(WITHOUT_EFFECT, name, re.VERBOSE) is not None


def _hint(name: str) -> str:
    import difflib  # rarely needed, and not at the start

    near = difflib.get_close_matches(name, [*SETTINGS, *ALIASES], n=1)
    return f"; did you mean {near[0]}?" if near else "; kohort serve --list-settings prints all"


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        property_name(variable.removeprefix("KOHORT_").lower()): value
        for variable, value in environ.items()
        if variable.startswith("KOHORT_") and not re.fullmatch(NOT_SETTINGS, variable)
    }


def _read_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from None
    if path.suffix == ".toml":
        import tomllib

        try:
            return dict(_flatten(tomllib.loads(text), ""))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: {error}") from None
    texts: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise ConfigError(f"{path}, line {number}: expected name=value, found {line!r}")
        texts[name.strip()] = value.strip()
    return texts


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield prefix + name, ",".join(str(item) for item in value)
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        else:
            yield prefix + name, str(value)
