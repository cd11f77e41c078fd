"""The guard of each API. An API without one cannot be served: the table has exactly the keys of broker/apis.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.broker.security.authorizer import Rights
from kohort.broker.security.guards import cluster, groups, offsets, records, shares, topics, transactions
from kohort.broker.security.guards.ask import Guard
from kohort.broker.state import BrokerState

GUARDS: dict[int, Guard] = {
    0: records.produce,
    1: records.fetch,
    2: records.list_offsets,
    3: topics.metadata,
    8: offsets.offset_commit,
    9: offsets.offset_fetch,
    10: groups.find_coordinator,
    11: groups.join_group,
    12: groups.heartbeat,
    13: groups.leave_group,
    14: groups.sync_group,
    15: groups.describe_groups,
    16: groups.list_groups,
    17: cluster.everybody,
    18: cluster.everybody,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: records.delete_records,
    22: transactions.init_producer_id,
    23: records.offset_for_leader_epoch,
    24: transactions.add_partitions_to_txn,
    25: transactions.add_offsets_to_txn,
    26: transactions.end_txn,
    27: transactions.write_txn_markers,
    28: transactions.txn_offset_commit,
    29: cluster.describe_acls,
    30: cluster.create_acls,
    31: cluster.delete_acls,
    32: cluster.configs_described,
    33: cluster.configs_altered,
    35: cluster.describe_log_dirs,
    36: cluster.everybody,
    37: topics.create_partitions,
    42: groups.delete_groups,
    43: cluster.elect,
    44: cluster.configs_changed,
    46: cluster.list_partition_reassignments,
    47: offsets.offset_delete,
    48: cluster.describe_client_quotas,
    49: cluster.alter_client_quotas,
    50: cluster.describe_user_scram_credentials,
    51: cluster.alter_user_scram_credentials,
    55: cluster.describe_quorum,
    60: cluster.describe_cluster,
    61: records.describe_producers,
    65: transactions.describe_transactions,
    66: transactions.list_transactions,
    68: groups.consumer_group_heartbeat,
    69: groups.consumer_group_describe,
    74: cluster.list_config_resources,
    75: topics.describe_topic_partitions,
    76: shares.heartbeat,
    77: shares.describe,
    78: shares.fetch,
    79: shares.acknowledge,
    **dict.fromkeys(range(83, 88), shares.states),
    90: shares.describe_offsets,
    91: shares.alter_offsets,
    92: shares.delete_offsets,
}

SHORT: dict[int, Callable[[BrokerState, Rights, Any, int], bool]] = {0: records.may_produce, 1: records.may_fetch}
"""Asked before the guard about requests that come most often: True if it would let all pass."""
