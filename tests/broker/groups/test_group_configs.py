"""The configs of GROUP resources: described, changed, refused, kept over restarts, passed to the group's shard."""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import consumer_join
from wire_driver import APPEND, DELETE, GROUP, SET, Connection, Wire

from kohort.config import Config
from kohort.coordinator.settings.config_keys import BOOLEAN, INT, LONG, STRING
from kohort.coordinator.settings.group_settings import GROUP_CONFIGS, SHARE_CONFIGS, SettingsOfGroups
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import alter_configs as full
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.describe_configs import DescribeConfigsResourceResult

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
HOUR = 3_600_000


def described(
    client: Connection, group: str = "g", keys: tuple[str, ...] | None = None, version: int = 4
) -> dict[str, DescribeConfigsResourceResult]:
    result = client.describe_configs(group, GROUP, keys, version)
    assert result.error_code == 0
    return {entry.name: entry for entry in result.configs}


def alter(
    client: Connection, *changes: tuple[str, int, str | None], group: str = "g", **options: Any
) -> tuple[int, str | None]:
    return client.alter_configs(group, GROUP, *changes, **options)


def put(client: Connection, **changes: str) -> None:
    named = {f"consumer.{name.replace('_', '.')}": value for name, value in changes.items()}
    assert alter(client, *((name, SET, value) for name, value in named.items())) == (0, None)


def settings_in(wire: Wire, group: str = "g") -> Any:
    """The settings in the shard that owns the group."""
    return wire.shard(group).settings.of(group)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_missing_group_has_the_servers_settings(client: Connection, version: int) -> None:
    entries = described(client, version=version)
    assert list(entries) == [name for name in sorted(GROUP_CONFIGS) if name not in SHARE_CONFIGS]
    assert all(
        entry.config_source == 5 and not entry.read_only and not entry.is_sensitive for entry in entries.values()
    )
    values = {SESSION: "45000", INTERVAL: "5000", "consumer.assignment.interval.ms": "1000", "consumer.assignor": ""}
    assert {name: entries[name].value for name in values} == values
    if version >= 3:
        assert all(entry.documentation for entry in entries.values())
        types = {SESSION: INT, "consumer.assignor": STRING, "consumer.hold.until.timestamp.ms": LONG}
        types["consumer.heartbeat.hold.enable"] = BOOLEAN
        assert {name: entries[name].config_type for name in types} == types
    assert list(described(client, keys=(SESSION,), version=version)) == [SESSION]


def test_where_a_value_comes_from() -> None:
    client = Wire(group_consumer_session_timeout_ms=50_000).connect()
    assert alter(client, (SESSION, SET, "46000"), ("consumer.assignor", SET, "range")) == (0, None)
    entry = described(client)[SESSION]
    assert (entry.value, entry.config_source) == ("46000", 8)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        (SESSION, "46000", 8),
        (f"group.{SESSION}", "50000", 4),
        (f"group.{SESSION}", "45000", 5),
    ]
    assert [(s.name, s.value, s.source) for s in described(client)["consumer.assignor"].synonyms] == [
        ("consumer.assignor", "range", 8)
    ]
    other = described(client, "other")
    assert (other[SESSION].value, other[SESSION].config_source) == ("50000", 4)
    assert [(s.name, s.value, s.source) for s in other["consumer.assignor"].synonyms] == [("consumer.assignor", "", 5)]


def test_a_change_reaches_the_shard_and_lasts(wire: Wire, client: Connection) -> None:
    put(client, session_timeout_ms="46000", assignor="range", handover_max_partitions="2")
    for now in (wire, wire.restarted()):
        settings = settings_in(now)
        assert (settings.session_timeout_ms, settings.assignor) == (46_000, "range")
        assert settings.handover_max_partitions == 2
        assert settings_in(now, "other") == SettingsOfGroups(Config()).of("other")
        assert described(now.connect())[SESSION].value == "46000"
        wire = now
    client = wire.connect()
    assert alter(client, (SESSION, DELETE, None), ("consumer.assignor", DELETE, None)) == (0, None)
    assert settings_in(wire).session_timeout_ms == 45_000
    assert alter(client, ("consumer.handover.max.partitions", DELETE, None)) == (0, None)
    for now in (wire, wire.restarted()):
        assert settings_in(now) == SettingsOfGroups(Config()).of("g")


def test_all_configs_are_replaced_by_the_older_api(wire: Wire, client: Connection) -> None:
    put(client, session_timeout_ms="46000")
    configs = (full.AlterableConfig(name=INTERVAL, value="6000"),)
    resource = full.AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=configs)
    [response] = client.ask(full.AlterConfigsRequest(resources=(resource,), validate_only=False), 2).responses
    assert response.error_code == 0
    entries = described(client)
    assert (entries[SESSION].config_source, entries[INTERVAL].value) == (5, "6000")
    assert settings_in(wire).heartbeat_interval_ms == 6_000


def test_deleting_a_group_leaves_its_configs(wire: Wire, client: Connection) -> None:
    """As in Kafka, where the controller owns the configs and the coordinator the groups."""
    put(client, session_timeout_ms="46000")
    client.ask(DeleteGroupsRequest(groups_names=("g",)), 2)
    assert described(client)[SESSION].value == "46000"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (SESSION, "soon", "a whole number"),
        (SESSION, "44999", "between 45000 and 60000 (group.consumer.min.session.timeout.ms"),
        (SESSION, "60001", "between 45000 and 60000"),
        (INTERVAL, "4999", "between 5000 and 15000"),
        (INTERVAL, "15001", "between 5000 and 15000"),
        ("consumer.assignment.interval.ms", "-1", "between 0"),
        ("consumer.assignment.interval.ms", "15001", "between 0 and 15000"),
        ("consumer.assignor", "sticky", "no such assignor"),
        ("consumer.initial.rebalance.delay.ms", "600001", "between 0 and 600000"),
        ("consumer.heartbeat.hold.enable", "yes", "true or false"),
        ("consumer.handover.max.partitions", "-1", "between 0"),
        ("consumer.handover.interval.ms", "0", "between 1"),
        ("consumer.ownership.fencing.enable", "1", "true or false"),
        ("consumer.hold.until.timestamp.ms", "5", "it is over"),
        ("consumer.hold.until.members", "x", "a whole number"),
        ("consumer.hold.dead.members", "", "true or false"),
        ("group.consumer.session.timeout.ms", "46000", "no group config"),
        ("share.session.timeout.ms", "46000", "no group config"),
        ("retention.ms", "1", "no group config"),
    ],
)
def test_bad_values_and_names_change_nothing(client: Connection, name: str, value: str, words: str) -> None:
    put(client, session_timeout_ms="46000")
    before = described(client)
    error, message = alter(client, ("consumer.assignment.interval.ms", SET, "7"), (name, SET, value))
    if name == "consumer.assignment.interval.ms":
        assert error == ErrorCode.INVALID_REQUEST  # twice in one request
        error, message = alter(client, (name, SET, value))
    assert error == ErrorCode.INVALID_CONFIG
    assert message
    assert name in message
    assert words in message
    assert described(client) == before


def test_values_are_stored_in_their_canonical_form(client: Connection) -> None:
    put(client, session_timeout_ms=" 00046000" + " " * 1_000, heartbeat_hold_enable="FALSE ", assignor=" range")
    found = {name: entry.value for name, entry in described(client).items() if entry.config_source == 8}
    assert found == {SESSION: "46000", "consumer.heartbeat.hold.enable": "false", "consumer.assignor": "range"}


def test_requests_that_make_no_sense(client: Connection) -> None:
    assert alter(client, (SESSION, SET, None))[0] == ErrorCode.INVALID_REQUEST
    assert alter(client, (SESSION, APPEND, "1"))[0] == ErrorCode.INVALID_CONFIG
    assert alter(client, ("nope", DELETE, None))[0] == ErrorCode.INVALID_CONFIG
    assert alter(client, ("consumer.asignor", SET, "range")) == (
        ErrorCode.INVALID_CONFIG,
        "There is no group config consumer.asignor; did you mean consumer.assignor?",
    )
    assert alter(client, (SESSION, SET, "46000"), group="")[0] == ErrorCode.INVALID_REQUEST
    assert alter(client, (SESSION, SET, "46000"), group="g" * 8_001)[0] == ErrorCode.INVALID_REQUEST
    assert alter(client, (SESSION, SET, "46000"), group="g" * 8_000)[0] == ErrorCode.POLICY_VIOLATION
    assert alter(client, (SESSION, SET, "46000"), group="g" * 256)[0] == 0


def test_only_asking_changes_nothing(wire: Wire, client: Connection) -> None:
    assert alter(client, (SESSION, SET, "46000"), validate_only=True) == (0, None)
    assert alter(client, (SESSION, SET, "1"), validate_only=True)[0] == ErrorCode.INVALID_CONFIG
    assert described(client)[SESSION].config_source == 5
    assert not wire.broker.state.catalog.group_configs


def test_a_session_is_longer_than_the_interval() -> None:
    client = Wire(group_consumer_min_session_timeout_ms=1_000).connect()
    error, message = alter(client, (SESSION, SET, "5000"))
    assert error == ErrorCode.INVALID_CONFIG
    assert message == f"{SESSION} (5000) must be more than {INTERVAL} (5000)"
    assert alter(client, (SESSION, SET, "6000"), (INTERVAL, SET, "5500")) == (0, None)
    assert alter(client, (SESSION, SET, "5400"))[0] == ErrorCode.INVALID_CONFIG
    assert alter(client, (INTERVAL, DELETE, None), (SESSION, SET, "5400")) == (0, None)


def test_a_hold_has_an_end_that_is_not_far(wire: Wire, client: Connection) -> None:
    name = "consumer.hold.until.timestamp.ms"
    assert alter(client, (name, SET, str(wire.now + HOUR)), ("consumer.hold.until.members", SET, "3")) == (0, None)
    assert (settings_in(wire).hold_until_timestamp_ms, settings_in(wire).hold_until_members) == (wire.now + HOUR, 3)
    error, message = alter(client, (name, SET, str(wire.now + 24 * HOUR + 1)))
    assert error == ErrorCode.INVALID_CONFIG
    assert "group.consumer.hold.max.ms" in (message or "")
    assert alter(client, (name, SET, "0")) == (0, None)


def test_unchanged_values_are_not_checked_again(wire: Wire, client: Connection) -> None:
    """After a hold has ended, an assignor was removed or a bound moved, other configs can still be changed."""
    put(client, hold_until_timestamp_ms=str(wire.now + HOUR), session_timeout_ms="60000")
    wire.advance(2 * HOUR)
    assert alter(client, ("consumer.assignor", SET, "range")) == (0, None)
    narrower = wire.restarted(group_consumer_max_session_timeout_ms=50_000)
    assert settings_in(narrower).session_timeout_ms == 50_000, "beyond the bound counts as the bound"
    client = narrower.connect()
    assert alter(client, ("consumer.assignor", SET, "lag")) == (0, None)
    assert alter(client, (SESSION, SET, "55000"))[0] == ErrorCode.INVALID_CONFIG
    assert described(client)[SESSION].value == "60000"


def test_how_many_groups_may_be_configured_is_limited() -> None:
    wire = Wire(group_max_configured=2)
    client = wire.connect()
    for group in ("a", "b"):
        assert alter(client, (SESSION, SET, "46000"), group=group) == (0, None)
    error, message = alter(client, (SESSION, SET, "46000"), group="c")
    assert error == ErrorCode.POLICY_VIOLATION
    assert "group.max.configured" in (message or "")
    assert alter(client, (SESSION, SET, "47000"), group="b") == (0, None)
    assert alter(client, (SESSION, DELETE, None), group="a") == (0, None)
    assert alter(client, (SESSION, SET, "46000"), group="c") == (0, None)


def test_stored_texts_that_cannot_be_read_count_as_not_set() -> None:
    settings = SettingsOfGroups(Config())
    settings.put("g", {SESSION: "soon", "consumer.later": "1", INTERVAL: "6000"})
    assert settings.of("g").heartbeat_interval_ms == 6_000
    assert settings.of("g").session_timeout_ms == 45_000
    settings.put("g", {INTERVAL: "15000"})
    assert settings.of("g").heartbeat_interval_ms == 15_000
    shorter = SettingsOfGroups(Config(group_consumer_session_timeout_ms=12_000))
    shorter.put("g", {INTERVAL: "15000"})
    assert shorter.of("g").heartbeat_interval_ms == 4_000, "nobody would live to its next heartbeat"
    settings.put("g", {"consumer.later": "1"})
    assert settings.of("g") is settings.of("other")


def joins(client: Connection, member: str) -> int:
    answer = client.ask(consumer_join(member), 1)
    assert answer.error_code == 0
    return sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)


def test_a_hold_that_enough_members_ended_is_over_for_good() -> None:
    wire = Wire(group_consumer_assignment_interval_ms=0)
    client = wire.connect()
    client.create_topic("t", 4)
    put(client, hold_until_timestamp_ms=str(wire.now + HOUR), hold_until_members="2", session_timeout_ms="50000")
    assert joins(client, "a") == 0
    assert described(client)["consumer.hold.until.members"].config_source == 8
    assert joins(client, "b") == 2
    for now in (wire, wire.restarted()):
        own = {name: entry.value for name, entry in described(now.connect()).items() if entry.config_source == 8}
        assert own == {SESSION: "50000"}
        assert settings_in(now).hold_until_timestamp_ms == 0
