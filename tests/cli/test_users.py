"""`kohort users`, with a running server and with a stopped data directory."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer


def users(*arguments: str, code: int = 0, stdin: str = "", **environment: str) -> str:
    """What it prints on stdout, or, with another exit code than 0, on stderr."""
    ran = CliRunner(env={"COLUMNS": "100", **environment}).invoke(app, ["users", *arguments], input=stdin)
    assert ran.exit_code == code, ran.output
    return ran.stderr if code else ran.stdout


def test_users_of_a_running_server() -> None:
    with KohortServer() as server:
        where = {"KOHORT_BOOTSTRAP_SERVER": server.bootstrap_servers}
        assert users("add", "alice", "--password-file", "-", stdin="wonderland\n", **where) == ""
        users("add", "alice", "--mechanism", "scram-sha-256", stdin="x\nx\n", **where)
        listed = users("list", **where)
        assert "alice" in listed
        assert "SCRAM-SHA-256,SCRAM-SHA-512" in listed
        document = json.loads(users("list", "--output", "json", **where))
        assert document == [{"user": "alice", "iterations": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}]
        assert "add --yes" in users("delete", "alice", code=2, **where)
        assert users("delete", "alice", "--yes", **where) == ""
        assert "does not exist" in users("delete", "alice", "-y", code=1, **where)


def test_the_first_user_of_a_stopped_directory(tmp_path: Path) -> None:
    data, secret = tmp_path / "data", tmp_path / "secret"
    secret.write_text("wonderland\n")
    users("add", "alice", "--password-file", str(secret), "--data-dir", str(data))
    assert "alice" in users("list", "--data-dir", str(data))
    with KohortServer(data_dir=data, listeners="SASL_PLAINTEXT://127.0.0.1:0") as server:
        assert str(data) in users("list", "--data-dir", str(data), code=1)
        security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
        security |= {"sasl.username": "alice", "sasl.password": "wonderland"}
        with Cluster(server.bootstrap_servers, security=security, api_timeout_ms=5_000) as cluster:
            assert len(cluster.nodes()) == 1
    users("delete", "alice", "--yes", "--data-dir", str(data))
    assert "does not exist" in users("delete", "alice", "--yes", "--data-dir", str(data), code=1)


def test_passwords_are_no_arguments(tmp_path: Path) -> None:
    assert "--password " not in users("add", "--help")
    users("add", "alice", "--password-file", "-", code=2)
    users("add", "a", "--password-file", str(tmp_path / "none"), code=2)
