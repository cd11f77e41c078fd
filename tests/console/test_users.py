"""Users, ACLs and quotas; and what a cluster says that does not tell them."""

from __future__ import annotations

from typing import Any

import pytest
from console_pages import Pages

from kohort.client.admin.acls import ALLOW, DENY, LITERAL, OPERATIONS, PREFIXED, RESOURCES, AclBinding
from kohort.client.errors import UnsupportedVersion, server_error
from kohort.console.reading.users import acls, users
from kohort.testing import KohortServer
from kohort.wire.errors import ErrorCode

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def binding(principal: str, resource: str, name: str, operation: str, **more: Any) -> AclBinding:
    fields: dict[str, Any] = {"pattern": LITERAL, "host": "*", "permission": ALLOW, **more}
    return AclBinding(
        RESOURCES[resource],
        name,
        fields["pattern"],
        principal,
        fields["host"],
        OPERATIONS[operation],
        fields["permission"],
    )


def test_users_and_quotas(pages: Pages) -> None:
    pages.cluster.add_scram_user("bob", "secret", iterations=4096)
    pages.cluster.add_scram_user("alice<b>", "secret", mechanism="SCRAM-SHA-256", iterations=8192)
    assert pages.get("/access").body() == [
        ["alice<b>", "SCRAM-SHA-256 (8,192 iterations)"],
        ["bob", "SCRAM-SHA-512 (4,096 iterations)"],
    ]
    assert pages.get("/access", sort="-user", q="BO").body() == [["bob", "SCRAM-SHA-512 (4,096 iterations)"]]
    pages.cluster.alter_client_quotas({"user": "bob", "client-id": None}, {"producer_byte_rate": 1_048_576.0})
    pages.cluster.alter_client_quotas({"user": None}, {"request_percentage": 12.5})
    assert pages.get("/access", tab="quotas").body() == [
        ["user <default>", "request_percentage", "12.5 % of a thread's time"],
        ["user bob, client id <default>", "producer_byte_rate", "1,048,576 bytes a second"],
    ]
    assert pages.get("/access", tab="quotas", sort="-value").body()[0][1] == "producer_byte_rate"


def test_a_cluster_without_an_authorizer(pages: Pages) -> None:
    page = pages.get("/access", tab="acls")
    assert "The cluster has no authorizer, so it has no ACLs" in page.text
    assert page.count("table") == 0


def test_acls() -> None:
    settings: dict[str, Any] = {"authorizer_class_name": AUTHORIZER, "super_users": "User:ANONYMOUS"}
    with KohortServer(**settings) as server, Pages(server.bootstrap_servers) as pages:
        pages.cluster.create_acls(
            [
                binding("User:alice", "topic", "orders", "read"),
                binding("User:alice", "topic", "tmp-", "all", pattern=PREFIXED, permission=DENY, host="10.0.0.1"),
                binding("User:<i>", "group", "billing", "read"),
            ]
        )
        assert pages.get("/access", tab="acls", sort="resource").body() == [
            ["User:<i>", "allow read", "group billing", "*"],
            ["User:alice", "allow read", "topic orders", "*"],
            ["User:alice", "deny all", "topic tmp- (prefix)", "10.0.0.1"],
        ]
        assert [row[0] for row in pages.get("/access", tab="acls", q="billing").body()] == ["User:<i>"]


class Refusing:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def acls(self) -> Any:
        raise self._error

    scram_users = acls


def test_refusals_are_sentences() -> None:
    denied: Any = Refusing(server_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "cannot list ACLs"))
    assert acls(denied).refusal == "The console's user may not see this: it needs DESCRIBE on the cluster."
    old: Any = Refusing(UnsupportedVersion("no"))
    assert users(old).refusal == "The brokers of this cluster do not tell it: Kafka 2.7 or later do."
    other: Any = Refusing(server_error(ErrorCode.UNKNOWN_SERVER_ERROR, "cannot list ACLs"))
    with pytest.raises(Exception, match="cannot list ACLs"):
        acls(other)
