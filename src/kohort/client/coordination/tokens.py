"""Fencing tokens. A token is an integer, and its type states how long the order of tokens is valid."""

from __future__ import annotations


class Token(int):
    """Larger in every later term. A system that is written to can refuse a token smaller than one it has seen."""


class GroupToken(Token):
    """Ordered for as long as the group has members.

    It is the group's generation, on a cluster that counts from 1 again in a group that was deleted or has expired, as
    Apache Kafka does (a group without members and offsets expires within minutes).
    """


class LastingToken(Token):
    """Never regresses: not after a crash of the coordinator, not after the group was empty, expired or deleted.

    It is the group's generation where the cluster is kohort, else a number from a token topic.
    """


def of_generation(generation: int, lasting: bool) -> GroupToken | LastingToken:
    """A group's generation as a token. `lasting`: its coordinator never uses a generation twice."""
    return LastingToken(generation) if lasting else GroupToken(generation)
