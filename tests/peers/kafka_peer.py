"""Apache Kafka where a test runs against it as it runs against kohort."""

from __future__ import annotations

import pytest

EVERYWHERE = ("kohort", pytest.param("kafka", marks=(pytest.mark.peers, pytest.mark.timeout(300))))

SHARES = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "500",
    "group.share.record.lock.duration.ms": "600000",
    "group.share.max.record.lock.duration.ms": "600000",
    "group.share.session.timeout.ms": "600000",
    "group.share.max.session.timeout.ms": "600000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
    "group.share.max.size": "20",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
}
"""Settings of share groups, for both: locks and sessions are long and may be short, assignments are made at once."""
LIKE_KOHORT = {
    **SHARES,
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.ms": "-1",
}
"""Kafka's settings: those that kohort has in the tests, by default or by choice. Nothing is deleted by its age: many
records of tests are of 1970, and Kafka looks for old ones 30 seconds after its start; kohort, after five minutes."""
