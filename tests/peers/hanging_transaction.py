"""A transaction that hangs: a partition has it open, its coordinator does not know of the partition.

Brokers let it come about only with `transaction.partition.verification.enable=false`, and then only in the older
versions of Produce: a late request used to do this before KIP-890.
"""

from __future__ import annotations

import time

from kohort.client.cluster import Cluster
from kohort.client.errors import check
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.exchange import VERSION_CAPS
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

WITHOUT_VERIFICATION = {"transaction.partition.verification.enable": "false"}
UNVERIFIED = 11
"""The last version of Produce that does not add its partition to the transaction."""


def leave_hanging(servers: str, transactional_id: str, topic: str, values: list[bytes]) -> int:
    """Write to partition 0 of the topic as a producer that never announced it. Returns the producer id."""
    with Cluster(servers) as cluster:
        producer_id, epoch = cluster.fence_producer(transactional_id)
        (partition,) = [one for one in cluster.topics([topic])[topic].partitions if one.index == 0]
        node = cluster.nodes()[partition.leader]
    now_ms = time.time_ns() // 1_000_000
    batch = encode_batch(
        [NewRecord(None, value, now_ms) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=batch),))
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=(data,))
    connection = Connection(node.host, node.port, version_caps={**VERSION_CAPS, ProduceRequest: UNVERIFIED})
    try:
        ((row,),) = [one.partition_responses for one in connection.request(request, ProduceResponse).responses]
    finally:
        connection.close()
    check(row.error_code, f"a produce request to {topic}-0 that its coordinator does not know of")
    return producer_id
