"""OAUTHBEARER: tokens that are refused, the key set and its renewal, sessions that end with their token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from edges import Edge, Wire, eventually
from secured import ca_file
from signed_tokens import (
    AUDIENCE,
    EC,
    ED,
    ISSUER,
    OTHER,
    P384,
    RSA,
    KeyServer,
    Signer,
    bearer_settings,
    key_server,
    key_set,
)

from kohort.broker.decoding import most_bytes
from kohort.broker.security.credentials import Credentials
from kohort.broker.turn import Opened
from kohort.client.cluster import Cluster
from kohort.client.errors import AuthenticationFailed
from kohort.config import BearerTerms, Config, ConfigError
from kohort.server.security import keys as keys_module
from kohort.server.security import session as session_module
from kohort.server.security.conversation import Close, Conversation, Done, Hash, Send, Terms
from kohort.server.security.keys import KeySet, parse
from kohort.server.security.mechanisms import INVALID_TOKEN, MALFORMED, Verified
from kohort.server.security.tokens import MOST_TOKEN, Verifier
from kohort.testing import KohortServer
from kohort.wire.codec import decode, encode_request
from kohort.wire.framing import read_response_header
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest

TERMS = BearerTerms("", "", 3600.0, (0.001, 0.002), frozenset((AUDIENCE,)), ISSUER, 30, "sub")


class Fixed(dict[str, Any]):
    def find(self, kid: str) -> Any:
        return self.get(kid)


KEYS = Fixed(parse(key_set(EC, RSA, ED, P384)))


def verified(token: str, terms: BearerTerms = TERMS, now: float | None = None) -> Verified | str:
    return Verifier(terms, KEYS, time.time if now is None else lambda: now).verify(token)


def encoded(part: Any) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def forged(header: dict[str, Any], key: bytes | None = None) -> str:
    """A token whose signature is none, or an HMAC."""
    now = int(time.time())
    claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600}
    signed = f"{encoded({'kid': 'rsa', **header})}.{encoded(claims)}"
    return f"{signed}.{encoded(hmac.digest(key, signed.encode(), hashlib.sha256)) if key else ''}"


# -- tokens


@pytest.mark.conformance("AU10")
@pytest.mark.parametrize("signer", [EC, RSA, ED, P384], ids=lambda signer: signer.algorithm)
def test_a_good_token(signer: Signer) -> None:
    found = verified(signer.token("alice", life_s=100))
    assert isinstance(found, Verified)
    assert found.user == "alice"
    assert 99_000 < found.rest_ms <= 100_000
    for changes in ({"aud": ["x", AUDIENCE]}, {"nbf": 1}, {"scope": ["a"]}, {"sub": " alice "}):
        found = verified(signer.token(**changes))
        assert isinstance(found, Verified), found
        assert found.user == "alice"


@pytest.mark.conformance("AU10")
@pytest.mark.parametrize(
    ("token", "why"),
    [
        (lambda: forged({"alg": "none"}), "'none' does not go with"),
        (lambda: forged({"alg": "None"}), "does not go with"),
        (lambda: forged({"alg": "HS256"}, PUBLIC_PEM), "'HS256' does not go with"),
        (lambda: forged({"alg": "RS256"}, PUBLIC_PEM), "signature"),
        (lambda: forged({"alg": ["RS256"]}), ""),
        (lambda: EC.token(headers={"kid": "rsa"}), "'ES256' does not go with"),
        (lambda: EC.token(headers={"kid": "../../etc/passwd"}), "is not known"),
        (lambda: EC.token(headers={"kid": "file:///etc/passwd"}), "is not known"),
        (lambda: EC.token(headers={"kid": ""}), "does not name its key"),
        (lambda: OTHER.token(headers={"kid": "ec"}), "signature"),
        # The token's own key, or an address of one, is not looked at.
        (lambda: OTHER.token(headers={"jwk": OTHER.jwk(), "kid": "ec"}), "signature"),
        (lambda: OTHER.token(headers={"jku": "https://127.0.0.1:1/keys"}), "is not known"),
        (lambda: EC.token(headers={"crit": ["x"], "x": 1}), ""),
        (lambda: EC.token(aud="other"), "another audience"),
        (lambda: EC.token(aud=None), "another audience"),
        (lambda: EC.token(aud=[7, "other"]), "another audience"),
        (lambda: EC.token(iss="https://other.example.org"), "another issuer"),
        (lambda: EC.token(iss=None), "another issuer"),
        (lambda: EC.token(exp=None), "no time exp"),
        (lambda: EC.token(exp="never"), ""),
        (lambda: EC.token(exp=float("inf")), "no time exp"),
        (lambda: EC.token(exp=True), "no time exp"),
        (lambda: EC.token(iat=None), "no time iat"),
        (lambda: EC.token(life_s=-31), "has expired"),
        (lambda: EC.token(iat=time.time() + 60), "not valid yet"),
        (lambda: EC.token(nbf=time.time() + 60), "not valid yet"),
        (lambda: EC.token(sub=None), "no user's name"),
        (lambda: EC.token(sub=["alice"]), ""),
        (lambda: EC.token(" "), "no user's name"),
        (lambda: EC.token("a" * 300), "no user's name"),
        (lambda: EC.token(x="x" * MOST_TOKEN), "more than 16384 characters"),
        (lambda: "a" * 10_000_000, "more than 16384 characters"),
        (lambda: "", "malformed"),
        (lambda: "a.b.c", "malformed"),
        (lambda: ".." * 100, "malformed"),
        (lambda: encoded(b"[" * 6_000) + ".x.x", "malformed"),
        (lambda: encoded(b'{"a":' * 1_200) + ".x.x", "malformed"),
        (lambda: encoded(b"[" * 9_000) + ".x.x", "header has more than 8192"),
        (lambda: encoded([1]) + ".x.x", "no header"),
        (lambda: encoded({"kid": "ec", "alg": "ES256"}) + ".x.x", "malformed"),
        (lambda: EC.token()[:-4], ""),
        (lambda: EC.token() + ".x", ""),
    ],
)  # fmt: skip
def test_a_refused_token(token: Callable[[], str], why: str) -> None:
    text = token()
    reason = verified(text)
    assert isinstance(reason, str)
    assert why in reason
    assert not text or text not in reason
    assert len(reason) < 200


PUBLIC_PEM = RSA.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.conformance("AU10")
def test_the_clocks_may_differ_and_terms_may_be_looser() -> None:
    now = time.time()
    token = EC.token(exp=now, iat=now - 10)
    assert verified(token, now=now + 29) == Verified("alice", 1)
    assert verified(token, now=now + 31) == "the token has expired"
    assert isinstance(verified(token, now=now - 39), Verified)
    assert verified(token, now=now - 41) == "the token is not valid yet"
    any_of_both = TERMS._replace(audiences=frozenset(), issuer="", user_claim="client_id")
    found = verified(EC.token(aud=None, iss="x", client_id="bob"), any_of_both)
    assert isinstance(found, Verified)
    assert found.user == "bob"


# -- keys


@pytest.mark.conformance("AU10")
def test_keys_that_are_left_out() -> None:
    weak = Signer("weak", rsa.generate_private_key(65537, 1024), "RS256").jwk()
    for jwk in (
        EC.jwk(use="enc"), EC.jwk(kid=None), EC.jwk(kid="k" * 1_001), EC.jwk(alg="RS256"), EC.jwk(key_ops=["sign"]),
        EC.jwk(x="AAAA"), EC.jwk(crv="secp256k1"), EC.jwk(kty="oct", k="AAAA"), {"kid": "x", "kty": "RSA"}, weak, 7,
    ):  # fmt: skip
        assert parse(json.dumps({"keys": [jwk]}).encode()) == {}
        assert list(parse(json.dumps({"keys": [jwk, RSA.jwk(alg="PS256")]}).encode())) == ["rsa"]
    assert parse(json.dumps({"keys": [RSA.jwk(alg="PS256")]}).encode())["rsa"].algorithms == {"PS256"}
    for data in (b"", b"[]", b"7", b'{"keys": 7}', b"[" * 100_000, b"\xff"):
        with pytest.raises(ValueError):
            parse(data)


@pytest.fixture
def server_of_keys(tmp_path: Path) -> Iterator[KeyServer]:
    with key_server(tmp_path) as found:
        yield found


@pytest.fixture
def key_set_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., KeySet]]:
    monkeypatch.setattr(keys_module, "LEAST_PAUSE_S", 0.0)
    made: list[KeySet] = []

    def make(url: str, **options: Any) -> KeySet:
        made.append(KeySet(TERMS._replace(url=url, ca_location=ca_file(tmp_path)), "EXT", **options))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.mark.conformance("AU10")
def test_keys_rotate(server_of_keys: KeyServer, key_set_of: Callable[..., KeySet]) -> None:
    found = key_set_of(server_of_keys.url)
    eventually(lambda: found.find("ec"))
    server_of_keys.content = key_set(OTHER)
    asked = server_of_keys.asked
    assert found.find("other") is None
    eventually(lambda: found.find("other"))
    assert found.find("ec") is None, "a key that is withdrawn is not used any more"
    assert server_of_keys.asked <= asked + 2


@pytest.mark.conformance("AU10")
def test_unknown_ids_are_asked_for_once_in_a_while(
    server_of_keys: KeyServer, key_set_of: Callable[..., KeySet]
) -> None:
    now = [0.0]
    found = key_set_of(server_of_keys.url, clock=lambda: now[0])
    eventually(lambda: found.find("ec"))
    asked = server_of_keys.asked  # more than once, if the system closed a connection
    for _ in range(50):
        found.find("new")
    eventually(lambda: server_of_keys.asked == asked + 1)
    eventually(lambda: not found._wanted.is_set())
    found.find("new")
    found.find("k" * 1_001)
    assert not found._wanted.is_set()
    now[0] = 61.0
    found.find("new")
    eventually(lambda: server_of_keys.asked == asked + 2)
    # One reading at a time, whatever is asked for meanwhile; and few ids are remembered.
    server_of_keys.may_answer.clear()
    for number in range(500):
        found.find(f"k{number}")
    eventually(lambda: server_of_keys.at_once == 1)
    assert len(found._missing) == 16
    server_of_keys.may_answer.set()
    eventually(lambda: server_of_keys.at_once == 0)
    assert server_of_keys.most_at_once == 1


@pytest.mark.conformance("AU10")
def test_a_reading_that_fails_is_repeated_and_keys_stay(
    server_of_keys: KeyServer, key_set_of: Callable[..., KeySet], caplog: pytest.LogCaptureFixture
) -> None:
    good = server_of_keys.content
    found = key_set_of(server_of_keys.url)
    eventually(lambda: found.find("ec"))
    for status, content, why in (
        (500, good, "HTTP 500"),
        (200, b"nonsense", "no JSON Web Key Set"),
        (200, good + b" " * 1_048_576, "more than 1048576 bytes"),
    ):
        server_of_keys.status, server_of_keys.content = status, content
        asked = server_of_keys.asked
        found.find(f"new-{why}")
        eventually(lambda asked=asked: server_of_keys.asked > asked + 2)
        assert found.find("ec")
        assert why in caplog.text
    server_of_keys.status, server_of_keys.content = 200, key_set(OTHER)
    eventually(lambda: found.find("other"))
    server_of_keys.content = key_set()
    found.find("new")
    eventually(lambda: found.find("other") is None)
    eventually(lambda: "no token is accepted" in caplog.text)


@pytest.mark.conformance("AU10")
def test_redirects_are_not_followed(
    server_of_keys: KeyServer, key_set_of: Callable[..., KeySet], caplog: pytest.LogCaptureFixture
) -> None:
    found = key_set_of(server_of_keys.url.replace("/keys", "/elsewhere"))
    eventually(lambda: "HTTP 302, a redirect, is not followed" in caplog.text)
    assert found.find("ec") is None


@pytest.mark.conformance("AU10")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sasl_oauthbearer_jwks_endpoint_url": ""}, ["sasl.oauthbearer.jwks.endpoint.url", "file:///"]),
        ({"sasl_oauthbearer_jwks_endpoint_url": "http://127.0.0.1/keys"}, ["http://127.0.0.1/keys", "https://"]),
        ({"sasl_oauthbearer_jwks_endpoint_url": "https://a:secret@host/keys"}, ["without a user"]),
        ({"sasl_oauthbearer_jwks_endpoint_url": "https://host:x/keys"}, ["https://"]),
        ({"sasl_oauthbearer_jwks_endpoint_url": "ftp://host/keys"}, ["https://"]),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file://elsewhere/keys"}, ["file:///"]),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///nowhere.json"}, ["/nowhere.json", "No such file"]),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///dev/null"}, ["no JSON Web Key Set"]),
        ({"sasl_oauthbearer_expected_audience": " , "}, ["expected.audience", "allow.unverified.audience=true"]),
        ({"sasl_oauthbearer_expected_issuer": ""}, ["expected.issuer", "allow.unverified.issuer=true"]),
        (
            {
                "sasl_oauthbearer_jwks_endpoint_url": "https://127.0.0.1:1/keys",
                "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": "OAuthBearerLoginModule required "
                'ssl.truststore.location="/nowhere.pem";',
            },
            ["ssl.truststore.location", "/nowhere.pem"],
        ),
        (
            {"listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": "org.example.Own"},
            ["sasl.server.callback.handler.class"],
        ),
        (
            {"listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": "JndiLoginModule required;"},
            ["OAuthBearerLoginModule", "loads none"],
        ),
        (
            {
                "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": "OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="admin";'
            },
            ["unsecuredLoginStringClaim_sub", "not served"],
        ),
    ],
)
def test_settings_that_cannot_be_used_are_named(tmp_path: Path, settings: dict[str, str], words: list[str]) -> None:
    good = tmp_path / "keys.json"
    good.write_bytes(key_set(EC))
    with pytest.raises(ConfigError) as refused:
        KohortServer(**bearer_settings(good.as_uri(), **settings)).start()
    assert all(word in str(refused.value) for word in words), refused.value


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("kohort.server.security.keys", "kohort.server.security.tokens"):
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.setitem(sys.modules, "jwt.algorithms", None)
    (tmp_path / "keys.json").write_bytes(key_set(EC))
    with pytest.raises(ConfigError, match=r"pip install 'kohort\[oauth\]'"):
        KohortServer(**bearer_settings((tmp_path / "keys.json").as_uri())).start()


def test_a_properties_file_of_kafka_is_read(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(key_set(EC))
    package = "org.apache.kafka.common.security.oauthbearer"
    at = "listener.name.sasl_plaintext.oauthbearer."
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{at}sasl.jaas.config": f"{package}.OAuthBearerLoginModule required ;",
        f"{at}sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
        f"{at}sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
        f"{at}sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
        f"{at}sasl.oauthbearer.expected.issuer": ISSUER,
        f"{at}connections.max.reauth.ms": "3600000",
    }
    with KohortServer(**settings) as server:
        assert signed_in(server, EC.token("alice")).name == "alice"


# -- the conversation


def frame(request: Any, version: int) -> bytes:
    return encode_request(request, version, 7, "c")[4:]


HANDSHAKE = frame(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)


def said(message: bytes | str) -> bytes:
    """A SaslAuthenticate; a text is a token."""
    data = message if isinstance(message, bytes) else f"n,,\x01auth=Bearer {message}\x01\x01".encode()
    return frame(SaslAuthenticateRequest(auth_bytes=data), 2)


def told(answer: bytes) -> SaslAuthenticateResponse:
    _, start = read_response_header(answer, flexible=True, api_key=36)
    return decode(SaslAuthenticateResponse, 2, answer, start)


class Both:
    def verify(self, token: str) -> Verified | str:
        return verified(token)


def conversation(session_ms: int = 0, again: tuple[str, str] | None = None) -> Conversation:
    terms = Terms(
        ("OAUTHBEARER",), {}, Credentials(), {"OAUTHBEARER": session_ms}, lambda _: None, most_bytes(Config()), Both()
    )
    begun = Conversation(terms, again)
    assert isinstance(begun.take(HANDSHAKE), Send)
    return begun


def given(conversation: Conversation, request: bytes) -> Any:
    result: Any = conversation.take(request)
    return conversation.hashed(result.compute()) if isinstance(result, Hash) else result


@pytest.mark.conformance("AU9", "AU12")
def test_a_session_ends_with_its_token() -> None:
    for session_ms, least, most in ((0, 590_000, 600_000), (5_000, 5_000, 5_000), (900_000, 590_000, 600_000)):
        done = given(conversation(session_ms), said(EC.token()))
        assert isinstance(done, Done)
        assert (done.user, done.mechanism) == ("alice", "OAUTHBEARER")
        assert least <= told(done.data[4:]).session_lifetime_ms == done.session_ms <= most


@pytest.mark.conformance("AU9")
def test_a_refused_token_is_answered_and_then_fails() -> None:
    for last in (b"\x01", b"", said(EC.token())):
        begun = conversation()
        answer = given(begun, said(EC.token(aud="other")))
        assert isinstance(answer, Send)
        assert (told(answer.data[4:]).error_code, told(answer.data[4:]).auth_bytes) == (0, INVALID_TOKEN.encode())
        end = given(begun, said(last))
        assert isinstance(end, Close)
        assert end.is_failure
        assert end.reason.startswith("the token is for another audience")
        assert (told(end.data[4:]).error_code, told(end.data[4:]).error_message) == (58, INVALID_TOKEN)


@pytest.mark.conformance("AU9")
def test_messages_of_oauthbearer() -> None:
    token = EC.token("a,b=c").encode()
    for message in (
        b"n,,\x01auth=Bearer T\x01\x01",
        b"n,a=a=2Cb=3Dc,\x01auth=bearer  T\x01\x01",
        b"n,,\x01logicalCluster=lkc 1\x01auth=Bearer T\x01x=y\x01\x01",
    ):
        done = given(conversation(), said(message.replace(b"T", token)))
        assert isinstance(done, Done)
        assert done.user == "a,b=c"
    for message in (
        b"", b"\x01", b"n,,", b"n,,\x01\x01", b"n,,auth=Bearer T\x01\x01", b"n,,\x01auth=Bearer T\x01",
        b"n,,\x01auth=Basic T\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"y,,\x01auth=Bearer T\x01\x01",
        b"n,a=other,\x01auth=Bearer T\x01\x01", b"n,a=a=2c,\x01auth=Bearer T\x01\x01", b"\xff",
        b"n,,\x01auth=Bearer T\x01auth=Bearer T\x01\x01", b"n,,\x01auth=Bearer T T\x01\x01",
        b"n,," + b"\x01x=y" * 30_000,
    ):  # fmt: skip
        end = given(conversation(), said(message.replace(b"T", token)))
        assert isinstance(end, Close), message
        assert (told(end.data[4:]).error_code, told(end.data[4:]).error_message) == (58, MALFORMED)


# -- over sockets


def signed_in(server: KohortServer, token: str) -> Any:
    """The end of a login: what SaslAuthenticate answers, with the user that the server knows then."""
    wire = Wire(server.bootstrap_servers)
    with wire:
        _, answer = wire.ask(HANDSHAKE, said(token))
        assert told(answer).error_code == 0, told(answer)
        assert not told(answer).auth_bytes
        opened = server._running._connections._open
        eventually(lambda: opened)
        [connection] = opened.values()
        return connection.principal


@pytest.fixture
def bearer_edge(
    edge_of: Callable[..., Edge], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Edge:
    caplog.set_level(logging.DEBUG, "kohort")
    monkeypatch.setattr(session_module, "AGAIN_S", 0.0)
    monkeypatch.setattr(keys_module, "LEAST_PAUSE_S", 0.0)
    (tmp_path / "keys.json").write_bytes(key_set(EC))
    return edge_of(**bearer_settings((tmp_path / "keys.json").as_uri()))


@pytest.mark.conformance("AU9", "AU12", "AU13", "AU14")
def test_a_session_is_renewed_with_another_token_and_ends(bearer_edge: Edge, caplog: pytest.LogCaptureFixture) -> None:
    tokens = [EC.token("alice", life_s=life_s) for life_s in (300, 400, 0.2)]
    with bearer_edge.wire() as wire:
        _, first = wire.ask(HANDSHAKE, said(tokens[0]))
        assert 290_000 < told(first).session_lifetime_ms <= 300_000
        _, second = wire.ask(HANDSHAKE, said(tokens[1]))
        assert 390_000 < told(second).session_lifetime_ms <= 400_000
        assert wire.ask(b"hello") == [b"hello"]
        _, third = wire.ask(HANDSHAKE, said(tokens[2]))
        assert told(third).session_lifetime_ms <= 200
        time.sleep(told(third).session_lifetime_ms / 1000 + 0.05)
        wire.push(b"\0\x13late")
        assert wire.is_closed
    [opened] = [event for turn in bearer_edge.broker.turns for event in turn if isinstance(event, Opened)]
    assert str(opened.principal) == "User:alice"
    with bearer_edge.wire() as wire:
        wire.ask(HANDSHAKE, said(EC.token("alice")))
        wire.push(HANDSHAKE, said(EC.token("bob")))
        wire.pull()
        assert told(wire.pull()).error_code == 58
        assert wire.is_closed
    with bearer_edge.wire() as wire:
        wire.ask(HANDSHAKE, said(EC.token("alice")))
        _, refused = wire.ask(HANDSHAKE, said(EC.token("alice", aud="other")))
        assert (told(refused).error_code, told(refused).auth_bytes) == (0, INVALID_TOKEN.encode())
        wire.push(said(b"\x01"))
        assert told(wire.pull()).error_code == 58
        assert wire.is_closed
    for token in tokens:
        assert not any(part in caplog.text for part in token.split("."))


@pytest.mark.conformance("AU9", "AU10")
def test_a_file_of_keys_rotates_without_a_restart(
    bearer_edge: Edge, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "keys.json").write_bytes(key_set(OTHER))
    token = OTHER.token()

    def gets_in() -> bool:
        with bearer_edge.wire() as wire:
            _, answer = wire.ask(HANDSHAKE, said(token))
            if not told(answer).auth_bytes:
                return True
            [refusal] = wire.ask(said(b"\x01"))
            assert told(refusal).error_code == 58
            assert wire.is_closed
            return False

    assert not gets_in()
    eventually(gets_in)
    assert "the token's key 'other' is not known" in caplog.text
    assert not any(part in caplog.text for part in token.split("."))


@pytest.mark.conformance("AU10")
def test_a_server_of_keys_that_does_not_answer_keeps_nobody_waiting(tmp_path: Path) -> None:
    with key_server(tmp_path) as keys:
        keys.may_answer.clear()
        jaas = f'OAuthBearerLoginModule required ssl.truststore.location="{ca_file(tmp_path)}";'
        settings = bearer_settings(keys.url, **{"listener.name.ext.oauthbearer.sasl.jaas.config": jaas})
        settings |= {"listeners": "EXT://127.0.0.1:0,INT://127.0.0.1:0"}
        settings |= {"listener.security.protocol.map": "EXT:SASL_PLAINTEXT,INT:PLAINTEXT"}
        bearer = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        (tmp_path / "token").write_text(EC.token())
        bearer["sasl.oauthbearer.token.endpoint.url"] = (tmp_path / "token").as_uri()

        def gets_in(server: KohortServer) -> bool:
            try:
                with Cluster(server.bootstrap_servers, security=bearer) as cluster:
                    return len(cluster.nodes()) == 1
            except AuthenticationFailed:
                return False

        with KohortServer(**settings) as server:
            eventually(lambda: keys.at_once)
            assert not gets_in(server)
            with Cluster(server.bootstrap_servers_of("INT")) as cluster:
                assert len(cluster.nodes()) == 1
            keys.may_answer.set()
            eventually(lambda: gets_in(server))
    eventually(lambda: "kohort-keys" not in {thread.name for thread in threading.enumerate()})
