"""The part of the table of settings about share groups (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.config.declaration import setting as _setting
from kohort.config.listening import ListenerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConfig(ListenerConfig):
    group_share_enable: bool = _setting(
        False, "Serve share groups (KIP-932). Experimental: docs/how-to/share-groups.md says what is missing"
    )
    group_share_session_timeout_ms: int = _setting(
        45_000, "A member of a share group that sends no heartbeat for this long is removed", low=1
    )
    group_share_min_session_timeout_ms: int = _setting(45_000, "Least session timeout of a share group", low=1)
    group_share_max_session_timeout_ms: int = _setting(60_000, "Largest session timeout of a share group", low=1)
    group_share_heartbeat_interval_ms: int = _setting(5_000, "The heartbeat interval of share groups' members", low=1)
    group_share_min_heartbeat_interval_ms: int = _setting(5_000, "Least heartbeat interval of a share group", low=1)
    group_share_max_heartbeat_interval_ms: int = _setting(15_000, "Largest heartbeat interval of a share group", low=1)
    group_share_assignment_interval_ms: int = _setting(
        1_000, "Least time between two target assignments of a share group", low=0
    )
    group_share_min_assignment_interval_ms: int = _setting(0, "Least assignment interval of a share group", low=0)
    group_share_max_assignment_interval_ms: int = _setting(
        15_000, "Largest assignment interval of a share group", low=0
    )
    group_share_max_size: int = _setting(200, "Members of one share group", low=1, high=1_000)
    group_share_max_share_sessions: int = _setting(
        2_000, "Share sessions of a broker: one for each member that fetches from it", low=1
    )
    group_share_record_lock_duration_ms: int = _setting(
        30_000, "How long a record is locked for the member that got it", low=1_000, high=3_600_000
    )
    group_share_min_record_lock_duration_ms: int = _setting(15_000, "Least lock duration of a share group", low=1_000)
    group_share_max_record_lock_duration_ms: int = _setting(
        60_000, "Largest lock duration of a share group", low=1_000, high=3_600_000
    )
    group_share_delivery_count_limit: int = _setting(
        5, "A record that was delivered this often and not accepted is archived", low=2, high=25
    )
    group_share_min_delivery_count_limit: int = _setting(2, "Least delivery limit of a share group", low=2, high=25)
    group_share_max_delivery_count_limit: int = _setting(10, "Largest delivery limit of a share group", low=2, high=25)
    group_share_partition_max_record_locks: int = _setting(
        2_000,
        "Offsets between the first unfinished record and the last delivered one, in each partition of a share group",
        low=100,
        high=10_000,
    )
    group_share_min_partition_max_record_locks: int = _setting(
        100, "Least partition.max.record.locks of a share group", low=100, high=10_000
    )
    group_share_max_partition_max_record_locks: int = _setting(
        4_000, "Largest partition.max.record.locks of a share group", low=100, high=10_000
    )
    errors_deadletterqueue_topic_name_prefix: str = _setting(
        "dlq.", "The names of dead-letter topics of share groups begin so; empty: any name"
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = _setting(
        False, "Create the dead-letter topic that a share group names, when its first dead letter is written"
    )
    share_coordinator_state_topic_num_partitions: int = _setting(
        50, "Shards of the state of share groups; fixed when the first member joins one", low=1, high=10_000
    )
    share_coordinator_state_topic_replication_factor: int = _setting(
        3, "Capped at the number of brokers", low=1, high=32767
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = _setting(
        500, "After so many changes of a partition of a share group, its whole state is written", low=0, high=500
    )
    share_coordinator_state_max_entries: int = _setting(
        1_000_000,
        "Ranges of records of all share groups that are locked, or not finished in order; 150 bytes each. Beyond it, "
        "no further records are delivered until some are finished",
        low=10_000,
    )
