"""Kafka's standard assignors for groups of consumers, on the member that leads: pure functions, and their bytes.

    offered = {a.name: subscription_bytes(a, topics, owned, generation) for a in (RANGE, COOPERATIVE_STICKY)}
    divided = assignments(ASSIGNORS[protocol], partition_counts, members)     # member id → bytes for SyncGroup

| name | what it does | protocol |
| --- | --- | --- |
| `range` | runs of neighbouring partitions, topic by topic | eager |
| `roundrobin` | all partitions in turn | eager |
| `sticky` | even, with few moves | eager: members give up all partitions before a rebalance |
| `cooperative-sticky` | the same | cooperative: a partition moves in two rebalances, the others stand still for none |

Names, subscriptions, user data and assignments are Kafka's to the byte, so members of kohort's client, Java's
clients, librdkafka and kafka-python can share a group, whichever member leads. Where members name no racks, `range`
and `roundrobin` assign as Java's do. The sticky assignors guarantee the same as Java's, but may give a partition to
another member.

eager    range and roundrobin
spec     what an assignor gets and returns, and the bytes of both
sticky   sticky and cooperative-sticky
"""

from __future__ import annotations

from kohort.client.assignors.eager import RANGE, ROUNDROBIN
from kohort.client.assignors.spec import (
    NO_GENERATION_ID,
    Assignor,
    Claim,
    Consumer,
    TopicPartition,
    assignments,
    consumer_of,
    subscription_bytes,
)
from kohort.client.assignors.sticky import COOPERATIVE_STICKY, STICKY

ASSIGNORS: dict[str, Assignor] = {a.name: a for a in (RANGE, ROUNDROBIN, STICKY, COOPERATIVE_STICKY)}

__all__ = [
    "ASSIGNORS",
    "COOPERATIVE_STICKY",
    "NO_GENERATION_ID",
    "RANGE",
    "ROUNDROBIN",
    "STICKY",
    "Assignor",
    "Claim",
    "Consumer",
    "TopicPartition",
    "assignments",
    "consumer_of",
    "subscription_bytes",
]
