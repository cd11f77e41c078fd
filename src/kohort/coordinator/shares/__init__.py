"""The records that share groups hand out (KIP-932): a state machine beside the group coordinator.

A share-partition is a partition of a topic in a share group. Its records are handed out one by one, locked for a while,
and acknowledged. What is finished or given back is durable; who holds a record is not.

    cells            what is stored of offsets: ranges with a state and a count of deliveries
    share_partition  one share-partition: acquire, acknowledge, give back, time out
    tally            what became of its records, for operators
    redelivery       finished records that an operator wants to be delivered again
    state            the fold of its records
    records          records of `__share_group_state` to and from bytes, in Kafka's schema
    events           what goes into a step and what comes out
    settings         the settings in force for a group's share-partitions
    shard            `ShareShard`, the machine that owns one partition of `__share_group_state`
"""
