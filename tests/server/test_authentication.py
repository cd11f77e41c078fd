"""Authentication without IO: the order of requests, the mechanisms, what attackers try."""

from __future__ import annotations

import base64
import logging
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from kohort.broker.decoding import Decoded, most_bytes
from kohort.broker.security.credentials import Credentials
from kohort.client.security import scram as client_scram
from kohort.config import Config
from kohort.security.scram import CODES, Credential, credential, salted_password
from kohort.server.security import mechanisms
from kohort.server.security.conversation import FAILED, MOST_FRAMES, Close, Conversation, Done, Hash, Send, Terms
from kohort.wire.codec import decode, encode_request
from kohort.wire.framing import read_response_header
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

SALT = b"0123456789abcdefghijklmn"
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def stored(mechanism: str, password: str, iterations: int = 4096) -> Credential:
    return credential(mechanism, salted_password(mechanism, password, SALT, iterations), SALT, iterations)


KNOWN = Credentials()
KNOWN.secret = b"s" * 32
for _name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
    KNOWN.put("alice", CODES[_name], stored(_name, "wonderland"))
    KNOWN.put("a,b=c", CODES[_name], stored(_name, "pässword"))


def versions(found: Decoded) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=0 if found.request.client_software_name != "bad name" else 42, api_keys=())


def terms(**changes: Any) -> Terms:
    plain = {"bob": "builder"}
    return Terms(ALL, plain, KNOWN, {}, versions, most_bytes(Config()))._replace(**changes)


def frame(request: Any, version: int) -> bytes:
    return encode_request(request, version, 7, "c")[4:]


class Client:
    def __init__(self, conversation: Conversation, version: int = 2) -> None:
        self.conversation = conversation
        self.version = version

    def versions(self, name: str = "x", version: int = 3) -> Any:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        return self.conversation.take(frame(request, version))

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        return self.conversation.take(frame(SaslHandshakeRequest(mechanism=mechanism), version))

    def say(self, message: bytes) -> Any:
        request = SaslAuthenticateRequest(auth_bytes=message)
        result = self.conversation.take(frame(request, self.version))
        while isinstance(result, Hash):
            result = self.conversation.hashed(result.compute())
        return result

    def scram(self, mechanism: str, user: str, password: str, change: Callable[[bytes], bytes] = lambda m: m) -> Any:
        """The last result."""
        self.handshake(mechanism)
        talk = client_scram.conversation(mechanism, user, password, "fyko+d2lbbFgONRv9qkxdawL")
        result = self.say(next(talk))
        if not isinstance(result, Send):
            return result
        return self.say(change(talk.send(answer(result, self.version).auth_bytes)))


def answer(result: Any, version: int = 2) -> SaslAuthenticateResponse:
    _, start = read_response_header(result.data[4:], flexible=version >= 2, api_key=36)
    return decode(SaslAuthenticateResponse, version, result.data[4:], start)


def begun(**changes: Any) -> Client:
    return Client(Conversation(terms(**changes)))


# -- the order of requests


@pytest.mark.conformance("AU1")
def test_api_versions_may_be_tried_again_until_it_is_answered() -> None:
    client = begun()
    assert isinstance(client.versions(version=4), Send)
    client = begun()
    too_new = frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    too_new = too_new[:2] + b"\0\x63" + too_new[4:]
    assert isinstance(client.conversation.take(too_new), Send)
    assert isinstance(client.versions("bad name"), Send)
    assert isinstance(client.versions("good"), Send)
    assert client.conversation.software == ("good", "1")
    assert isinstance(client.versions("good"), Close), "only the handshake may follow"


@pytest.mark.conformance("AU1")
def test_other_requests_close_the_connection_unanswered() -> None:
    for request, version in ((MetadataRequest(topics=None), 12), (SaslAuthenticateRequest(auth_bytes=b"x"), 2)):
        result = begun().conversation.take(frame(request, version))
        assert isinstance(result, Close)
        assert not result.data
    for garbage in (b"", b"\0", b"\xff" * 50, b"\0\x11\0\1"):
        assert isinstance(begun().conversation.take(garbage), Close)


@pytest.mark.conformance("AU2")
def test_an_unknown_mechanism_is_answered_with_those_that_are_enabled() -> None:
    result = begun().handshake("GSSAPI")
    assert isinstance(result, Close)
    _, start = read_response_header(result.data[4:], flexible=False, api_key=17)
    told = decode(SaslHandshakeResponse, 1, result.data[4:], start)
    assert (told.error_code, told.mechanisms) == (33, ALL)
    only = begun(mechanisms=("PLAIN",)).handshake("SCRAM-SHA-512")
    assert isinstance(only, Close)


@pytest.mark.conformance("AU2")
@pytest.mark.parametrize("password", ["wonderland", "wrong"])
def test_bare_messages_follow_a_handshake_of_version_0(password: str) -> None:
    conversation = begun().conversation
    assert isinstance(conversation.take(frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0)), Send)
    talk = client_scram.conversation("SCRAM-SHA-256", "alice", password, "nonce")
    challenge = conversation.take(next(talk))
    assert isinstance(challenge, Send)
    assert int.from_bytes(challenge.data[:4], "big") == len(challenge.data) - 4
    end = conversation.take(talk.send(challenge.data[4:]))
    if password == "wrong":
        assert end == Close(end.reason, b"", is_failure=True)
    else:
        assert isinstance(end, Done)
        with pytest.raises(StopIteration):
            talk.send(end.data[4:])


@pytest.mark.conformance("AU3")
def test_another_request_in_between_ends_it() -> None:
    client = begun()
    client.handshake("PLAIN")
    result = client.handshake("PLAIN")
    _, start = read_response_header(result.data[4:], flexible=False, api_key=17)
    assert decode(SaslHandshakeResponse, 1, result.data[4:], start).error_code == 34
    client = begun()
    client.handshake("PLAIN")
    topics = (MetadataRequestTopic(name="t"),)
    result = client.conversation.take(frame(MetadataRequest(topics=topics), 12))
    assert isinstance(result, Close)
    _, start = read_response_header(result.data[4:], flexible=True, api_key=3)
    [topic] = decode(MetadataResponse, 12, result.data[4:], start).topics
    assert (topic.name, topic.error_code) == ("t", 34)
    client = begun()
    client.handshake("PLAIN")
    result = client.versions()
    assert isinstance(result, Close)
    _, start = read_response_header(result.data[4:], flexible=False, api_key=18)
    assert decode(ApiVersionsResponse, 3, result.data[4:], start).error_code == 34
    client = begun()
    client.handshake("PLAIN")
    many = MetadataRequest(topics=topics * 3_000)
    assert client.conversation.take(frame(many, 12)) == Close("a request of the API 3 before the authentication")
    client = begun()
    client.versions()
    assert answer(client.say(b"x")).error_code == 34


@pytest.mark.conformance("AU4")
def test_the_number_of_requests_is_limited() -> None:
    client = begun()
    for _ in range(MOST_FRAMES):
        assert isinstance(client.versions("bad name"), Send)
    assert isinstance(client.versions("bad name"), Close)


@pytest.mark.conformance("AU4")
def test_little_is_kept_of_a_large_request() -> None:
    """What is kept is not counted as a guest's, and there may be a thousand guests."""
    conversation = Conversation(terms())
    client = Client(conversation)
    large_tag = b"\x01\x63\xa0\xc2\x1e" + b"x" * 500_000
    tracemalloc.start()
    try:
        client.versions("x" * 500_000)
        client.handshake("SCRAM-SHA-512")
        request = frame(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 2)
        assert request.endswith(b"\0")
        assert isinstance(conversation.take(request[:-1] + large_tag), Send)
        assert tracemalloc.get_traced_memory()[0] < 64_000
    finally:
        tracemalloc.stop()


# -- PLAIN


@pytest.mark.conformance("AU6")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain(version: int) -> None:
    for user, password in (("bob", "builder"), ("alice", "wonderland"), ("a,b=c", "pässword")):
        client = begun()
        client.version = version
        client.handshake("PLAIN")
        result = client.say(f"\0{user}\0{password}".encode())
        assert isinstance(result, Done)
        assert result.user == user
        assert answer(result, version).error_code == 0
    client = begun()
    client.handshake("PLAIN")
    assert isinstance(client.say(b"bob\0bob\0builder"), Done)


@pytest.mark.conformance("AU6")
@pytest.mark.parametrize(
    "message",
    [
        b"", b"\0", b"\0bob", b"\0bob\0", b"\0\0builder", b"\0bob\0builder\0", b"alice\0bob\0builder",
        b"\0bob\0wrong", b"\0nobody\0builder", b"\0alice\0builder", b"\0\xff\0x", b"\0" + b"b" * 300 + b"\0x",
        b"\0bob\0" + b"x" * 20_000,
    ],
)  # fmt: skip
def test_plain_refuses(message: bytes) -> None:
    for credentials in (KNOWN, Credentials()):
        client = begun(credentials=credentials)
        client.handshake("PLAIN")
        result = client.say(message)
        assert isinstance(result, Close)
        assert result.is_failure
        told = answer(result)
        assert (told.error_code, told.error_message) == (58, FAILED)


@pytest.mark.conformance("AU8")
@pytest.mark.parametrize("user", ["alice", "carol", "bob", "nobody"])
def test_plain_hashes_with_every_mechanism_for_every_name(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the time of a refusal does not tell whether a name exists. carol has one mechanism, bob is configured."""
    credentials = Credentials()
    credentials.secret = b"s" * 32
    for name in CODES:
        credentials.put("alice", CODES[name], stored(name, "wonderland"))
    credentials.put("carol", CODES["SCRAM-SHA-256"], stored("SCRAM-SHA-256", "christmas"))
    hashed: list[tuple[str, int]] = []

    def counted(name: str, password: str, salt: bytes, iterations: int) -> bytes:
        hashed.append((name, iterations))
        return salted_password(name, password, salt, iterations)

    monkeypatch.setattr(mechanisms, "salted_password", counted)
    client = begun(credentials=credentials)
    client.handshake("PLAIN")
    assert isinstance(client.say(f"\0{user}\0wrong".encode()), Close)
    assert hashed == [("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 4096)]


def test_a_user_with_one_mechanism_has_plain_too() -> None:
    credentials = Credentials()
    credentials.put("carol", CODES["SCRAM-SHA-512"], stored("SCRAM-SHA-512", "christmas"))
    client = begun(credentials=credentials)
    client.handshake("PLAIN")
    assert isinstance(client.say(b"\0carol\0christmas"), Done)


# -- SCRAM


@pytest.mark.conformance("AU7")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(mechanism: str) -> None:
    for user, password in (("alice", "wonderland"), ("a,b=c", "pässword")):
        result = begun().scram(mechanism, user, password)
        assert isinstance(result, Done)
        assert (result.user, result.mechanism) == (user, mechanism)
    for user, password in (("alice", "wrong"), ("nobody", "wonderland"), ("bob", "builder")):
        result = begun().scram(mechanism, user, password)
        assert isinstance(result, Close)
        assert result.is_failure
        assert answer(result).error_message == FAILED


@pytest.mark.conformance("AU8")
def test_an_unknown_user_gets_a_challenge_that_stays_the_same() -> None:
    def challenge(user: str) -> dict[str, str]:
        client = begun()
        client.handshake("SCRAM-SHA-512")
        text = answer(client.say(f"n,,n={user},r=abc".encode())).auth_bytes.decode()
        return dict(part.split("=", 1) for part in text.split(","))

    real, phantom = challenge("alice"), challenge("nobody")
    assert real.keys() == phantom.keys()
    assert real["i"] == phantom["i"]
    assert len(real["s"]) == len(phantom["s"])
    assert challenge("nobody")["s"] == phantom["s"] != challenge("other")["s"]
    assert challenge("nobody")["r"] != phantom["r"]


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(message: bytes) -> bytes:
        assert old in message
        return message.replace(old, new)

    return change


@pytest.mark.conformance("AU7")
@pytest.mark.parametrize(
    "change",
    [
        replaced(b"r=fyko+d2lbbFgONRv9qkxdawL", b"r=fyko+d2lbbFgONRv9qkxdawM"),
        lambda m: m[: m.index(b"r=")] + b"r=fyko+d2lbbFgONRv9qkxdawL" + m[m.index(b",p=") :],
        replaced(b"c=biws", b"c=" + base64.b64encode(b"y,,")),
        replaced(b"c=biws", b"c="),
        lambda m: m[: m.index(b",p=")],
        lambda m: m[: m.index(b",p=")] + b",p=",
        lambda m: m[: m.index(b",p=")] + b",p=AAAA",
        lambda m: m + b"x",
        lambda m: b"\xff" + m,
        lambda m: b"",
        lambda m: b"n,,n=alice,r=abc",
    ],
)
def test_a_changed_last_message_is_refused(change: Callable[[bytes], bytes]) -> None:
    result = begun().scram("SCRAM-SHA-256", "alice", "wonderland", change)
    assert isinstance(result, Close)
    assert result.is_failure


@pytest.mark.conformance("AU7")
def test_a_last_message_cannot_be_replayed() -> None:
    seen: list[bytes] = []

    def keep(message: bytes) -> bytes:
        seen.append(message)
        return message

    assert isinstance(begun().scram("SCRAM-SHA-256", "alice", "wonderland", keep), Done)
    assert isinstance(begun().scram("SCRAM-SHA-256", "alice", "wonderland", lambda m: seen[0]), Close)


@pytest.mark.conformance("AU7")
@pytest.mark.parametrize(
    "first",
    [
        b"", b"n", b"n,,", b"n,,n=alice", b"n,,n=,r=abc", b"n,,n=alice,r=", b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc", b"n,a=bob,n=alice,r=abc", b"n,,m=x,n=alice,r=abc", b"n,,n=al=ice,r=abc",
        b"n,,n=al=2cice,r=abc", b"n,,n=alice,r=a c", b"n,,n=alice,r=abc,tokenauth=true", b"n,,r=abc,n=alice",
        b"n,,n=\xff,r=abc", b"n,,n=" + b"x" * 300 + b",r=abc",
        b"n,,n=alice,r=" + b"x" * 20_000,
    ],
)  # fmt: skip
def test_a_wrong_first_message_is_refused(first: bytes) -> None:
    client = begun()
    client.handshake("SCRAM-SHA-512")
    result = client.say(first)
    assert isinstance(result, Close)
    assert result.is_failure


@pytest.mark.conformance("AU7")
def test_an_authorization_id_may_be_the_user_and_extensions_are_signed() -> None:
    client = begun()
    client.handshake("SCRAM-SHA-256")
    assert isinstance(client.say(b"n,a=alice,n=alice,r=abc,x=y"), Send)


# -- sessions


@pytest.mark.conformance("AU12")
def test_the_lifetime_of_a_session_is_told_from_version_1_on() -> None:
    for version, told in ((0, 0), (1, 5000), (2, 5000)):
        client = begun(session_ms={"PLAIN": 5000})
        client.version = version
        client.handshake("PLAIN")
        result = client.say(b"\0bob\0builder")
        assert isinstance(result, Done)
        assert result.session_ms == 5000
        assert answer(result, version).session_lifetime_ms == told
    assert begun(session_ms={"PLAIN": 5000}).scram("SCRAM-SHA-256", "alice", "wonderland").session_ms == 0


@pytest.mark.conformance("AU13")
def test_a_re_authentication_keeps_user_and_mechanism() -> None:
    def again(user: str = "alice", mechanism: str = "SCRAM-SHA-256") -> Client:
        return Client(Conversation(terms(), (user, mechanism)))

    assert isinstance(again().scram("SCRAM-SHA-256", "alice", "wonderland"), Done)
    assert isinstance(again("bob").scram("SCRAM-SHA-256", "alice", "wonderland"), Close)
    assert answer(again("bob").scram("SCRAM-SHA-256", "alice", "wonderland")).error_code == 58
    assert isinstance(again().handshake("SCRAM-SHA-512"), Close)
    assert isinstance(again().versions(), Close)


# -- secrets


def test_no_result_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    for message in (b"\0bob\0secr3t", b"\0nobody\0secr3t", b"x\0bob\0secr3t", b"\0secr3t"):
        client = begun()
        client.handshake("PLAIN")
        shown.append(client.say(message).reason)
    shown += [repr(stored("SCRAM-SHA-256", "secr3t")), caplog.text]
    assert not any("secr3t" in text for text in shown)
    keys = stored("SCRAM-SHA-256", "secr3t")
    assert repr(keys.stored_key) not in repr(keys)


# -- garbage


def test_no_message_makes_it_fail() -> None:
    """An exception would stop the server."""
    chance = random.Random(18)
    talk = client_scram.conversation("SCRAM-SHA-256", "alice", "wonderland", "nonce")
    valid = [
        frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3),
        frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0),
        frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1),
        frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        frame(SaslAuthenticateRequest(auth_bytes=next(talk)), 2),
        frame(SaslAuthenticateRequest(auth_bytes=b"\0bob\0builder"), 1),
        frame(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=nonce,p=AAAA"), 0),
        b"n,,n=alice,r=nonce",
        b"c=biws,r=nonce,p=AAAA",
        b"\0nobody\0x",
    ]
    ends = {Send: 0, Close: 0, Done: 0, Hash: 0}
    for _ in range(5_000):
        conversation = begun().conversation
        for _ in range(chance.randint(1, 4)):
            message = bytearray(chance.choice(valid))
            for _ in range(chance.choice((0, 0, 1, 3))):
                at = chance.randrange(len(message) + 1)
                message[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 3))
            result = conversation.take(bytes(message))
            ends[type(result)] += 1
            if not isinstance(result, Send):
                break
    assert min(ends[Send], ends[Close], ends[Hash]) > 5, ends
