"""What transactional clients sent and read: a history of appends to lists, as in Jepsen's tests of Kafka.

A partition of LEDGER is a list, its records are the elements, and no two elements are equal. A transaction appends
elements and polls those of others. The clients alone write the history; checks/list_append.py looks for anomalies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Read = tuple[int, bytes]
"""Offset and value."""
Cut = tuple[tuple[int, int], ...]
"""By partition: the last stable offset and the high watermark, as one answer says."""


class Element(NamedTuple):
    """A part of a transfer: the amounts of a transaction's elements sum to zero."""

    transactional_id: str
    position: int
    """The position of the transaction among the committed transactions of the id."""
    name: str
    """The name of the transaction."""
    part: int
    parts: int
    """How many elements the transaction has."""
    amount: int

    @property
    def value(self) -> bytes:
        return "|".join(map(str, self)).encode()

    @classmethod
    def of(cls, value: bytes) -> Element:
        transactional_id, position, name, part, parts, amount = value.decode().split("|")
        return cls(transactional_id, int(position), name, int(part), int(parts), int(amount))


class Poll(NamedTuple):
    """The committed records of a partition from `first` up to, and not including, `end`."""

    partition: int
    first: int
    end: int
    reads: Sequence[Read]


class Sent(NamedTuple):
    """An element whose append was acknowledged."""

    partition: int
    offset: int
    value: bytes


@dataclass(slots=True)
class Transaction:
    transactional_id: str
    position: int
    name: str
    sends: list[Sent] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    asks: bool = False
    """The client has asked for the commit."""
    committed: bool = False
    """The commit was answered with success."""
    aborted: bool = False
    """The abort was answered with success."""


class History:
    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        """By name."""
        self.polls: list[list[Poll]] = []
        """Of readers outside of transactions: of each run through the lists."""
        self.cuts: list[Cut] = []
        self.whole: list[Poll] = []
        """The polls of the reader that reads all lists after the last transaction has ended."""

    def begin(self, transactional_id: str, position: int, name: str) -> Transaction:
        transaction = self.transactions[name] = Transaction(transactional_id, position, name)
        return transaction
