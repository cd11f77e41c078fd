"""`kohort quotas` against a server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from run_command import Kohort, Ran, Terminal
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.testing import KohortServer


@pytest.fixture
def quotas() -> Iterator[Kohort]:
    with KohortServer() as running:

        def run(*arguments: str, stdin: str | bytes | None = None, code: int | None = 0) -> Ran:
            environment = {"KOHORT_BOOTSTRAP_SERVER": running.bootstrap_servers}
            result = CliRunner().invoke(app, ["quotas", *arguments], input=stdin, env=environment)
            ran = Ran(result.exit_code, result.stdout, result.stderr)
            assert code is None or ran.code == code, ran
            return ran

        yield run


def test_set_list_delete(quotas: Kohort) -> None:
    done = quotas("set", "--user", "alice", "producer_byte_rate=1048576", "request-percentage=12.5").out
    assert done == "set: user alice: producer_byte_rate=1048576\nset: user alice: request_percentage=12.5\n"
    quotas("set", "--user", "alice", "--default-client-id", "consumer_byte_rate=1e6")
    quotas("set", "--default-user", "controller_mutation_rate=0.5")
    quotas("set", "--ip", "10.0.0.1", "connection_creation_rate=20")
    assert [line.split() for line in quotas("list").out.splitlines()] == [
        ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"],
        ["alice", "<default>", "-", "consumer_byte_rate", "1000000"],
        ["alice", "-", "-", "producer_byte_rate", "1048576"],
        ["alice", "-", "-", "request_percentage", "12.5"],
        ["<default>", "-", "-", "controller_mutation_rate", "0.5"],
        ["-", "-", "10.0.0.1", "connection_creation_rate", "20"],
    ]
    assert max(map(len, quotas("list").out.splitlines())) <= 80
    [both] = json.loads(quotas("list", "--default-client-id", "-o", "json").out)
    assert both == {"entity": {"client-id": None, "user": "alice"}, "quotas": {"consumer_byte_rate": 1000000.0}}
    assert len(json.loads(quotas("list", "--user", "alice", "-o", "json").out)) == 2
    gone = quotas("delete", "--user", "alice", "request_percentage", "--yes").out
    assert gone == "deleted: user alice: request_percentage=12.5\n"
    quotas("delete", "--user", "alice", "--yes")
    assert len(quotas("list").out.splitlines()) == 4
    assert "user alice has no quotas" in quotas("delete", "--user", "alice", "--yes", code=1).err
    assert "has no such quota" in quotas("delete", "--default-user", "request_percentage", "--yes", code=1).err


def test_a_deletion_without_confirmation_does_nothing(quotas: Kohort, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas("set", "--client-id", "c", "producer_byte_rate=5")
    ran = quotas("delete", "--client-id", "c", stdin="y\n", code=2)
    assert ran.out == "client-id c: producer_byte_rate=5\n"
    assert "nothing was deleted: this is no terminal" in ran.err
    monkeypatch.setattr("kohort.cli.confirmation.sys", Terminal())
    assert quotas("delete", "--client-id", "c", stdin="n\n", code=1).err.endswith("nothing was deleted\n")
    assert len(quotas("list").out.splitlines()) == 2
    assert quotas("delete", "--client-id", "c", stdin="y\n").out.endswith(
        "deleted: client-id c: producer_byte_rate=5\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("set producer_byte_rate=1", "say whose: --user"),
        ("set --user a", "Missing argument"),
        ("set --user a producer_byte_rate", "write QUOTA=VALUE"),
        ("set --user a producer_byte_rat=1", "did you mean producer_byte_rate?"),
        ("set --user a speed=1", "'speed' is no quota; it takes producer_byte_rate, "),
        ("set --user a producer_byte_rate=0", "a quota is a number above 0"),
        ("set --user a producer_byte_rate=much", "a quota is a number above 0"),
        ("set --user a producer_byte_rate=1.5", "producer_byte_rate is a whole number"),
        ("set --user a connection_creation_rate=1", "connection_creation_rate is no quota of users"),
        ("set --ip ::1 producer_byte_rate=1", "producer_byte_rate is no quota of an address"),
        ("set --ip ::1 --user a connection_creation_rate=1", "do not go with users"),
        ("set --user a --default-user producer_byte_rate=1", "choose one of --user and --default-user"),
        ("set --user User:a producer_byte_rate=1", "write 'a'"),
        ("set --user a producer_byte_rate=1 producer-byte-rate=2", "a quota is set twice"),
        ("delete --yes", "say whose: --user"),
        ("list --ip ::1 --client-id a", "do not go with users"),
    ],
)
def test_usage(arguments: str, message: str) -> None:
    """Without a server: nothing is asked."""
    result = CliRunner().invoke(app, ["quotas", *arguments.split()])
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())


def test_what_the_cluster_refuses(quotas: Kohort) -> None:
    refused = quotas("set", "--ip", "localhost", "connection_creation_rate=1", code=1).err
    assert "localhost is not a valid IP" in refused
    assert "addresses as numbers" in refused
