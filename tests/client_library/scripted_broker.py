"""A broker whose answers are set by a test: for versions, errors and failures that are rare in a real broker.

A script maps a request class to an answer: a response message, or a function of (request, version) that returns one,
bytes to be sent as they are, `CLOSE`, or `SILENCE`. Every request that arrives is kept in `requests`. With `tls` it
serves TLS. Unless the script has other answers, the broker is node 1 and the coordinator of all groups.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from own_certificates import Issued, written

from kohort.wire.codec import decode, encode_response, is_flexible
from kohort.wire.framing import body_offset, read_request_header
from kohort.wire.schema import schema_of
from kohort.wire.schemas.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from kohort.wire.schemas.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

CLOSE = object()
SILENCE = object()


class ScriptedBroker:
    """A broker with these topics on a port of its own; `versions` narrows the advertised versions: request class to
    (first, last)."""

    def __init__(
        self,
        script: Mapping[type, Any],
        *topics: MetadataResponseTopic,
        versions: Mapping[type, tuple[int, int]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.script = {MetadataRequest: self.metadata(*topics), FindCoordinatorRequest: self.found_here(), **script}
        self.tls = tls
        self.versions = dict(versions or {})
        self.requests: list[Any] = []
        self.request_versions: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=5)

    def seen(self, request_class: type) -> list[Any]:
        return [request for request in self.requests if isinstance(request, request_class)]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), self._secured(connection) as connection, connection.makefile("rb") as stream:
            while len(length := stream.read(4)) == 4:
                answer = self._answer(stream.read(int.from_bytes(length, "big")))
                if answer is CLOSE:
                    return
                if answer is not SILENCE:
                    connection.sendall(answer)

    def _secured(self, connection: socket.socket) -> socket.socket:
        if self.tls is None:
            return connection
        secured = self.tls.wrap_socket(connection, server_side=True)
        self._connections.append(secured)
        return secured

    def _answer(self, frame: bytes) -> Any:
        header = read_request_header(frame)
        classes = {schema_of(cls).api_key: cls for cls in (*self.script, ApiVersionsRequest)}
        cls = classes[header.api_key]
        known = schema_of(cls).versions
        assert known is not None
        if header.api_version not in known:
            return CLOSE
        flexible = is_flexible(cls, header.api_version)
        request = decode(cls, header.api_version, frame, body_offset(frame, flexible))
        self.requests.append(request)
        self.request_versions.append(header.api_version)
        answer = self.script.get(cls, self._api_versions)
        if callable(answer):
            answer = answer(request, header.api_version)
        if answer is CLOSE or answer is SILENCE or isinstance(answer, bytes):
            return answer
        return encode_response(answer, header.api_version, header.correlation_id, api_key=header.api_key)

    def _api_versions(self, request: Any, version: int) -> ApiVersionsResponse:
        rows = []
        for cls in (*self.script, ApiVersionsRequest):
            known = schema_of(cls).versions
            assert known is not None
            first, last = self.versions.get(cls, (known.first, known.last))
            rows.append(ApiVersion(api_key=schema_of(cls).api_key or 0, min_version=first, max_version=last))
        return ApiVersionsResponse(error_code=0, api_keys=tuple(rows))

    def metadata(self, *topics: MetadataResponseTopic, others: tuple[ScriptedBroker, ...] = ()) -> Any:
        """A script for Metadata: these topics; this broker, as node 1, and `others` as the next nodes."""

        def answer(request: MetadataRequest, version: int) -> MetadataResponse:
            known = {topic.name: topic for topic in topics}
            if request.topics is None:
                shown = topics
            else:
                shown = tuple(
                    known.get(wanted.name) or MetadataResponseTopic(error_code=3, name=wanted.name, partitions=())
                    for wanted in request.topics
                )
            nodes = enumerate((self, *others), 1)
            return MetadataResponse(
                brokers=tuple(MetadataResponseBroker(node_id=n, host=one.host, port=one.port) for n, one in nodes),
                cluster_id="scripted",
                controller_id=1,
                topics=shown,
            )

        return answer

    def found_here(self, error: int = 0) -> Any:
        """A script for FindCoordinator: this broker is the coordinator, or `error`."""

        def answer(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
            found: dict[str, Any] = {"error_code": error, "node_id": 1, "host": self.host, "port": self.port}
            if version < 4:
                return FindCoordinatorResponse(**found)
            rows = tuple(Coordinator(key=key, **found) for key in request.coordinator_keys)
            return FindCoordinatorResponse(coordinators=rows)

        return answer


def in_turn(*answers: Any) -> Any:
    """A script that gives these answers one after the other, the last one for ever."""
    left = list(answers)

    def answer(*call: Any) -> Any:
        now = left.pop(0) if len(left) > 1 else left[0]
        return now(*call) if callable(now) else now

    return answer


def topic(name: str, *leaders: int) -> MetadataResponseTopic:
    """A topic with one partition for each of these leaders; by default one partition, which node 1 leads."""
    return MetadataResponseTopic(
        error_code=0,
        name=name,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=0, partition_index=index, leader_id=leader, replica_nodes=(1,), isr_nodes=(1,)
            )
            for index, leader in enumerate(leaders or (1,))
        ),
    )


def end_offset(offset: int, error: int = 0) -> ListOffsetsResponse:
    """The answer for t-0."""
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=error, offset=offset)
    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(row,)),))


def server_context(issued: Issued, folder: Path) -> ssl.SSLContext:
    """For `tls`: the broker shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        written(folder, "broker.pem", issued.certificate_pem), written(folder, "broker.key", issued.key_pem)
    )
    return context
