"""What the broker notes of requests that wait in a queue, or for their answers to be made; nothing waits on purpose."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_driver import commit_request, heartbeat_request, join_request, stable
from wire_driver import Connection, Wire, fetch_request

from kohort.broker.ready import OVER, WITHIN
from kohort.broker.turn import Frame, LateRequest, Unread
from kohort.wire.schemas.metadata import MetadataRequest

HALF_MS = 500
METADATA, FETCH, JOIN, HEARTBEAT = 3, 1, 11, 12


def noted(wire: Wire) -> list[LateRequest]:
    """The requests that the turns from now on note."""
    found: list[LateRequest] = []
    wire.watch = lambda turn: found.extend(turn.late)
    return found


def few_polls() -> Callable[[], int]:
    """The budget of a turn that handles little."""
    left = iter(range(3))
    return lambda: OVER if next(left, None) is None else WITHIN


def at(frame: Frame, arrived: int) -> Frame:
    return Frame(frame.connection, frame.data, arrived)


def test_the_wait_of_a_request(wire: Wire, client: Connection) -> None:
    found = noted(wire)
    for waited in (HALF_MS - 1, HALF_MS):
        wire.step(at(client.frame(MetadataRequest(topics=()), 9), wire.now - waited))
    assert found == [LateRequest(client.id, METADATA, "client", HALF_MS)]


def test_requests_in_the_queue_of_a_busy_turn(wire: Wire, client: Connection) -> None:
    found = noted(wire)
    frames = [client.frame(MetadataRequest(topics=()), 9) for _ in range(3)]
    wire.end(wire.broker.step(frames, wire.now, lambda: OVER))
    wire.now += 700
    wire.end(wire.broker.step((), wire.now, lambda: WITHIN))
    assert [late.waited_ms for late in found] == [700] * len(found)
    assert 0 < len(found) <= 3


def test_a_repeated_heartbeat_in_the_queue(wire: Wire, client: Connection) -> None:
    joined = stable(client)
    for _ in range(2):
        assert client.ask(heartbeat_request(joined), 4).error_code == 0
    found = noted(wire)
    wire.step(at(client.frame(heartbeat_request(joined), 4), wire.now - 800))
    assert [(late.api_key, late.waited_ms, late.steps_ms, late.parked_ms) for late in found] == [(HEARTBEAT, 800, 0, 0)]


def test_what_waits_on_purpose_is_not_late(wire: Wire, client: Connection) -> None:
    """A fetch for records, and the requests behind it."""
    client.create_topic("t")
    found = noted(wire)
    client.send(fetch_request("t", max_wait_ms=5_000, min_bytes=1), 11)
    client.send(fetch_request("t", max_wait_ms=0), 11)
    wire.advance(5_000)
    assert len(client.responses) == 2
    assert found == []


def test_a_join_that_waits_for_others(wire: Wire, client: Connection) -> None:
    found = noted(wire)
    client.send(join_request(), 3)
    wire.advance(4_000)
    assert client.responses, "the initial rebalance delay is over"
    assert found == []


def test_a_join_that_waited_in_the_queue_before(wire: Wire, client: Connection) -> None:
    found = noted(wire)
    wire.step(at(client.frame(join_request(), 3), wire.now - 900))
    wire.advance(4_000)
    [late] = found
    assert (late.api_key, late.waited_ms, late.steps_ms) == (JOIN, 900, 0)
    assert late.parked_ms >= 3_000


def test_an_answer_that_is_made_over_several_turns(wire: Wire, client: Connection) -> None:
    client.create_topic("t", 2)
    for n in range(40):
        client.create_topic(f"more-{n}", 5)
    found = noted(wire)
    arrived: tuple[Frame, ...] = (client.frame(MetadataRequest(topics=None), 9),)
    while not client.responses:
        wire.end(wire.broker.step(arrived, wire.now, few_polls()))
        arrived = ()
        wire.now += 300
    [late] = found
    assert late.api_key == METADATA
    assert late.waited_ms + late.steps_ms >= HALF_MS
    assert late.parked_ms == 0


def test_clients_that_do_not_read(wire: Wire, client: Connection) -> None:
    found = noted(wire)
    frame = client.frame(MetadataRequest(topics=()), 9)
    wire.end(wire.broker.step([frame, Unread(client.id, True)], wire.now, lambda: OVER))
    wire.now += 9_000
    wire.step(Unread(client.id, False))
    assert len(client.responses) == 1
    assert found == []


def test_a_closed_connection_keeps_what_changes_something(wire: Wire, client: Connection) -> None:
    """The backlog and its times stay together."""
    client.create_topic("t")
    fetch = fetch_request("t", max_wait_ms=5_000)
    client.send(fetch, 11)
    wire.step(at(client.frame(fetch, 11), wire.now - 1), at(client.frame(commit_request(3), 7), wire.now - 2))
    connection = wire.broker._connections[client.id]
    assert list(connection.arrivals) == [wire.now - 1, wire.now - 2]
    connection.keep(lambda frame: frame[:2] == b"\0\x08")
    assert (len(connection.backlog), list(connection.arrivals)) == (1, [wire.now - 2])
    client.close()
    assert not connection.backlog
    assert not connection.arrivals


@pytest.mark.parametrize(("limit_ms", "notes"), [(0, 0), (100, 1), (4_000, 0)])
def test_the_limit(limit_ms: int, notes: int) -> None:
    wire = Wire(log_slow_request_ms=limit_ms)
    client = wire.connect()
    found = noted(wire)
    wire.step(at(client.frame(MetadataRequest(topics=()), 9), wire.now - 1_900))
    assert len(found) == notes
