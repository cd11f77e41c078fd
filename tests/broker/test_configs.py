"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

import pytest
from wire_driver import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, Connection, Wire, batch, produce_request

from kohort.broker.topics.catalog import JOURNAL_TOPIC, OFFSETS_TOPIC
from kohort.broker.topics.topic_configs import TOPIC_CONFIGS
from kohort.config import DYNAMIC, SETTINGS
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import alter_configs as full
from kohort.wire.schemas import incremental_alter_configs as incremental
from kohort.wire.schemas.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResult

PARTITIONS = 1


def describe(client: Connection, name: str = "t", kind: int = TOPIC, **options: Any) -> DescribeConfigsResult:
    return client.describe_configs(name, kind, **options)


def one(client: Connection, key: str) -> DescribeConfigsResourceResult:
    (entry,) = describe(client, keys=(key,)).configs
    return entry


def alter(
    client: Connection, *changes: tuple[str, int, str | None], name: str = "t", kind: int = TOPIC, **options: Any
) -> tuple[int, str | None]:
    return client.alter_configs(name, kind, *changes, **options)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_topic_config_is_described(client: Connection, version: int) -> None:
    result = describe(client, version=version)
    assert [entry.name for entry in result.configs] == list(TOPIC_CONFIGS)
    assert all(entry.config_source == 5 for entry in result.configs)
    if version >= 3:
        assert all(entry.documentation and entry.config_type for entry in result.configs)


def test_values_types_and_synonyms() -> None:
    client = Wire(log_retention_ms=1234).connect()
    client.create_topic("t")
    entry = one(client, "retention.ms")
    assert (entry.value, entry.config_source, entry.config_type, entry.read_only) == ("1234", 4, 5, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("log.retention.ms", "1234", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    alter(client, ("retention.ms", SET, "99"))
    entry = one(client, "retention.ms")
    assert (entry.value, entry.config_source) == ("99", 1)
    assert [synonym.source for synonym in entry.synonyms] == [1, 4, 5]
    assert (one(client, "cleanup.policy").config_type, one(client, "preallocate").value) == (7, "false")


def test_the_settings_of_a_broker_are_described(client: Connection) -> None:
    result = describe(client, "1", BROKER)
    configs = {entry.name: entry for entry in result.configs}
    assert set(configs) == set(SETTINGS)
    assert configs["broker.id"].value == "1"
    assert configs["offsets.topic.num.partitions"].config_source == 4
    assert {entry.name for entry in result.configs if not entry.read_only} == DYNAMIC
    assert [entry.name for entry in describe(client, "1", BROKER, keys=("broker.id",)).configs] == ["broker.id"]
    assert describe(client, "", BROKER).configs == ()


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (32, "", ErrorCode.INVALID_REQUEST),
        (16, "metrics", ErrorCode.INVALID_REQUEST),
        (0, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_unknown_resources(client: Connection, kind: int, name: str, error: ErrorCode) -> None:
    assert describe(client, name, kind).error_code == error
    assert alter(client, ("retention.ms", SET, "1"), name=name, kind=kind)[0] == error


def test_changes_last(client: Connection, wire: Wire) -> None:
    assert alter(client, ("retention.ms", SET, "5000"), ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert one(client, "cleanup.policy").value == "delete,compact"
    assert alter(client, ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
    assert one(client, "cleanup.policy").value == "compact"
    again = wire.restarted().connect()
    assert (one(again, "retention.ms").value, one(again, "cleanup.policy").value) == ("5000", "compact")
    assert alter(again, ("retention.ms", DELETE, None), ("cleanup.policy", DELETE, None)) == (0, None)
    assert (one(again, "retention.ms").config_source, one(again, "cleanup.policy").value) == (5, "delete")


def test_a_topic_without_a_cleanup_policy(client: Connection, wire: Wire) -> None:
    """As in Kafka from 4.1 on (KIP-1161): such a topic keeps all its records."""
    assert alter(client, ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
    for current in (client, wire.restarted().connect()):
        entry = one(current, "cleanup.policy")
        assert (entry.value, entry.config_source) == ("", 1)
        assert [synonym.value for synonym in entry.synonyms] == ["", "delete"]
        settings = current.wire.broker.state.topic("t").settings
        assert (settings.compact, settings.delete) == (False, False)
    client = current
    assert alter(client, ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert one(client, "cleanup.policy").value == "compact"
    assert alter(client, ("cleanup.policy", SET, " ")) == (0, None)
    assert one(client, "cleanup.policy").value == ""
    client.create_topic("kept", cleanup_policy="")
    assert client.describe_configs("kept", TOPIC, ("cleanup.policy",)).configs[0].value == ""


@pytest.mark.parametrize(
    ("policy", "described"),
    [
        ("delete,delete", "delete"),
        ("compact , delete", "compact,delete"),
        (" delete ,compact,delete", "delete,compact"),
    ],
)
def test_a_cleanup_policy_is_described_as_it_is_read(client: Connection, policy: str, described: str) -> None:
    assert alter(client, ("cleanup.policy", SET, policy)) == (0, None)
    entry = one(client, "cleanup.policy")
    assert (entry.value, entry.synonyms[0].value) == (described, described)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "-2"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (("min.cleanable.dirty.ratio", SET, "1.5"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", SET, "burn"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", SET, "delete,"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", SET, ","), ErrorCode.INVALID_CONFIG),
        (("compression.type", SET, "rot13"), ErrorCode.INVALID_CONFIG),
        (("remote.storage.enable", SET, "true"), ErrorCode.INVALID_CONFIG),
        (("nope", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("nope", DELETE, None), ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_changes_change_nothing(client: Connection, change: tuple[str, int, str | None], error: ErrorCode) -> None:
    before = describe(client)
    found, message = alter(client, ("max.message.bytes", SET, "100"), change)
    assert found == error
    assert message
    assert change[0] in message
    assert describe(client) == before


def test_validate_only_changes_nothing(client: Connection) -> None:
    assert alter(client, ("retention.ms", SET, "1"), validate_only=True) == (0, None)
    assert one(client, "retention.ms").config_source == 5


def test_internal_topics_stay_compacted_and_other_configs_may_change(client: Connection) -> None:
    for topic, policy in ((OFFSETS_TOPIC, "delete"), (JOURNAL_TOPIC, "compact"), (JOURNAL_TOPIC, "delete")):
        assert alter(client, ("cleanup.policy", SET, policy), name=topic)[0] == ErrorCode.INVALID_CONFIG
    assert alter(client, ("segment.bytes", SET, "1048576"), name=OFFSETS_TOPIC)[0] == 0
    assert alter(client, ("cleanup.policy", SET, "delete, compact"), name=JOURNAL_TOPIC)[0] == 0
    assert alter(client, ("retention.ms", SET, "86400000"), name=JOURNAL_TOPIC)[0] == 0


def test_each_resource_and_key_at_most_once(client: Connection) -> None:
    configs = (incremental.AlterableConfig(name="retention.ms", config_operation=SET, value="1"),)
    resource = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=(resource, resource), validate_only=False)
    assert [response.error_code for response in client.ask(request, 0).responses] == [42, 42]
    assert alter(client, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))[0] == ErrorCode.INVALID_REQUEST


def test_alter_configs_replaces_all(client: Connection) -> None:
    alter(client, ("retention.ms", SET, "1"))
    configs = (full.AlterableConfig(name="retention.bytes", value="10"),)
    resource = full.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
    response = client.ask(full.AlterConfigsRequest(resources=(resource,), validate_only=False), 2)
    assert response.responses[0].error_code == 0
    assert one(client, "retention.ms").config_source == 5
    assert one(client, "retention.bytes").value == "10"


def test_a_change_is_in_force_at_once(client: Connection) -> None:
    alter(client, ("max.message.bytes", SET, "10"))
    assert client.produced(produce_request("t", batch("too large"))).error_code == ErrorCode.MESSAGE_TOO_LARGE
