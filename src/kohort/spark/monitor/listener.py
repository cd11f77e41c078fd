"""A listener of Spark's streaming queries that tells their lag, rows and times: in the log, and to Prometheus."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kohort.spark.monitor.progress import Facts, lags_of, line_of

log = logging.getLogger("kohort.spark")

MOST_ENDED = 100
"""Ended queries whose last figures are kept."""


class QueryMonitor(StreamingQueryListener):
    """Tells lag, rows and times of all streaming queries of a session, whatever their sources.

    Add it with `spark.streams.addListener(QueryMonitor())`. Each progress report is a line of the logger `kohort.spark`
    at level info. With `metrics_port`, Prometheus can scrape the figures at `http://metrics_host:metrics_port/metrics`;
    0 takes a free port, which `metrics_port` tells then. A program that serves Prometheus itself registers the monitor
    in its own registry instead: `REGISTRY.register(monitor)`. Both need the package prometheus-client.

    The lag of a partition is the distance from the end of the last batch to the end of the log, as the source saw it
    when it planned that batch. Raises ModuleNotFoundError without prometheus-client, OSError if the port is taken.
    """

    def __init__(self, *, metrics_port: int | None = None, metrics_host: str = "127.0.0.1") -> None:
        self.metrics_port = metrics_port
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        """Of the queries that run now, by the id of their run."""
        self._facts: dict[str, Facts] = {}
        self._rows: dict[str, int] = {}
        self._at: dict[str, float] = {}
        """When the last report came, in seconds since 1970."""
        self._failed: dict[str, int] = {}
        self._server: Any = None
        if metrics_port is not None:
            from prometheus_client import CollectorRegistry, start_http_server

            registry = CollectorRegistry()
            registry.register(self)
            self._server, _ = start_http_server(metrics_port, metrics_host, registry)
            self.metrics_port = self._server.server_port

    def close(self) -> None:
        """Stop serving metrics."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    # -- what Spark calls

    def onQueryStarted(self, event: Any) -> None:
        name = event.name or str(event.id)
        with self._lock:
            self._names[str(event.runId)] = name
        log.info("query %s: started", name)

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        facts = Facts(
            progress.name or str(progress.id),
            progress.batchId,
            progress.numInputRows,
            dict(progress.durationMs),
            lags_of((source.endOffset, source.latestOffset) for source in progress.sources),
        )
        with self._lock:
            self._facts[facts.query] = facts
            self._rows[facts.query] = self._rows.get(facts.query, 0) + facts.rows
            self._at[facts.query] = time.time()
        log.info("%s", line_of(facts))

    def onQueryIdle(self, event: Any) -> None:
        with self._lock:
            if name := self._names.get(str(event.runId)):
                self._at[name] = time.time()

    def onQueryTerminated(self, event: Any) -> None:
        with self._lock:
            name = self._names.pop(str(event.runId), str(event.id))
            if event.exception:
                self._failed[name] = self._failed.get(name, 0) + 1
            running = set(self._names.values())
            for ended in [one for one in self._facts if one not in running][:-MOST_ENDED]:
                for kept in (self._facts, self._rows, self._at, self._failed):
                    kept.pop(ended, None)
        if event.exception:
            log.error("query %s: failed: %s", name, str(event.exception).splitlines()[0])
        else:
            log.info("query %s: ended", name)

    # -- what Prometheus calls

    def collect(self) -> Iterator[Any]:
        """The metrics, as prometheus_client's collectors give them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            running = sorted(self._names.values())
            facts, rows = dict(self._facts), dict(self._rows)
            at, failed = dict(self._at), dict(self._failed)
        by_query = ["query"]
        active = GaugeMetricFamily("kohort_spark_query_active", "1 while the query runs", labels=by_query)
        for name in sorted({*running, *facts}):
            active.add_metric([name], float(name in running))
        yield active
        batch = GaugeMetricFamily("kohort_spark_query_batch", "The number of the last batch", labels=by_query)
        read = CounterMetricFamily("kohort_spark_query_rows", "Rows that the query has read", labels=by_query)
        told = GaugeMetricFamily(
            "kohort_spark_query_report_timestamp_seconds", "When the query last reported or was idle", labels=by_query
        )
        failures = CounterMetricFamily("kohort_spark_query_failures", "Runs that ended with an error", labels=by_query)
        took = GaugeMetricFamily(
            "kohort_spark_query_phase_seconds", "Duration of the phases of the last batch", labels=["query", "phase"]
        )
        lag = GaugeMetricFamily(
            "kohort_spark_query_lag_records",
            "Records between the last batch and the end of the log",
            labels=["query", "topic", "partition"],
        )
        for name, one in sorted(facts.items()):
            batch.add_metric([name], one.batch)
            read.add_metric([name], rows[name])
            told.add_metric([name], at[name])
            for phase, duration_ms in one.durations_ms.items():
                took.add_metric([name, phase], duration_ms / 1000)
            for (topic, partition), records in sorted(one.lags.items()):
                lag.add_metric([name, topic, str(partition)], records)
        for name, count in sorted(failed.items()):
            failures.add_metric([name], count)
        yield from (batch, read, told, failures, took, lag)
