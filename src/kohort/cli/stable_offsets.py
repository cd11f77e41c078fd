"""What holds back readers of committed records (`isolation.level=read_committed`): where they have to stop, and the
transaction for which they wait.

They read up to the partition's last stable offset, which is the first offset of its oldest open transaction. Where it
is before the end of the log, `topics describe` and `groups describe` say so. The transaction's name needs
DescribeProducers (Apache Kafka 2.8) and ListTransactions (3.0), and permission to read the topic; without them the
offset is shown alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kohort.cli.connect import complain
from kohort.cli.groups.wording import duration
from kohort.cli.output import plural
from kohort.client.admin.open_transactions import OpenTransaction
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError, UnsupportedVersion
from kohort.client.metadata import TopicPartition
from kohort.wire.errors import ErrorCode

NOT_ALLOWED = frozenset((ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


@dataclass(frozen=True, slots=True)
class StableEnd:
    """A last stable offset before the end of the log, and the open transactions of the partition, oldest first."""

    topic: str
    partition: int
    offset: int
    end: int
    transactions: tuple[OpenTransaction, ...] = ()

    @property
    def line(self) -> str:
        """For people."""
        behind = f"{plural(self.end - self.offset, 'offset')} before the end"
        first = f"{self.topic}-{self.partition}: readers of committed records wait at offset {self.offset}, {behind}"
        if not self.transactions:
            return f"{first}, for a transaction"
        more = len(self.transactions) - 1
        others = f", and then for {plural(more, 'other transaction')}" if more else ""
        return f"{first}, for {transaction_words(self.transactions[0])}{others}"


def transaction_words(transaction: OpenTransaction) -> str:
    """`transaction payments-1 (producer 4000, epoch 2; last write 2.1 s ago)`."""
    name = transaction.transactional_id
    subject = f"transaction {name}" if name is not None else "a transaction without known transactional id"
    producer = f"producer {transaction.producer_id}, epoch {transaction.producer_epoch}"
    return f"{subject} ({producer}; last write {age(transaction.last_timestamp_ms)} ago)"


def age(timestamp_ms: int) -> str:
    return duration(max(time.time_ns() // 1_000_000 - timestamp_ms, 0))


def stable_ends(
    cluster: Cluster, ends: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, StableEnd]:
    """The partitions whose last stable offset is before their end, which was looked up before. `known`: last stable
    offsets that need not be looked up."""
    stable = dict(known or {})
    stable |= cluster.offsets(ends.keys() - stable.keys(), "latest", isolation="read_committed")
    behind = {place: offset for place, offset in sorted(stable.items()) if 0 <= offset < ends[place]}
    transactions = _open_transactions(cluster, behind)
    return {
        place: StableEnd(*place, offset, ends[place], tuple(one for one in transactions if one.place == place))
        for place, offset in behind.items()
    }


def _open_transactions(cluster: Cluster, partitions: Mapping[TopicPartition, int]) -> list[OpenTransaction]:
    """Without names, or none at all, where the cluster does not tell them."""
    if not partitions:
        return []
    why: UnsupportedVersion | ServerError | None = None
    found: list[OpenTransaction] = []
    for with_ids in (True, False):
        try:
            found = cluster.open_transactions(partitions, with_ids=with_ids)
            break
        except (UnsupportedVersion, ServerError) as error:
            if isinstance(error, ServerError) and error.code not in NOT_ALLOWED:
                raise
            why = why or error
    if why is not None:
        complain(f"open transactions are not named: {why.message}")
    return found


def document_of(found: StableEnd | None, end: int | None) -> dict[str, Any]:
    """The fields of a partition's document. Without a `found` one, the last stable offset is the end."""
    return {
        "last_stable_offset": end if found is None else found.offset,
        "open_transactions": [] if found is None else [asdict(one) for one in found.transactions],
    }
