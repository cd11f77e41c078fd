"""The source and its consumer group, in real queries: the commits and their authors, and the offsets after a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from micro_batches import until

from kohort.client.admin.commit_metadata import GroupReader, group_reader_of
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def start(spark: Any, server: KohortServer, checkpoint: Path, options: dict[str, str], **trigger: Any) -> Any:
    given = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": "t", "startingOffsets": "earliest"}
    frame = spark.readStream.format("kohort").options(**given, **options).load()
    writer = frame.writeStream.format("noop").queryName("lake").option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger)


def committed(cluster: Cluster) -> dict[int, Committed]:
    return {partition: entry for (_, partition), entry in cluster.committed("g").items()}


def holder(entry: Committed) -> GroupReader:
    found = group_reader_of(entry.metadata)
    assert found is not None
    return found


def test_commits_name_the_query_and_a_stop_between_triggers_commits(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("t", 2)
    cluster.produce("t", 0, [NewRecord(b"k", b"v", 0)] * 30)
    query = start(spark, server, tmp_path, {"group.id": "g"}, availableNow=True).start()
    assert query.awaitTermination(60)
    assert {partition: entry.offset for partition, entry in committed(cluster).items()} == {0: 30, 1: 0}
    (report,) = query.recentProgress
    assert report.sources[0].latestOffset == '{"t": {"0": 30, "1": 0}}'
    first = holder(committed(cluster)[0])
    assert (first.query, first.run, first.name, first.batch) == (query.id, query.runId, "lake", 0)
    assert first.application == spark.sparkContext.appName
    # A restart that finds nothing new leaves it as it is.
    assert start(spark, server, tmp_path, {"group.id": "g"}, availableNow=True).start().awaitTermination(60)
    assert holder(committed(cluster)[0]) == first
    # Stopped long before the next trigger: only the checkpoint says that the batch is finished.
    cluster.produce("t", 1, [NewRecord(b"k", b"v", 0)] * 7)
    told = {"group.id": "g", "checkpointLocation": str(tmp_path)}
    query = start(spark, server, tmp_path, told, processingTime="1 hour").start()
    until(lambda: query.recentProgress and query.recentProgress[-1].numInputRows)
    assert committed(cluster)[1].offset == 0
    query.stop()
    until(lambda: committed(cluster)[1].offset == 7)
    second = holder(committed(cluster)[1])
    assert (second.query, second.name, second.batch) == (query.id, "lake", 1)


def test_asynchronous_progress_tracking_is_refused(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("t", 1)
    cluster.produce("t", 0, [NewRecord(b"k", b"v", 0)] * 5)
    writer = start(spark, server, tmp_path, {"maxOffsetsPerTrigger": "2"}, processingTime="0 seconds")
    query = writer.option("asyncProgressTrackingEnabled", "true").start()
    with pytest.raises(Exception, match=r"asynchronous progress tracking \(asyncProgressTrackingEnabled\) is not"):
        query.awaitTermination(60)
