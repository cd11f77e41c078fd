"""A client for any Kafka cluster: groups of your own (`Coordinator`), consumers in groups, administration.

kohort's commands and its Spark source are built on it. The names exported here are imported on first use, so that a
program loads only the parts that it uses.

admin/          topics, groups and their settings, as an operator sees them
assignors/      Kafka's standard assignors, for the member that leads
concurrency/    threads and event loops side by side
consumer/       GroupConsumer, BlockingGroupConsumer
coordination/   Coordinator, leader election, work sharding
membership/     one member of a group, without IO; its driver
outbox/         a database transaction and Kafka records, atomically
queue/          WorkQueue: jobs on a share group
records/        records in and out
security/       TLS and SASL in Kafka's property names
transactions/   a transactional producer; a prepared transaction that another process ends
wire/           connections, and the way to the right broker
backoff         pauses between attempts
cluster         Cluster: the blocking client that has a method for each call
connection_options  the settings with which consumers and work queues reach a cluster
dramatiq        a broker for Dramatiq
errors          what can go wrong between a client and a cluster
metadata        what a client knows of a cluster: brokers, topics, partitions
settings        rules about settings that members of groups share
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.client.admin.explanations import NoJournal
    from kohort.client.concurrency.program import run_program
    from kohort.client.consumer.blocking import BlockingGroupConsumer
    from kohort.client.consumer.consumer import GroupConsumer
    from kohort.client.coordination.blocking import BlockingCoordinator
    from kohort.client.coordination.blocking_election import BlockingElection, BlockingTerm, blocking_lead
    from kohort.client.coordination.blocking_sharding import BlockingSharding, blocking_shards
    from kohort.client.coordination.coordinator import NO_GENERATION, Coordinator, Generation, JoinedMember
    from kohort.client.coordination.election import Election, Term, lead
    from kohort.client.coordination.sharding import Shard, Sharding, shards
    from kohort.client.coordination.token_topic import Overtaken
    from kohort.client.coordination.tokens import GroupToken, LastingToken, Token
    from kohort.client.errors import (
        AuthenticationFailed,
        BadAnswer,
        Closed,
        ConnectionFailed,
        KafkaError,
        LockLost,
        Misuse,
        NotOwned,
        ServerError,
        TimedOut,
        Unreachable,
        UnsupportedVersion,
    )
    from kohort.client.queue.blocking import BlockingJob, BlockingWorkQueue
    from kohort.client.queue.job import Job, Reject, Retry
    from kohort.client.queue.work_queue import WorkQueue
    from kohort.client.security.security import Security
    from kohort.wire.errors import ErrorCode

__all__ = [
    "NO_GENERATION",
    "AuthenticationFailed",
    "BadAnswer",
    "BlockingCoordinator",
    "BlockingElection",
    "BlockingGroupConsumer",
    "BlockingJob",
    "BlockingSharding",
    "BlockingTerm",
    "BlockingWorkQueue",
    "Closed",
    "ConnectionFailed",
    "Coordinator",
    "Election",
    "ErrorCode",
    "Generation",
    "GroupConsumer",
    "GroupToken",
    "Job",
    "JoinedMember",
    "KafkaError",
    "LastingToken",
    "LockLost",
    "Misuse",
    "NoJournal",
    "NotOwned",
    "Overtaken",
    "Reject",
    "Retry",
    "Security",
    "ServerError",
    "Shard",
    "Sharding",
    "Term",
    "TimedOut",
    "Token",
    "Unreachable",
    "UnsupportedVersion",
    "WorkQueue",
    "blocking_lead",
    "blocking_shards",
    "lead",
    "run_program",
    "shards",
]

_HOMES = {
    **dict.fromkeys(
        (
            "AuthenticationFailed",
            "BadAnswer",
            "Closed",
            "ConnectionFailed",
            "ErrorCode",
            "KafkaError",
            "LockLost",
            "Misuse",
            "NotOwned",
            "ServerError",
            "TimedOut",
            "Unreachable",
            "UnsupportedVersion",
        ),
        "errors",
    ),
    **dict.fromkeys(("BlockingElection", "BlockingTerm", "blocking_lead"), "coordination.blocking_election"),
    **dict.fromkeys(("BlockingSharding", "blocking_shards"), "coordination.blocking_sharding"),
    **dict.fromkeys(("Election", "Term", "lead"), "coordination.election"),
    **dict.fromkeys(("GroupToken", "LastingToken", "Token"), "coordination.tokens"),
    **dict.fromkeys(("Shard", "Sharding", "shards"), "coordination.sharding"),
    **dict.fromkeys(("BlockingJob", "BlockingWorkQueue"), "queue.blocking"),
    **dict.fromkeys(("Job", "Reject", "Retry"), "queue.job"),
    "BlockingCoordinator": "coordination.blocking",
    "BlockingGroupConsumer": "consumer.blocking",
    "GroupConsumer": "consumer.consumer",
    "NoJournal": "admin.explanations",
    "Overtaken": "coordination.token_topic",
    "Security": "security.security",
    "WorkQueue": "queue.work_queue",
    "run_program": "concurrency.program",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kohort.client.{_HOMES.get(name, 'coordination.coordinator')}"), name)
