"""The options of `delivery=exactly-once`: the names of the application and its batch, and what the transactions need.

The rows are sent by kohort's own producer, not by librdkafka. Of Kafka's producer settings, USED have an effect;
REQUIRED must have the value that transactions need; the others tune librdkafka, and are accepted without effect.
`txnAppId` and `txnVersion` mean the same as in Delta Lake's writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kohort.spark.options.values import OptionError, choice, flag, number

LEDGER_TOPIC = "kohort-spark-sink"
TRANSACTION_TIMEOUT_MS = 900_000
"""The largest that brokers allow by default (transaction.max.timeout.ms). A whole micro-batch takes place within it."""
BATCH_BYTES = 512 * 1024
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The names of compression.type, in the order of their numbers in a record batch."""

OWN = ("delivery", "txnAppId", "txnVersion", "ledgerTopic")
USED = {
    "bootstrap.servers",
    "client.id",
    "compression.type",
    "batch.size",
    "request.timeout.ms",
    "delivery.timeout.ms",
    "transaction.timeout.ms",
    "partitioner.ignore.keys",
}
REQUIRED = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The options of a sink that writes in transactions. Durations are milliseconds."""

    bootstrap_servers: str
    application: str | None
    """None: the id of the streaming query."""
    version: int | None
    """The number of the batch; None: the streaming query's."""
    ledger_topic: str
    client_id: str
    compression: int
    batch_bytes: int
    """The size at which a record batch is sent, before compression."""
    ignores_keys: bool
    request_timeout_ms: int
    delivery_timeout_ms: int
    timeout_ms: int
    """Of a transaction."""


def exactly_once(given: Mapping[str, str], *, streaming: bool) -> ExactlyOnce | None:
    """None with the default, `delivery=at-least-once`. `given` has names in lower case. Raises OptionError."""
    if choice(given, "delivery", "at-least-once", "exactly-once") == "at-least-once":
        for name in (*OWN[1:], "kafka.transaction.timeout.ms"):
            if name.lower() in given:
                raise OptionError(f"option {name} needs delivery=exactly-once")
        return None
    for setting, allowed in REQUIRED.items():
        if given.get(f"kafka.{setting}", allowed[0]).strip().lower() not in allowed:
            raise OptionError(f"option kafka.{setting} must be {allowed[0]} with delivery=exactly-once")
    if "kafka.partitioner" in given:
        raise OptionError(
            "option kafka.partitioner is not supported with delivery=exactly-once; keys go where Java's default "
            "partitioner sends them, unless the column partition names one"
        )
    application, version = given.get("txnappid", "").strip() or None, number(given, "txnVersion", 0, None)
    if streaming and version is not None:
        raise OptionError("option txnVersion is for batch writes; the batches of a streaming query have numbers")
    if not streaming and (application is None or version is None):
        raise OptionError(
            "delivery=exactly-once needs the options txnAppId and txnVersion in a batch write: a name, and a number "
            "that is larger for each later write and the same when a write is repeated"
        )
    if application is not None and ("/" in application or len(application) > 200):
        raise OptionError(f"option txnAppId is {application!r}; it takes a name of at most 200 characters, without /")
    topic = given.get("ledgertopic", LEDGER_TOPIC).strip()
    if not topic:
        raise OptionError("option ledgerTopic is empty; it takes the name of a topic")
    codec = choice(given, "kafka.compression.type", *CODECS)
    return ExactlyOnce(
        bootstrap_servers=given["kafka.bootstrap.servers"].strip(),
        application=application,
        version=version,
        ledger_topic=topic,
        client_id=given.get("kafka.client.id", "kohort-spark").strip(),
        compression=CODECS.index(codec),
        batch_bytes=number(given, "kafka.batch.size", 1, BATCH_BYTES),
        ignores_keys=flag(given, "kafka.partitioner.ignore.keys", False),
        request_timeout_ms=number(given, "kafka.request.timeout.ms", 1, 30_000),
        delivery_timeout_ms=number(given, "kafka.delivery.timeout.ms", 1, 120_000),
        timeout_ms=number(given, "kafka.transaction.timeout.ms", 1, TRANSACTION_TIMEOUT_MS),
    )
