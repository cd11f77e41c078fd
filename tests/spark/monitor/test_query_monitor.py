"""The monitor of streaming queries: the facts of a report, and a real query whose figures Prometheus gets."""

from __future__ import annotations

import json
import logging
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from micro_batches import until
from prometheus_client.parser import text_string_to_metric_families

from kohort.client.cluster import Cluster
from kohort.spark import QueryMonitor
from kohort.spark.monitor.progress import Facts, lags_of, line_of
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

LABELS = ("query", "topic", "partition", "phase")


def test_the_lag_is_the_distance_to_the_ends() -> None:
    end = json.dumps({"t": {"0": 5, "1": 9}, "t@id": {}, "@start": {"t": {"0": 0}}})
    assert lags_of([(end, json.dumps({"t": {"0": 7, "1": 8, "2": 4}}))]) == {("t", 0): 2, ("t", 1): 0}
    assert lags_of([(None, None), ("12", "13"), ("null", '{"t":3}')]) == {}


def test_a_report_is_a_line() -> None:
    durations = {"triggerExecution": 1_240, "commitOffsets": 60, "commitBatch": 50}
    facts = Facts("q", 3, 1_200, durations, {("t", 0): 5, ("t", 1): 7_000, ("u", 0): 0})
    assert line_of(facts) == (
        "query q, batch 3: 1,200 rows in 1.2 s (commit 0.1 s); lag 7,005 in 2 partitions, most in t-1: 7,000"
    )
    assert line_of(Facts("q", 0, 0, {}, {("t", 0): 0})).endswith("; no lag")
    assert line_of(Facts("q", 0, 0)) == "query q, batch 0: 0 rows in 0.0 s (commit 0.0 s)"


def test_a_query_is_told_to_prometheus_and_the_log(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("t", 1)
    cluster.produce("t", 0, [NewRecord(None, b"v", 0) for _ in range(50)])
    monitor = QueryMonitor(metrics_port=0)

    def figures() -> dict[tuple[str, ...], float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor.metrics_port}/metrics", timeout=10) as page:
            families = text_string_to_metric_families(page.read().decode())
            return {
                (
                    sample.name.removeprefix("kohort_spark_query_"),
                    *(sample.labels[label] for label in LABELS if label in sample.labels),
                ): sample.value
                for family in families
                for sample in family.samples
            }

    spark.streams.addListener(monitor)
    caplog.set_level(logging.INFO, "kohort.spark")
    query = (
        spark.readStream.format("kohort")
        .options(**{"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": "t"})
        .options(startingOffsets="earliest", maxOffsetsPerTrigger="30")
        .load()
        .writeStream.format("noop")
        .queryName("copy")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        until(lambda: figures().get(("rows_total", "copy")) == 50)
        found = figures()
        assert found["active", "copy"] == 1
        assert found["batch", "copy"] == 1
        assert found["lag_records", "copy", "t", "0"] == 0
        assert found["phase_seconds", "copy", "triggerExecution"] > 0
        assert found["report_timestamp_seconds", "copy"] > 1_700_000_000
        assert any("batch 0: 30 rows" in line and "lag 20 in 1 partitions" in line for line in caplog.messages)
    finally:
        query.stop()
    until(lambda: figures()["active", "copy"] == 0)
    spark.streams.removeListener(monitor)
    monitor.close()
