"""Commands of sequences about the wire itself: bytes on a socket of their own, with nothing of a client in between.

versions 3 name=librdkafka version=2.0         ApiVersions: the error, and of what is served the first versions
unserved KEY VERSION                           a request for an API or a version that is not there
pipeline                                       three requests in one packet: the order of their answers
acks-0 t | nowhere                             a Produce that wants no answer, and a request behind it
tagged                                         a request with tagged fields that nobody knows
"""

from __future__ import annotations

import struct
from io import BufferedReader

from kohort.conformance.play.broker import Address, broker_of
from kohort.conformance.play.requests import request
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.codec import decode, encode
from kohort.wire.framing import read_response_header
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.metadata import MetadataRequest, MetadataResponse

Options = dict[str, str]
TIMEOUT_S = 10.0
PRODUCE, LIST_GROUPS, HEARTBEAT, METADATA, API_VERSIONS = 0, 16, 12, 3, 18


def _frame_of(received: BufferedReader) -> bytes | None:
    try:
        head = received.read(4)
        data = received.read(int.from_bytes(head, "big"))
    except ConnectionError:
        return None
    return data if len(head) == 4 and len(data) == int.from_bytes(head, "big") else None


def frame(api: int, version: int, correlation: int, body: bytes, tags: bytes | None) -> bytes:
    """`tags`: the tagged fields of the header; None for one that has none."""
    return struct.pack(">hhih", api, version, correlation, 4) + b"wire" + (tags or b"") + body


class WireCommands:
    def __init__(self, address: Address, sequence: str) -> None:
        self._broker = broker_of(address)
        self._sequence = sequence

    def _real(self, name: str) -> str:
        """The name of a group or a transactional id on the server."""
        return self._broker.named(f"{self._sequence}.{name}") if name not in ("", "''") else ""

    def _place(self, name: str) -> str:
        """The name of a topic on the server."""
        return f"{self._sequence}.{name}" if name not in ("", "''") else ""

    def _exchanged(self, *frames: bytes, answers: int = 1) -> list[bytes | None]:
        """Send the frames in one packet; return this many answers. None: the server closed the connection instead."""
        with self._broker.open("wire") as connection, connection.makefile("rb") as received:
            connection.settimeout(TIMEOUT_S)
            connection.sendall(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
            return [_frame_of(received) for _ in range(answers)]

    def do_versions(self, words: list[str], options: Options) -> list[str]:
        """`versions 3 [name= version= first=Produce]`: ApiVersions; `first` shows the first version of an API."""
        version = int(words[0])
        question = ApiVersionsRequest(
            client_software_name=options.get("name", "raw"), client_software_version=options.get("version", "1")
        )
        known = min(version, 4)
        [answer] = self._exchanged(
            frame(API_VERSIONS, version, 7, encode(question, known), b"\0" if version >= 3 else None)
        )
        if answer is None:
            return ["closed"]
        (error,) = struct.unpack_from(">h", answer, 4)
        found = decode(ApiVersionsResponse, 0 if error == 35 else known, answer, 4)
        first = {row.api_key: row.min_version for row in found.api_keys}
        head = f"correlation={int.from_bytes(answer[:4], 'big')} error={error}"
        names = (("Produce", PRODUCE), ("ApiVersions", API_VERSIONS))
        shown = ("ApiVersions", options.get("first"))
        served = [f"{name} from {first[key]}" if name in shown else name for name, key in names if key in first]
        return [" ".join([head, *served, f"throttled={found.throttle_time_ms}"])]

    def do_unserved(self, words: list[str], options: Options) -> list[str]:
        [answer] = self._exchanged(frame(int(words[0]), int(words[1]), 1, b"\0" * 16, b"\0"))
        return ["closed" if answer is None else "answered"]

    def do_pipeline(self, words: list[str], options: Options) -> list[str]:
        heartbeat = encode(HeartbeatRequest(group_id=self._real("g"), generation_id=1, member_id="nobody"), 0)
        requests = (
            frame(HEARTBEAT, 0, 3, heartbeat, None),
            frame(LIST_GROUPS, 0, 1, encode(ListGroupsRequest(), 0), None),
            frame(HEARTBEAT, 0, 2, heartbeat, None),
        )
        answers = [answer or b"" for answer in self._exchanged(*requests, answers=3)]
        errors = [decode(HeartbeatResponse, 0, answers[number], 4).error_code for number in (0, 2)]
        order = "+".join(str(int.from_bytes(answer[:4], "big")) for answer in answers)
        return [f"in the order {order}, errors {errors}"]

    def do_acks_0(self, words: list[str], options: Options) -> list[str]:
        batch = encode_batch([NewRecord(timestamp=0, key=None, value=b"x")])
        topic = {"name": self._place(words[0]), "partition_data": [{"index": 0, "records": batch}]}
        produce = encode(request("Produce", acks=0, timeout_ms=1000, topic_data=[topic]), 7)
        metadata = encode(MetadataRequest(topics=()), 1)
        [answer] = self._exchanged(frame(PRODUCE, 7, 1, produce, None), frame(METADATA, 1, 2, metadata, None))
        return ["closed" if answer is None else f"the answer to request {int.from_bytes(answer[:4], 'big')}"]

    def do_tagged(self, words: list[str], options: Options) -> list[str]:
        unknown = b"\x01\xe7\x07\x03abc"  # one field, number 999, three bytes
        body = encode(MetadataRequest(topics=()), 12)
        [answer] = self._exchanged(frame(METADATA, 12, 5, body[:-1] + unknown, unknown))
        if answer is None:
            return ["closed"]
        correlation, start = read_response_header(answer, flexible=True, api_key=METADATA)
        found = decode(MetadataResponse, 12, answer, start)
        return [f"correlation={correlation} brokers={len(found.brokers)} throttled={found.throttle_time_ms}"]
