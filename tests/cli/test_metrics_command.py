"""`kohort metrics`: each series that the dashboard and the alerts name exists, with the labels that they name."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from typer.testing import CliRunner

from kohort.broker.metrics.families import FAMILIES, HISTOGRAM
from kohort.cli.commands import app
from kohort.cli.metrics.alerts import ALERTS

KNOWN = {family.name: {*family.labels, "instance", "job"} for family in FAMILIES if family.kind != HISTOGRAM} | {
    f"{family.name}_{part}": {*family.labels, "instance", "job", "le"}
    for family in FAMILIES
    if family.kind == HISTOGRAM
    for part in ("bucket", "sum", "count")
}
OF_PROMETHEUS = {"up"}
SERIES = re.compile(r"\b((?:kafka|kohort|process)_\w+)(?:\{([^}]*)\})?")
OF_7589 = """
sum(rate(kafka_topic_partition_current_offset{instance="$instance", topic=~"$topic"}[1m])) by (topic)
sum(kafka_consumergroup_lag{instance="$instance",topic=~"$topic"}) by (consumergroup, topic)
sum(delta(kafka_consumergroup_current_offset{instance=~'$instance',topic=~"$topic"}[5m])/5) by (consumergroup, topic)
sum by(topic) (kafka_topic_partitions{instance="$instance",topic=~"$topic"})
label_values(kafka_consumergroup_current_offset{job=~"$job"}, instance)
sum(kafka_topic_partition_replicas{topic=~"$topic"})
sum(kafka_topic_partition_in_sync_replica{topic=~"$topic"})
sum(kafka_topic_partition_under_replicated_partition{topic=~"$topic"})
count(kafka_topic_partition_leader_is_preferred{topic=~"$topic"}<1)
sum(kafka_topic_partition_oldest_offset{topic=~"$topic"}) by (partition,topic)
"""
"""The queries of Grafana's dashboard 7589 (kafka_exporter_overview.json), and of the one that Strimzi made of it."""


def printed(what: str) -> str:
    result = CliRunner().invoke(app, ["metrics", what])
    assert result.exit_code == 0, result.output
    return result.stdout


def check_series(expr: str) -> int:
    """How many series it names."""
    found = SERIES.findall(expr)
    for name, matchers in found:
        assert name in KNOWN, f"{name} of {expr}"
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert labels <= KNOWN[name], f"{name} has no labels {labels - KNOWN[name]}: {expr}"
    known = set().union(*(KNOWN[name] for name, _ in found))
    for grouped in re.findall(r"\b(?:by|on) ?\(([^)]*)\)", expr):
        assert {label.strip() for label in grouped.split(",")} <= known, expr
    assert expr.count("(") == expr.count(")")
    return len(found)


def test_the_dashboard() -> None:
    board = json.loads(printed("dashboard"))
    exprs = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert len(exprs) > 20
    for expr in exprs:
        assert check_series(expr), expr
    for variable in board["templating"]["list"][1:]:
        assert check_series(variable["query"]), variable
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(printed("dashboard"))["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            assert x < 24
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_the_alerts() -> None:
    [group] = yaml.safe_load(printed("alerts"))["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [alert.name for alert in ALERTS]
    assert len({alert.name for alert in ALERTS}) == len(ALERTS) >= 10
    for rule in group["rules"]:
        assert check_series(rule["expr"]) or rule["expr"].split("{")[0] in OF_PROMETHEUS, rule
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        names = [name for name, _ in SERIES.findall(rule["expr"])]
        assert used <= {"instance"}.union(*(KNOWN[name] for name in names)), rule


@pytest.mark.parametrize("expr", OF_7589.strip().splitlines())
def test_well_known_dashboards_fill(expr: str) -> None:
    assert check_series(expr)
