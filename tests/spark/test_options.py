"""Options of the source, without Spark."""

from __future__ import annotations

import pickle

import pytest

from kohort.client.sasl import Plain
from kohort.spark.options import OptionError, parse

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


MEMBER = {**BASE, "group.id": "g", "groupMode": "member"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**MEMBER, "groupMode": "reader"}, "groupMode is 'reader'; it takes committer or member"),
        ({**BASE, "groupMode": "member"}, "needs the option group.id"),
        ({**BASE, "kafka.group.instance.id": "a"}, r"kafka\.group\.instance\.id needs groupMode=member"),
        ({**MEMBER, "subscribe": "", "assign": '{"a":[0]}'}, "not with the option assign"),
        ({**MEMBER, "startingOffsets": '{"a":{"0":1}}'}, "startingOffsets takes earliest or latest"),
        ({**MEMBER, "kafka.group.protocol": "new"}, "classic, consumer or auto"),
        ({**MEMBER, "kafka.partition.assignment.strategy": "mine"}, "no assignor 'mine'"),
        ({**MEMBER, "kafka.session.timeout.ms": "-1"}, "milliseconds"),
        ({**MEMBER, "kafka.heartbeat.interval.ms": "45000"}, "below kafka.session.timeout.ms"),
        ({"subscribe": "a"}, r"kafka\.bootstrap\.servers is missing"),
        ({"kafka.bootstrap.servers": "h:1"}, "exactly one of subscribe"),
        ({**BASE, "assign": '{"a":[0]}'}, "exactly one of subscribe"),
        ({**BASE, "startingOffset": "earliest"}, "unknown option startingoffset"),
        ({**BASE, "startingOffsets": "soon"}, "it takes earliest, latest, group or JSON"),
        ({**BASE, "startingOffsets": "group"}, "needs the option group.id"),
        ({**BASE, "endingOffsets": "earliest"}, "endingOffsets may not be earliest"),
        ({**BASE, "maxOffsetsPerTrigger": "0"}, "whole number from 1"),
        ({**BASE, "failOnDataLoss": "maybe"}, "true or false"),
        ({**BASE, "kafka.linger.ms": "1"}, "has no such setting"),
        ({**BASE, "kafka.security.protocol": "TLS"}, "security.protocol is 'TLS'"),
        ({**BASE, "kafka.sasl.mechanism": "PLAIN"}, "security.protocol is not"),
        ({**BASE, "startingTimestamp": "1"}, "does not yet"),
        ({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("}, "no regular expression"),
        ({"kafka.bootstrap.servers": "h:1", "assign": "[1]"}, "assign is"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(options)


def test_security_in_kafkas_names() -> None:
    secured = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    options = parse({**BASE, **secured, "kafka.sasl.username": "alice", "kafka.sasl.password": "hunter2"})
    assert options.security.sasl == Plain("alice", "hunter2")
    assert "hunter2" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options  # as it goes to the executors
