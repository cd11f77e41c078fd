"""Certificates that AlterConfigs renews, and the warnings of those that expire."""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edges import Wire, eventually
from own_certificates import PASSWORD, issue, large_certificate
from secured import CA, SERVER, client_context, connected, key_file, private, tls_settings

from kohort.config import Config, ConfigError, listeners_of
from kohort.server.security.certificates import Certificates
from kohort.testing import KohortServer
from kohort.wire.codec import decode, encode_request
from kohort.wire.errors import ErrorCode
from kohort.wire.framing import read_response_header
from kohort.wire.schemas import incremental_alter_configs as incremental
from kohort.wire.schemas.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from kohort.wire.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

BROKER, SET, DELETE = 4, 0, 1
LOCATION = "listener.name.ext.ssl.keystore.location"
STORE_PASSWORD = "listener.name.ext.ssl.keystore.password"
HOSTS = "localhost", "127.0.0.1"


def settings_of(folder: Path, **settings: Any) -> dict[str, Any]:
    return tls_settings(folder, **settings) | {
        "listeners": "INT://127.0.0.1:0,EXT://127.0.0.1:0",
        "listener.security.protocol.map": "INT:PLAINTEXT,EXT:SSL",
    }


def ask(server: KohortServer, request: Any, version: int, response: Any) -> Any:
    wire = Wire(server.bootstrap_servers_of("INT").split(",")[0])
    with wire:
        [answer] = wire.ask(encode_request(request, version, 7, "c")[4:])
    _, start = read_response_header(answer, flexible=True, api_key=44)
    return decode(response, version, answer, start)


def alter(
    server: KohortServer, *changes: tuple[str, str | None], broker: str = "1", only: bool = False
) -> tuple[int, str]:
    """The error of IncrementalAlterConfigs; None deletes."""
    configs = tuple(
        incremental.AlterableConfig(name=name, config_operation=DELETE if text is None else SET, value=text)
        for name, text in changes
    )
    resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name=broker, configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=only)
    [answer] = ask(server, request, 1, incremental.IncrementalAlterConfigsResponse).responses
    return answer.error_code, answer.error_message or ""


def serial(address: str) -> int:
    with connected(address, client_context()) as client:
        return int(client.getpeercert()["serialNumber"], 16)  # type: ignore[index,call-overload,arg-type]


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kohort")


@pytest.mark.conformance("TL3")
def test_alter_configs_renews_a_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    renewed, again = issue(CA, *HOSTS), issue(CA, *HOSTS, "more.example.org")
    path = private(tmp_path, "renewed.p12", renewed.pkcs12(CA))
    with KohortServer(**settings_of(tmp_path)) as server:
        change = ((LOCATION, path), (STORE_PASSWORD, PASSWORD))
        address = server.bootstrap_servers_of("EXT")
        with connected(address, client_context()) as old:
            assert alter(server, *change, only=True) == (0, "")
            assert serial(address) == SERVER.certificate.serial_number
            assert alter(server, *change) == (0, "")
            assert serial(address) == renewed.certificate.serial_number
            old.settimeout(0.05)
            with pytest.raises(TimeoutError):  # it is open
                old.recv(1)
        described = describe(server)
        assert described[LOCATION] == (path, False)
        assert described[STORE_PASSWORD] == (None, True)
        # The same settings, and another file.
        private(tmp_path, "renewed.p12", again.pkcs12(CA))
        assert alter(server, *change) == (0, "")
        assert serial(address) == again.certificate.serial_number
        server.restart()
        assert serial(address) == again.certificate.serial_number
        # SIGHUP and changed files are for these, too.
        private(tmp_path, "renewed.p12", issue(CA, *HOSTS, "more.example.org", name="other").pkcs12(CA))
        server.renew_certificates()
        assert "ssl.allow.dn.changes=true" in caplog.text
        # An alternative name more than the one of the settings.
        refused = alter(server, (LOCATION, None), (STORE_PASSWORD, None))
        assert (refused[0], "lacks the names more.example.org" in refused[1]) == (ErrorCode.INVALID_REQUEST, True)
        key_file(tmp_path, again)
        server.renew_certificates()
        assert alter(server, (LOCATION, None), (STORE_PASSWORD, None)) == (0, "")
        assert LOCATION not in describe(server)
        assert serial(address) == again.certificate.serial_number
    assert PASSWORD not in caplog.text


def describe(server: KohortServer) -> dict[str, tuple[str | None, bool]]:
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(resources=(resource,))
    [answer] = ask(server, request, 4, DescribeConfigsResponse).results
    return {entry.name: (entry.value, entry.is_sensitive) for entry in answer.configs}


@pytest.mark.conformance("TL3")
def test_certificates_that_are_refused(tmp_path: Path) -> None:
    other = key_file(tmp_path, issue(CA, *HOSTS, name="other"), "other.pem")
    fewer = key_file(tmp_path, issue(CA, "localhost"), "fewer.pem")
    nonsense = private(tmp_path, "nonsense.pem", "nonsense")
    wrong_key = private(tmp_path, "mixed.pem", SERVER.certificate_pem + issue(CA, *HOSTS).key_pem)
    readable = key_file(tmp_path, SERVER, "readable.pem")
    os.chmod(readable, 0o644)
    os.mkfifo(tmp_path / "fifo")
    encrypted = issue(CA, *HOSTS).locked_key_pem
    slow = private(tmp_path, "slow.pem", large_certificate(CA, 8_448) + SERVER.key_pem)
    unprefixed = "can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]"
    with KohortServer(**settings_of(tmp_path)) as server:
        address = server.bootstrap_servers_of("EXT")
        for change, broker, why in (
            ((LOCATION, other), "1", "ssl.allow.dn.changes=true"),
            ((LOCATION, fewer), "1", "ssl.allow.san.changes=true"),
            ((LOCATION, nonsense), "1", "neither PEM nor PKCS12"),
            ((LOCATION, wrong_key), "1", "cannot be used"),
            ((LOCATION, readable), "1", "chmod 600"),
            ((LOCATION, str(tmp_path / "fifo")), "1", "is no file"),
            ((LOCATION, str(tmp_path)), "1", "is no file"),
            ((LOCATION, "/nowhere.pem"), "1", "cannot read /nowhere.pem"),
            ((LOCATION, "\0"), "1", "cannot read"),
            (("listener.name.ext.ssl.keystore.key", encrypted), "1", "the key is encrypted"),
            (("listener.name.ext.ssl.keystore.certificate.chain", encrypted), "1", "the key is encrypted"),
            ((LOCATION, slow), "1", "has 8448 bits; at most 8192"),
            ((LOCATION, other), "", "at default cluster level, broker id must be specified"),
            (("ssl.keystore.location", other), "1", unprefixed),
            (("ssl.keystore.location", other), "", unprefixed),
            (("listener.name.ext.ssl.client.auth", "required"), "1", "Cannot update these configs dynamically"),
            (("listener.name.ext.plain.sasl.jaas.config", "x"), "1", "Cannot update these configs dynamically"),
        ):
            error, message = alter(server, change, broker=broker)
            assert error == ErrorCode.INVALID_REQUEST
            assert why in message
            assert serial(address) == SERVER.certificate.serial_number
    with KohortServer() as server:
        wire = Wire(server.bootstrap_servers)
        config = AlterableConfig(name=LOCATION, value=other)
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=(config,))
        with wire:
            [answer] = wire.ask(encode_request(AlterConfigsRequest(resources=(resource,)), 2, 7, "c")[4:])
        _, start = read_response_header(answer, flexible=True, api_key=33)
        [told] = decode(AlterConfigsResponse, 2, answer, start).responses
        assert "no listener of this broker has TLS" in str(told.error_message)


@pytest.mark.conformance("TL3")
def test_other_subjects_may_be_allowed_and_brokers_differ(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    allowed = {"ssl_allow_dn_changes": True, "ssl_allow_san_changes": True, "brokers": 2}
    other = issue(CA, "127.0.0.1", "localhost", name="other")
    with KohortServer(**settings_of(tmp_path, **allowed)) as server:
        assert alter(server, (LOCATION.upper(), key_file(tmp_path, other, "other.pem")), broker="2") == (0, "")
        first, second = server.bootstrap_servers_of("EXT").split(",")
        assert serial(first) == SERVER.certificate.serial_number
        assert serial(second) == other.certificate.serial_number
        # The file of the start may go, if all brokers have settings of their own.
        assert alter(server, (LOCATION, str(tmp_path / "other.pem")), broker="1") == (0, "")
        server.stop()
        (tmp_path / "server.pem").unlink()
        server.start()
        assert serial(first) == other.certificate.serial_number
        server.stop()
        key_file(tmp_path, other)
        (tmp_path / "other.pem").unlink()
        server.start()
        assert serial(first) == other.certificate.serial_number
        assert "No such file" in caplog.text or "cannot read" in caplog.text
        assert alter(server, ("log.level", "info")) == (0, ""), "settings that cannot be used any more stop nothing"
        server.stop()
        (tmp_path / "server.pem").unlink()
        with pytest.raises(ConfigError, match=r"server\.pem"):
            server.start()


# -- the end of certificates


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if "a certificate" in record.getMessage()]
    caplog.clear()
    return found


def test_certificates_that_expire_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A test's certificate is valid for nine days."""
    now = [datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=25)]
    config = Config(listeners="SSL://127.0.0.1:0", ssl_keystore_location=key_file(tmp_path))
    certificates = Certificates(config, listeners_of(config), lambda: now[0])
    certificates.load({})
    assert not logged(caplog)
    now[0] += datetime.timedelta(days=10)
    certificates.warn()
    [line] = logged(caplog)
    assert line.startswith('a certificate expires soon listener=SSL subject="CN=broker"')
    assert line.endswith("days=23")
    now[0] += datetime.timedelta(days=25)
    certificates.renew()
    assert [line.partition(" listener")[0] for line in logged(caplog)] == [
        "a certificate was read again",
        "a certificate has expired: clients refuse it",
    ]
    # The first certificate of the chain that expires counts.
    key_file(tmp_path, issue(CA, *HOSTS))
    with open(tmp_path / "server.pem", "a") as file:
        file.write(issue(CA, name="between", expired=True).certificate_pem)
    now[0] = datetime.datetime.now(datetime.UTC)
    certificates.renew()
    assert any("has expired" in line and "CN=between" in line for line in logged(caplog))


def test_an_expired_certificate_is_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.server.security.entrance.LOOK_S", 0.01)
    monkeypatch.setattr("kohort.server.security.entrance.LOOKS_OF_A_DAY", 1)
    path = key_file(tmp_path, issue(CA, *HOSTS, expired=True))
    told: Callable[[], int] = lambda: caplog.text.count("a certificate has expired: clients refuse it")  # noqa: E731
    with KohortServer(listeners="SSL://127.0.0.1:0", ssl_keystore_location=path):
        assert told()
        before = told()
        eventually(lambda: told() > before)
