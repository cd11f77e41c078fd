"""The table of settings: every limit and default, under Kafka's property names where Kafka has the setting.

A name ends with its unit; bounds are inclusive. Source of the defaults: Apache Kafka trunk, August 2026
(GroupCoordinatorConfig, ServerConfigs, LogConfig).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from kohort.config.compatibility import DEVIATIONS, KAFKA, KOHORT, Deviations
from kohort.config.declaration import INT_MAX, LONG_MAX
from kohort.config.declaration import setting as _setting
from kohort.config.hosts import per_host as check_overrides
from kohort.config.sharing import ShareConfig

ONE, ALL = "one", "all"
"""Values of cluster.serving."""

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ShareConfig):
    """The settings of a server. Build it with `load` (text, checked) or directly with typed values (tests)."""

    # -- brokers
    brokers: int = _setting(1, "Brokers that this process presents; one listener each", low=1, high=64)
    broker_id: int = _setting(1, "Id of the first broker; the others count up from it", low=0, high=INT_MAX)
    broker_rack: str = _setting("", "Rack of the brokers, comma separated for several; empty for none")
    data_dir: str = _setting("", "Directory of the data; empty keeps everything in memory")
    storage: str = _setting(
        "",
        "postgresql://USER@HOST/DATABASE: the data is in this database instead of a directory (experimental; "
        "docs/postgres.md)",
        secret=True,  # it may have a password
    )

    cluster_serving: str = _setting(
        ONE,
        "With storage: one node serves and the others stand by; or all serve at once, each a part of the data "
        "(experimental, without transactions and share groups; docs/postgres.md)",
        one_of=(ONE, ALL),
    )
    cluster_move_interval_ms: int = _setting(
        1_000, "With cluster.serving=all: slots move one by one, at most so often", low=1, high=INT_MAX
    )
    broker_session_timeout_ms: int = _setting(
        9_000, "With storage: the time of a node's lease, after which a stand-by takes over", low=1_000, high=INT_MAX
    )
    broker_heartbeat_interval_ms: int = _setting(
        2_000, "With storage: how often a node renews its lease", low=100, high=INT_MAX
    )

    compatibility: str = _setting(
        KOHORT,
        "kafka is the strict mode, to test software that is meant for Apache Kafka: it switches off what shows on the "
        "wire and is not Kafka's (docs/differences.md)",
        one_of=(KOHORT, KAFKA),
    )

    # -- limits of connections and requests
    max_connections: int = _setting(
        10_000,
        "Open connections in all; above it, new ones wait. For one listener: listener.name.NAME.max.connections",
        low=1,
        high=INT_MAX,
    )
    max_connections_per_ip: int = _setting(
        10_000,
        "Open connections of one address; above it, new ones are closed. 0 needs max.connections.per.ip.overrides",
        low=0,
        high=INT_MAX,
    )
    max_connections_per_ip_overrides: str = _setting(
        "",
        "ADDRESS:CONNECTIONS, comma separated: max.connections.per.ip of single addresses. Host names are looked up at "
        "the start",
        check=check_overrides,
    )
    max_connection_creation_rate: int = _setting(
        INT_MAX,
        "New connections a second; above it, they wait. For one listener: listener.name.NAME."
        "max.connection.creation.rate",
        low=1,
        high=INT_MAX,
    )
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
    memory_max_bytes: int = _setting(
        469_762_048,
        "Memory of the process, about. Of sixteen parts, queued.max.request.bytes gets 5, queued.max.response.bytes "
        "and group.max.total.bytes 3 each, and log.tail.max.bytes 1; 4 are left for code, topics and connections. If "
        "some of the four are given, the others share the rest; the four together must not exceed it. If the process "
        "takes more, large requests and unread answers get less room",
        low=16_777_216,
    )
    queued_max_request_bytes: int = _setting(
        146_800_640,
        "Bytes of requests read and not yet answered, over all connections. A quarter is left for requests of up to "
        "64 kB; while others wait for room, clients that stall in the middle of a request are closed. Default: a share "
        "of memory.max.bytes",
        low=1_048_576,
    )
    queued_max_response_bytes: int = _setting(
        88_080_384,
        "Bytes of answers that clients have not read yet, over all connections; above it, the connections with the "
        "most of them are closed. Default: a share of memory.max.bytes",
        low=1_048_576,
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
    log_tail_max_bytes: int = _setting(
        29_360_128,
        "Bytes of the newest record batches of all logs, kept in memory: their readers need no read of the disk. "
        "Default: a share of memory.max.bytes",
        low=0,
    )
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
    fetch_max_bytes: int = _setting(
        4_194_304,
        "Most bytes in one answer to a fetch, if its first batch is not larger; nobody else is answered while they are "
        "read, some ten milliseconds for 4 MB",
        low=1024,
        high=INT_MAX,
    )
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
    log_cleaner_min_cleanable_ratio: float = _setting(
        0.5, "Share of a log not yet compacted that starts a compaction", low=0, high=1
    )
    log_message_timestamp_type: str = _setting(
        "CreateTime", "Whose clock stamps records", one_of=("CreateTime", "LogAppendTime")
    )
    producer_id_expiration_ms: int = _setting(86_400_000, "A silent producer id is forgotten after this time", low=1)
    compression_type: str = _setting(
        "producer",
        "Codec of stored batches; producer keeps the producer's",
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
    group_max_total_bytes: int = _setting(
        88_080_384,
        "Half of it bounds all groups, their members and assignments, about as they are in memory. Beyond it, joins "
        "and assignments that need more are refused; beyond three quarters of it, those that need more than 64 kB. The "
        "other half bounds committed offsets with their metadata; beyond it, commits that need more are refused. "
        "Default: a share of memory.max.bytes",
        low=1_048_576,
    )
    group_max_pending_members: int = _setting(
        20_000, "Unused member ids that a group has given out; the oldest is dropped first", low=1
    )
    group_max_former_groups: int = _setting(
        1_000,
        "Names of groups that are gone of which a shard remembers the last generation; of older ones it remembers the "
        "highest, and new groups count on from there",
        low=0,
    )
    group_storm_rebalance_delay_ms: int = _setting(
        3_000,
        "From the fifth rebalance on that begins this soon after the one before, because members came or went, each "
        "waits for more of them: 250 ms, in a group of more than ten members 50 ms longer for each further member, but "
        "no longer than this, and no longer than half of the shortest rebalance timeout in the group; 0 never",
        low=0,
    )
    group_heartbeat_hold_enable: bool = _setting(
        True, "Hold the answers of heartbeats for a while, so that members learn at once of a rebalance"
    )
    group_heartbeat_hold_max_ms: int = _setting(
        # Classic members do not send their interval. Clients' default is 3 s; the margin is 500 ms.
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
    group_consumer_heartbeat_interval_ms: int = _setting(5_000, "The heartbeat interval of members", low=1)
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
        "Longest time a consumer group heartbeat's answer is held; 0 never. It is never held longer than two thirds of "
        "the answer's interval (half of an interval below 1.5 s; a Java client's: all but 100 ms)",
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
    offsets_topic_history_bytes: int = _setting(
        33_554_432,
        "Bytes of the newest records of __consumer_offsets, in all of its partitions, that compaction keeps as the "
        "history of the groups; a start reads them; an eighth of it if the data is in memory; 0 none",
        low=0,
        high=LONG_MAX,
    )
    offsets_topic_history_ms: int = _setting(
        86_400_000,
        "Older records of __consumer_offsets are compacted also within offsets.topic.history.bytes",
        low=0,
        high=LONG_MAX,
    )
    offset_metadata_max_bytes: int = _setting(
        # The bound: in UTF-8 they may be three times as many, and older versions of OffsetFetch have room for 32767.
        4_096,
        "Longest metadata of a committed offset, in UTF-16 units",
        low=0,
        high=10_922,
    )
    offsets_retention_minutes: int = _setting(10_080, "Offsets of an empty group are kept this long", low=1)
    offsets_retention_check_interval_ms: int = _setting(600_000, "How often offsets are checked for expiry", low=1)

    # -- the journal
    journal_enable: bool = _setting(
        True, "Keep the journal of groups and transactions in the topic __kohort_journal, over restarts"
    )
    journal_max_stories_per_group: int = _setting(
        50, "Stories that the journal keeps of a group or transactional id", low=1, high=10_000
    )
    journal_max_groups: int = _setting(10_000, "Groups, and transactional ids, that the journal remembers", low=1)
    journal_max_bytes: int = _setting(8_388_608, "Memory for the journal's stories; a start reads no more", low=65_536)
    journal_retention_ms: int = _setting(
        2_592_000_000, "Age of the topic's oldest stories, set when it is created; -1 no limit", low=-1, high=LONG_MAX
    )
    journal_retention_bytes: int = _setting(
        1_073_741_824, "Size of the topic, set when it is created; -1 no limit", low=-1, high=LONG_MAX
    )

    # -- transactions
    transaction_version: int = _setting(
        2,
        "The level of the feature transaction.version: at 2, producers that support it get a new epoch with the end of "
        "each transaction (KIP-890)",
        low=0,
        high=2,
    )
    transaction_max_timeout_ms: int = _setting(
        900_000, "Longest transaction timeout a producer may ask for", low=1, high=INT_MAX
    )
    transaction_partition_verification_enable: bool = _setting(
        True, "Refuse transactional records for a partition that their producer has not added to its transaction"
    )
    transaction_state_log_num_partitions: int = _setting(
        50, "Shards of the transaction coordinator; fixed when the first client asks for it", low=1, high=10_000
    )
    transaction_state_log_replication_factor: int = _setting(3, "Capped at the number of brokers", low=1, high=32767)
    transaction_state_max_bytes: int = _setting(
        67_108_864,
        "Memory for transactional ids and the partitions of their transactions; beyond three quarters of it, no new id "
        "is served",
        low=65_536,
    )
    transactional_id_expiration_ms: int = _setting(
        604_800_000, "A transactional id without a transaction is forgotten after this time", low=1
    )

    # -- authorization
    authorizer_class_name: str = _setting(
        "",
        "The class of Apache Kafka's authorizer turns ACLs on (docs/acls.md); empty: everybody may do everything",
        one_of=("", AUTHORIZER),
    )
    super_users: str = _setting(
        "", "Principals that may do everything, whatever the ACLs say: User:a;User:b. Needs authorizer.class.name"
    )
    allow_everyone_if_no_acl_found: bool = _setting(
        False,
        "Whether everybody may do everything with a resource that no ACL is about; as the property "
        "allow.everyone.if.no.acl.found. Needs authorizer.class.name",
    )
    acls_max: int = _setting(100_000, "ACLs in all", low=1, high=INT_MAX)

    # -- quotas (docs/quotas.md)
    quota_window_num: int = _setting(11, "Samples over which the rates of quotas are measured", low=1, high=1_000)
    quota_window_size_seconds: int = _setting(
        1,
        "Time of a sample; also the longest time that a client waits because of its request_percentage",
        low=1,
        high=3_600,
    )
    controller_quota_window_num: int = _setting(
        11,
        "Samples of controller_mutation_rate: its burst is this many, times their time and the rate",
        low=1,
        high=1_000,
    )
    controller_quota_window_size_seconds: int = _setting(1, "Time of such a sample", low=1, high=3_600)
    quotas_max: int = _setting(10_000, "Entities that have quotas", low=1, high=INT_MAX)

    # -- operation (docs/metrics.md)
    http_listener: str = _setting(
        "",
        "HOST:PORT of /metrics, /livez and /readyz over HTTP; empty for none. It has neither TLS nor a login, so an "
        "address that other machines reach needs allow.insecure.listeners",
    )
    metrics_groups_granularity: str = _setting(
        "partition",
        "The most detailed series of groups in /metrics: a series for each partition, for each topic or for each group",
        one_of=("partition", "topic", "group"),
    )
    metrics_groups_include: str = _setting(
        "*", "The groups that have series in /metrics: patterns with *, ? and [abc], comma separated"
    )
    metrics_groups_exclude: str = _setting("", "Groups that have none, although metrics.groups.include names them")
    metrics_kminion: bool = _setting(False, "Series under the names of kminion too, for its dashboards")
    metrics_max_series: int = _setting(
        20_000,
        "Series in one answer of /metrics; kohort_metrics_series_left_out counts what does not fit",
        low=1_000,
        high=1_000_000,
    )
    log_slow_request_ms: int = _setting(
        1_000,
        "A request that takes longer is a line in the log, with its phases; what it waits for on purpose, as a join "
        "for other members, does not count. 0: no lines",
        low=0,
        high=INT_MAX,
    )
    log_level: str = _setting("info", "Least severe log lines shown", one_of=("debug", "info", "warning", "error"))
    log_format: str = _setting(
        "auto",
        "Shape of the log; auto is console on a terminal, else logfmt",
        one_of=("auto", "console", "json", "logfmt"),
    )

    of_listeners: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names and texts of the settings of single listeners, listener.name.NAME.…; they may be secret."""

    without_effect: tuple[str, ...] = ()
    """Names of Kafka's settings that were given and that kohort accepts without doing anything."""

    @property
    def deviations(self) -> Deviations:
        """Where the answers differ from Apache Kafka's."""
        return DEVIATIONS[self.compatibility]

    @property
    def offsets_retention_ms(self) -> int:
        return int(self.offsets_retention_minutes * 60_000)  # the simulator's are parts of a minute


def property_name(attribute: str) -> str:
    """`log_retention_ms` → `log.retention.ms`."""
    return attribute.replace("_", ".")


SETTINGS: dict[str, Any] = {property_name(f.name): f for f in fields(Config) if f.metadata}
"""Property name: dataclass field; `metadata` has doc, low, high, one_of."""
