"""What can go wrong with an outbox, besides errors of the cluster (`KafkaError`) and of the database's driver."""

from __future__ import annotations

from kohort.client.errors import KafkaError


class OutboxTakenOver(KafkaError):
    """Another process has recovered this outbox, so it belongs to that process. Nothing of the block is committed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            None,
            f"outbox {name}: another process has recovered it; nothing of this transaction is committed. Give each "
            "running process an outbox name of its own",
        )


class CommitUnknown(KafkaError):
    """The database did not answer the commit, and cannot be asked: the block is committed as a whole or not at all.

    The next transaction, or `recover`, with a working connection finds out, and commits or drops the records. The
    driver's error is the `__cause__`.
    """

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(
            None,
            f"outbox {name}: it is unknown whether the database has committed the transaction "
            f"({type(error).__name__}: {error}); the next transaction of this outbox finds out",
        )


class OutcomeForgotten(KafkaError):
    """A database transaction is committed, and the cluster does not know any more whether its records are.

    That happens if the outbox was not recovered for longer than the cluster keeps an idle transactional id
    (`transactional.id.expiration.ms`, 7 days by default). `recover(..., forgotten="send")` sends the records, perhaps a
    second time; `forgotten="drop"` does not send them.
    """

    def __init__(self, name: str, transactional_id: str) -> None:
        super().__init__(
            None,
            f"outbox {name}: the cluster has forgotten transactional id {transactional_id}, so it is unknown whether "
            'the records of the last transaction are committed; see recover(..., forgotten="send" or "drop")',
        )
