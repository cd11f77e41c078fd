"""`kohort acls` against a server whose anonymous user is a super user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_command import Kohort, Ran, Terminal
from typer.testing import CliRunner

from kohort.broker.authorization import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS
from kohort.cli.commands import app
from kohort.client.admin.acls import OPERATIONS, SUPPORTED
from kohort.config import AUTHORIZER
from kohort.testing import KohortServer


@pytest.fixture
def acls() -> Iterator[Kohort]:
    with KohortServer(authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS;User:root") as running:

        def run(*arguments: str, stdin: str | bytes | None = None, code: int | None = 0) -> Ran:
            environment = {"KOHORT_BOOTSTRAP_SERVER": running.bootstrap_servers}
            result = CliRunner().invoke(app, ["acls", *arguments], input=stdin, env=environment)
            ran = Ran(result.exit_code, result.stdout, result.stderr)
            assert code is None or ran.code == code, ran
            return ran

        yield run


def test_add_list_check_remove(acls: Kohort) -> None:
    added = acls("add", "alice", "read,describe-configs", "topic:orders").out
    assert added == (
        "added: allow User:alice read on topic orders\nadded: allow User:alice describe-configs on topic orders\n"
    )
    acls("add", "alice", "read", "topic:secret-", "--prefixed", "--deny", "--host", "10.0.0.0/8")
    acls("add", "*", "describe", "cluster")
    listed = [line.split() for line in acls("list").out.splitlines()]
    assert listed[0] == ["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"]
    assert listed[1] == ["User:*", "allow", "describe", "cluster", "kafka-cluster", "literal", "*"]
    assert len(listed) == 5
    [one] = json.loads(acls("list", "--resource", "topic:secret-9", "--matching", "-o", "json").out)
    assert (one["pattern"], one["host"], one["permission"]) == ("prefixed", "10.0.0.0/8", "deny")
    gone = acls("remove", "--user", "alice", "--operation", "read", "--yes").out.splitlines()
    assert len(gone) == 2
    assert "removed: deny User:alice read on prefixed topic secret- from 10.0.0.0/8" in gone
    assert "no ACL was selected" in acls("remove", "--user", "nobody", "--yes", code=1).err
    assert acls("remove", "--all", "--yes").out.count("removed") == 2


def test_check_says_which_rule_decides(acls: Kohort) -> None:
    acls("add", "alice", "read", "topic:orders")
    acls("add", "*", "all", "topic:orders-secret", "--deny")
    assert acls("check", "alice", "describe", "topic:orders").out == "allowed: allow User:alice read on topic orders\n"
    assert acls("check", "alice", "write", "topic:orders", code=1).out == (
        "denied: no ACL about the resource allows it\n"
    )
    assert acls("check", "alice", "read", "topic:orders-secret", code=1).out == (
        "denied: deny User:* all on topic orders-secret\n"
    )
    assert acls("check", "bob", "read", "group:g", code=1).out == "denied: no ACL is about the resource\n"
    assert acls("check", "root", "alter", "cluster").out == "allowed: super user\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("add a fly topic:t", "'fly' is no operation; it takes all, read, "),
        ("add a red topic:t", "'red' is no operation; did you mean read?"),
        ("add a read,raed topic:t", "'raed' is no operation; did you mean read?"),
        ("list --operation describe-config", "did you mean describe-configs?"),
        ("add a read bird:t", "'bird:t' is no resource; it takes topic:NAME"),
        ("add a read topics:orders", "'topics:orders' is no resource; did you mean topic:orders?"),
        ("add a read transactional:t", "did you mean transactional-id:t?"),
        ("add a create clutser", "did you mean cluster?"),
        ("add a read topic:orders,group:billing", "'topic:orders,group:billing' is several resources; name one"),
        ("add a read topic:orders,cluster", "is several resources; name one"),
        ("add a read topic:a/b", "'a/b' is no topic name"),
        ("add Group:x read topic:t", "'Group:x' is no user"),
        ("add User: read topic:t", "'User:' is no user"),
        ("add a read topic:t --host localhost", "'localhost' is no address"),
        ("add a read topic:t --host 10.0.0.0/99", "'10.0.0.0/99' is no address"),
        ("add a write group:g", "write is no operation on a group; it takes read, "),
        ("add a all,read cluster --deny", "read is no operation on a cluster; it takes create, "),
        ("remove --yes", "say which ACLs"),
        ("list --matching", "need --resource"),
        ("remove --literal --yes", "need --resource"),
        ("list --resource topic:t --literal --prefixed", "choose one of --literal, --prefixed and --matching"),
        ("check a all topic:t", "all cannot be checked"),
        ("check a read,write topic:t", "check takes one operation"),
        ("check a write group:g", "write is no operation on a group"),
        ("check a describe-tokens user:b", "'user:b' cannot be checked"),
        ("check a read topic:t --host 10.0.0.0/8", "'10.0.0.0/8' is no address"),
    ],
)
def test_usage(arguments: str, message: str) -> None:
    """Without a server: nothing is asked."""
    result = CliRunner().invoke(app, ["acls", *arguments.split()])
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_operations_are_those_that_the_server_has() -> None:
    bits = {"topic": TOPIC_OPERATIONS, "group": GROUP_OPERATIONS, "cluster": CLUSTER_OPERATIONS}
    for resource, expected in bits.items():
        assert sum(1 << OPERATIONS[operation] for operation in SUPPORTED[resource]) == expected


def test_addresses_and_networks(acls: Kohort) -> None:
    for host in ("10.0.0.7", "10.0.0.5/8", "::1", "fe80::/10"):
        assert acls("add", "a", "read", "topic:t", "--host", host).out.endswith(f" from {host}\n")
    assert acls("check", "a", "read", "topic:t", "--host", "10.9.9.9").out.startswith("allowed: ")
    assert acls("check", "a", "read", "topic:t", "--host", "11.0.0.1", code=1).out.startswith("denied: ")


def test_an_acl_that_is_there_is_told(acls: Kohort) -> None:
    acls("add", "a", "read", "topic:t")
    assert acls("add", "a", "read,write", "topic:t").out == (
        "already there: allow User:a read on topic t\nadded: allow User:a write on topic t\n"
    )
    for other in (("--prefixed",), ("--deny",), ("--host", "10.0.0.1")):
        assert acls("add", "a", "read", "topic:t", *other).out.startswith("added: ")


def test_one_pattern_of_a_resource(acls: Kohort) -> None:
    acls("add", "a", "read", "topic:t")
    acls("add", "a", "write", "topic:t", "--prefixed")
    acls("add", "a", "describe", "topic:*")

    def listed(*options: str) -> set[str]:
        found = acls("list", "--resource", "topic:t", *options, "-o", "json").out
        return {acl["operation"] for acl in json.loads(found)}

    assert (listed(), listed("--literal"), listed("--prefixed")) == ({"read", "write"}, {"read"}, {"write"})
    assert listed("--matching") == {"describe", "read", "write"}
    gone = acls("remove", "--resource", "topic:t", "--prefixed", "--yes").out
    assert gone == "removed: allow User:a write on prefixed topic t\n"


@pytest.mark.parametrize("arguments", ["remove --user a", "remove --all"])
def test_a_removal_without_confirmation_does_nothing(
    acls: Kohort, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "allow User:a read on topic t\n"
    acls("add", "a", "read", "topic:t")
    ran = acls(*arguments.split(), stdin="y\n", code=2)
    assert ran.out == line
    assert ran.err == "kohort: nothing was removed: this is no terminal to confirm on; add --yes\n"
    monkeypatch.setattr("kohort.cli.confirmation.sys", Terminal)
    assert "nothing was removed\n" in acls(*arguments.split(), stdin="n\n", code=1).err
    assert "User:a" in acls("list").out
    assert acls(*arguments.split(), stdin="y\n").out == f"{line}Remove 1 ACL? [y/N]: y\nremoved: {line}"


def test_without_the_rights_to_ask(tmp_path: Path) -> None:
    """`alice` may do nothing, then some of what the commands need."""
    with KohortServer(
        security="SASL_PLAINTEXT",
        users={"root": "secret", "alice": "wonderland"},
        authorizer_class_name=AUTHORIZER,
        super_users="User:root;User:ANONYMOUS",
    ) as server:

        def run(user: str, *arguments: str) -> Ran:
            file = tmp_path / f"{user}.properties"
            properties = server.client_config(user=user)
            file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            file.chmod(0o600)
            command = [*arguments, "-b", server.bootstrap_servers, "--command-config", str(file)]
            result = CliRunner().invoke(app, command)
            return Ran(result.exit_code, result.stdout, result.stderr)

        for operation in ("describe", "describe-configs"):
            ran = run("alice", "acls", "check", "alice", "read", "topic:t")
            assert (ran.code, ran.out) == (3, "")
            assert ran.err.startswith("kohort: cannot tell: ")
            assert ran.err.endswith("the command needs DESCRIBE and DESCRIBE_CONFIGS of the cluster\n")
            if operation == "describe":
                assert run("root", "acls", "add", "alice", "describe", "group:g").code == 0
                assert "or this user may not DESCRIBE the cluster" in run("alice", "groups", "explain", "g").err
            assert run("root", "acls", "add", "alice", operation, "cluster").code == 0
        ran = run("alice", "acls", "check", "alice", "read", "topic:t")
        assert (ran.code, ran.out) == (1, "denied: no ACL is about the resource\n")


def test_without_an_authorizer(kohort: Kohort) -> None:
    assert "SECURITY_DISABLED" in kohort("acls", "list", code=1).err
