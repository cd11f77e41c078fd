"""Whether the console's users log in, and how the cluster knows them.

They log in with `--login`, or where the client settings have a SASL mechanism of names and passwords and no password.
The settings then say how to connect; a name and a password in them are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import typer

from kohort.cli.connect import CONFIG_FLAG, ClusterOptions, fail, fail_because
from kohort.client.errors import KafkaError
from kohort.client.security.sasl import Plain, Scram
from kohort.client.security.scram import MECHANISMS
from kohort.client.security.security import Security, security_properties
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import parse_addresses
from kohort.properties import read_properties
from kohort.security.jaas import parse_jaas
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PLAIN = Plain.mechanism
WITH_PASSWORDS = (PLAIN, *MECHANISMS)
CREDENTIALS = ("sasl.jaas.config", "sasl.username", "sasl.password")
NOBODY = {"sasl.username": "nobody", "sasl.password": "none"}
"""Stand for a user's, so that the other settings can be checked."""


class Logins:
    """How users connect to the cluster."""

    def __init__(self, mechanism: str, security: Security) -> None:
        """`security` is without SASL, but for its protocol."""
        self.mechanism = mechanism
        self._security = security

    def security(self, user: str, password: str) -> Security:
        if self.mechanism == PLAIN:
            return replace(self._security, sasl=Plain(user, password))
        return replace(self._security, sasl=Scram(self.mechanism, user, password))

    def check(self, bootstrap: str, timeout_ms: int) -> None:
        """Ends the command if no broker can be reached, or none takes logins of this mechanism."""
        failure: KafkaError | None = None
        for host, port in parse_addresses(bootstrap):
            try:
                connection = Connection(host, port, connect_timeout_ms=timeout_ms, security=self._security)
            except KafkaError as error:
                failure = error
                continue
            try:
                request = SaslHandshakeRequest(mechanism=self.mechanism)
                answer = connection.request(request, SaslHandshakeResponse, timeout_ms=timeout_ms)
            except KafkaError as error:
                fail_because(error)
            finally:
                connection.close()
            if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                offered = ", ".join(answer.mechanisms) or "none"
                fail(f"{host}:{port} takes no logins by {self.mechanism}; sasl.mechanism can be one of {offered}")
            if answer.error_code:
                fail(f"the listener {host}:{port} has no SASL, so nobody can log in there")
            return
        assert failure is not None
        fail_because(failure)


def logins_of(where: ClusterOptions, *, wanted: bool) -> Logins | None:
    """None without a login. Raises BadParameter."""
    file = where.command_config
    try:
        properties = {} if file is None else security_properties(read_properties(file))
    except ValueError as error:
        raise typer.BadParameter(f"{CONFIG_FLAG} {file}: {error}") from None
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""
    has_sasl = properties.get("security.protocol", "").strip().upper().startswith("SASL_")
    if not wanted and (not has_sasl or mechanism not in WITH_PASSWORDS or has_password(properties)):
        return None
    if not has_sasl or mechanism not in WITH_PASSWORDS:
        raise typer.BadParameter(
            f"users log in with {', '.join(WITH_PASSWORDS)}: {CONFIG_FLAG} names a file with "
            "security.protocol=SASL_SSL and sasl.mechanism",
            param_hint=["--login"],
        )
    others = {name: value for name, value in properties.items() if name not in CREDENTIALS}
    try:
        security = Security.of(others | NOBODY)
    except ValueError as error:
        raise typer.BadParameter(f"{CONFIG_FLAG} {file}: {error}") from None
    return Logins(mechanism, replace(security, sasl=None))


def has_password(properties: Mapping[str, str]) -> bool:
    if "sasl.password" in properties:
        return True
    jaas = properties.get("sasl.jaas.config")
    try:
        return jaas is not None and "password" in parse_jaas(jaas).options
    except ValueError:
        return True  # which is refused where it is read
