"""`kohort metrics`: prints a Grafana dashboard and alert rules for the series of a kohort server."""

from __future__ import annotations

import json

import typer

from kohort.cli.metrics.alerts import alert_rules
from kohort.cli.metrics.dashboard import dashboard
from kohort.cli.option_objects import App
from kohort.cli.yaml_text import yaml_text

app = App(no_args_is_help=True)


@app.callback()
def metrics() -> None:
    """Print a Grafana dashboard and alert rules for the series of /metrics (docs/metrics.md)."""


@app.command("dashboard")
def print_dashboard() -> None:
    """Print a dashboard as JSON. Import it in Grafana, which asks for the Prometheus data source."""
    typer.echo(json.dumps(dashboard(), indent=2))


@app.command("alerts")
def print_alerts() -> None:
    """Print alert rules as YAML. Name the file under rule_files in prometheus.yml."""
    typer.echo(yaml_text(alert_rules()))
