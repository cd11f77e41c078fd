"""The same DataFrame written by Spark's Kafka sink and by kohort's: the same records in the same partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(600)]

ROWS = """
    SELECT CASE WHEN id % 10 = 0 THEN '' ELSE repeat(concat('key-', id), CAST(id % 4 + 1 AS INT)) END AS key,
           CASE WHEN id % 7 = 0 THEN NULL ELSE CAST(CAST(id AS STRING) AS BINARY) END AS value,
           CASE WHEN id % 5 = 0 THEN NULL ELSE array(
               named_struct('key', 'a', 'value', CAST(CAST(id AS STRING) AS BINARY)),
               named_struct('key', 'a', 'value', CAST(NULL AS BINARY))) END AS headers,
           CASE WHEN id % 11 = 0 THEN CAST(id % 3 AS INT) END AS partition,
           'left alone' AS colour
    FROM range(2000)
"""


def written(spark: Any, server: KohortServer, topic: str, read_by: str) -> list[Any]:
    frame = spark.read.format(read_by).option("kafka.bootstrap.servers", server.bootstrap_servers)
    frame = frame.option("subscribe", topic).option("includeHeaders", "true").load()
    return sorted(
        (
            (row.partition, bytes(row.key), row.value and bytes(row.value), str(row.headers))
            for row in frame.select("partition", "key", "value", "headers").collect()
        ),
        key=str,
    )


@pytest.mark.parametrize("streaming", [False, True])
def test_both_sinks_write_the_same(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path, streaming: bool
) -> None:
    spark.sql(ROWS).repartition(2).write.parquet(str(tmp_path / "rows"))
    for format in ("kafka", "kohort"):
        cluster.create_topic(format, 3)
        options = {"kafka.bootstrap.servers": server.bootstrap_servers, "topic": format, "kafka.linger.ms": "20"}
        if streaming:
            frame = spark.readStream.schema(spark.sql(ROWS).schema).parquet(str(tmp_path / "rows"))
            writer = frame.writeStream.format(format).options(**options).trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(tmp_path / format)).start()
            assert query.awaitTermination(120)
        else:
            spark.read.parquet(str(tmp_path / "rows")).write.format(format).options(**options).mode("append").save()
    theirs = written(spark, server, "kafka", "kafka")
    assert len(theirs) == 2000
    assert {partition for partition, *_ in theirs} == {0, 1, 2}
    assert written(spark, server, "kohort", "kafka") == theirs
    assert written(spark, server, "kohort", "kohort") == theirs
