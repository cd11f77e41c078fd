"""A Grafana dashboard (schema 39, Grafana 10 and later). Each panel names series of docs/metrics.md only.

Rows: who is behind; rebalances; the server. A click on a group in the first table sets the variable `group`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

WIDTH = 24
"""Columns of Grafana's grid."""
SOURCE = {"type": "prometheus", "uid": "${source}"}


class Panel(NamedTuple):
    title: str
    kind: str
    """timeseries, stat or table."""
    columns: int
    unit: str
    queries: tuple[tuple[str, str], ...]
    """PromQL and legend."""
    about: str = ""


class Row(NamedTuple):
    title: str
    height: int
    panels: tuple[Panel, ...]


OF = 'instance=~"$instance"'
OF_GROUP = 'instance=~"$instance",consumergroup=~"$group"'
OF_LAG = 'instance=~"$instance",group=~"$group"'

ROWS = (
    Row(
        "Now",
        4,
        (
            Panel(
                "Groups",
                "stat",
                4,
                "short",
                ((f"sum(kafka_coordinator_group_groupmetadatamanager_numgroups{{{OF}}})", ""),),
            ),
            Panel("Rebalancing", "stat", 4, "short", ((f"sum(kohort_group_rebalancing{{{OF}}}) or vector(0)", ""),)),
            Panel("Most behind", "stat", 4, "s", ((f"max(kafka_consumergroup_group_max_lag_seconds{{{OF}}})", ""),)),
            Panel("Connections", "stat", 4, "short", ((f"sum(kohort_connections{{{OF}}})", ""),)),
            Panel(
                "Topics", "stat", 4, "short", ((f"sum(kafka_controller_kafkacontroller_globaltopiccount{{{OF}}})", ""),)
            ),
            Panel("Disk free", "stat", 4, "bytes", ((f"min(kohort_disk_free_bytes{{{OF}}})", ""),)),
        ),
    ),
    Row(
        "Who is behind",
        9,
        (
            Panel(
                "Lag in seconds",
                "timeseries",
                8,
                "s",
                ((f"topk(20, kafka_consumergroup_group_max_lag_seconds{{{OF_LAG}}})", "{{group}}"),),
                "The age of the oldest record that a group has not committed.",
            ),
            Panel(
                "Lag in records",
                "timeseries",
                8,
                "short",
                (
                    (
                        f"topk(20, sum by (consumergroup, topic) (kafka_consumergroup_lag_sum{{{OF_GROUP}}}))",
                        "{{consumergroup}} {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Records a second",
                "timeseries",
                8,
                "short",
                (
                    (
                        "sum by (topic) (rate(kafka_server_brokertopicmetrics_messagesin_total"
                        f'{{{OF},topic!~"__.*",topic!=""}}[$__rate_interval]))',
                        "{{topic}} in",
                    ),
                    (
                        "sum by (consumergroup) (clamp_min("
                        f"deriv(kafka_consumergroup_current_offset_sum{{{OF_GROUP}}}[$__rate_interval]), 0))",
                        "{{consumergroup}} committed",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Rebalances",
        8,
        (
            Panel(
                "Rebalances by cause",
                "timeseries",
                8,
                "short",
                (
                    (
                        "sum by (consumergroup, cause) "
                        f"(increase(kohort_rebalances_total{{{OF_GROUP}}}[$__rate_interval]))",
                        "{{consumergroup}}: {{cause}}",
                    ),
                ),
                "kohort groups explain GROUP tells the story of each.",
            ),
            Panel(
                "Members",
                "timeseries",
                8,
                "short",
                ((f"kafka_consumergroup_members{{{OF_GROUP}}}", "{{consumergroup}}"),),
            ),
            Panel(
                "Time until stable, 95 of 100",
                "timeseries",
                8,
                "s",
                (
                    (
                        "histogram_quantile(0.95, sum by (protocol, le) "
                        f"(rate(kohort_rebalance_seconds_bucket{{{OF}}}[$__rate_interval])))",
                        "{{protocol}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Server",
        8,
        (
            Panel(
                "Requests a second",
                "timeseries",
                8,
                "reqps",
                (
                    (
                        "topk(10, sum by (request) (rate(kafka_network_requestmetrics_requests_total"
                        f'{{{OF},request!="FetchConsumer"}}[$__rate_interval])))',
                        "{{request}}",
                    ),
                ),
            ),
            Panel(
                "Turns and commits, 99 of 100",
                "timeseries",
                8,
                "s",
                tuple(
                    (
                        "histogram_quantile(0.99, sum by (instance, le) "
                        f"(rate(kohort_{what}_seconds_bucket{{{OF}}}[$__rate_interval])))",
                        f"{{{{instance}}}} {what}",
                    )
                    for what in ("turn", "step", "commit")
                ),
                "A step keeps all other clients waiting; a commit is the disk.",
            ),
            Panel(
                "CPU and memory",
                "timeseries",
                8,
                "percentunit",
                (
                    (f"rate(kohort_loop_cpu_seconds_total{{{OF}}}[$__rate_interval])", "{{instance}} event loop"),
                    (f"rate(process_cpu_seconds_total{{{OF}}}[$__rate_interval])", "{{instance}} process"),
                    (
                        f"kohort_queued_request_bytes{{{OF}}} / kohort_queued_request_bytes_max{{{OF}}}",
                        "{{instance}} memory for requests",
                    ),
                ),
                "The event loop can use one CPU.",
            ),
            Panel(
                "Bytes a second",
                "timeseries",
                8,
                "Bps",
                (
                    (
                        f'rate(kafka_server_brokertopicmetrics_bytesin_total{{{OF},topic=""}}[$__rate_interval])',
                        "{{instance}} appended",
                    ),
                    (
                        f"rate(kafka_server_brokertopicmetrics_bytesout_total{{{OF}}}[$__rate_interval])",
                        "{{instance}} fetched",
                    ),
                ),
            ),
            Panel(
                "Disk",
                "timeseries",
                8,
                "bytes",
                (
                    (f"kohort_storage_bytes{{{OF}}}", "{{instance}} database"),
                    (f"kohort_wal_bytes{{{OF}}}", "{{instance}} write-ahead log"),
                    (f"kohort_disk_free_bytes{{{OF}}}", "{{instance}} free"),
                ),
            ),
            Panel(
                "Transactions",
                "timeseries",
                8,
                "short",
                ((f'sum by (state) (kohort_transactions{{{OF},state!="Empty"}})', "{{state}}"),),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row.title, "gridPos": place, "panels": []})
        y += 1
        x = 0
        for panel in row.panels:
            if x + panel.columns > WIDTH:
                x, y = 0, y + row.height
            place = {"h": row.height, "w": panel.columns, "x": x, "y": y}
            panels.append(_panel(len(panels) + 1, panel, place))
            x += panel.columns
        y += row.height
    return {
        "title": "kohort",
        "uid": "kohort",
        "tags": ["kohort", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("instance", "Server", "label_values(kohort_build_info, instance)"),
                _variable(
                    "group", "Group", 'label_values(kafka_consumergroup_members{instance=~"$instance"}, consumergroup)'
                ),
            ]
        },
        "panels": panels,
    }


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for at, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
