"""Every option name that the source knows: those of Spark's Kafka source, its own, and settings of Kafka's consumer.

A name is used by the source, or accepted without effect because it tunes something that only Java's client has, or
refused with a reason. For any other name the error suggests the intended name. Names are compared in lower case.
Sources: Spark's "Structured Streaming + Kafka Integration Guide" and KafkaSourceProvider; Kafka's ConsumerConfig.
"""

from __future__ import annotations

import difflib

from kohort.client.security.properties import PREFIXES
from kohort.spark.options.member import SETTINGS as MEMBER_SETTINGS

SPARK = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
OWN = ("group.id", "groupMode", "checkpointLocation", "columns", "decode", "isolation.level", "pushFilters")
"""Options that Spark's source does not have. docs/how-to/spark-source.md describes each."""

USED = {
    "bootstrap.servers",
    "group.id",
    "client.id",
    "isolation.level",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "metadata.max.age.ms",
    "fetch.max.wait.ms",
    "max.partition.fetch.bytes",
    *(name.removeprefix("kafka.") for name in MEMBER_SETTINGS),
}
"""Settings of Kafka's consumer that have an effect, without their `kafka.`."""

WITHOUT_EFFECT = {
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.include.jmx.reporter",
    "check.crcs",
    "client.dns.lookup",
    "config.providers",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "max.poll.records",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "throw.on.fetch.stable.offset.unsupported",
}
"""Settings that tune Java's client. They are accepted, so that a query keeps its options when its format changes."""

REFUSED = {
    "auto.offset.reset": "startingOffsets says where a query starts, and its checkpoint where it resumes",
    "key.deserializer": "keys are bytes; decode them with DataFrame functions",
    "value.deserializer": "values are bytes; decode them with DataFrame functions",
    "enable.auto.commit": "only what Spark has finished may be committed; with group.id the source does that",
    "interceptor.classes": "Java classes cannot run here, and interceptors could change what is read",
}
"""Settings that Spark's source refuses, too."""

SECURITY = tuple(PREFIXES)
"""The prefixes of the settings of TLS and SASL; `kohort.client.security.security` checks their names."""

KNOWN = frozenset(name.lower() for name in SPARK + OWN)


def complaint(name: str) -> str | None:
    """The error of an option's name, in lower case; None if the name is allowed."""
    prefix, _, setting = name.partition(".")
    if prefix != "kafka":
        return None if name in KNOWN else f"unknown option {name}{_meant(name, SPARK + OWN)}"
    if setting in REFUSED:
        return f"option {name} is not supported: {REFUSED[setting]}"
    if setting in USED or setting in WITHOUT_EFFECT or setting.startswith(SECURITY):
        return None
    known = sorted(USED | WITHOUT_EFFECT)
    return f"unknown option {name}: Kafka's consumer has no such setting{_meant(setting, known, 'kafka.')}"


def _meant(name: str, known: tuple[str, ...] | list[str], prefix: str = "") -> str:
    spelled = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name, spelled, n=1, cutoff=0.75)
    return f"; did you mean {prefix}{spelled[close[0]]}?" if close else ""
