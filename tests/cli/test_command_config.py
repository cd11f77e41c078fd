"""`--command-config`: a properties file has a command's security settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_command import Kohort
from sasl_broker import SaslBroker
from scripted_broker import ScriptedBroker, topic
from typer.core import TyperGroup

from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest

PASSWORD = "hunter2-pa55"


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    sasl = SaslBroker(users={"alice": PASSWORD})
    with ScriptedBroker(sasl.script(), topic("orders")) as running:
        yield running


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="alice" password="{PASSWORD}";\n'
        "client.id=of-other-tools\n"
    )
    return path


def test_a_command_is_let_in(kohort: Kohort, broker: ScriptedBroker, config: Path) -> None:
    ran = kohort("topics", "list", "-b", broker.address, "--command-config", str(config))
    assert "orders" in ran.out
    assert broker.seen(SaslAuthenticateRequest)


def test_the_file_may_stand_in_the_environment(
    kohort: Kohort, broker: ScriptedBroker, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOHORT_COMMAND_CONFIG", str(config))
    assert "orders" in kohort("topics", "list", "-b", broker.address).out


def test_a_wrong_password_is_a_line(kohort: Kohort, broker: ScriptedBroker, config: Path) -> None:
    config.write_text(config.read_text().replace(PASSWORD, "wrong-pa55"))
    ran = kohort("topics", "list", "-b", broker.address, "--command-config", str(config), code=1)
    assert ran.err.startswith(f"kohort: {broker.address}: SCRAM-SHA-256: SASL_AUTHENTICATION_FAILED")
    assert ran.err.count("\n") == 1
    assert "pa55" not in ran.err


def test_bad_files_are_wrong_usage(kohort: Kohort, broker: ScriptedBroker, config: Path) -> None:
    config.write_text(config.read_text().replace("SASL_PLAINTEXT", "SASL"))
    ran = kohort("topics", "list", "-b", broker.address, "--command-config", str(config), code=2)
    assert "security.protocol is 'SASL'" in ran.err
    assert PASSWORD not in ran.err
    assert "nothing.properties" in kohort("groups", "list", "--command-config", "nothing.properties", code=2).err


def test_every_command_that_takes_an_address_takes_the_file() -> None:
    from kohort.cli.commands import COMMANDS, load

    def commands(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
        if isinstance(command, TyperGroup):
            for each, found in command.commands.items():
                yield from commands(found, f"{name} {each}")
        else:
            yield name, {option for parameter in command.params for option in parameter.opts}

    options = {name: found for top in COMMANDS for name, found in commands(load(top), top)}
    with_address = [name for name, found in options.items() if "--bootstrap-server" in found]
    assert len(with_address) > 10
    assert [name for name in with_address if "--command-config" not in options[name]] == []
