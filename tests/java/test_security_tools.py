"""Kafka's own programs for ACLs and users, at a listener with TLS and SASL: rows of docs/clients.md.
Runs under `make peers-clients` (Maven, Java 17)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import java_libraries
import pytest
import quota_commands
from bench import _kafka
from matrix_stage import VERSIONS
from run_java import java

from kohort.client.cluster import Cluster
from kohort.client.errors import AuthenticationFailed
from kohort.config import AUTHORIZER
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.java, pytest.mark.matrix, pytest.mark.timeout(600)]

USERS = {"root": "toor", "alice": "wonderland"}
ACLS = "kafka-acls"
CONFIGS = "kafka-configs"
PROGRAMS = {ACLS: "org.apache.kafka.tools.AclCommand", CONFIGS: "kafka.admin.ConfigCommand"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
VERSIONS[CONFIGS] = re.findall("<version>(4.+)</version>", (_kafka.JAVA / "pom.xml").read_text())[0]
"""It comes with Kafka's server, not with its clients."""
Tool = Callable[..., str]
Properties = Callable[[str], str]


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    # Users are set up by a listener without authentication.
    settings: dict[str, Any] = {"authorizer_class_name": AUTHORIZER, "super_users": "User:root;User:ANONYMOUS"}
    with KohortServer(security="SASL_SSL", users=USERS, **settings) as running:
        yield running


@pytest.fixture
def properties(server: KohortServer, tmp_path: Path) -> Properties:
    """Writes the file of a user's settings."""

    def write(user: str) -> str:
        file = tmp_path / f"{user}.properties"
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": server.client_config(user=user)["ssl.ca.location"],
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM} username="{user}" password="{USERS[user]}";',
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return str(file)

    return write


@pytest.fixture
def tool(server: KohortServer, properties: Properties) -> Tool:
    """Runs a program as a user; its output."""
    class_paths = {ACLS: java_libraries.clients, CONFIGS: java_libraries.kafka}

    def run(program: str, *arguments: str, user: str = "root") -> str:
        at = ("--bootstrap-server", server.bootstrap_servers, "--command-config", properties(user))
        return java(class_paths[program](), PROGRAMS[program], *at, *arguments)

    return run


def as_user(server: KohortServer, user: str, password: str = "") -> Cluster:
    settings = server.client_config(user="alice") | {"sasl.username": user, "sasl.password": password or USERS[user]}
    address = settings.pop("bootstrap.servers")
    return Cluster(address, security=settings, api_timeout_ms=5_000, bootstrap_timeout_ms=5_000)


@pytest.mark.conformance("A6")
@pytest.mark.program(ACLS, "adds, lists and removes ACLs over SASL_SSL; they apply at once, and others may not use it")
def test_kafka_acls(server: KohortServer, tool: Tool) -> None:
    with as_user(server, "root") as root, as_user(server, "alice") as alice:
        for topic in ("orders", "orders-old", "secret"):
            root.create_topic(topic, 1)
            root.produce(topic, 0, [NewRecord(None, b"value", 0)])
        assert set(alice.topics()) == set()
        reads = ("--consumer", "--topic", "orders", "--group", "readers", "--resource-pattern-type", "prefixed")
        assert "Adding ACLs" in tool(ACLS, "--add", "--allow-principal", "User:alice", *reads)
        assert set(alice.topics()) == {"orders", "orders-old"}
        assert len(alice.fetch({("orders", 0): 0})) == 1
        alice.commit("readers-1", {("orders", 0): 1})
        tool(ACLS, "--add", "--deny-principal", "User:*", "--operation", "All", "--topic", "orders-old")
        assert set(alice.topics()) == {"orders"}
        listed = tool(ACLS, "--list", "--topic", "orders-old", "--resource-pattern-type", "match")
        for pattern, entry in (
            ("name=orders, patternType=PREFIXED", "User:alice, host=*, operation=READ, permissionType=ALLOW"),
            ("name=orders-old, patternType=LITERAL", "User:*, host=*, operation=ALL, permissionType=DENY"),
        ):
            assert pattern in listed
            assert entry in listed
        with pytest.raises(AssertionError, match="Not authorized for the cluster"):
            tool(ACLS, "--list", user="alice")
        tool(ACLS, "--remove", "--force", "--topic", "orders", "--resource-pattern-type", "match")
        assert set(alice.topics()) == set()


@pytest.mark.conformance("AU17")
@pytest.mark.program(CONFIGS, "creates, describes and deletes users with passwords (SCRAM) over SASL_SSL")
def test_kafka_configs(server: KohortServer, tool: Tool) -> None:
    of_carol = ("--entity-type", "users", "--entity-name", "carol")

    def may_enter(password: str) -> bool:
        try:
            with as_user(server, "carol", password) as cluster:
                return bool(cluster.nodes())
        except AuthenticationFailed:
            return False

    tool(CONFIGS, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=first]", *of_carol)
    assert may_enter("first")
    assert "SCRAM-SHA-512=iterations=8192" in tool(CONFIGS, "--describe", *of_carol)
    tool(CONFIGS, "--alter", "--delete-config", "SCRAM-SHA-512", *of_carol)
    assert not may_enter("first")


@pytest.mark.conformance("Q1", "Q7")
@pytest.mark.program(
    CONFIGS, "sets, describes and deletes quotas over SASL_SSL, and prints what it prints at Apache Kafka, errors too"
)
def test_kafka_configs_of_quotas(server: KohortServer, properties: Properties) -> None:
    at = ("--bootstrap-server", server.bootstrap_servers, "--command-config", properties("root"))
    assert quota_commands.run(*at) == quota_commands.RECORDED.read_text(encoding="utf-8")
