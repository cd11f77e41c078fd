"""What a connection says and hears, without its socket: versions, correlation ids, frames to and from messages.

`question` turns a request into a frame and remembers what its answer must look like; `answer` turns a frame into the
message of the oldest question. A connection chooses the highest version of a message that this client, the broker and
`VERSION_CAPS` have in common, so it must be `negotiate`d first: the generator yields frames and is sent their answers.

An ApiVersions request that is too new is answered in version 0 with UNSUPPORTED_VERSION (35) and the range that the
broker does serve; the question is then asked again inside that range. Answers come in the order of the questions, and
each answer's correlation id is checked against the question's. Bytes behind an answer are ignored, as Kafka's own
clients do (librdkafka's mock broker sends one too many).
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar

from kohort import __version__
from kohort.client.errors import BadAnswer, UnsupportedVersion
from kohort.wire.codec import decode_prefix, encode_request
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.fetch import FetchRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest
from kohort.wire.schemas.produce import ProduceRequest

VERSION_CAPS: Mapping[type, int] = {FetchRequest: 12, ProduceRequest: 12, OffsetCommitRequest: 9, OffsetFetchRequest: 9}
"""The next version of each names topics by id instead of by name. Callers of this library name topics, and every
broker that speaks the ids also speaks these, so ids would only add a look-up that can be stale."""

SOFTWARE_NAME = "kohort"
"""What a broker is told in ApiVersions; kohort holds the heartbeats of clients of this name."""

API_VERSIONS = 18

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
    """The conversation with the broker at `address`; see the module's text."""

    def __init__(
        self, host: str, port: int, client_id: str | None, version_caps: Mapping[type, int] = VERSION_CAPS
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.client_id = client_id
        self.version_caps = version_caps
        self.api_versions: dict[int, VersionRange] = {}
        self.features: frozenset[str] = frozenset()
        """The names of the features that the broker supports."""
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

    def question(self, message: Any, version: int | None = None) -> Question:
        """A request as it is sent; `version` None: the highest common one. Raises UnsupportedVersion."""
        version = self.version_of(type(message)) if version is None else version
        schema = schema_of(type(message))
        assert schema.api_key is not None
        correlation_id = next(self._correlation_ids)
        frame = encode_request(message, version, correlation_id, self.client_id)
        return Question(correlation_id, api_name(type(message)), schema.api_key, version, frame)

    def answer(self, response_class: type[Response], question: Question, frame: bytes) -> Response:
        """The answer to a question. Raises BadAnswer; the connection is of no use then."""
        try:
            flexible = question.version in schema_of(response_class).flexible
            correlation_id, body = read_response_header(frame, flexible=flexible, api_key=question.api_key)
            if correlation_id != question.correlation_id:
                self._distrust(
                    f"answered correlation id {correlation_id} to {question.correlation_id} ({question.name})"
                )
            message, _ = decode_prefix(response_class, question.version, frame, body)
            return message
        except ProtocolError as error:
            self._distrust(f"malformed {question.name} answer, version {question.version}: {error}")

    def negotiate(self) -> Generator[Question, bytes, None]:
        """Ask for the broker's versions. Yields questions, wants their frames. Raises BadAnswer."""
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
            if refused:  # librdkafka's mock broker writes this answer's array as version 3 does; version 0 always works
                return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=())
            self._distrust(f"malformed ApiVersions answer ({error}); is this Kafka?")

    def _distrust(self, why: str) -> NoReturn:
        raise BadAnswer(self.address, why) from None


def api_name(request_class: type) -> str:
    return request_class.__name__.removesuffix("Request")


def size_of(prefix: bytes | bytearray, address: str, max_bytes: int) -> int:
    """The length of a frame, from its first four bytes. Raises BadAnswer where no answer can be so long."""
    size = int.from_bytes(prefix, "big", signed=True)
    if not 4 <= size <= max_bytes:
        raise BadAnswer(address, f"announced an answer of {size} bytes; the limit is {max_bytes}")
    return size
