"""Kafka's security properties: their meaning, refused values, and hidden secrets."""

from __future__ import annotations

import pickle
import ssl
import time
from pathlib import Path

import pytest
from own_certificates import PASSWORD, authority, issue, written

from kohort.client import Security
from kohort.client.security.bearer_tokens import Oidc, Provided, TokenFile, Unsecured
from kohort.client.security.sasl import OAuthBearer, Plain, Scram
from kohort.client.security.security import security_properties
from kohort.properties import read_properties
from kohort.security.jaas import parse_jaas

CA = authority()
OWN = issue(CA, "localhost", name="alice")
SECRET = "hunter2-öß"
MODULE = "org.apache.kafka.common.security"
SCRAM_JAAS = 'a.ScramLoginModule required username="a" password="hunter2-öß"'


def of(**properties: str) -> Security:
    return Security.of({name.replace("_", "."): value for name, value in properties.items()})


def sasl(mechanism: str, **properties: str) -> Security:
    return of(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **properties)


def context(**properties: str) -> ssl.SSLContext:
    made = of(security_protocol="SSL", **properties)
    assert made.tls is not None
    return made.tls.context()


def test_the_protocol_decides() -> None:
    assert Security.of(None) == Security.of({}) == Security()
    assert (Security().protocol, Security().tls, Security().sasl) == ("PLAINTEXT", None, None)
    made = of(security_protocol="ssl")
    assert Security.of(made) is made
    assert made.protocol == "SSL"
    unused = of(security_protocol="PLAINTEXT", sasl_mechanism="PLAIN", ssl_ca_location="/nowhere")
    assert (unused.tls, unused.sasl) == (None, None)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_credentials_that_nobody_would_use_are_refused(protocol: str) -> None:
    given = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "a", "sasl.password": SECRET}
    with pytest.raises(ValueError, match=f"sasl.username is set, but security.protocol={protocol} has no login") as bad:
        Security.of({"security.protocol": protocol, **given})
    assert SECRET not in str(bad.value)
    for properties in (
        {},
        {"security.protocol": protocol},
        {"security.protocol": protocol, "sasl.mechanism": "OAUTHBEARER"},
        {"security.protocol": "SASL_SSL", **given},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"},
    ):
        with pytest.raises(ValueError, match="token_provider is set, but not"):
            Security.of(properties, token_provider=str)
    with pytest.raises(ValueError, match="token_provider: it goes where the Security is made"):
        Security.of(Security(), token_provider=str)


# -- SASL


JAAS = 'LoginModule required\n  username="alice"\n  password="a \\"b\\" \\\\ ;c";'
UNSECURED = f'{MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";'
CLAIMS = "principal=alice scope=a,b lifeSeconds=60"


@pytest.mark.parametrize(
    ("mechanism", "properties", "expected"),
    [
        ("PLAIN", {"sasl_username": "a", "sasl_password": "b"}, Plain("a", "b")),
        ("PLAIN", {"sasl_username": "a", "sasl_password": "b", "sasl_oauthbearer_token_endpoint_url": "https://idp"},
         Plain("a", "b")),
        ("SCRAM-SHA-256", {"sasl_username": "a", "sasl_password": "b"}, Scram("SCRAM-SHA-256", "a", "b")),
        ("SCRAM-SHA-512", {"sasl_username": "a", "sasl_password": "b"}, Scram("SCRAM-SHA-512", "a", "b")),
        ("PLAIN", {"sasl_jaas_config": f"{MODULE}.plain.Plain{JAAS}"}, Plain("alice", 'a "b" \\ ;c')),
        ("SCRAM-SHA-256", {"sasl_jaas_config": f"{MODULE}.scram.Scram{JAAS}"},
         Scram("SCRAM-SHA-256", "alice", 'a "b" \\ ;c')),
        ("OAUTHBEARER", {"sasl_jaas_config": UNSECURED}, OAuthBearer(Unsecured("alice"))),
        ("OAUTHBEARER", {"sasl_oauthbearer_config": CLAIMS, "enable_sasl_oauthbearer_unsecure_jwt": "true"},
         OAuthBearer(Unsecured("alice", scope=("a", "b"), life_s=60))),
        ("OAUTHBEARER", {"sasl_oauthbearer_token_endpoint_url": "file:///var/run/token"},
         OAuthBearer(TokenFile("/var/run/token"))),
    ],
)  # fmt: skip
def test_logins(mechanism: str, properties: dict[str, str], expected: object) -> None:
    assert sasl(mechanism, **properties).sasl == expected
    of_librdkafka = of(security_protocol="sasl_plaintext", sasl_mechanisms=mechanism, **properties)
    assert of_librdkafka.sasl == expected


def test_oidc_in_the_names_of_java_and_librdkafka() -> None:
    url = "https://idp/token"
    jaas = f'{MODULE}.oauthbearer.OAuthBearerLoginModule required clientId="id" clientSecret="s" scope="kafka"'
    of_java = sasl(
        "OAUTHBEARER",
        sasl_jaas_config=f'{jaas} extension_logicalCluster="lkc";',
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_login_callback_handler_class=f"{MODULE}.oauthbearer.OAuthBearerLoginCallbackHandler",
    )
    of_librdkafka = sasl(
        "OAUTHBEARER",
        sasl_oauthbearer_method="oidc",
        sasl_oauthbearer_client_id="id",
        sasl_oauthbearer_client_secret="s",
        sasl_oauthbearer_scope="kafka",
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_extensions="logicalCluster=lkc",
    )
    assert of_java == of_librdkafka
    assert of_java.sasl == OAuthBearer(Oidc(url, "id", "s", "kafka"), (("logicalCluster", "lkc"),))


def test_a_provider_of_tokens() -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    assert Security.of(properties, token_provider=str).sasl == OAuthBearer(Provided(str))


# -- TLS


def test_trust_and_key_in_every_notation(tmp_path: Path) -> None:
    """Java's PEM and PKCS12 stores, text in the properties, librdkafka's files."""
    ca = written(tmp_path, "ca.pem", "# of the tests, ö\n" + CA.certificate_pem)
    store = written(tmp_path, "own.pem", OWN.locked_key_pem + OWN.certificate_pem)
    notations = [
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca, "ssl.keystore.type": "PEM"}
        | {"ssl.keystore.location": store, "ssl.key.password": PASSWORD},
        {"ssl.truststore.certificates": CA.certificate_pem, "ssl.keystore.key": OWN.locked_key_pem}
        | {"ssl.keystore.certificate.chain": OWN.certificate_pem, "ssl.key.password": PASSWORD},
        {"ssl.ca.location": ca, "ssl.certificate.location": written(tmp_path, "cert.pem", OWN.certificate_pem)}
        | {"ssl.key.location": written(tmp_path, "key.pem", OWN.key_pem)},
        {"ssl.ca.pem": CA.certificate_pem, "ssl.certificate.pem": OWN.certificate_pem, "ssl.key.pem": OWN.key_pem},
        {"ssl.truststore.location": written(tmp_path, "ca.p12", CA.trusted_pkcs12())}
        | {"ssl.truststore.password": PASSWORD, "ssl.keystore.password": PASSWORD}
        | {"ssl.keystore.location": written(tmp_path, "own.p12", OWN.pkcs12(CA)), "ssl.keystore.type": "PKCS12"},
    ]
    for properties in notations:
        made = Security.of({"security.protocol": "SSL", **properties})
        assert made.tls is not None
        context = made.tls.context()
        assert [found["subject"] for found in context.get_ca_certs()] == [((("commonName", "kohort test authority"),),)]
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
        for_librdkafka = made.librdkafka()
        assert for_librdkafka["ssl.ca.pem"].count("BEGIN CERTIFICATE") == 1
        assert "PRIVATE KEY" in for_librdkafka["ssl.key.pem"]


def test_levels_of_certificate_verification() -> None:
    for text, expected in (("https", True), ("", False), ("none", False)):
        made = context(ssl_endpoint_identification_algorithm=text)
        assert made.check_hostname is expected
        assert made.verify_mode is ssl.CERT_REQUIRED
    assert context(enable_ssl_certificate_verification="false").verify_mode is ssl.CERT_NONE
    assert context(ssl_enabled_protocols="TLSv1.2").maximum_version is ssl.TLSVersion.TLSv1_2


def test_a_renewed_file_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, "ca.pem", CA.certificate_pem)
    made = of(security_protocol="SSL", ssl_ca_location=path)
    assert made.tls is not None
    before = made.tls.context()
    assert made.tls.context() is before
    written(tmp_path, "ca.pem", authority("another").certificate_pem + "\n")
    assert made.tls.context().get_ca_certs()[0]["subject"] == ((("commonName", "another"),),)


# -- what is refused


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS'; it takes PLAINTEXT, SSL"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism is set but security.protocol is not"),
        ({"security.protocol": "SSL", "ssl.cipher.suite": "x"}, "client knows: ssl.cipher.suite"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/ca.pem"}, "ssl.ca.location: cannot read /no/ca.pem"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "x"}, "certificate.chain is missing"),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": ""}, "ssl.truststore.certificates: no certif"),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "x"}, "ssl.truststore.certificates: no certif"),
        ({"security.protocol": "SSL", "ssl.ca.location": "a", "ssl.truststore.location": "b"}, "set and differ"),
        ({"security.protocol": "SSL", "ssl.ca.location": "a", "ssl.ca.pem": "b"}, "one of them is enough"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"}, "it takes https"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "x"}, "takes true or false"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "SSLv3"}, "it takes TLSv1.2 and TLSv1.3"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "Kerberos"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.username is missing"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"}, "sasl.password is miss"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "token_provider"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"}, "expected: CLASS"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{SCRAM_JAAS};"},
            "ScramLoginModule, which does not fit sasl.mechanism=PLAIN",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}
            | {"sasl.jaas.config": f'{SCRAM_JAAS} tokenauth="true";'},
            "does not know the options tokenauth",
        ),
        ({"bootstrap.servers": "x"}, "client knows: bootstrap.servers"),
    ],
)
def test_refusals_name_the_property(properties: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        Security.of(properties)
    assert SECRET not in str(refused.value)


def test_stores_of_java_are_refused_with_the_way_out(tmp_path: Path) -> None:
    path = written(tmp_path, "trust.jks", b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(ValueError, match=r"keytool -importkeystore -srckeystore \S+trust.jks .* openssl pkcs12"):
        of(security_protocol="SSL", ssl_truststore_location=path)


def test_keys_that_do_not_open(tmp_path: Path) -> None:
    store = written(tmp_path, "own.p12", OWN.pkcs12())
    for password in ({}, {"ssl.keystore.password": SECRET}):
        with pytest.raises(ValueError, match=r"ssl.keystore.location: .* no PKCS12 store that opens") as refused:
            Security.of({"security.protocol": "SSL", "ssl.keystore.location": store, **password})
        assert SECRET not in str(refused.value)
    locked = {"ssl.keystore.certificate.chain": OWN.certificate_pem, "ssl.keystore.key": OWN.locked_key_pem}
    for password in ({}, {"ssl.key.password": SECRET}):
        with pytest.raises(ValueError, match=r"is ssl.key.password its password"):
            Security.of({"security.protocol": "SSL", **locked, **password})
    strangers = {"ssl.keystore.certificate.chain": OWN.certificate_pem, "ssl.keystore.key": CA.key_pem}
    with pytest.raises(ValueError, match="does the key belong to the certificate"):
        Security.of({"security.protocol": "SSL", **strangers})


# -- secrets


def test_no_secret_shows(tmp_path: Path) -> None:
    made = [
        sasl("PLAIN", sasl_username="alice", sasl_password=SECRET),
        sasl("SCRAM-SHA-256", sasl_username="alice", sasl_password=SECRET),
        sasl(
            "OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url="https://idp",
            sasl_oauthbearer_client_id="alice",
            sasl_oauthbearer_client_secret=SECRET,
        ),
        of(
            security_protocol="SSL",
            ssl_keystore_certificate_chain=OWN.certificate_pem,
            ssl_keystore_key=OWN.locked_key_pem,
            ssl_key_password=PASSWORD,
        ),
    ]
    for security in made:
        assert pickle.loads(pickle.dumps(security)) == security
        for shown in (repr(security), str(security)):
            assert SECRET not in shown
            assert PASSWORD not in shown
            assert "PRIVATE" not in shown
    assert "alice" in repr(made[0])  # the user name is shown


# -- the notations


def test_jaas_in_all_its_forms() -> None:
    module = parse_jaas("  a.b.C\trequired debug=true x='y z' ;\n")
    assert (module.name, module.options) == ("C", {"debug": "true", "x": "y z"})
    required = ("a.C required", "a.C required x;", "a.C maybe x=y;", 'a.C required x="y;', "a.C required x=y; b;")
    for bad in ("", ";", *required):
        with pytest.raises(ValueError, match=r"sasl.jaas.config"):
            parse_jaas(bad)


def test_properties_files(tmp_path: Path) -> None:
    text = (
        "# a comment\n! another\n\n"
        "security.protocol = SASL_SSL\n"
        "sasl.mechanism:PLAIN\n"
        "sasl.jaas.config=a.PlainLoginModule required \\\n"
        '    username="alice" \\\n'
        '    password="a#b\\u00e4=c";\n'
        "client.id  kohort\n"
        "empty=\n"
        "path=C:\\\\keys\\\\ca.pem\n"
    )
    found = read_properties(written(tmp_path, "client.properties", text))
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'a.PlainLoginModule required username="alice" password="a#bä=c";',
        "client.id": "kohort",
        "empty": "",
        "path": "C:\\keys\\ca.pem",
    }
    assert set(security_properties(found)) == {"security.protocol", "sasl.mechanism", "sasl.jaas.config"}
    made = Security.read(tmp_path / "client.properties")
    assert made.sasl == Plain("alice", "a#bä=c")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*nothing"):
        Security.read(tmp_path / "nothing")
    bad = written(tmp_path, "bad", "security.protocol=x\n")
    with pytest.raises(ValueError, match=r"bad: security.protocol is 'x'"):
        Security.read(bad)
    with pytest.raises(ValueError, match="not UTF-8"):
        read_properties(written(tmp_path, "latin", b"a=\xe4"))


# -- for librdkafka


def test_settings_for_librdkafka_are_accepted_by_it() -> None:
    from confluent_kafka import Producer

    for security in (
        of(
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="a",
            sasl_password="b",
            ssl_ca_pem=CA.certificate_pem,
            ssl_certificate_pem=OWN.certificate_pem,
            ssl_key_pem=OWN.locked_key_pem,
            ssl_key_password=PASSWORD,
        ),
        sasl("OAUTHBEARER", sasl_oauthbearer_config="principal=alice"),
    ):
        Producer({"bootstrap.servers": "localhost:1", "log_level": 0, **security.librdkafka()})


def test_librdkafka_cannot_be_held_to_the_newest_tls() -> None:
    for versions in ("TLSv1.2", "TLSv1.2,TLSv1.3", "TLSv1.1,TLSv1.2"):
        of(security_protocol="SSL", ssl_enabled_protocols=versions).librdkafka()
    with pytest.raises(ValueError, match=r"ssl\.enabled\.protocols: librdkafka has no setting"):
        of(security_protocol="SSL", ssl_enabled_protocols="TLSv1.3").librdkafka()


def test_tokens_for_librdkafka() -> None:
    token, ends, _, extensions = sasl(
        "OAUTHBEARER", sasl_oauthbearer_config="principal=alice lifeSeconds=60", sasl_oauthbearer_extensions="a=b"
    ).librdkafka()["oauth_cb"]("")
    assert token.count(".") == 2
    assert 50 < ends - time.time() <= 60
    assert extensions == {"a": "b"}
