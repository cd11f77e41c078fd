"""Configs of brokers that change while the server runs."""

from __future__ import annotations

import pytest
from wire_driver import APPEND, BROKER, DELETE, SET, TOPIC, Connection, Wire, batch, produce_request

from kohort.config import DYNAMIC, preset
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import alter_configs as full
from kohort.wire.schemas.describe_configs import DescribeConfigsResourceResult

PARTITIONS = 1
OF_TOPIC, OF_BROKER, OF_ALL, STATIC, DEFAULT = 1, 2, 3, 4, 5
"""Sources of a value."""


def described(client: Connection, name: str, kind: int, key: str) -> DescribeConfigsResourceResult:
    (entry,) = client.describe_configs(name, kind, keys=(key,)).configs
    return entry


def values(client: Connection, name: str, kind: int, key: str) -> list[tuple[str | None, int]]:
    """The value in force and those behind it, with their sources."""
    entry = described(client, name, kind, key)
    assert (entry.value, entry.config_source) == (entry.synonyms[0].value, entry.synonyms[0].source)
    return [(synonym.value, synonym.source) for synonym in entry.synonyms]


def alter(
    client: Connection, name: str, *changes: tuple[str, int, str | None], **options: bool
) -> tuple[int, str | None]:
    return client.alter_configs(name, BROKER, *changes, **options)


def error_of_batch(client: Connection, topic: str, size: int) -> int:
    response = client.ask(produce_request(topic, batch(b"x" * size)), 9)
    return int(response.responses[0].partition_responses[0].error_code)


def test_values_of_one_and_of_all_brokers_last() -> None:
    wire = Wire(brokers=2, message_max_bytes=5_000)
    client = wire.connect()
    key = "message.max.bytes"
    assert values(client, "1", BROKER, key) == [("5000", STATIC), ("1048588", DEFAULT)]
    assert client.describe_configs("", BROKER).configs == ()
    assert alter(client, "", (key, SET, "3000")) == (0, None)
    assert alter(client, "1", (key, SET, " 2000 ")) == (0, None)
    of_all = [("3000", OF_ALL), ("5000", STATIC), ("1048588", DEFAULT)]
    for current in (client, wire.restarted(message_max_bytes=5_000).connect()):
        assert values(current, "1", BROKER, key) == [("2000", OF_BROKER), *of_all]
        assert values(current, "2", BROKER, key) == of_all
        (entry,) = current.describe_configs("", BROKER).configs
        assert (entry.name, entry.value, entry.config_source, entry.read_only) == (key, "3000", OF_ALL, False)
        assert [synonym.source for synonym in entry.synonyms] == [OF_ALL]
    assert alter(current, "1", (key, DELETE, None)) == (0, None)
    assert alter(current, "", (key, DELETE, None)) == (0, None)
    again = current.wire.restarted(message_max_bytes=5_000).connect()
    assert values(again, "1", BROKER, key) == [("5000", STATIC), ("1048588", DEFAULT)]


def test_topics_follow_the_broker_that_leads_them() -> None:
    wire = Wire(brokers=2)
    client = wire.connect()
    client.create_topic("t", partitions=2)
    client.create_topic("own", max_message_bytes="700")
    leaders = [assignment.leader for assignment in wire.broker.state.catalog.topics["t"].partitions]
    assert sorted(leaders) == [1, 2]
    alter(client, "", ("message.max.bytes", SET, "2000"))
    alter(client, "2", ("message.max.bytes", SET, "500"), ("log.cleanup.policy", SET, "compact"))
    for current in (wire, wire.restarted()):
        state = current.broker.state
        partitions = dict(zip(leaders, state.topics.partitions[state.catalog.topics["t"].topic_id], strict=True))
        assert (partitions[1].settings.max_message_bytes, partitions[1].settings.compact) == (2000, False)
        assert (partitions[2].settings.max_message_bytes, partitions[2].settings.compact) == (500, True)
        own = state.topics.partitions[state.catalog.topics["own"].topic_id][0]
        assert own.settings.max_message_bytes == 700
    client = current.connect()
    assert values(client, "t", TOPIC, "max.message.bytes") == [("2000", OF_ALL), ("1048588", DEFAULT)]
    assert [source for _, source in values(client, "own", TOPIC, "max.message.bytes")] == [OF_TOPIC, OF_ALL, DEFAULT]
    client.create_topic("later")
    assert current.broker.state.catalog.topics["later"].settings.max_message_bytes == 2000


def test_a_change_holds_from_the_next_request_on(client: Connection) -> None:
    assert error_of_batch(client, "t", 1000) == ErrorCode.NONE
    assert alter(client, "1", ("message.max.bytes", SET, "500")) == (0, None)
    assert error_of_batch(client, "t", 1000) == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(client, "1", ("message.max.bytes", DELETE, None)) == (0, None)
    assert error_of_batch(client, "t", 1000) == ErrorCode.NONE


def test_a_list_grows(client: Connection) -> None:
    assert alter(client, "", ("log.cleanup.policy", APPEND, "compact")) == (0, None)
    assert described(client, "t", TOPIC, "cleanup.policy").value == "delete,compact"


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_validation_changes_nothing(client: Connection, wire: Wire, validate_only: bool) -> None:
    version = wire.broker.state.topics.version
    assert alter(client, "", ("log.level", SET, "debug"), validate_only=validate_only) == (0, None)
    assert (wire.broker.state.topics.version == version) is validate_only
    assert (wire.broker.state.log_level == "info") is validate_only


@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        (
            (("message.max.bytes", SET, "1"), ("num.partitions", SET, "3"), ("broker.id", SET, "3")),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [broker.id, num.partitions]",
        ),
        (
            (("log.retention.hours", SET, "3"),),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [log.retention.hours]",
        ),
        ((("message.max.bytes", SET, "many"),), ErrorCode.INVALID_REQUEST, "it takes a whole number"),
        ((("max.connections", SET, "0"),), ErrorCode.INVALID_REQUEST, "the least is 1"),
        ((("max.connections.per.ip", SET, "0"),), ErrorCode.INVALID_REQUEST, "nobody could connect"),
        ((("max.connections.per.ip.overrides", SET, "a:1"),), ErrorCode.INVALID_REQUEST, "takes addresses alone"),
        ((("max.connections.per.ip.overrides", SET, "::1"),), ErrorCode.INVALID_REQUEST, "it takes ADDRESS:CONN"),
        ((("log.cleaner.min.cleanable.ratio", SET, "nan"),), ErrorCode.INVALID_REQUEST, "the least is 0"),
        ((("log.level", SET, "loud"),), ErrorCode.INVALID_REQUEST, "debug, info, warning, error"),
        ((("message.max.byte", SET, "1"),), ErrorCode.INVALID_CONFIG, "did you mean message.max.bytes?"),
        ((("message.max.bytes", APPEND, "1"),), ErrorCode.INVALID_CONFIG, "is not a list"),
    ],
)
def test_a_refused_change_changes_nothing(
    client: Connection, wire: Wire, name: str, changes: tuple[tuple[str, int, str]], error: ErrorCode, text: str
) -> None:
    version = wire.broker.state.topics.version
    refused, message = alter(client, name, *changes)
    assert refused == error
    assert text in str(message)
    assert wire.broker.state.topics.version == version


def test_the_older_request_replaces_all(client: Connection) -> None:
    alter(client, "", ("log.retention.ms", SET, "5"), ("message.max.bytes", SET, "7"))
    configs = (full.AlterableConfig(name="log.retention.ms", value="6"),)
    resource = full.AlterConfigsResource(resource_type=BROKER, resource_name="", configs=configs)
    response = client.ask(full.AlterConfigsRequest(resources=(resource,), validate_only=False), 2)
    assert response.responses[0].error_code == 0
    assert [(entry.name, entry.value) for entry in client.describe_configs("", BROKER).configs] == [
        ("log.retention.ms", "6")
    ]


def test_the_log_level_is_the_most_detailed_of_the_brokers() -> None:
    wire = Wire(brokers=2)
    client = wire.connect()
    for broker, level, in_force in (("", "error", "error"), ("2", "debug", "debug"), ("1", "warning", "debug")):
        assert alter(client, broker, ("log.level", SET, level)) == (0, None)
        assert wire.broker.state.log_level == in_force
    assert wire.restarted().broker.state.log_level == "debug"


def test_all_dynamic_settings_can_be_set(client: Connection) -> None:
    entries = {entry.name: entry for entry in client.describe_configs("1", BROKER).configs}
    changes = [(name, SET, entries[name].value) for name in sorted(DYNAMIC)]
    assert alter(client, "1", *changes) == (0, None)
    after = {entry.name: entry for entry in client.describe_configs("1", BROKER).configs}
    for name in DYNAMIC:
        assert (after[name].value, after[name].config_source) == (entries[name].value, OF_BROKER)


def test_a_strict_server_answers_for_the_asked_broker_alone() -> None:
    """As in Kafka, where clients send what is about one broker to that broker."""
    wire = Wire(brokers=2, **preset({"compatibility": "kafka"}))
    of_first = wire.connect(1)
    refused = (ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2")
    for name, error in (("1", (0, None)), ("2", refused), ("", (0, None))):
        described = of_first.describe_configs(name, BROKER)
        assert (described.error_code, described.error_message) == error
        assert alter(of_first, name, ("message.max.bytes", SET, "2000")) == error
