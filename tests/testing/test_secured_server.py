"""`KohortServer(security=…)`, and certificates for development."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.client.cluster import Cluster
from kohort.client.errors import AuthenticationFailed
from kohort.testing import KohortServer


def without_bootstrap(settings: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name != "bootstrap.servers"}


@pytest.mark.parametrize("security", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_secured_server_in_one_argument(security: str) -> None:
    users = {"alice": "wonderland", "bob": "builder"} if security != "SSL" else {}
    with KohortServer(security=security, users=users) as server:
        server.produce("t", "hello")
        for user in users or (None,):
            settings = without_bootstrap(server.client_config(user=user))
            with Cluster(server.bootstrap_servers, security=settings) as cluster:
                assert "t" in cluster.topics()
        server.restart()
        settings = without_bootstrap(server.client_config())
        with Cluster(server.bootstrap_servers, security=settings) as cluster:
            assert "t" in cluster.topics()
        if users:
            wrong = settings | {"sasl.password": "wrong"}
            with Cluster(server.bootstrap_servers, security=wrong) as cluster, pytest.raises(AuthenticationFailed):
                cluster.topics()


def test_tokens_of_a_secured_server(tmp_path: Path) -> None:
    with KohortServer(security="SASL_PLAINTEXT") as server:
        settings = without_bootstrap(server.client_config(mechanism="OAUTHBEARER"))
        file = tmp_path / "token"
        settings["sasl.oauthbearer.token.endpoint.url"] = file.as_uri()
        file.write_text(server.bearer_token("carol"))
        with Cluster(server.bootstrap_servers, security=settings) as cluster:
            cluster.create_topic("t")
        file.write_text(server.bearer_token("carol", life_s=-3600))
        with Cluster(server.bootstrap_servers, security=settings) as cluster, pytest.raises(AuthenticationFailed):
            cluster.topics()
    for other in (KohortServer(), KohortServer(security="SSL")):
        with pytest.raises(RuntimeError, match="SASL"):
            other.bearer_token("carol")


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="SASL_SSL"):
        KohortServer(security="TLS")
    with pytest.raises(ValueError, match="asks for none"):
        KohortServer(security="SSL", users={"alice": "x"})
    server = KohortServer(security="SASL_PLAINTEXT", users={"alice": "x"})
    with server, pytest.raises(ValueError, match="no user 'bob'"):
        server.client_config(user="bob")


def test_certificates_for_development(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    command = ["certificates", "create", str(folder), "--host", "localhost", "--host", "127.0.0.1", "--client", "alice"]
    made = CliRunner().invoke(app, command)
    assert made.exit_code == 0, made.output
    assert "development" in made.stderr
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"ca.pem": 0o644, "server.pem": 0o600, "alice.pem": 0o600}
    assert "PRIVATE KEY" not in (folder / "ca.pem").read_text()
    settings = {"ssl_keystore_location": str(folder / "server.pem"), "ssl_client_auth": "required"}
    settings["ssl_truststore_location"] = str(folder / "ca.pem")
    with KohortServer(listeners="SSL://127.0.0.1:0", **settings) as server:
        own = {"security.protocol": "SSL", "ssl.ca.location": str(folder / "ca.pem")}
        own["ssl.keystore.location"] = str(folder / "alice.pem")
        with Cluster(server.bootstrap_servers, security=own) as cluster:
            assert len(cluster.nodes()) == 1
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 1
    assert "exists" in again.stderr
    assert CliRunner().invoke(app, ["certificates", "create", str(folder), "--client", "ca"]).exit_code == 2
