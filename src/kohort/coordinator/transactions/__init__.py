"""The transaction coordinator: a deterministic state machine that owns one partition of `__transaction_state`.

It is pure, like the group coordinator. It decides; the broker writes the markers into the partitions of a transaction
and says so with `MarkersWritten`.

    shard          `TransactionShard`: step, apply, next_deadline, and which event does what
    events         what goes into a step and the bodies of the replies
    transaction    `Transaction`: the state of one transactional id, and its transitions
    settings       `TransactionSettings`
    records        the state to and from a record, in Kafka's schema
"""
