"""One damaged batch: its partition reports it, and the server and every other partition continue."""

from __future__ import annotations

import time
from pathlib import Path

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)


def damage(file: Path) -> None:
    """Flip a bit of the first record's value."""
    data = bytearray(file.read_bytes())
    data[data.index(b"a-value-to-damage-0")] ^= 1
    file.write_bytes(data)


def test_a_flipped_byte_stops_nobody_but_its_readers(tmp_path: Path) -> None:
    with KohortServer(data_dir=tmp_path) as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic("t", 2)
        for partition in range(2):
            cluster.produce("t", partition, [NewRecord(b"k", b"a-value-to-damage-%d" % partition, 1_000)])
    damage(tmp_path / "kohort.db")
    with KohortServer(data_dir=tmp_path) as server, Cluster(server.bootstrap_servers) as cluster:
        partitions = tuple(FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=10_000) for p in range(2))
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=(FetchTopic(topic="t", partitions=partitions),))
        leader = next(iter(cluster.nodes()))
        [answered] = cluster.connection(leader).request(request, FetchResponse).responses
        damaged, sound = answered.partitions
        assert (damaged.error_code, damaged.records) == (ErrorCode.CORRUPT_MESSAGE, b"")
        assert sound.error_code == 0
        assert b"a-value-to-damage-1" in (sound.records or b"")
        cluster.produce("t", 0, [NewRecord(b"k", b"later", 1_000)])
        [after] = cluster.fetch({("t", 0): 1}, max_wait_ms=100)
        assert b"later" in after.records


def test_damage_is_no_end_for_a_search_by_time_or_a_compaction(tmp_path: Path) -> None:
    settings = {"log_cleaner_min_cleanable_ratio": 0.0, "log_retention_check_interval_ms": 50}
    with KohortServer(data_dir=tmp_path) as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic("t", 1, configs={"cleanup.policy": "compact"})
        for n in range(3):
            cluster.produce("t", 0, [NewRecord(b"k", b"a-value-to-damage-%d" % n, 1_000)])
    damage(tmp_path / "kohort.db")
    with KohortServer(data_dir=tmp_path, **settings) as server, Cluster(server.bootstrap_servers) as cluster:
        leader = next(iter(cluster.nodes()))
        asked = ListOffsetsPartition(partition_index=0, timestamp=500)
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(asked,)),))
        [topic] = cluster.connection(leader).request(request, ListOffsetsResponse).topics
        assert topic.partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
        # Each write makes the log dirty again, and the cleaner (every 50 ms) meets the damage.
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            cluster.produce("t", 0, [NewRecord(b"k", b"later", 1_000)])
        assert cluster.offsets([("t", 0)])["t", 0] > 3
