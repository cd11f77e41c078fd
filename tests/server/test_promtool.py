"""/metrics as Prometheus sees it: promtool's rules for names, the alert rules, and a Prometheus that scrapes a server
with 20,000 series and answers the dashboard's queries from it. Both programs are in Debian's package `prometheus`."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from http_client import OPEN_METRICS, ask
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

pytestmark = [pytest.mark.promtool, pytest.mark.timeout(300)]

GROUPS, PARTITIONS, LAG = 70, 100, 3
SERIES = 20_000
PATIENCE_S = 120.0
OURS = ("kohort_", "process_")
NAMES_OF_OTHERS = (
    r'non-histogram and non-summary metrics should not have "_(sum|count)" suffix',
    r'non-counter metrics should not have "_total" suffix',
    r'non-summary metrics should not have "quantile" label',
    r"metric names should not contain abbreviated units",
    r'use base unit "\w+" instead of "\w+"',
    r"label names should be written in 'snake_case' not 'camelCase'",
)
"""What promtool says of names that exporters chose, which dashboards expect."""


def promtool(*arguments: str | Path, page: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], input=page, capture_output=True, text=True, timeout=60)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(http_listener="127.0.0.1:0", metrics_max_series=60_000, metrics_kminion=True) as running:
        running.create_topic("orders", PARTITIONS)
        for partition in range(PARTITIONS):
            running.produce("orders", *map(str, range(LAG)), partition=partition)
        with Cluster(running.bootstrap_servers) as cluster:
            for number in range(GROUPS):
                cluster.commit(f'group "{number}" \\ of\ntwo lines', {("orders", at): 0 for at in range(PARTITIONS)})
        yield running


def test_the_names_follow_promtools_rules(server: KohortServer) -> None:
    status, _, page = ask(server.http_address)
    assert status == 200
    checked = promtool("check", "metrics", page=page)
    assert checked.returncode in (0, 3), f"the page cannot be read: {checked.stderr[:2_000]}"
    complaints = [line.split(" ", 1) for line in (checked.stdout + checked.stderr).splitlines() if line]
    wrong = [
        f"{name} {what}"
        for name, what in complaints
        if name.startswith(OURS) or not any(re.fullmatch(known, what) for known in NAMES_OF_OTHERS)
    ]
    assert not wrong, "\n".join(wrong)
    assert complaints, "promtool knows names of exporters that break its rules"


def test_the_alert_rules(tmp_path: Path) -> None:
    rules = tmp_path / "alerts.yml"
    rules.write_text(printed("metrics", "alerts"))
    checked = promtool("check", "rules", rules)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert re.search(r"SUCCESS: \d+ rules found", checked.stdout), checked.stdout


class Prometheus:
    def __init__(self, directory: Path, target: str) -> None:
        (directory / "alerts.yml").write_text(printed("metrics", "alerts"))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "kohort", "static_configs": [{"targets": [target]}]}],
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.log = directory / "prometheus.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={directory / 'prometheus.yml'}"]
                + [f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={self.address}"],
                stdout=log,
                stderr=log,
            )

    def ask(self, path: str, **query: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        return [(row["metric"], float(row["value"][1])) for row in self.ask("query", query=expr)["result"]]

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + PATIENCE_S
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < ends, f"not within {PATIENCE_S:.0f} s: {what}; {self.log.read_text()[-2_000:]}"
            try:
                if holds():
                    return
            except OSError:
                pass  # it does not listen yet
            time.sleep(0.1)


@pytest.fixture(scope="module")
def prometheus(server: KohortServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path_factory.mktemp("prometheus"), server.http_address)
    try:
        running.wait(lambda: len(running.query('count_over_time(up{job="kohort"}[1m]) >= 2')) == 1, "two scrapes")
        yield running
    finally:
        running.process.terminate()
        try:
            running.process.wait(30)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()


def test_a_prometheus_scrapes_20000_series(prometheus: Prometheus) -> None:
    [(_, up)] = prometheus.query("up")
    [(_, samples)] = prometheus.query("scrape_samples_scraped")
    [(_, took)] = prometheus.query("scrape_duration_seconds")
    print(f"{samples:,.0f} samples in {took:.3f} s")
    assert up == 1
    assert samples >= SERIES
    assert took < 10, "Prometheus' limit for a scrape"
    [(_, lag)] = prometheus.query("sum(kafka_consumergroup_lag)")
    assert lag == GROUPS * PARTITIONS * LAG
    groups = {labels["consumergroup"] for labels, _ in prometheus.query("kafka_consumergroup_lag_sum")}
    assert groups == {f'group "{number}" \\ of\ntwo lines' for number in range(GROUPS)}
    [target] = prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")


def test_the_alert_rules_are_evaluated(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]

    prometheus.wait(lambda: all(rule["health"] == "ok" for rule in rules()), "every rule is evaluated without an error")
    assert len(rules()) == printed("metrics", "alerts").count("alert: ")


def test_the_dashboards_queries_are_answered(prometheus: Prometheus, server: KohortServer) -> None:
    board = json.loads(printed("metrics", "dashboard"))
    filled = 0
    for expr in (target["expr"] for panel in board["panels"] for target in panel.get("targets", ())):
        chosen = re.sub(r"\$__(rate_)?interval", "1m", expr)
        chosen = re.sub(r'"\$\{?\w+(:\w+)?\}?"', '".*"', chosen)
        assert "$" not in chosen, f"a variable is left: {chosen}"
        filled += bool(prometheus.query(chosen))
    assert filled > 15
    assert ask(server.http_address, accept=OPEN_METRICS)[2].endswith("# EOF\n")
