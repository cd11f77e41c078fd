"""The options of reads: the names and meanings of Spark's Kafka source, plus those of kohort (`names.py`).

An ignored option would make the query read the wrong data, so an unknown name is an error. Three options set where a
query starts, and the first of them counts: a timestamp for all partitions, a timestamp for each, offsets. Source of the
names and of this order: Spark's "Structured Streaming + Kafka Integration Guide" and KafkaSourceProvider.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kohort.client.security.security import Security
from kohort.spark.options.member import MemberOptions, member_options
from kohort.spark.options.names import SECURITY, complaint
from kohort.spark.options.values import OptionError, choice, flag, number

LATEST, EARLIEST = -1, -2
"""The two special values of an offset in JSON, as in Spark's source."""

ByPartition = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """The first records at or after a time in milliseconds, one time for all partitions or one for each.

    `option` is the name of the option with the times.
    """

    at: int | ByPartition
    option: str


Where = Literal["earliest", "latest", "group"] | ByPartition | ByTimestamp
"""Where to start or end: a word, offsets by topic and partition, or times."""

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""The columns of a read by default, and their types, as in Spark's source."""
HEADERS = {"headers": "array<struct<key: string, value: binary>>"}

Isolation = Literal["read_uncommitted", "read_committed"]
Fallback = Literal["earliest", "latest", "fail"]
GROUP_WORDS: dict[str, Fallback] = {
    "group": "earliest",
    "group-or-earliest": "earliest",
    "group-or-latest": "latest",
    "group-or-fail": "fail",
}
"""Words of startingOffsets for a group, and where partitions without a committed offset start."""

UNITS_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of one source. Durations are milliseconds."""

    bootstrap_servers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] = field(default_factory=dict)
    starting: Where | None = None
    """None if the option is missing; `starting_or` has the default."""
    group_fallback: Fallback = "earliest"
    no_match: Literal["error", "latest"] = "error"
    """Where to start if no record is at or after the timestamp."""
    ending: Where = "latest"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = tuple(COLUMNS)
    """Of COLUMNS and HEADERS, in the order of the read. With another `decode` they have no meaning."""
    decode: Literal["raw", "consumer_offsets"] = "raw"
    """The columns: keys and values, or those of `kohort.spark.history.decoding.decode`."""
    push_filters: bool = False
    """A batch read takes filters from Spark."""
    poll_timeout_ms: int = 120_000
    """How long a task waits for records that should exist."""
    offset_retries: int = 3
    """How often to ask for the end of a log that seems to end before what the query has reached."""
    offset_retry_ms: int = 1_000
    group_id: str | None = None
    starts_at_group: bool = False
    """True if a query without an option for its start starts at the group's committed offsets."""
    checkpoint: str | None = None
    member: MemberOptions | None = None
    """None: a query that commits to its group without being a member."""
    client_id: str = "kohort-spark"
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    isolation: Isolation = "read_uncommitted"
    max_wait_ms: int = 500
    partition_fetch_bytes: int = 4 * 1024 * 1024
    security: Security = field(default_factory=Security)

    def starting_or(self, default: Literal["earliest", "latest"]) -> Where:
        """Where to start: with `group.id` and no option for the start, at the group's committed offsets."""
        if self.starting is not None:
            return self.starting
        return "group" if self.starts_at_group else default


DEFAULT = Options(bootstrap_servers="")


def parse(options: Mapping[str, str]) -> Options:
    """Check the options of a source. Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if (wrong := complaint(name)) is not None:
            raise OptionError(wrong)
    servers = given.get("kafka.bootstrap.servers", "").strip()
    if not servers:
        raise OptionError("option kafka.bootstrap.servers is missing: HOST:PORT[,HOST:PORT…]")
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if given.get(name.lower(), "").strip()]
    if len(chosen) != 1:
        raise OptionError(f"exactly one of subscribe, subscribePattern and assign is needed, not {chosen or 'none'}")
    group_id = _group(given)
    starting, fallback = _starting(given)
    if starting == "group" and not group_id:
        raise OptionError("startingOffsets=group needs the option group.id")
    checked = Options(
        bootstrap_servers=servers,
        security=security_of(given),
        topics=_topics(given),
        pattern=_pattern(given.get("subscribepattern")),
        assigned=_assigned(given.get("assign")),
        starting=starting,
        group_fallback=fallback,
        no_match=choice(given, "startingOffsetsByTimestampStrategy", "error", "latest"),
        ending=_ending(given),
        max_offsets_per_trigger=number(given, "maxOffsetsPerTrigger", 1, None),
        min_offsets_per_trigger=number(given, "minOffsetsPerTrigger", 1, None),
        max_trigger_delay_ms=_duration_ms("maxTriggerDelay", given.get("maxtriggerdelay", "15m")),
        min_partitions=number(given, "minPartitions", 1, None),
        max_records_per_partition=number(given, "maxRecordsPerPartition", 1, None),
        fail_on_data_loss=flag(given, "failOnDataLoss", True),
        columns=_columns(given),
        decode=choice(given, "decode", "raw", "consumer_offsets"),
        push_filters=flag(given, "pushFilters", False),
        poll_timeout_ms=number(given, "kafkaConsumer.pollTimeoutMs", 1, DEFAULT.poll_timeout_ms),
        offset_retries=number(given, "fetchOffset.numRetries", 0, DEFAULT.offset_retries),
        offset_retry_ms=number(given, "fetchOffset.retryIntervalMs", 0, DEFAULT.offset_retry_ms),
        group_id=group_id,
        starts_at_group=bool(given.get("group.id")),
        checkpoint=given.get("checkpointlocation", "").strip() or None,
        member=member_options(given),
        client_id=given.get("kafka.client.id", DEFAULT.client_id),
        request_timeout_ms=number(given, "kafka.request.timeout.ms", 1, DEFAULT.request_timeout_ms),
        api_timeout_ms=number(given, "kafka.default.api.timeout.ms", 1, DEFAULT.api_timeout_ms),
        connect_timeout_ms=number(given, "kafka.socket.connection.setup.timeout.ms", 1, DEFAULT.connect_timeout_ms),
        retry_backoff_ms=number(given, "kafka.retry.backoff.ms", 0, DEFAULT.retry_backoff_ms),
        retry_backoff_max_ms=number(given, "kafka.retry.backoff.max.ms", 0, DEFAULT.retry_backoff_max_ms),
        metadata_max_age_ms=number(given, "kafka.metadata.max.age.ms", 0, DEFAULT.metadata_max_age_ms),
        isolation=_isolation(given),
        max_wait_ms=number(given, "kafka.fetch.max.wait.ms", 0, DEFAULT.max_wait_ms),
        partition_fetch_bytes=number(given, "kafka.max.partition.fetch.bytes", 1024, DEFAULT.partition_fetch_bytes),
    )
    if checked.push_filters and checked.decode != "raw":
        raise OptionError("pushFilters goes with decode=raw only")
    least, most = checked.min_offsets_per_trigger, checked.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, which is {most}")
    return checked


def for_stream(options: Mapping[str, str]) -> Options:
    """The options of a streaming read. Raises OptionError, also for options of batch reads only."""
    if flag({name.lower(): value for name, value in options.items()}, "pushFilters", False):
        raise OptionError("pushFilters is for batch reads; Spark gives streams of Python sources no filters")
    given = {name.lower() for name in options}
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if name.lower() in given:
            raise OptionError(f"{name} is for batch reads; a streaming read has no end")
    return parse(options)


def for_batch(options: Mapping[str, str]) -> Options:
    """The options of a batch read. Raises OptionError, also if the read would start at the end or end before its start.

    The limits of micro-batches (such as maxOffsetsPerTrigger) are accepted without effect.
    """
    checked = parse(options)
    if checked.member is not None:
        raise OptionError("groupMode=member is for streaming reads; a batch read commits nothing")
    start, end = checked.starting, checked.ending
    if start == "latest":
        raise OptionError("startingOffsets may not be latest in a batch read: there would be nothing to read")
    _refuse_mark("startingOffsets", start, LATEST, "-1 (latest) in a batch read: there would be nothing to read")
    _refuse_mark("endingOffsets", end, EARLIEST, "-2 (earliest): there would be nothing to read")
    if isinstance(start, ByTimestamp) and isinstance(end, ByTimestamp):
        _refuse_backwards(start.option, start.at, end.option, end.at)
    elif isinstance(start, dict) and isinstance(end, dict):
        _refuse_backwards("startingOffsets", start, "endingOffsets", end)
    return checked


def _refuse_mark(name: str, where: Where | None, mark: int, why: str) -> None:
    if isinstance(where, dict):
        for topic, offsets in where.items():
            for partition, offset in offsets.items():
                if offset == mark:
                    raise OptionError(f"{name} of {topic}-{partition} may not be {why}")


def _refuse_backwards(starting: str, start: int | ByPartition, ending: str, end: int | ByPartition) -> None:
    if not isinstance(start, dict) or not isinstance(end, dict):
        return
    for topic, offsets in start.items():
        for partition, offset in offsets.items():
            until = end.get(topic, {}).get(partition, offset)
            if 0 <= until < offset:
                raise OptionError(f"{starting} of {topic}-{partition} is {offset}, after its {ending}, {until}")


def _group(given: Mapping[str, str]) -> str | None:
    own, kafkas = given.get("group.id", "").strip(), given.get("kafka.group.id", "").strip()
    if own and kafkas and own != kafkas:
        raise OptionError(f"group.id is {own!r} and kafka.group.id is {kafkas!r}; one of them is enough")
    return own or kafkas or None


def _isolation(given: Mapping[str, str]) -> Isolation:
    """`isolation.level`, or `kafka.isolation.level` as in Spark's source."""
    levels: tuple[Isolation, Isolation] = ("read_uncommitted", "read_committed")
    found: list[Isolation] = [
        choice(given, name, *levels) for name in ("isolation.level", "kafka.isolation.level") if name in given
    ]
    if len(set(found)) > 1:
        raise OptionError(f"isolation.level is {found[0]} and kafka.isolation.level is {found[1]}; one is enough")
    return found[0] if found else "read_uncommitted"


def security_of(given: Mapping[str, str]) -> Security:
    """`kafka.security.protocol`, `kafka.ssl.…` and `kafka.sasl.…`, as in Kafka's clients. Raises OptionError."""
    try:
        lower = {name.lower(): value for name, value in given.items()}
        settings = {n.removeprefix("kafka."): value for n, value in lower.items() if n.startswith("kafka.")}
        return Security.of({name: value for name, value in settings.items() if name.startswith(SECURITY)})
    except ValueError as error:
        raise OptionError(f"options kafka.*: {error}") from None


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    with_headers = flag(given, "includeHeaders", False)
    text = given.get("columns")
    if text is None:
        return (*COLUMNS, *HEADERS) if with_headers else tuple(COLUMNS)
    spelled = {name.lower(): name for name in COLUMNS | HEADERS}
    asked = [name.strip() for name in text.split(",") if name.strip()]
    for name in asked:
        if name.lower() not in spelled:
            raise OptionError(f"columns has {name!r}; it takes some of {', '.join(spelled.values())}")
    chosen = tuple(spelled[name.lower()] for name in asked)
    if not chosen or len(set(chosen)) < len(chosen):
        raise OptionError(f"columns is {text!r}; it takes NAME[,NAME…], each name once")
    if with_headers and "headers" not in chosen:
        raise OptionError("includeHeaders is true and columns leaves headers out; columns alone is enough")
    if given.get("decode", "raw").strip().lower() != "raw":
        raise OptionError("columns goes with decode=raw only")
    return chosen


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("subscribe", "")
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if text.strip() and not topics:
        raise OptionError(f"subscribe is {text!r}; it takes TOPIC[,TOPIC…]")
    return topics


def _pattern(text: str | None) -> str | None:
    """A regular expression of Python. Syntax that only Java has is refused, so that it never means something else."""
    if text is None or not text.strip():
        return None
    hint = "the syntax is Python's; of Java's, \\p{…}, \\Q…\\E, (?<name>…) and [a&&b] are not supported"
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # set operations, which Java has and Python may get
        try:
            re.compile(text.strip(), re.ASCII)
        except (re.error, FutureWarning) as error:
            raise OptionError(f"subscribePattern {text!r} is not a regular expression: {error} ({hint})") from None
    return text.strip()


def _assigned(text: str | None) -> dict[str, tuple[int, ...]]:
    if text is None or not text.strip():
        return {}
    try:
        parsed = json.loads(text)
        assigned = {
            topic: tuple(dict.fromkeys(_whole(partition) for partition in partitions))
            for topic, partitions in parsed.items()
        }
    except (ValueError, TypeError, AttributeError):
        assigned = {}
    if not any(assigned.values()):
        raise OptionError(f'assign is {text!r}; it takes JSON like {{"topic":[0,1]}}')
    return assigned


def _starting(given: Mapping[str, str]) -> tuple[Where | None, Fallback]:
    timed = _timed(given, "startingTimestamp", "startingOffsetsByTimestamp")
    text = given.get("startingoffsets")
    word = (text or "").strip().lower()
    if timed is not None:
        return timed, "earliest"
    if text is None:
        return None, "earliest"
    if word in GROUP_WORDS:
        return "group", GROUP_WORDS[word]
    return _where("startingOffsets", text, "earliest, latest, group"), "earliest"


def _ending(given: Mapping[str, str]) -> Where:
    timed = _timed(given, "endingTimestamp", "endingOffsetsByTimestamp")
    if timed is not None:
        return timed
    ending = _where("endingOffsets", given.get("endingoffsets", "latest"), "latest")
    if ending == "earliest":
        raise OptionError("endingOffsets may not be earliest: there would be nothing to read")
    return ending


def _timed(given: Mapping[str, str], one: str, each: str) -> ByTimestamp | None:
    if one.lower() in given:
        text = given[one.lower()].strip()
        if not text.isdigit():
            raise OptionError(f"{one} is {text!r}; it takes milliseconds since 1970")
        return ByTimestamp(int(text), one)
    if each.lower() in given:
        text = given[each.lower()]
        times = _by_partition(text)
        if times is None or any(time < 0 for one_topic in times.values() for time in one_topic.values()):
            raise OptionError(f'{each} is {text!r}; it takes JSON like {{"topic":{{"0":1700000000000}}}}, milliseconds')
        return ByTimestamp(times, each)
    return None


def _where(name: str, text: str, words: str) -> Where:
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    offsets = _by_partition(text)
    if offsets is None:
        raise OptionError(f'{name} is {text!r}; it takes {words} or JSON like {{"topic":{{"0":23,"1":-2}}}}')
    return offsets


def _by_partition(text: str) -> ByPartition | None:
    """Whole numbers by topic and partition; None if the text is something else."""
    try:
        return {
            topic: {int(partition): _whole(number) for partition, number in numbers.items()}
            for topic, numbers in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError):
        return None


def _whole(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError
    return number


def _duration_ms(name: str, text: str) -> int:
    """Milliseconds from a number with a unit, as in Spark: 500ms, 10s, 15m, 1h. Without a unit, milliseconds."""
    found = re.fullmatch(r"([0-9]+)([a-z]*)", text.strip().lower())
    if found is None or (found[2] or "ms") not in UNITS_MS:
        raise OptionError(f"{name} is {text!r}; it takes a whole number and a unit ({', '.join(UNITS_MS)})")
    return int(int(found[1]) * UNITS_MS[found[2] or "ms"])
