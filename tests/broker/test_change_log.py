"""The audit: each change has a line with what was before, who made it, and from where; a refused one has none."""

from __future__ import annotations

from typing import Any

import pytest
from acl_driver import SETTINGS, Secured, acl
from group_driver import commit, stable
from quota_driver import PRODUCE, REQUEST, entry
from test_scram_credentials import SALTED, SHA_512, gone, put
from transaction_driver import Transactional, found, write_markers
from wire_driver import BROKER, DELETE, GROUP, SET, TOPIC, Connection, Wire, delete_topics

from kohort.broker.authorization import Operation, Principal, Resource
from kohort.broker.change_log import difference
from kohort.broker.security.audit import MOST_PLACES, listed, printable
from kohort.wire.schemas.alter_client_quotas import AlterClientQuotasRequest
from kohort.wire.schemas.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

WHO = {"by_principal": "User:alice", "by_client_id": "laptop", "by_host": "/10.0.0.7"}
OF_MEMBERS = {"member joined", "member left", "group is stable", "group is empty"}


@pytest.fixture
def alice() -> Connection:
    return Wire().connect(client_id="laptop", principal=Principal("alice"), host="10.0.0.7")


def told(client: Connection) -> list[tuple[str, dict[str, Any]]]:
    """The lines since the last call, without those about members; all of them say who asked."""
    notices, client.wire.notices = client.wire.notices, []
    lines = [(notice.what, dict(notice.values)) for notice in notices if notice.what not in OF_MEMBERS]
    for what, values in lines:
        assert {name: values.pop(name) for name in WHO} == WHO, what
    return lines


def test_topics(alice: Connection) -> None:
    alice.create_topic("t", 2, cleanup_policy="compact", retention_ms="7")
    request = CreatePartitionsRequest(
        topics=(CreatePartitionsTopic(name="t", count=5, assignments=None),), timeout_ms=1, validate_only=True
    )
    alice.ask(request, 3)
    assert told(alice) == [
        (
            "topic created",
            {"topic": "t", "partitions": 2, "replicas": 1, "configs": "cleanup.policy: compact, retention.ms: 7"},
        )
    ]
    again = CreatePartitionsRequest(topics=request.topics, timeout_ms=1, validate_only=False)
    assert alice.ask(again, 3).results[0].error_code == 0
    assert alice.ask(again, 3).results[0].error_code != 0
    alice.ask(delete_topics("t"), 5)
    assert told(alice) == [
        ("partitions added", {"topic": "t", "before": 2, "after": 5}),
        ("topic deleted", {"topic": "t", "partitions": 5}),
    ]


def test_a_large_topic_grows(alice: Connection) -> None:
    alice.create_topic("t", 1)
    told(alice)
    topics = (CreatePartitionsTopic(name="t", count=150, assignments=None),)
    alice.ask(CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=False), 3)
    assert told(alice) == [("partitions added", {"topic": "t", "before": 1, "after": 150})]


def test_records(alice: Connection) -> None:
    alice.create_topic("t", 3)
    for partition, count in enumerate((3, 1, 2)):
        alice.produce("t", *["v"] * count, partition=partition)
    told(alice)

    def delete(*offsets: int) -> None:
        partitions = tuple(DeleteRecordsPartition(partition_index=at, offset=to) for at, to in enumerate(offsets))
        topics = (DeleteRecordsTopic(name="t", partitions=partitions),)
        alice.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1), 2)

    delete(2, 0, -1)
    delete(2, 9, 2)
    assert told(alice) == [("records deleted", {"topic": "t", "starts": "0: 0 -> 2, 2: 0 -> 2"})]


def test_configs(alice: Connection) -> None:
    alice.create_topic("t", retention_ms="7")
    told(alice)
    assert alice.alter_configs("t", TOPIC, ("retention.ms", SET, "8"), ("cleanup.policy", SET, "compact"))[0] == 0
    assert alice.alter_configs("t", TOPIC, ("retention.ms", SET, "9"), validate_only=True)[0] == 0
    assert alice.alter_configs("t", TOPIC, ("retention.ms", SET, "8"))[0] == 0
    assert alice.alter_configs("t", TOPIC, ("retention.ms", SET, "soon"))[0] != 0
    assert alice.alter_configs("g", GROUP, ("consumer.session.timeout.ms", SET, "50000"))[0] == 0
    assert alice.alter_configs("", BROKER, ("log.level", SET, "debug"))[0] == 0
    assert alice.alter_configs("1", BROKER, ("log.level", SET, "error"))[0] == 0
    assert alice.alter_configs("", BROKER, ("log.level", DELETE, None))[0] == 0
    assert told(alice) == [
        ("topic configs changed", {"topic": "t", "changes": "cleanup.policy: none -> compact, retention.ms: 7 -> 8"}),
        ("group configs changed", {"group": "g", "changes": "consumer.session.timeout.ms: none -> 50000"}),
        ("broker configs changed", {"broker": "all", "changes": "log.level: none -> debug"}),
        ("broker configs changed", {"broker": "1", "changes": "log.level: none -> error"}),
        ("broker configs changed", {"broker": "all", "changes": "log.level: debug -> none"}),
    ]


class AnyKeys:
    """Keys of listeners that are always good."""

    def check(self, broker: int, keys: dict[str, str]) -> None:
        pass

    use = check


def test_secrets_of_listeners_are_hidden(alice: Connection) -> None:
    alice.wire.broker.state.listener_keys = AnyKeys()
    name = "listener.name.ext.ssl.keystore"
    changes = ((f"{name}.password", SET, "hunter2"), (f"{name}.location", SET, "/etc/key.p12"))
    assert alice.alter_configs("1", BROKER, *changes) == (0, None)
    assert alice.alter_configs("1", BROKER, (f"{name}.password", SET, "hunter3")) == (0, None)
    [(_, first), (_, second)] = told(alice)
    assert first["changes"] == f"{name}.location: none -> /etc/key.p12, {name}.password: none -> (hidden)"
    assert second["changes"] == f"{name}.password: (hidden) -> (hidden)"


def test_groups_and_offsets(alice: Connection) -> None:
    alice.create_topic("t", 2)
    told(alice)
    assert [commit(alice, offset) for offset in (7, 8, 9)] == [0, 0, 0]
    # the second and the third are those of a consumer without a group
    assert told(alice) == [("offsets set", {"group": "g", "partitions": 1, "offsets": "t-0: none -> 7"})]

    def delete(*indexes: int) -> int:
        partitions = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in indexes)
        topics = (OffsetDeleteRequestTopic(name="t", partitions=partitions),)
        return int(alice.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0).error_code)

    assert delete(0, 1, 9) == 0
    assert told(alice) == [("offsets deleted", {"group": "g", "partitions": 1, "offsets": "t-0: 9"})]
    assert commit(alice, 8) == 0
    assert told(alice) == [("offsets set", {"group": "g", "partitions": 1, "offsets": "t-0: none -> 8"})]
    again = alice.wire.connect(client_id="laptop", principal=Principal("alice"), host="10.0.0.7")
    assert commit(again, 7) == 0
    assert told(alice) == [("offsets set", {"group": "g", "partitions": 1, "offsets": "t-0: 8 -> 7"})]
    request = DeleteGroupsRequest(groups_names=("g", "absent"))
    assert [result.error_code for result in alice.ask(request, 2).results] == [0, 69]
    assert told(alice) == [("group deleted", {"group": "g", "offsets": 1})]
    stable(alice)
    assert alice.ask(request, 2).results[0].error_code != 0
    assert told(alice) == []


def test_quotas(alice: Connection) -> None:
    def alter(*changes: Any, validate_only: bool = False) -> None:
        alice.ask(AlterClientQuotasRequest(entries=changes, validate_only=validate_only), 1)

    alter(entry((PRODUCE, 1e6), (REQUEST, 12.5), user="bob"), entry((PRODUCE, -1), user="x"))
    alter(entry((PRODUCE, 1e6), user="bob"), validate_only=False)
    alter(entry((PRODUCE, None), user="bob"), validate_only=True)
    alter(entry((PRODUCE, None), user="bob"))
    values = f"{PRODUCE}: none -> 1000000, {REQUEST}: none -> 12.5"
    assert told(alice) == [
        ("quotas changed", {"entity": "user bob", "changes": values}),
        ("quotas changed", {"entity": "user bob", "changes": f"{PRODUCE}: 1000000 -> none"}),
    ]


def test_users(alice: Connection) -> None:
    def alter(*changes: Any, delete: bool = False) -> None:
        given = {"deletions": changes, "upsertions": ()} if delete else {"deletions": (), "upsertions": changes}
        alice.ask(AlterUserScramCredentialsRequest(**given), 0)

    alter(put("bob"))
    alter(put("bob", iterations=5000))
    alter(put("bob", iterations=1))
    notices = repr(alice.wire.notices).encode()
    alter(gone("bob"), delete=True)
    alter(gone("bob"), delete=True)
    user = {"user": "bob", "mechanism": "SCRAM-SHA-512"}
    assert told(alice) == [
        ("user credential set", user | {"changes": "iterations: none -> 4096"}),
        ("user credential set", user | {"changes": "iterations: 4096 -> 5000"}),
        ("user credential deleted", user | {"changes": "iterations: 5000 -> none"}),
    ]
    assert SALTED[SHA_512] not in notices


def test_acls() -> None:
    secured = Secured(Wire(**SETTINGS))
    entry = acl(Resource.TOPIC, "t", principal="User:bob", operation=Operation.READ)
    secured.create(entry, entry)
    secured.delete({"principal_filter": "User:bob"})
    lines = [(notice.what, dict(notice.values)) for notice in secured.wire.notices if notice.what.startswith("acl")]
    who = {"by_principal": "User:root", "by_client_id": "client", "by_host": "/127.0.0.1"}
    assert lines == [(what, {"acl": str(entry)} | who) for what in ("acl created", "acl deleted")]


def test_transactions_that_an_operator_ends(alice: Connection) -> None:
    alice.create_topic("t")
    found(alice)
    producer = Transactional(alice)
    producer.init()
    producer.add("t", 0)
    producer.produce("v")
    told(alice)
    assert write_markers(alice, producer.producer_id, producer.epoch, ("t", 0)) == [0]
    [(what, values)] = told(alice)
    assert what == "transaction aborted in a partition"
    assert values == {"partition": "t-0", "producer_id": producer.producer_id, "epoch": producer.epoch}


def test_a_line_has_bounded_values() -> None:
    assert listed(range(MOST_PLACES + 3), str).endswith(f"{MOST_PLACES - 1} and 3 more")
    assert listed(["a"], str) == "a"
    long = listed(range(10_000), lambda index: f"{'t' * 249}-{index}: 1 -> 2")
    assert printable(long) == f"{'t' * 249}-0: 1 -> 2 and 9999 more"
    assert difference({"a": 1, "b": 2}, {"b": 2}) == "a: 1 -> none"
    client = Wire().connect(client_id="x\n" * 5_000)
    client.create_topic("t")
    [(_, values)] = [(notice.what, dict(notice.values)) for notice in client.wire.notices]
    assert len(values["by_client_id"]) < 1_100
    assert "\n" not in values["by_client_id"]
