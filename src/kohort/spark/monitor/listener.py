"""A listener of Spark's streaming queries that tells their lag, rows and times: in the log, and to Prometheus."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kohort.spark.monitor.progress import Facts, lags_of, line_of

log = logging.getLogger("kohort.spark")

MOST_ENDED = 100
"""Ended queries whose figures are kept."""


@dataclass(slots=True)
class _Told:
    """What a query has told."""

    facts: Facts | None = None
    """Of its last batch."""
    rows: int = 0
    """Of all batches."""
    at_s: float | None = None
    """When the last report came, in seconds since 1970."""
    failures: int = 0


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
        self._running: dict[str, str] = {}
        """The names of the queries that run now, by the id of their run."""
        self._told: dict[str, _Told] = {}
        """By name; the query that began last comes last."""
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
            self._running[str(event.runId)] = name
            self._told[name] = self._told.pop(name, _Told())
            running = set(self._running.values())
            for ended in [one for one in self._told if one not in running][:-MOST_ENDED]:
                del self._told[ended]
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
            told = self._told.setdefault(facts.query, _Told())  # it may have begun before the monitor was added
            told.facts, told.at_s = facts, time.time()
            told.rows += facts.rows
        log.info("%s", line_of(facts))

    def onQueryIdle(self, event: Any) -> None:
        with self._lock:
            if name := self._running.get(str(event.runId)):
                self._told[name].at_s = time.time()

    def onQueryTerminated(self, event: Any) -> None:
        with self._lock:
            name = self._running.pop(str(event.runId), str(event.id))
            if event.exception and name in self._told:
                self._told[name].failures += 1
        if event.exception:
            log.error("query %s: failed: %s", name, str(event.exception).splitlines()[0])
        else:
            log.info("query %s: ended", name)

    # -- what Prometheus calls

    def collect(self) -> Iterator[Any]:
        """The metrics, as prometheus_client's collectors give them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            running = set(self._running.values())
            queries = {name: replace(told) for name, told in sorted(self._told.items())}
        by_query = ["query"]
        active = GaugeMetricFamily("kohort_spark_query_active", "1 while the query runs", labels=by_query)
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
        for name, query in queries.items():
            active.add_metric([name], float(name in running))
            read.add_metric([name], query.rows)
            failures.add_metric([name], query.failures)
            if query.at_s is not None:
                told.add_metric([name], query.at_s)
            if query.facts is None:
                continue
            batch.add_metric([name], query.facts.batch)
            for phase, duration_ms in query.facts.durations_ms.items():
                took.add_metric([name, phase], duration_ms / 1000)
            for (topic, partition), records in sorted(query.facts.lags.items()):
                lag.add_metric([name, topic, str(partition)], records)
        yield from (active, batch, read, told, failures, took, lag)
