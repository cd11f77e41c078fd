"""OAUTHBEARER of a listener: the settings by which tokens are verified.

As in Apache Kafka, the audience and the issuer must be given, or allowed to be any. Source: BrokerJwtValidator.java.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.config.declaration import ConfigError
from kohort.config.listeners import BEARER, bearer_options, value_at
from kohort.config.settings import Config

URL = "sasl.oauthbearer.jwks.endpoint.url"
CA_OPTION = "ssl.truststore.location"
"""In the JAAS configuration, as in Kafka."""
REFUSED_OPTIONS = ("unsecured", "ssl.keystore", "ssl.key.")
"""Options of OAuthBearerLoginModule that kohort does not carry out."""


class BearerTerms(NamedTuple):
    """How a listener verifies tokens."""

    url: str
    """https://…, or file:///…"""
    ca_location: str
    """PEM file of the authorities of the https server; "" for those of the system."""
    refresh_s: float
    retry_s: tuple[float, float]
    """The first and the longest pause after a failure."""
    audiences: frozenset[str]
    """Empty: any."""
    issuer: str
    """Empty: any."""
    skew_s: int
    user_claim: str


def bearer_at(config: Config, listener: str) -> BearerTerms:
    """Raises ConfigError."""

    def value(name: str) -> str:
        return str(value_at(config, listener, f"sasl.oauthbearer.{name}", BEARER)).strip()

    retry_s = int(value("jwks.endpoint.retry.backoff.ms")) / 1000
    return BearerTerms(
        url=_checked_url(value("jwks.endpoint.url"), listener),
        ca_location=_ca_location(config, listener),
        refresh_s=int(value("jwks.endpoint.refresh.ms")) / 1000,
        retry_s=(retry_s, max(retry_s, int(value("jwks.endpoint.retry.backoff.max.ms")) / 1000)),
        audiences=frozenset(_expected(config, listener, "audience").split(",")) - {""},
        issuer=_expected(config, listener, "issuer"),
        skew_s=int(value("clock.skew.seconds")),
        user_claim=value("sub.claim.name") or "sub",
    )


def _expected(config: Config, listener: str, what: str) -> str:
    """The expected audience or issuer; "" if any is allowed."""
    text: str = value_at(config, listener, f"sasl.oauthbearer.expected.{what}", BEARER)
    text = ",".join(part.strip() for part in text.split(",")) if what == "audience" else text.strip()
    may_be_any: bool = value_at(config, listener, f"sasl.oauthbearer.allow.unverified.{what}", BEARER)
    if may_be_any:
        return ""
    if not text.strip(","):
        raise ConfigError(
            f"the listener {listener} has OAUTHBEARER, but no sasl.oauthbearer.expected.{what}; set it, or "
            f"sasl.oauthbearer.allow.unverified.{what}=true to accept a token of any {what}"
        )
    return text


def _checked_url(text: str, listener: str) -> str:
    from urllib.parse import urlsplit  # for OAUTHBEARER alone

    if not text:
        raise ConfigError(
            f"the listener {listener} has OAUTHBEARER: set {URL} to the https:// address or the file:/// of the keys "
            "that sign its tokens"
        )
    try:
        parts = urlsplit(text)
        is_https = parts.scheme == "https" and parts.hostname and parts.username is None and parts.port != 0
        is_file = parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/")
    except ValueError:
        is_https = is_file = False
    if not is_https and not is_file:
        raise ConfigError(f"{URL} is {text!r}; it takes https://HOST[:PORT]/PATH without a user, or file:///PATH")
    return text


def _ca_location(config: Config, listener: str) -> str:
    options = bearer_options(config, listener)
    for name in options:
        if name.startswith(REFUSED_OPTIONS):
            raise ConfigError(f"the option {name} of OAuthBearerLoginModule is not served; {CA_OPTION} is")
    return options.get(CA_OPTION, "")
