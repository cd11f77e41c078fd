"""Options of the source, without Spark."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest

from kohort.client.security.sasl import Plain
from kohort.spark.options.names import OWN, REFUSED, SPARK
from kohort.spark.options.source import ByTimestamp, for_batch, for_stream, parse
from kohort.spark.options.values import OptionError

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a,b"}


def test_names_are_case_insensitive_and_values_typed() -> None:
    options = parse({**BASE, "STARTINGOFFSETS": '{"a":{"0":5,"1":-2}}', "MaxOffsetsPerTrigger": "10"})
    assert options.topics == ("a", "b")
    assert options.starting == {"a": {0: 5, 1: -2}}
    assert options.max_offsets_per_trigger == 10


def test_the_defaults_follow_sparks_source_unless_a_group_is_given() -> None:
    assert parse(BASE).starting_or("latest") == "latest"
    assert parse(BASE).starting_or("earliest") == "earliest"
    assert parse({**BASE, "group.id": "g"}).starting_or("latest") == "group"
    assert parse({**BASE, "group.id": "g", "startingOffsets": "earliest"}).starting_or("latest") == "earliest"


def test_a_member_says_how_it_takes_part() -> None:
    assert parse({**BASE, "group.id": "g"}).member is None
    given = {
        "group.id": "g",
        "groupMode": "Member",
        "kafka.group.protocol": "classic",
        "kafka.group.instance.id": "driver-1",
        "kafka.session.timeout.ms": "6000",
        "kafka.max.poll.interval.ms": "60000",
        "kafka.partition.assignment.strategy": "org.apache.kafka.clients.consumer.StickyAssignor,roundrobin",
    }
    member = parse({**BASE, **given}).member
    assert member is not None
    assert (member.protocol, member.instance_id, member.assignors) == ("classic", "driver-1", ("sticky", "roundrobin"))
    assert (member.session_timeout_ms, member.heartbeat_interval_ms, member.rebalance_timeout_ms) == (6000, 2000, 60000)


def test_the_isolation_level_has_two_names() -> None:
    assert parse(BASE).isolation == "read_uncommitted"
    for name in ("isolation.level", "kafka.isolation.level", "Isolation.Level"):
        assert parse({**BASE, name: "read_committed"}).isolation == "read_committed"


def test_columns_are_some_of_the_sources() -> None:
    assert parse(BASE).columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert parse({**BASE, "includeHeaders": "true"}).columns[-1] == "headers"
    assert parse({**BASE, "columns": "Value, OFFSET,headers,timestamptype"}).columns == (
        "value",
        "offset",
        "headers",
        "timestampType",
    )
    for given, why in (
        ({"columns": "value,ofset"}, "columns has 'ofset'; it takes some of key, value"),
        ({"columns": " , "}, "columns is ' , '; it takes NAME"),
        ({"columns": "value,value"}, "each name once"),
        ({"columns": "value", "includeHeaders": "true"}, "columns leaves headers out"),
        ({"columns": "value", "decode": "consumer_offsets"}, "columns goes with decode=raw only"),
    ):
        with pytest.raises(OptionError, match=why):
            parse(BASE | given)


def test_filters_are_pushed_into_batch_reads() -> None:
    assert not parse(BASE).push_filters
    assert for_batch({**BASE, "pushFilters": "true"}).push_filters
    with pytest.raises(OptionError, match="pushFilters is for batch reads"):
        for_stream({**BASE, "pushfilters": "true"})
    with pytest.raises(OptionError, match="pushFilters goes with decode=raw only"):
        parse({**BASE, "pushFilters": "true", "decode": "consumer_offsets"})


MEMBER = {**BASE, "group.id": "g", "groupMode": "member"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**MEMBER, "groupMode": "reader"}, "groupMode is 'reader'; it takes committer or member"),
        ({**BASE, "groupMode": "member"}, "needs the option group.id"),
        ({**BASE, "kafka.group.instance.id": "a"}, r"kafka\.group\.instance\.id needs groupMode=member"),
        ({**MEMBER, "subscribe": "", "assign": '{"a":[0]}'}, "does not go with the option assign"),
        ({**MEMBER, "startingOffsets": '{"a":{"0":1}}'}, "startingOffsets takes earliest or latest"),
        ({**MEMBER, "startingTimestamp": "1"}, "not startingTimestamp"),
        ({**MEMBER, "kafka.group.protocol": "new"}, "auto, classic or consumer"),
        ({**MEMBER, "kafka.partition.assignment.strategy": "mine"}, "no assignor 'mine'"),
        ({**MEMBER, "kafka.session.timeout.ms": "-1"}, "whole number from 1"),
        ({**MEMBER, "kafka.heartbeat.interval.ms": "45000"}, "below kafka.session.timeout.ms"),
        ({"subscribe": "a"}, r"kafka\.bootstrap\.servers is missing"),
        ({"kafka.bootstrap.servers": "h:1"}, "exactly one of subscribe"),
        ({**BASE, "assign": '{"a":[0]}'}, "exactly one of subscribe"),
        ({**BASE, "SUBSCRIBEPATTERN": "a"}, r"not \['subscribe', 'subscribePattern'\]"),
        ({**BASE, "startingOffset": "earliest"}, "unknown option startingoffset; did you mean startingOffsets"),
        ({**BASE, "startingOffsets": "soon"}, "it takes earliest, latest, group or JSON"),
        ({**BASE, "startingOffsets": "group"}, "needs the option group.id"),
        ({**BASE, "endingOffsets": "earliest"}, "endingOffsets may not be earliest"),
        ({**BASE, "maxOffsetsPerTrigger": "0"}, "whole number from 1"),
        ({**BASE, "failOnDataLoss": "maybe"}, "true or false"),
        ({**BASE, "kafka.fetch.max.wait": "1"}, r"no such setting; did you mean kafka\.fetch\.max\.wait\.ms\?"),
        ({**BASE, "kafka.schema.registry.url": "x"}, "Kafka's consumer has no such setting$"),
        ({**BASE, "kafka.auto.offset.reset": "latest"}, "is not supported: startingOffsets says where"),
        ({**BASE, "kafka.enable.auto.commit": "true"}, "is not supported: only what Spark has finished"),
        ({**BASE, "kafka.key.deserializer": "x"}, "is not supported: keys are bytes"),
        ({**BASE, "kafka.linger.ms": "1"}, "has no such setting"),
        ({**BASE, "kafka.security.protocol": "TLS"}, "security.protocol is 'TLS'"),
        ({**BASE, "kafka.sasl.mechanism": "PLAIN"}, "security.protocol is not"),
        ({**BASE, "startingTimestamp": "-1"}, "startingTimestamp is '-1'; it takes milliseconds"),
        ({**BASE, "startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "startingOffsetsByTimestamp is"),
        ({**BASE, "startingOffsetsByTimestampStrategy": "earliest"}, "it takes error or latest"),
        ({**BASE, "startingOffsets": '{"a":{"0":1.5}}'}, "it takes earliest, latest, group or JSON"),
        ({**BASE, "minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}, "minOffsetsPerTrigger is 11, above"),
        (
            {**BASE, "maxTriggerDelay": "15 minutes"},
            "maxTriggerDelay is '15 minutes'; it takes a whole number and a unit",
        ),
        ({**BASE, "group.id": "a", "kafka.group.id": "b"}, "one of them is enough"),
        (
            {**BASE, "isolation.level": "serializable"},
            "isolation.level is 'serializable'; it takes",
        ),
        (
            {**BASE, "isolation.level": "read_committed", "kafka.isolation.level": "read_uncommitted"},
            r"isolation\.level is read_committed and kafka\.isolation\.level is read_uncommitted",
        ),
        ({"kafka.bootstrap.servers": "h:1", "subscribe": ","}, "subscribe is ','"),
        ({"kafka.bootstrap.servers": "h:1", "subscribePattern": r"\p{L}+"}, "of Java's, .* are not supported"),
        ({"kafka.bootstrap.servers": "h:1", "subscribePattern": "[a-z&&[^b]]"}, "of Java's, .* are not supported"),
        ({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("}, "not a regular expression"),
        ({"kafka.bootstrap.servers": "h:1", "assign": "[1]"}, "assign is"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(options)


def test_a_time_for_all_comes_before_a_time_for_each_and_both_before_offsets() -> None:
    each, offsets = '{"a":{"0":7}}', '{"a":{"0":1}}'
    given = {**BASE, "startingOffsets": offsets, "endingOffsets": offsets}
    assert parse(given).starting == {"a": {0: 1}}
    given |= {"startingOffsetsByTimestamp": each, "endingOffsetsByTimestamp": each}
    assert parse(given).starting == ByTimestamp({"a": {0: 7}}, "startingOffsetsByTimestamp")
    assert parse(given).ending == ByTimestamp({"a": {0: 7}}, "endingOffsetsByTimestamp")
    given |= {"startingTimestamp": "5", "endingTimestamp": "6"}
    assert parse(given).starting == ByTimestamp(5, "startingTimestamp")
    assert parse(given).ending == ByTimestamp(6, "endingTimestamp")


def test_kafkas_group_id_names_the_group_and_leaves_the_start_as_it_is_in_sparks_source() -> None:
    options = parse({**BASE, "kafka.group.id": "g"})
    assert (options.group_id, options.starting_or("latest")) == ("g", "latest")
    options = parse({**BASE, "kafka.group.id": "g", "startingOffsets": "Group-or-Latest"})
    assert (options.starting, options.group_fallback) == ("group", "latest")


def test_settings_that_tune_javas_client_are_accepted() -> None:
    options = parse(
        {
            **BASE,
            "kafka.max.poll.records": "1",
            "kafka.session.timeout.ms": "6000",
            "kafka.request.timeout.ms": "7000",
            "kafka.default.api.timeout.ms": "8000",
            "groupIdPrefix": "mine",
            "kafkaConsumer.pollTimeoutMs": "9000",
            "fetchOffset.numRetries": "5",
        }
    )
    assert (options.request_timeout_ms, options.api_timeout_ms, options.poll_timeout_ms) == (7000, 8000, 9000)
    assert (options.offset_retries, options.offset_retry_ms) == (5, 1000)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("15m", 900_000), ("2min", 120_000), ("500", 500), ("500MS", 500), ("1h", 3_600_000), (" 3s ", 3_000), ("9us", 0)],
)
def test_durations_are_as_spark_writes_them(text: str, milliseconds: int) -> None:
    assert parse({**BASE, "maxTriggerDelay": text}).max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets may not be latest in a batch read"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets of a-0 may not be -1"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets of a-0 may not be -2"),
        (
            {"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":4}}'},
            "startingOffsets of a-0 is 5, after its endingOffsets, 4",
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":5}}', "endingOffsetsByTimestamp": '{"a":{"0":4}}'},
            "startingOffsetsByTimestamp of a-0 is 5, after its endingOffsetsByTimestamp, 4",
        ),
    ],
)
def test_a_batch_read_must_have_something_to_read(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        for_batch({**BASE, **options})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is for batch reads"):
        for_stream({**BASE, name.lower(): "latest"})  # as Spark hands it over


def test_the_message_stands_above_the_traceback() -> None:
    """Spark shows the traceback, after it has set the error's cause to None."""
    with pytest.raises(OptionError) as failed:
        parse({**BASE, "subscribePattern": "a"})
    failed.value.__cause__ = None
    first = next(traceback.TracebackException.from_exception(failed.value, compact=True).format())
    assert first.startswith("kohort.spark.options.values.OptionError: exactly one of subscribe")


def test_security_in_kafkas_names() -> None:
    secured = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    options = parse({**BASE, **secured, "kafka.sasl.username": "alice", "kafka.sasl.password": "hunter2"})
    assert options.security.sasl == Plain("alice", "hunter2")
    assert "hunter2" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options  # as it goes to the executors


def test_the_page_has_every_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "spark-source.md").read_text(encoding="utf-8")
    names = [*SPARK, *OWN, *(f"kafka.{name}" for name in REFUSED)]
    assert [name for name in names if f"`{name}`" not in page] == []
