"""Alert rules of Prometheus. Each names series of docs/metrics.md only (tests/cli/test_metrics_command.py)."""

from __future__ import annotations

from typing import Any, NamedTuple


class Alert(NamedTuple):
    name: str
    expr: str
    lasts: str
    """For how long before it fires."""
    severity: str
    summary: str


ALERTS = (
    Alert(
        "KohortDown",
        'up{job="kohort"} == 0',
        "1m",
        "critical",
        "Prometheus cannot scrape {{ $labels.instance }}: the server is down, or a turn takes longer than 5 s",
    ),
    Alert(
        "KohortConsumerStuck",
        "sum by (instance, consumergroup, topic) (kafka_consumergroup_lag_sum) > 0 and "
        "sum by (instance, consumergroup, topic) (delta(kafka_consumergroup_current_offset_sum[10m])) == 0",
        "10m",
        "warning",
        "{{ $labels.consumergroup }} has {{ $value }} records of {{ $labels.topic }} to read and commits nothing",
    ),
    Alert(
        "KohortLagOld",
        "kafka_consumergroup_group_max_lag_seconds > 600",
        "5m",
        "warning",
        "{{ $labels.group }} is {{ $value | humanizeDuration }} behind; change the threshold to what your readers need",
    ),
    Alert(
        "KohortGroupDeserted",
        "(sum by (instance, consumergroup) (kafka_consumergroup_lag_sum) > 0) and on (instance, consumergroup) "
        "(kafka_consumergroup_members == 0) and on (instance, consumergroup) "
        "(sum by (instance, consumergroup) (delta(kafka_consumergroup_current_offset_sum[30m])) == 0)",
        "30m",
        "warning",
        "{{ $labels.consumergroup }} has no members, commits nothing, and its lag is {{ $value }}",
    ),
    Alert(
        "KohortRebalancesOften",
        "sum by (instance, consumergroup) (increase(kohort_rebalances_total[15m])) > 10",
        "0m",
        "warning",
        "{{ $labels.consumergroup }} rebalanced {{ $value }} times in 15 minutes: kohort groups explain says why",
    ),
    Alert(
        "KohortRebalanceLong",
        "min_over_time(kohort_group_rebalancing[5m]) == 1",
        "5m",
        "warning",
        "{{ $labels.consumergroup }} has not been stable for 10 minutes: kohort groups explain names who it waits for",
    ),
    Alert(
        "KohortShareGroupStuck",
        "max by (instance, group, topic) (kohort_share_group_standing_seconds) > 900",
        "5m",
        "warning",
        "{{ $labels.group }} has not finished the first record of a partition of {{ $labels.topic }} for "
        "{{ $value | humanizeDuration }}: kohort groups doctor names it",
    ),
    Alert(
        "KohortShareGroupGivesUp",
        'sum by (instance, group) (increase(kohort_share_group_records_total{outcome="delivered too often"}[15m])) > 0',
        "0m",
        "warning",
        "{{ $labels.group }} gave up {{ $value }} records after too many deliveries: kohort groups describe names them",
    ),
    Alert(
        "KohortCommitsSlow",
        "histogram_quantile(0.99, sum by (instance, le) (rate(kohort_commit_seconds_bucket[5m]))) > 0.5",
        "5m",
        "warning",
        "one commit in a hundred of {{ $labels.instance }} takes {{ $value }} s: the disk is slow",
    ),
    Alert(
        "KohortLoopBusy",
        "rate(kohort_loop_cpu_seconds_total[5m]) > 0.9",
        "10m",
        "warning",
        "the event loop of {{ $labels.instance }} uses {{ $value | humanizePercentage }} of a CPU; it can use one",
    ),
    Alert(
        "KohortDiskFull",
        "kohort_disk_free_bytes < 1e9 or predict_linear(kohort_disk_free_bytes[6h], 86400) < 0",
        "15m",
        "critical",
        "the volume of {{ $labels.instance }} has {{ $value | humanize1024 }}B left, or is full within a day; "
        "a full disk stops the server",
    ),
    Alert(
        "KohortMemoryShort",
        "kohort_queued_request_bytes / kohort_queued_request_bytes_max > 0.8 or "
        "kohort_queued_response_bytes / kohort_queued_response_bytes_max > 0.8",
        "5m",
        "warning",
        "{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its memory for requests or answers",
    ),
    Alert(
        "KohortConnectionsFull",
        "(sum by (instance) (kohort_connections) + sum by (instance) (kohort_connections_unauthenticated)) / "
        "sum by (instance) (kohort_connections_max) > 0.9",
        "5m",
        "warning",
        "{{ $labels.instance }} has {{ $value | humanizePercentage }} of the connections of max.connections; then new "
        "clients wait",
    ),
    Alert(
        "KohortLoginsFail",
        "sum by (instance, listener) (rate(kohort_authentication_failures_total[5m])) > 0.5",
        "5m",
        "warning",
        "clients of {{ $labels.listener }} fail to log in, {{ $value }} times a second; the server's log names them",
    ),
    Alert(
        "KohortSeriesLeftOut",
        "kohort_metrics_series_left_out > 0",
        "15m",
        "info",
        "{{ $labels.instance }} leaves out {{ $value }} series; see metrics.max.series and metrics.groups.granularity",
    ),
)


def alert_rules() -> dict[str, Any]:
    """A file of rules, as Prometheus reads it."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expr,
            "for": alert.lasts,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary},
        }
        for alert in ALERTS
    ]
    return {"groups": [{"name": "kohort", "rules": rules}]}
