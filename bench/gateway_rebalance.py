"""Rebalances of consumer groups on Apache Kafka, and on the same one through a gateway; rounds of rebalance.py."""

from __future__ import annotations

from bench import rebalance
from bench._run import Figures, Subject

COLUMNS = {"kafka": "Apache Kafka", rebalance.GATEWAY: "through the gateway"}
SUBJECT = Subject(
    "gateway_rebalance", rebalance.measure, rebalance.TABLES, (), COLUMNS, shown=Figures.typical, pinned=False
)
