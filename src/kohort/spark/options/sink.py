"""The options of writes: those of Spark's Kafka sink, with its `kafka.…` settings translated for librdkafka.

Spark's sink uses Java's producer, this one librdkafka. Settings that differ in name or meaning are translated, so that
a query only changes the name of its format. If the defaults differ, Java's default is used for everything that affects
the data or its place: the partition of a key, idempotence, the size of the queue, the time limit of a record.

Security settings are read as in kohort's own client (docs/how-to/security.md), with Java's names or librdkafka's. A
setting that neither this module nor librdkafka knows is refused by name. Sources: Apache Kafka, `ProducerConfig`;
librdkafka, CONFIGURATION.md; Spark, `KafkaSourceProvider.kafkaParamsForProducer` and `KafkaWriter`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.client.security.security import Security
from kohort.spark.options.exactly_once import OWN as EXACTLY_ONCE
from kohort.spark.options.exactly_once import ExactlyOnce, exactly_once
from kohort.spark.options.names import SECURITY
from kohort.spark.options.source import security_of
from kohort.spark.options.values import OptionError, number

KAFKA = "kafka."
OWN = {"topic", "includeheaders", "checkpointlocation", "queryname", *map(str.lower, EXACTLY_ONCE)}
"""Options that are not settings of the producer. checkpointLocation and queryName are Spark's own."""

NO_SERIALIZER = "text and bytes are written unchanged; serialize with DataFrame operations"
NO_JAVA = "there is no Java to run the class"
OWN_IDS = "with delivery=exactly-once each task has a transactional id of its own, and without it there are none"
REFUSED = {
    "key.serializer": NO_SERIALIZER,
    "value.serializer": NO_SERIALIZER,
    "interceptor.classes": NO_JAVA,
    "partitioner.class": f"{NO_JAVA}; keys go where Java's default partitioner sends them, unless the column partition "
    "names one",
    "transactional.id": OWN_IDS,
}

WITHOUT_EFFECT = {
    "auto.include.jmx.reporter",
    "metadata.max.idle.ms",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "transaction.timeout.ms",
}
"""Settings of Java's producer that librdkafka does not get. They change neither the data nor its place."""

RENAMED = {
    "max.request.size": ("message.max.bytes",),
    "send.buffer.bytes": ("socket.send.buffer.bytes",),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes",),
    "request.timeout.ms": ("request.timeout.ms", "socket.timeout.ms"),
}
"""Java's name and librdkafka's. librdkafka has two settings for the broker's and the client's part of a timeout."""

DEFAULTS = {
    "client.id": "kohort-spark",
    "partitioner": "murmur2_random",
    "acks": "all",
    "enable.idempotence": "true",
    "delivery.timeout.ms": "120000",
    "queue.buffering.max.kbytes": str(32 * 1024),
    "log.connection.close": "false",
}
MAX_BLOCK_MS = 60_000


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of one sink."""

    topic: str | None
    """The topic of every row; None: the column `topic` names it."""
    producer: tuple[tuple[str, str], ...] = field(repr=False)
    """librdkafka's settings except those of `security`, sorted by name."""
    security: Security = field(default_factory=Security)
    max_block_ms: int = MAX_BLOCK_MS
    """How long a row waits for room in the queue."""
    exactly_once: ExactlyOnce | None = None
    """None: at least once, by librdkafka."""


def parse_sink(options: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
    """Check the options of a sink. Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if not name.startswith(KAFKA) and name not in OWN:
            hint = "; it writes to a topic, and not to a path" if name == "path" else ""
            raise OptionError(f"unknown option {name} of kohort's sink{hint}")
    if not given.get("kafka.bootstrap.servers", "").strip():
        raise OptionError("option kafka.bootstrap.servers is missing: HOST:PORT[,HOST:PORT…]")
    topic = given["topic"].strip() if "topic" in given else None
    if topic == "":
        raise OptionError("option topic is empty; it takes the name of a topic")
    settings = {name[len(KAFKA) :]: value.strip() for name, value in given.items() if name.startswith(KAFKA)}
    settings = {name: value for name, value in settings.items() if not name.startswith(SECURITY)}
    settings.pop("max.block.ms", None)
    max_block_ms = number(given, "kafka.max.block.ms", 0, MAX_BLOCK_MS)
    security = security_of(given)
    try:
        security.librdkafka()
    except ValueError as error:
        raise OptionError(f"options kafka.*: {error}") from None
    transactions = exactly_once(given, streaming=streaming)
    return SinkOptions(topic, tuple(sorted(_producer(settings).items())), security, max_block_ms, transactions)


def _producer(settings: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings from Java's. Raises OptionError."""
    translated: dict[str, str] = {}
    for name, value in settings.items():
        if name in REFUSED:
            raise OptionError(f"option kafka.{name} is refused: {REFUSED[name]}")
        if name not in WITHOUT_EFFECT:
            translated |= _translated(name, value, settings)
    for name in ("acks", "request.required.acks"):
        if settings.get(name) == "0":
            raise OptionError(
                f"option kafka.{name} is refused: with 0 a row counts as written before a broker has it; it takes all, "
                "-1 or 1"
            )
    if "enable.idempotence" not in settings and _forgoes_idempotence(settings):
        translated["enable.idempotence"] = "false"
    producer = DEFAULTS | translated
    names = {theirs: name for name in settings for theirs in RENAMED.get(name, ())}
    _try(producer, names)
    return producer


def _translated(name: str, value: str, settings: Mapping[str, str]) -> dict[str, str]:
    match name:
        case "buffer.memory":
            size = number({f"kafka.{name}": value}, f"kafka.{name}", 0, 0)
            return {"queue.buffering.max.kbytes": str(max(1, size // 1024))}
        case "compression.gzip.level" | "compression.lz4.level" | "compression.zstd.level":
            codec = name.split(".")[1]
            return {"compression.level": value} if settings.get("compression.type") == codec else {}
        case "partitioner.ignore.keys":
            return {"partitioner": "random"} if value.lower() == "true" else {}
        case "send.buffer.bytes" | "receive.buffer.bytes" if value == "-1":
            return {}  # the operating system's default, which is librdkafka's, too
        case _:
            return dict.fromkeys(RENAMED.get(name, (name,)), value)


def _forgoes_idempotence(settings: Mapping[str, str]) -> bool:
    """True if settings exclude idempotence; Java's producer then turns it off unless it was requested."""
    in_flight = settings.get("max.in.flight.requests.per.connection", settings.get("max.in.flight", "5"))
    return (
        settings.get("acks", "all") not in ("all", "-1")
        or settings.get("retries") == "0"
        or (in_flight.isdigit() and int(in_flight) > 5)
    )


def _try(producer: Mapping[str, str], names: Mapping[str, str]) -> None:
    """Let librdkafka check the settings, without a broker. `names` are Java's names of renamed settings that are given.
    Raises OptionError."""
    local = {name: value for name, value in producer.items() if name != "bootstrap.servers"}
    if reason := _reason(local):
        for name, value in local.items():
            if alone := _reason({name: value}):
                alone = alone.replace(f'"{name}"', f'"{names.get(name, name)}"')
                raise OptionError(f"option kafka.{names.get(name, name)} is {value!r}; librdkafka: {alone}")
        raise OptionError(f"the options kafka.… contradict each other; librdkafka: {reason}")


def _reason(settings: Mapping[str, str]) -> str | None:
    """Why librdkafka refuses these settings; None if it accepts them."""
    from confluent_kafka import KafkaException, Producer

    try:
        Producer({**settings, "logger": logging.Logger("kohort.spark.options.sink", logging.CRITICAL)})
    except KafkaException as error:
        return str(error.args[0].str())
    except (TypeError, ValueError) as error:
        return str(error)
    return None
