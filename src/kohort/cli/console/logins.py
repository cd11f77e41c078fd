"""Whether the console's users log in, and how the cluster knows them.

They log in with `--login`, or where the client settings have a SASL mechanism, and no password or source of tokens for
it. The settings then say how to connect; a name, a password and a source of tokens in them are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import typer

from kohort.cli.connect import CONFIG_FLAG, ClusterOptions, fail, fail_because
from kohort.client.errors import KafkaError
from kohort.client.security.bearer_tokens import Provided
from kohort.client.security.sasl import OAuthBearer, Plain, Scram
from kohort.client.security.scram import MECHANISMS
from kohort.client.security.security import Security, security_properties
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import parse_addresses
from kohort.properties import read_properties
from kohort.security.jaas import parse_jaas
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PLAIN, OAUTHBEARER = Plain.mechanism, OAuthBearer.mechanism
TAKEN = (PLAIN, *MECHANISMS, OAUTHBEARER)
CREDENTIALS = ("sasl.jaas.config", "sasl.username", "sasl.password")
OF_TOKENS = ("sasl.oauthbearer.", "sasl.login.")
EXTENSIONS, USER_CLAIM = "sasl.oauthbearer.extensions", "sasl.oauthbearer.sub.claim.name"
SOURCES = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.config",
)
"""Where the console's own tokens would come from."""
NOBODY = {"sasl.username": "nobody", "sasl.password": "none"}
"""Stand for a user's, so that the other settings can be checked."""


class Logins:
    """How users connect to the cluster."""

    def __init__(self, mechanism: str, security: Security, user_claim: str = "") -> None:
        """`security` has the login of nobody. `user_claim` is the claim of bearer tokens that names the user; empty for
        mechanisms with passwords."""
        self.mechanism = mechanism
        self.user_claim = user_claim
        self._security = replace(security, sasl=None)
        self._sasl = security.sasl

    def security(self, user: str, secret: str) -> Security:
        """`secret` is the user's password or bearer token."""
        if isinstance(self._sasl, OAuthBearer):
            return replace(self._security, sasl=replace(self._sasl, source=Provided(lambda: secret)))
        if self.mechanism == PLAIN:
            return replace(self._security, sasl=Plain(user, secret))
        return replace(self._security, sasl=Scram(self.mechanism, user, secret))

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
    if not wanted and (not has_sasl or mechanism not in TAKEN or has_credentials(properties, mechanism)):
        return None
    if not has_sasl or mechanism not in TAKEN:
        raise typer.BadParameter(
            f"users log in with {', '.join(TAKEN)}: {CONFIG_FLAG} names a file with "
            "security.protocol=SASL_SSL and sasl.mechanism",
            param_hint=["--login"],
        )
    others = {name: value for name, value in properties.items() if name not in CREDENTIALS}
    by_token = mechanism == OAUTHBEARER
    if by_token:
        others = {name: value for name, value in others.items() if name == EXTENSIONS or not name.startswith(OF_TOKENS)}
    try:
        security = Security.of(others, token_provider=_nobodys) if by_token else Security.of(others | NOBODY)
    except ValueError as error:
        raise typer.BadParameter(f"{CONFIG_FLAG} {file}: {error}") from None
    return Logins(mechanism, security, properties.get(USER_CLAIM, "sub") if by_token else "")


def _nobodys() -> str:
    """Stands for a user's token."""
    return ""


def has_credentials(properties: Mapping[str, str], mechanism: str) -> bool:
    """Whether the settings have what the console's own connections need."""
    if mechanism == OAUTHBEARER:
        return any(name in properties for name in SOURCES)
    if "sasl.password" in properties:
        return True
    jaas = properties.get("sasl.jaas.config")
    try:
        return jaas is not None and "password" in parse_jaas(jaas).options
    except ValueError:
        return True  # which is refused where it is read
