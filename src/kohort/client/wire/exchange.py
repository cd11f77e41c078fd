"""A connection without its socket: versions, correlation ids, frames to and from messages.

`question` turns a request into a frame; `answer` turns a frame into the answer to a question. A connection uses the
highest version of a message that this client, the broker and `VERSION_CAPS` have in common, so `negotiate` comes first:
the generator yields questions and gets the frames of their answers.

With SASL, `authenticate` follows in the same manner: SaslHandshake names the mechanism, SaslAuthenticate carries its
messages (KIP-43, KIP-152). If the broker limits the lifetime of an authentication (KIP-368), the connection repeats it
in time.

A broker answers an ApiVersions request that is too new in version 0, with UNSUPPORTED_VERSION (35) and the range that
it serves; the client then asks again in that range. Answers come in the order of the questions, and each answer's
correlation id is checked. Bytes after an answer are ignored, as Kafka's own clients do (librdkafka's mock broker sends
one too many).
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar

from kohort import __version__
from kohort.client.errors import AuthenticationFailed, BadAnswer, UnsupportedVersion, error_code
from kohort.client.security.sasl import Distrusted, Sasl
from kohort.client.security.security import Security
from kohort.client.security.tls import looks_like_http, looks_like_tls
from kohort.wire.codec import decode_prefix, encode_request
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of
from kohort.wire.schemas.add_partitions_to_txn import AddPartitionsToTxnRequest
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.fetch import FetchRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest
from kohort.wire.schemas.produce import ProduceRequest
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

VERSION_CAPS: Mapping[type, int] = {
    FetchRequest: 12,
    ProduceRequest: 12,
    OffsetCommitRequest: 9,
    OffsetFetchRequest: 9,
    AddPartitionsToTxnRequest: 3,
    EndTxnRequest: 4,
}
"""The next version of the first four names topics by id instead of by name. Callers of this library name topics, and
every broker with ids serves these versions too, so ids would only add a lookup that can be stale. AddPartitionsToTxn 4
is for brokers. EndTxn 5 gives the producer a new epoch; `client/transactions` asks for it by its number."""

SOFTWARE_NAME = "kohort"
"""The client's name in ApiVersions; kohort holds the heartbeats of clients of this name."""

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36

PLAINTEXT = Security()

ANSWERED_IN_TLS = "answered in TLS: security.protocol would be SSL or SASL_SSL"
ANSWERED_IN_HTTP = "answered in HTTP: this is the port of a web server"

RENEW_AFTER = 0.8
"""An authentication is repeated after this part of its lifetime."""

Response = TypeVar("Response")


class VersionRange(NamedTuple):
    """Versions of one API that a broker serves, both included."""

    first: int
    last: int


class Question(NamedTuple):
    """A request that was sent and not yet answered."""

    correlation_id: int
    name: str
    api_key: int
    version: int
    frame: bytes


class Exchange:
    """The conversation with the broker at `address`; see the module docstring."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str | None,
        version_caps: Mapping[type, int] = VERSION_CAPS,
        security: Security = PLAINTEXT,
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.client_id = client_id
        self.version_caps = version_caps
        self.security = security
        self._heard = False
        """True if the broker has answered a request that only authenticated clients may send."""
        self.api_versions: dict[int, VersionRange] = {}
        self.features: frozenset[str] = frozenset()
        """The names of the features that the broker supports."""
        self.finalized: dict[str, int] = {}
        """The cluster's finalized features (KIP-584): name, level."""
        self._correlation_ids = itertools.count(1)

    def version_of(self, request_class: type) -> int:
        """The version in which a request of this class is sent here. Raises UnsupportedVersion."""
        schema = schema_of(request_class)
        assert schema.api_key is not None
        assert schema.versions is not None
        name = api_name(request_class)
        served = self.api_versions.get(schema.api_key)
        if served is None:
            raise UnsupportedVersion(f"the broker at {self.address} does not serve {name}")
        last = min(served.last, schema.versions.last, self.version_caps.get(request_class, served.last))
        if last < max(served.first, schema.versions.first):
            raise UnsupportedVersion(
                f"the broker at {self.address} serves {name} in versions {served.first} to {served.last}, "
                f"this client speaks {schema.versions.first} to {schema.versions.last}"
            )
        return last

    def serves(self, request_class: type) -> bool:
        """True if there is a common version."""
        try:
            self.version_of(request_class)
        except UnsupportedVersion:
            return False
        return True

    def question(self, message: Any, version: int | None = None) -> Question:
        """A request as a frame; `version` None: the highest common one. Raises UnsupportedVersion."""
        version = self.version_of(type(message)) if version is None else version
        schema = schema_of(type(message))
        assert schema.api_key is not None
        correlation_id = next(self._correlation_ids)
        frame = encode_request(message, version, correlation_id, self.client_id)
        return Question(correlation_id, api_name(type(message)), schema.api_key, version, frame)

    def answer(self, response_class: type[Response], question: Question, frame: bytes) -> Response:
        """The answer to a question. Raises BadAnswer; the connection must be closed then."""
        try:
            flexible = question.version in schema_of(response_class).flexible
            correlation_id, body = read_response_header(frame, flexible=flexible, api_key=question.api_key)
            if correlation_id != question.correlation_id:
                self._distrust(
                    f"answered correlation id {correlation_id} to {question.correlation_id} ({question.name})"
                )
            message, _ = decode_prefix(response_class, question.version, frame, body)
            self._heard = True
            return message
        except ProtocolError as error:
            self._distrust(f"malformed {question.name} answer, version {question.version}: {error}")

    def negotiate(self) -> Generator[Question, bytes, None]:
        """Ask for the broker's versions. Yields questions, gets the frames of their answers. Raises BadAnswer."""
        versions = schema_of(ApiVersionsRequest).versions
        assert versions is not None
        version = versions.last
        answer = yield from self._ask_versions(version)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            served = next((row.max_version for row in answer.api_keys if row.api_key == API_VERSIONS), 0)
            answer = yield from self._ask_versions(max(0, min(served, version - 1)))
        if answer.error_code:
            self._distrust(f"answered ApiVersions with error {answer.error_code}")
        self.api_versions = {row.api_key: VersionRange(row.min_version, row.max_version) for row in answer.api_keys}
        self.features = frozenset(feature.name for feature in answer.supported_features)
        self.finalized = {row.name: row.max_version_level for row in answer.finalized_features}

    def authenticate(self, sasl: Sasl, timeout_ms: int) -> Generator[Question, bytes, float | None]:
        """Authenticate, for the first time or again. Yields questions, gets the frames of their answers.

        Returns after how many seconds it must be repeated; None: never. A step may block, at most `timeout_ms` to get a
        token. Raises AuthenticationFailed, BadAnswer, and what a token provider raises.
        """
        conversation = sasl.begin(timeout_ms)
        try:
            message = next(conversation)
            yield from self._shake_hands(sasl.mechanism)
            while True:
                question = self.question(SaslAuthenticateRequest(auth_bytes=message))
                answer = self.answer(SaslAuthenticateResponse, question, (yield question))
                if answer.error_code:
                    code = error_code(answer.error_code)
                    said = answer.error_message or code.message
                    raise AuthenticationFailed(self.address, f"{sasl.mechanism}: {code.name}: {said}", code)
                try:
                    message = conversation.send(answer.auth_bytes)
                except StopIteration:
                    lifetime_ms = answer.session_lifetime_ms
                    return lifetime_ms / 1000 * RENEW_AFTER if lifetime_ms > 0 else None
        except Distrusted as error:
            raise AuthenticationFailed(self.address, f"{sasl.mechanism}: {error}") from None

    def _shake_hands(self, mechanism: str) -> Generator[Question, bytes, None]:
        """Agree on the mechanism. Version 0 is not supported: bare messages without requests would follow it."""
        served = self.api_versions.get(SASL_HANDSHAKE)
        if served is None or served.last < 1 or SASL_AUTHENTICATE not in self.api_versions:
            self._no_sasl(None)
        question = self.question(SaslHandshakeRequest(mechanism=mechanism))
        answer = self.answer(SaslHandshakeResponse, question, (yield question))
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            self._no_sasl(ErrorCode.ILLEGAL_SASL_STATE)
        if answer.error_code:
            code = error_code(answer.error_code)
            offered = ", ".join(answer.mechanisms) or "none"
            why = f"{code.name}: sasl.mechanism is {mechanism}, the broker offers {offered}"
            raise AuthenticationFailed(self.address, why, code)

    def _no_sasl(self, code: ErrorCode | None) -> NoReturn:
        plain = "SSL" if self.security.tls is not None else "PLAINTEXT"
        why = f"this listener knows no SASL: security.protocol would be {plain}, not {self.security.protocol}"
        raise AuthenticationFailed(self.address, why, code)

    def in_flight(self, names: Iterable[str]) -> str:
        """The part of an error message about requests that a broken connection leaves unanswered."""
        asked = list(dict.fromkeys(names))
        if not asked:
            return ""
        return f" while {', '.join(asked)} was in flight{'' if self._heard else self._suspicion(asked[0])}"

    def _suspicion(self, asked: str) -> str:
        """The likely reason why a broker closed a connection before the client was authenticated."""
        tls = self.security.tls
        if asked == "ApiVersions" and tls is None:
            return ", as a listener with TLS does; see security.protocol"
        if asked == "ApiVersions" and tls is not None and not tls.presents_certificate:
            return ", as a listener does that requires client certificates; see ssl.keystore.location"
        if asked != "ApiVersions" and self.security.sasl is None:
            return ", as a listener with SASL does if a client does not log in; see security.protocol"
        return ""

    def _ask_versions(self, version: int) -> Generator[Question, bytes, ApiVersionsResponse]:
        """The answer in the version asked, or in version 0 where its error code is UNSUPPORTED_VERSION."""
        message = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        question = self.question(message, version)
        frame = yield question
        refused = False
        try:
            correlation_id, body = read_response_header(frame, flexible=False, api_key=question.api_key)
            if correlation_id != question.correlation_id:
                self._distrust(f"answered correlation id {correlation_id} to {question.correlation_id}; is this Kafka?")
            refused = frame[body : body + 2] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
            answer, _ = decode_prefix(ApiVersionsResponse, 0 if refused else version, frame, body)
            return answer
        except ProtocolError as error:
            if refused:  # librdkafka's mock broker writes this array as in version 3; version 0 always works
                return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=())
            self._distrust(f"malformed ApiVersions answer ({error}); is this Kafka?")

    def _distrust(self, why: str) -> NoReturn:
        raise BadAnswer(self.address, why) from None


def api_name(request_class: type) -> str:
    return request_class.__name__.removesuffix("Request")


def size_of(prefix: bytes | bytearray, address: str, max_bytes: int) -> int:
    """The length of a frame, from its first four bytes. Raises BadAnswer if it is not possible."""
    if looks_like_tls(prefix):
        raise BadAnswer(address, ANSWERED_IN_TLS)
    if looks_like_http(prefix):
        raise BadAnswer(address, ANSWERED_IN_HTTP)
    size = int.from_bytes(prefix, "big", signed=True)
    if not 4 <= size <= max_bytes:
        raise BadAnswer(address, f"announced an answer of {size} bytes; the limit is {max_bytes}")
    return size
