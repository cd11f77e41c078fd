"""Options of the source, without Spark."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a"}, r"kafka\.bootstrap\.servers is missing"),
        ({"kafka.bootstrap.servers": "h:1"}, "exactly one of subscribe"),
        ({**BASE, "assign": '{"a":[0]}'}, "exactly one of subscribe"),
        ({**BASE, "startingOffset": "earliest"}, "unknown option startingoffset"),
        ({**BASE, "startingOffsets": "soon"}, "it takes earliest, latest, group or JSON"),
        ({**BASE, "startingOffsets": "group"}, "needs the option group.id"),
        ({**BASE, "endingOffsets": "earliest"}, "endingOffsets may not be earliest"),
        ({**BASE, "maxOffsetsPerTrigger": "0"}, "whole number from 1"),
        ({**BASE, "failOnDataLoss": "maybe"}, "true or false"),
        ({**BASE, "kafka.security.protocol": "SSL"}, "has no such setting"),
        ({**BASE, "startingTimestamp": "1"}, "does not yet"),
        ({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("}, "no regular expression"),
        ({"kafka.bootstrap.servers": "h:1", "assign": "[1]"}, "assign is"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(options)
