"""A client for any Kafka cluster: groups of your own (`Coordinator`); the base of kohort's commands and Spark source.

What is exported here is imported on first use, so that those who need a part of the library pay for that part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.client.consumer.blocking import BlockingGroupConsumer
    from kohort.client.consumer.consumer import GroupConsumer
    from kohort.client.coordination.blocking import BlockingCoordinator
    from kohort.client.coordination.coordinator import NO_GENERATION, Coordinator, Generation, JoinedMember
    from kohort.client.coordination.election import Election, Term, lead
    from kohort.client.coordination.sharding import Shard, Sharding, shards
    from kohort.client.coordination.tokens import GroupToken, LastingToken, Token
    from kohort.client.errors import AuthenticationFailed, Closed, KafkaError, Misuse, NotOwned, ServerError
    from kohort.client.security.security import Security

__all__ = [
    "NO_GENERATION",
    "AuthenticationFailed",
    "BlockingCoordinator",
    "BlockingGroupConsumer",
    "Closed",
    "Coordinator",
    "Election",
    "Generation",
    "GroupConsumer",
    "GroupToken",
    "JoinedMember",
    "KafkaError",
    "LastingToken",
    "Misuse",
    "NotOwned",
    "Security",
    "ServerError",
    "Shard",
    "Sharding",
    "Term",
    "Token",
    "lead",
    "shards",
]

_HOMES = {
    **dict.fromkeys(("AuthenticationFailed", "Closed", "KafkaError", "Misuse", "NotOwned", "ServerError"), "errors"),
    **dict.fromkeys(("Election", "Term", "lead"), "coordination.election"),
    **dict.fromkeys(("GroupToken", "LastingToken", "Token"), "coordination.tokens"),
    **dict.fromkeys(("Shard", "Sharding", "shards"), "coordination.sharding"),
    "BlockingCoordinator": "coordination.blocking",
    "BlockingGroupConsumer": "consumer.blocking",
    "GroupConsumer": "consumer.consumer",
    "Security": "security.security",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kohort.client.{_HOMES.get(name, 'coordination.coordinator')}"), name)
