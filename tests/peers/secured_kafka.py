"""Apache Kafka with a listener for every way of authentication.

SECURED: TLS, and any of the four SASL mechanisms. MUTUAL: TLS with a certificate of the client. BRIEF: SASL without
TLS, one mechanism, and an authentication that lasts for six seconds. Beside them the plain one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import _kafka as apache
from own_certificates import authority, issue, written

CA = authority()
BROKER = issue(CA, "127.0.0.1", "localhost")
USER, PASSWORD = "alice", "hunter2-pa55!"
MODULES = "org.apache.kafka.common.security"
BRIEF_S = 6

TRUSTING = {"ssl.truststore.certificates": CA.certificate_pem}
BY_PASSWORD = {"sasl.username": USER, "sasl.password": PASSWORD}
OF_BEARER = f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{USER}";'

SECURED = {"security.protocol": "SASL_SSL", **TRUSTING}
WAYS: dict[str, dict[str, str]] = {
    "PLAIN": SECURED | {"sasl.mechanism": "PLAIN"} | BY_PASSWORD,
    "SCRAM-SHA-256": SECURED | {"sasl.mechanism": "SCRAM-SHA-256"} | BY_PASSWORD,
    "SCRAM-SHA-512": SECURED | {"sasl.mechanism": "SCRAM-SHA-512"} | BY_PASSWORD,
    "OAUTHBEARER": SECURED | {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OF_BEARER},
}
"""A client's properties, by mechanism, for the listener SECURED."""
BRIEF = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", **BY_PASSWORD}


@dataclass(frozen=True)
class SecuredKafka:
    """The listeners' addresses."""

    plain: str
    secured: str
    mutual: str
    brief: str


@contextmanager
def secured_kafka(class_path: str, folder: Path) -> Iterator[SecuredKafka]:
    names = ("SECURED", "MUTUAL", "BRIEF")
    ports = dict(zip(names, apache.free_ports(len(names)), strict=True))
    scram = [f"{mechanism}=[name={USER},password={PASSWORD}]" for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    options = [word for each in scram for word in ("--add-scram", each)]
    with apache.kafka(class_path, _settings(folder), ports, options, apache.BRIEF) as (_, (host, port)):
        secured, mutual, brief = (f"{host}:{ports[name]}" for name in names)
        yield SecuredKafka(f"{host}:{port}", secured, mutual, brief)


def _settings(folder: Path) -> dict[str, str]:
    own = written(folder, "broker.pem", BROKER.key_pem + BROKER.certificate_pem)
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,MUTUAL:SSL,BRIEF:SASL_PLAINTEXT"
    jaas = {
        "secured.plain": f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        "secured.scram-sha-256": f"{MODULES}.scram.ScramLoginModule required;",
        "secured.scram-sha-512": f"{MODULES}.scram.ScramLoginModule required;",
        "secured.oauthbearer": OF_BEARER,
        "brief.scram-sha-256": f"{MODULES}.scram.ScramLoginModule required;",
    }
    return {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "log.retention.ms": "-1",  # records are of 1970
        "listener.security.protocol.map": protocols,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": own,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": written(folder, "ca.pem", CA.certificate_pem),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.secured.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.brief.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.brief.scram-sha-256.connections.max.reauth.ms": str(BRIEF_S * 1000),
        **{f"listener.name.{name}.sasl.jaas.config": text for name, text in jaas.items()},
    }
