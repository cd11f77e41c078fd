"""How a client and a cluster come to trust each other, in Kafka's names.

    security = Security.of({
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "/etc/kafka/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "...",
    })
    Cluster("kafka:9093", security=security)         # or the mapping itself

The property names of Java's clients and of librdkafka (confluent-kafka) are accepted, so that settings that work there
work here. An unknown property is refused by name, because a security setting that is silently ignored is a hole.
Kafka's defaults apply: without `security.protocol` the connection is plain text; with TLS the broker's certificate and
its host name are verified.

A `Security` is a value: it can be compared, and pickled to other processes, which read the files again. Its `repr` and
all errors are free of secrets. `client/security/tls.py` and `client/security/sasl.py` carry it out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kohort.client.security.librdkafka_names import librdkafka_sasl, librdkafka_tls
from kohort.client.security.properties import PREFIXES, Reading
from kohort.client.security.sasl import Sasl
from kohort.client.security.tls import Tls
from kohort.properties import read_properties


@dataclass(frozen=True, slots=True)
class Security:
    """The value of `security=`; made by `of` or `read`. `tls` and `sasl` are None if they are not used."""

    protocol: str = "PLAINTEXT"
    tls: Tls | None = None
    sasl: Sasl | None = None

    @classmethod
    def of(
        cls, properties: Security | Mapping[str, str] | None, *, token_provider: Callable[[], str] | None = None
    ) -> Security:
        """Check properties, and read the files that they name. Raises ValueError, which names the wrong property.

        `token_provider` returns a token for OAUTHBEARER each time that one is needed, in any thread. It must be
        picklable if other processes need it. None and an empty mapping mean plain text.
        """
        if isinstance(properties, Security):
            if token_provider is not None:
                raise ValueError("token_provider: it goes where the Security is made")
            return properties
        return cls(*Reading(properties or {}, token_provider).result())

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, token_provider: Callable[[], str] | None = None) -> Security:
        """From a properties file, as Kafka's tools take it (`--command-config`); other properties in it are ignored.
        Raises ValueError."""
        found = security_properties(read_properties(os.fspath(path)))
        try:
            return cls.of(found, token_provider=token_provider)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None

    def librdkafka(self) -> dict[str, Any]:
        """The same settings for confluent-kafka's clients. Reads the files now. Raises ValueError for settings that
        librdkafka does not have."""
        settings: dict[str, Any] = {"security.protocol": self.protocol}
        if self.tls is not None:
            settings |= librdkafka_tls(self.tls)
        if self.sasl is not None:
            settings |= librdkafka_sasl(self.sasl)
        return settings


def security_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The security properties among these."""
    return {name: value for name, value in properties.items() if name.startswith(PREFIXES)}
