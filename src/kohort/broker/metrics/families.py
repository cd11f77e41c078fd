"""The table of all series. docs/metrics.md has a row for each (tests/structure/test_metrics_page.py).

Sources of the names: kafka_exporter (kafka_exporter.go), jmx_exporter's sample rules for Kafka
(example_configs/kafka-2_0_0.yml) and Strimzi's, kafka-lag-exporter, kminion; `kohort_` and `process_` are beside
them.
"""

from __future__ import annotations

import msgspec

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Family(msgspec.Struct, frozen=True):
    """The series of one name. The name of a counter ends in `_total`."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


FAMILIES: list[Family] = []
"""In the order of the text."""


def _family(kind: str, name: str, help: str, *labels: str) -> Family:
    family = Family(name, kind, help, labels)
    FAMILIES.append(family)
    return family


def _gauge(name: str, help: str, *labels: str) -> Family:
    return _family(GAUGE, name, help, *labels)


def _counter(name: str, help: str, *labels: str) -> Family:
    return _family(COUNTER, name, help, *labels)


def _histogram(name: str, help: str, *labels: str) -> Family:
    return _family(HISTOGRAM, name, help, *labels)


_PLACE = "consumergroup", "topic", "partition"

# -- kafka_exporter: the cluster and its groups

BROKERS = _gauge("kafka_brokers", "Number of brokers in the cluster")
BROKER_INFO = _gauge("kafka_broker_info", "1 for each broker, with the address that clients get", "id", "address")
GROUP_MEMBERS = _gauge("kafka_consumergroup_members", "Members of the group", "consumergroup")
GROUP_OFFSET = _gauge("kafka_consumergroup_current_offset", "Committed offset of the group", *_PLACE)
GROUP_LAG = _gauge("kafka_consumergroup_lag", "Records behind the committed offset", *_PLACE)
GROUP_OFFSET_SUM = _gauge(
    "kafka_consumergroup_current_offset_sum", "Sum of the committed offsets of the topic", "consumergroup", "topic"
)
GROUP_LAG_SUM = _gauge("kafka_consumergroup_lag_sum", "Sum of the lags of the topic", "consumergroup", "topic")

# -- kafka-lag-exporter: lag in seconds

_OF_LAG = "cluster_name", "group"
LAG_SECONDS = _gauge(
    "kafka_consumergroup_group_lag_seconds",
    "Age of the first record that the group has not committed; 0 without lag",
    *_OF_LAG,
    "topic",
    "partition",
)
MAX_LAG_SECONDS = _gauge(
    "kafka_consumergroup_group_max_lag_seconds", "The largest lag in seconds of the group's partitions", *_OF_LAG
)
MAX_LAG = _gauge("kafka_consumergroup_group_max_lag", "The largest lag in records of the partitions", *_OF_LAG)
SUM_LAG = _gauge("kafka_consumergroup_group_sum_lag", "Lag in records of all partitions of the group", *_OF_LAG)

# -- kafka_exporter: topics

TOPIC_PARTITIONS = _gauge("kafka_topic_partitions", "Partitions of the topic", "topic")
_PARTITION = "topic", "partition"
END_OFFSET = _gauge("kafka_topic_partition_current_offset", "Offset that the next record gets", *_PARTITION)
START_OFFSET = _gauge("kafka_topic_partition_oldest_offset", "The first offset that can be read", *_PARTITION)
LEADER = _gauge("kafka_topic_partition_leader", "Id of the leader", *_PARTITION)
REPLICAS = _gauge("kafka_topic_partition_replicas", "Number of replicas", *_PARTITION)
IN_SYNC = _gauge("kafka_topic_partition_in_sync_replica", "Number of replicas in sync", *_PARTITION)
PREFERRED = _gauge("kafka_topic_partition_leader_is_preferred", "1 if the first replica leads", *_PARTITION)
UNDER_REPLICATED = _gauge(
    "kafka_topic_partition_under_replicated_partition", "0: the replicas of a process share its data", *_PARTITION
)

# -- Kafka's beans, as jmx_exporter prints them

_TOPIC_BEAN = "kafka_server_brokertopicmetrics_"
MESSAGES_IN = _counter(f"{_TOPIC_BEAN}messagesin_total", "Records appended; without the label: to all topics", "topic")
BYTES_IN = _counter(f"{_TOPIC_BEAN}bytesin_total", "Bytes appended; without the label: to all topics", "topic")
BYTES_OUT = _counter(
    f"{_TOPIC_BEAN}bytesout_total",
    "Bytes of records in the answers to fetches; without the label: of all topics",
    "topic",
)
PRODUCE_REQUESTS = _counter(f"{_TOPIC_BEAN}totalproducerequests_total", "Produce requests")
FETCH_REQUESTS = _counter(f"{_TOPIC_BEAN}totalfetchrequests_total", "Fetch requests")
REQUESTS = _counter("kafka_network_requestmetrics_requests_total", "Requests that were handled", "request", "version")
_OF_REQUEST = "kafka_network_requestmetrics_"
REQUEST_ERRORS = _counter(f"{_OF_REQUEST}errors_total", "Errors in answers, one for each row", "request", "error")
TOTAL_TIMES = _gauge(f"{_OF_REQUEST}totaltimems", "From arrival to answer, of the last requests", "request", "quantile")
TOTAL_TIMES_COUNT = _gauge(f"{_OF_REQUEST}totaltimems_count", "Requests that were handled", "request")
QUEUE_TIMES = _gauge(f"{_OF_REQUEST}requestqueuetimems", "Until the turn of the request", "request", "quantile")
LOCAL_TIMES = _gauge(f"{_OF_REQUEST}localtimems", "While the turn was decided", "request", "quantile")
REMOTE_TIMES = _gauge(
    f"{_OF_REQUEST}remotetimems",
    "Until the answer was durable: the commit, and what waits on purpose",
    "request",
    "quantile",
)
SEND_TIMES = _gauge(
    f"{_OF_REQUEST}responsesendtimems", "Until the answer was given to the system", "request", "quantile"
)
_QUOTA = "resource", "user", "clientId"
QUOTA_BYTE_RATE = _gauge("kafka_server_quota_byte_rate", "Bytes a second of a client that has a quota", *_QUOTA)
QUOTA_REQUEST_TIME = _gauge(
    "kafka_server_quota_request_time", "Percentage of a thread's time of a client that has a quota", *_QUOTA
)
QUOTA_THROTTLE_TIME = _gauge(
    "kafka_server_quota_throttle_time", "Milliseconds for which the client would be throttled now", *_QUOTA
)
NETWORK_IDLE = _gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "Share of the time, from 0 to 1, in which the event loop's thread used no CPU, since the last scrape",
)
HANDLER_IDLE = _gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "The same as kafka_network_socketserver_networkprocessoravgidle_percent: one thread does both",
)
LEADER_COUNT = _gauge("kafka_server_replicamanager_leadercount", "Partitions that the brokers lead")
PARTITION_COUNT = _gauge("kafka_server_replicamanager_partitioncount", "Partitions of the brokers")
UNDER_REPLICATED_COUNT = _gauge(
    "kafka_server_replicamanager_underreplicatedpartitions", "0: the replicas of a process share its data"
)
_CONTROLLER = "kafka_controller_kafkacontroller_"
ACTIVE_CONTROLLERS = _gauge(f"{_CONTROLLER}activecontrollercount", "1: this process is the controller")
TOPIC_COUNT = _gauge(f"{_CONTROLLER}globaltopiccount", "Number of topics in the cluster")
GLOBAL_PARTITIONS = _gauge(f"{_CONTROLLER}globalpartitioncount", "Partitions of the cluster")
OFFLINE_PARTITIONS = _gauge(f"{_CONTROLLER}offlinepartitionscount", "Partitions whose leader is away")
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
GROUP_COUNT = _gauge(f"{_GROUPS}numgroups", "Groups of both protocols, and groups of committed offsets alone")
GROUPS_PREPARING = _gauge(f"{_GROUPS}numgroupspreparingrebalance", "Groups in PreparingRebalance, or Assigning")
GROUPS_COMPLETING = _gauge(f"{_GROUPS}numgroupscompletingrebalance", "Groups in CompletingRebalance, or Reconciling")
GROUPS_STABLE = _gauge(f"{_GROUPS}numgroupsstable", "Groups in Stable")
GROUPS_DEAD = _gauge(f"{_GROUPS}numgroupsdead", "0: a group that is gone is not counted")
GROUPS_EMPTY = _gauge(f"{_GROUPS}numgroupsempty", "Groups without members")
OFFSET_COUNT = _gauge(f"{_GROUPS}numoffsets", "Committed offsets")

# -- kohort's own

SLOTS = _gauge("kohort_slots", "Slots of the data that this node serves, where all nodes of a database serve at once")
BUILD_INFO = _gauge("kohort_build_info", "1, with the version and how the hot modules run", "version", "runs")
TURNS = _histogram("kohort_turn_seconds", "Time of a turn, from its first request to its answers")
STEPS = _histogram("kohort_step_seconds", "Time in which a turn's requests are decided; others wait for it")
COMMITS = _histogram("kohort_commit_seconds", "Time in which a turn becomes durable")
REQUEST_SECONDS = _histogram(
    "kohort_request_seconds", "From arrival to answer, of a sample of the requests that needed a turn", "api"
)
TURN_UNDER_WAY = _gauge("kohort_turn_under_way_seconds", "For how long the present turn runs; 0 between turns")
REBALANCES = _counter("kohort_rebalances_total", "Rebalances that began, by what began them", "consumergroup", "cause")
REBALANCE_WAITED = _counter(
    "kohort_rebalance_waited_seconds_total", "Sum of the times from the start of a rebalance until the group is stable",
    "consumergroup",
)  # fmt: skip
REBALANCING = _gauge("kohort_group_rebalancing", "1 while the group is not stable and has members", "consumergroup")
REBALANCE_TIMES = _histogram(
    "kohort_rebalance_seconds", "Time from the start of a rebalance until the group is stable", "protocol"
)
GROUP_EVENTS = _counter("kohort_group_events_total", "What happened to groups and members, as in the journal", "event")
EXPIRED = _counter("kohort_members_expired_total", "Members that were removed because they were silent")
WAITING = _gauge(
    "kohort_waiting_requests",
    "Joins, syncs and held heartbeats (group), fetches that wait for records, and those whose records are read",
    "kind",
)
_SHARE = "kohort_share_group_"
_OF_SHARE = "group", "topic", "partition"
SHARE_MEMBERS = _gauge(f"{_SHARE}members", "Members of the share group", "group")
SHARE_LAG_SUM = _gauge(f"{_SHARE}lag_sum", "Unfinished records of the share group", "group")
SHARE_IN_FLIGHT_SUM = _gauge(f"{_SHARE}in_flight_sum", "Records that members of the share group hold", "group")
SHARE_RECORDS = _counter(
    f"{_SHARE}records_total",
    "Deliveries, and how they ended, since the server began to serve the group",
    "group",
    "outcome",
)
SHARE_DEAD_LETTERS = _counter(
    f"{_SHARE}dead_letters_total",
    "Records that were given up, by whether they are in the group's dead-letter topic, since the server began to serve "
    "the group",
    "group",
    "written",
)
SHARE_LAG = _gauge(f"{_SHARE}lag", "Unfinished records of the partition", *_OF_SHARE)
SHARE_START = _gauge(f"{_SHARE}start_offset", "Everything below is finished", *_OF_SHARE)
SHARE_IN_FLIGHT = _gauge(f"{_SHARE}in_flight", "Records that members hold", *_OF_SHARE)
SHARE_GIVEN_BACK = _gauge(f"{_SHARE}given_back", "Records that wait for another delivery", *_OF_SHARE)
SHARE_STANDS = _gauge(
    f"{_SHARE}standing_seconds", "For how long the start offset has not moved; 0 without unfinished records", *_OF_SHARE
)
SHARE_SESSIONS = _gauge("kohort_share_sessions", "Open share sessions")
CONNECTIONS = _gauge("kohort_connections", "Open connections, those that have to authenticate left out", "listener")
CONNECTIONS_MAX = _gauge("kohort_connections_max", "The setting max.connections; of several brokers, the lowest")
GUESTS = _gauge("kohort_connections_unauthenticated", "Connections that have not authenticated yet")
FAILED_LOGINS = _counter(
    "kohort_authentication_failures_total", "SASL authentications that failed or took too long", "listener"
)
DENIED = _counter("kohort_refused_total", "Requests, or parts of them, that ACLs denied", "operation", "type")
REQUEST_BYTES = _gauge("kohort_queued_request_bytes", "Bytes of requests that are read and not answered")
REQUEST_BYTES_MAX = _gauge("kohort_queued_request_bytes_max", "The setting queued.max.request.bytes")
RESPONSE_BYTES = _gauge("kohort_queued_response_bytes", "Bytes of answers that clients have not read")
RESPONSE_BYTES_MAX = _gauge(
    "kohort_queued_response_bytes_max", "The setting queued.max.response.bytes, or less while memory is short"
)
READ_BYTES = _gauge("kohort_read_bytes", "Bytes that are read from storage, or will be, and not answered")
TAIL_BYTES = _gauge(
    "kohort_log_tail_bytes",
    "Bytes of the newest record batches in memory (log.tail.max.bytes); absent if the data is in memory",
)
STABLE_OFFSET = _gauge(
    "kohort_topic_partition_last_stable_offset",
    "Where readers of committed records end; only where an open transaction holds them back",
    *_PARTITION,
)
TOPIC_BYTES = _gauge("kohort_topic_bytes", "Bytes of the record batches of the topic", "topic")
STORAGE_BYTES = _gauge("kohort_storage_bytes", "Size of the database file; absent if the data is in memory")
WAL_BYTES = _gauge("kohort_wal_bytes", "Size of the write-ahead log; absent if the data is in memory")
DISK_FREE = _gauge("kohort_disk_free_bytes", "Free bytes of the volume of the data directory")
TRANSACTIONS = _gauge("kohort_transactions", "Transactional ids by the state of their transaction", "state")
LOOP_CPU = _counter("kohort_loop_cpu_seconds_total", "CPU time of the event loop's thread")
SERIES = _gauge("kohort_metrics_series", "Series in this answer, those of kohort_metrics_ and the next ones left out")
LEFT_OUT = _gauge("kohort_metrics_series_left_out", "Series that metrics.max.series has left out of this answer")
SCRAPES = _counter("kohort_metrics_scrapes_total", "Scrapes before this one")
SCRAPE_TIME = _gauge("kohort_metrics_last_scrape_seconds", "Time of the last scrape before this one")
SCRAPE_STEP = _gauge("kohort_metrics_longest_step_seconds", "Longest time for which a scrape has kept the event loop")

# -- kminion's (metrics.kminion)

_KMINION = "kminion_kafka_"
_OF_GROUP = f"{_KMINION}consumer_group_"
KMINION_UP = _gauge("kminion_exporter_up", "1", "version")
KMINION_CLUSTER = _gauge(
    f"{_KMINION}cluster_info", "1, with the cluster", "cluster_version", "broker_count", "controller_id", "cluster_id"
)
KMINION_BROKER = _gauge(
    f"{_KMINION}broker_info", "1 for each broker", "broker_id", "address", "port", "rack_id", "is_controller"
)
KMINION_TOPIC = _gauge(
    f"{_KMINION}topic_info", "1 for each topic", "topic_name", "partition_count", "replication_factor", "cleanup_policy"
)
KMINION_HIGH = _gauge(
    f"{_KMINION}topic_partition_high_water_mark", "Offset that the next record gets", "topic_name", "partition_id"
)
KMINION_HIGH_SUM = _gauge(f"{_KMINION}topic_high_water_mark_sum", "Sum of the topic's high water marks", "topic_name")
KMINION_LOW = _gauge(
    f"{_KMINION}topic_partition_low_water_mark", "The first offset that can be read", "topic_name", "partition_id"
)
KMINION_LOW_SUM = _gauge(f"{_KMINION}topic_low_water_mark_sum", "Sum of the topic's low water marks", "topic_name")
KMINION_GROUP = _gauge(
    f"{_OF_GROUP}info", "1 if the group is stable", "group_id", "protocol", "protocol_type", "state", "coordinator_id"
)
KMINION_MEMBERS = _gauge(f"{_OF_GROUP}members", "Members of the group", "group_id")
KMINION_EMPTY_MEMBERS = _gauge(f"{_OF_GROUP}empty_members", "Members without a partition", "group_id")
KMINION_TOPIC_MEMBERS = _gauge(
    f"{_OF_GROUP}topic_members", "Members that have partitions of the topic", "group_id", "topic_name"
)
KMINION_ASSIGNED = _gauge(
    f"{_OF_GROUP}topic_assigned_partitions", "Partitions of the topic that members have", "group_id", "topic_name"
)
KMINION_OFFSET_SUM = _gauge(
    f"{_OF_GROUP}topic_offset_sum", "Sum of the committed offsets of the topic", "group_id", "topic_name"
)
KMINION_LAG = _gauge(
    f"{_OF_GROUP}topic_partition_lag", "Records behind the committed offset", "group_id", "topic_name", "partition_id"
)
KMINION_TOPIC_LAG = _gauge(f"{_OF_GROUP}topic_lag", "Sum of the lags of the topic", "group_id", "topic_name")

# -- of the process, as client libraries name them

CPU = _counter("process_cpu_seconds_total", "CPU time of the process")
START_TIME = _gauge("process_start_time_seconds", "When the process began, in seconds since 1970")
RESIDENT = _gauge("process_resident_memory_bytes", "Memory of the process")
OPEN_FILES = _gauge("process_open_fds", "Open files of the process")
MAX_FILES = _gauge("process_max_fds", "Files that the process may open")
