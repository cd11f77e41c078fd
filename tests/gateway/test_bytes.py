"""The parts of the gateway without IO: any cut of the bytes gives the same requests, and answers keep their order."""

from __future__ import annotations

import random

import pytest

from kohort.config import Address
from kohort.gateway.answers import Answers
from kohort.gateway.requests import Request, Requests, Route
from kohort.gateway.rewriting import decoded_request, moved_coordinators
from kohort.gateway.versions import FORWARDED, lacking, told
from kohort.wire.codec import encode_request
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.framing import PIECE
from kohort.wire.schemas.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MOST = 1 << 20
RECORDS = PartitionProduceData(index=0, records=b"r" * 5_000)
TOPIC = (TopicProduceData(name="t", partition_data=(RECORDS,)),)


def produce(acks: int, transactional_id: str | None = None) -> ProduceRequest:
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=TOPIC)


SENT = [
    (encode_request(produce(1), 9, 1, "a client"), Route.UPSTREAM, True),
    (encode_request(produce(0), 9, 2, None), Route.UPSTREAM, False),
    (encode_request(produce(0, "x"), 7, 3, "c"), Route.UPSTREAM, False),
    (encode_request(produce(-1), 3, 4, "c"), Route.UPSTREAM, True),
    (encode_request(MetadataRequest(topics=None), 12, 5, "c"), Route.UPSTREAM, True),
    (encode_request(FindCoordinatorRequest(coordinator_keys=("g",)), 4, 6, "c"), Route.WHOLE, True),
    (encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 7, "c"), Route.OWN, True),
    (encode_request(produce(1), 10, 8, "c"), Route.REFUSED, True),
]


@pytest.mark.parametrize("seed", range(4))
def test_requests_are_found_in_any_cut(seed: int) -> None:
    chance = random.Random(seed)
    stream = b"".join(frame for frame, _, _ in SENT)
    splitter = Requests(MOST)
    found: list[tuple[Request, bytes]] = []
    at = 0
    while at < len(stream):
        size = chance.choice((1, 3, 11, 700, 20_000))
        rest = stream[at : at + size]
        while rest:
            most = chance.choice((1, 2, 500))
            pieces, rest = splitter.feed(rest, most)
            assert len(pieces) <= most
            for piece in pieces:
                if piece.request is not None:
                    found.append((piece.request, piece.data))
                else:
                    found[-1] = (found[-1][0], found[-1][1] + piece.data)
        at += size
    assert [data for _, data in found] == [frame for frame, _, _ in SENT]
    assert [(one.route, one.is_answered) for one, _ in found] == [(route, answered) for _, route, answered in SENT]
    assert [one.correlation_id for one, _ in found] == list(range(1, 9))


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\xaa"])
def test_what_is_no_request_is_refused(garbage: bytes) -> None:
    with pytest.raises(ProtocolError):
        Requests(MOST).feed(garbage, 1)


def test_a_produce_without_acks_is_refused() -> None:
    frame = encode_request(produce(1), 9, 1, "c")[:18]
    with pytest.raises(ProtocolError, match="acks"):
        Requests(MOST).feed(len(frame[4:]).to_bytes(4, "big") + frame[4:], 1)


def request(correlation_id: int) -> Request:
    return Request(1, 1, correlation_id, Route.UPSTREAM)


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + body


@pytest.mark.parametrize("seed", range(8))
def test_answers_leave_in_the_order_of_the_requests(seed: int) -> None:
    chance = random.Random(seed)
    answers = Answers(MOST)
    wanted = b""
    streams = {Route.OWN: b"", Route.UPSTREAM: b""}
    out = b""
    for number in range(60):
        body = chance.randbytes(chance.choice((0, 3, 300)))
        source = chance.choice((Route.OWN, Route.UPSTREAM, None))
        if source is None:
            out += b"".join(answers.made(answer(number, body)))
            wanted += answer(number, body)
            continue
        moved = b"moved" if chance.random() < 0.2 else b""

        def rewriting(whole: bytes, moved: bytes = moved, number: int = number) -> bytes:
            return answer(number, whole[8:] + moved)

        answers.expect(request(number), source, rewriting if moved else None)
        streams[source] += answer(number, body)
        wanted += answer(number, body + moved)
    while any(streams.values()):
        source = chance.choice([source for source, left in streams.items() if left])
        size = chance.choice((1, 5, 50, 1_000))
        out += b"".join(answers.feed(source, streams[source][:size]))
        streams[source] = streams[source][size:]
    assert out == wanted
    assert answers.held_bytes == len(answers) == 0


def test_the_bytes_of_an_answer_that_is_due_do_not_wait() -> None:
    answers = Answers(MOST)
    answers.expect(request(1), Route.UPSTREAM)
    answers.expect(request(2), Route.OWN)
    assert answers.feed(Route.OWN, answer(2, b"own")) == []
    large = answer(1, b"x" * 100)
    assert b"".join(answers.feed(Route.UPSTREAM, large[:50])) == large[:50]
    assert answers.held_bytes == len(answer(2, b"own"))
    assert b"".join(answers.feed(Route.UPSTREAM, large[50:])) == large[50:] + answer(2, b"own")


def test_only_an_own_answer_keeps_the_upstream_waiting() -> None:
    """An answer that is collected to be rewritten needs the rest of the upstream's bytes."""
    answers = Answers(MOST)
    answers.expect(request(1), Route.UPSTREAM, lambda whole: whole)
    answers.expect(request(2), Route.OWN)
    assert answers.feed(Route.UPSTREAM, answer(1, b"x" * 100)[:50]) == []
    assert answers.due_from is Route.UPSTREAM
    assert b"".join(answers.feed(Route.UPSTREAM, answer(1, b"x" * 100)[50:])) == answer(1, b"x" * 100)
    assert answers.due_from is Route.OWN
    answers.feed(Route.OWN, answer(2))
    assert answers.due_from is None


def test_the_coordinator_limits_its_own_answers() -> None:
    answers = Answers(MOST)
    answers.expect(request(1), Route.OWN)
    large = answer(1, b"x" * MOST)
    assert b"".join(answers.feed(Route.OWN, large)) == large


def test_a_request_in_small_pieces_takes_the_memory_of_its_bytes() -> None:
    keys = tuple(f"group-{number}" for number in range(20_000))
    frame = encode_request(FindCoordinatorRequest(coordinator_keys=keys), 4, 6, "c")
    splitter = Requests(MOST)
    for at in range(0, len(frame), 2):
        pieces, _ = splitter.feed(frame[at : at + 2], 1)
        assert len(splitter._collected) <= 2 + len(frame) // PIECE
    assert [piece.data for piece in pieces] == [frame]
    large = encode_request(FindCoordinatorRequest(coordinator_keys=keys * 3), 4, 6, "c")
    with pytest.raises(ProtocolError, match="elements"):
        decoded_request(pieces[0].request, large, FindCoordinatorRequest)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_without_a_listener_is_not_named(version: int) -> None:
    names = {1: Address("gateway", 1)}
    for broker, wanted in ((1, (0, "gateway", 1)), (2, (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", -1))):
        row = Coordinator(key="k", node_id=broker, host="upstream", port=9)
        one = FindCoordinatorResponse(node_id=broker, host="upstream", port=9)
        found = moved_coordinators(one if version == 3 else FindCoordinatorResponse(coordinators=(row,)), names.get)
        told = found if version == 3 else found.coordinators[0]
        assert (told.error_code, told.host, told.port) == wanted


@pytest.mark.parametrize("frame", [answer(2), b"\0\0\0\1" + b"\0" * 4, answer(1, b"x" * MOST)])
def test_an_answer_to_another_request_is_refused(frame: bytes) -> None:
    """And one that is too large to be collected."""
    answers = Answers(MOST)
    answers.expect(request(1), Route.UPSTREAM, lambda whole: whole)
    with pytest.raises(ProtocolError):
        answers.feed(Route.UPSTREAM, frame)


def test_an_answer_that_passes_may_have_any_length() -> None:
    """A Fetch with a large fetch.max.bytes."""
    answers = Answers(MOST)
    answers.expect(request(1), Route.UPSTREAM)
    head = (1_500_000_000).to_bytes(4, "big") + (1).to_bytes(4, "big")
    for part in (head, b"x" * 100_000):
        assert answers.feed(Route.UPSTREAM, part) == [part]
        assert answers.held_bytes == 0


def test_clients_are_told_what_all_brokers_have() -> None:
    one = dict.fromkeys((*FORWARDED, 10, 25, 28, 71, 76, 999), (0, 99))
    two = one | {0: (3, 12), 1: (4, 13), 3: (0, 12), 75: (5, 6)}
    found = {api.key: (api.first, api.last) for api in told((one, two), consumer_groups=True)}
    assert found[0] == (0, 9), "later versions name addresses, and librdkafka wants version 0"
    assert found[1] == (4, 13)
    assert found[3] == (0, 12)
    assert not found.keys() & {25, 28, 71, 75, 76, 999}
    assert found[68] == (0, 1), "the gateway's own, whatever the cluster has"
    assert found[8][1] == 10
    old = {api.key: api.last for api in told((one | {3: (0, 8)},), consumer_groups=True)}
    assert old[8] == 9, "there are no topic ids"
    assert 68 not in old


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({1: (15, 99)}, ""),
        ({1: (16, 18)}, "the brokers serve Fetch from version 16, and the gateway passes it up to 15"),
        ({0: (10, 13), 3: (14, 14)}, "Produce from version 10"),
        ({2: (3, 2)}, "no version of ListOffsets in common"),
        ({3: (0, -1)}, "a broker does not serve Metadata"),
    ],
)
def test_versions_that_no_client_can_use(versions: dict[int, tuple[int, int]], said: str) -> None:
    everything = dict.fromkeys(FORWARDED, (0, 99))
    found = lacking((everything, everything | versions))
    assert (said in found) if said else not found
