"""A client for any Kafka cluster: groups of your own (`Coordinator`); the base of kohort's commands and Spark source.

What is exported here is imported on first use, so that those who need a part of the library pay for that part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.client.blocking import BlockingCoordinator
    from kohort.client.consumer import GroupConsumer
    from kohort.client.consumer_blocking import BlockingGroupConsumer
    from kohort.client.coordinator import NO_GENERATION, Coordinator, Generation, JoinedMember
    from kohort.client.election import Election, Term, lead
    from kohort.client.errors import AuthenticationFailed, Closed, KafkaError, Misuse, NotOwned, ServerError
    from kohort.client.security import Security
    from kohort.client.sharding import Shard, Sharding, shards
    from kohort.client.tokens import GroupToken, LastingToken, Token

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
    **dict.fromkeys(("Election", "Term", "lead"), "election"),
    **dict.fromkeys(("GroupToken", "LastingToken", "Token"), "tokens"),
    **dict.fromkeys(("Shard", "Sharding", "shards"), "sharding"),
    "BlockingCoordinator": "blocking",
    "BlockingGroupConsumer": "consumer_blocking",
    "GroupConsumer": "consumer",
    "Security": "security",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kohort.client.{_HOMES.get(name, 'coordinator')}"), name)
