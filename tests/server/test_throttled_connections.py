"""Quotas over TCP: a muted connection is not read, others are; addresses with a quota of connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from raw_kafka import RawKafka, create_topic, produce

from kohort.client.cluster import Cluster
from kohort.server import arrivals
from kohort.testing import KohortServer, ManualClock
from kohort.wire.codec import encode_request


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[KohortServer]:
    with KohortServer(clock=clock) as running:
        yield running


def limit(server: KohortServer, entity: dict[str, str | None], **values: float) -> None:
    with Cluster(server.bootstrap_servers, client_id="admin") as cluster:
        cluster.alter_client_quotas(entity, values)


@pytest.mark.conformance("Q3", "Q7")
def test_a_muted_connection_is_not_read_and_others_are(server: KohortServer, clock: ManualClock) -> None:
    with RawKafka(server.bootstrap_servers) as muted, RawKafka(server.bootstrap_servers) as other:
        muted.call(create_topic("t", 1))
        limit(server, {"client-id": "raw"}, producer_byte_rate=1_000)
        answer = muted.call(produce("t", 0, b"x" * 50_000))
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.throttle_time_ms > 30_000
        limit(server, {"client-id": "raw"}, producer_byte_rate=1_000_000_000)
        sent = 0
        data = encode_request(produce("t", 0, b"x" * 60_000), 9, 1, "raw") * 8
        muted.settimeout(0.2)
        try:
            while True:
                sent += muted.send(data)
                assert sent < 64 << 20, "the server reads on"
        except TimeoutError:
            pass
        muted.settimeout(10)
        assert other.call(produce("t", 0, b"y")).throttle_time_ms == 0
        clock.advance(answer.throttle_time_ms)
        assert other.call(produce("t", 0, b"z")).throttle_time_ms == 0
        assert muted.recv(1)


@pytest.mark.conformance("Q4")
def test_the_time_of_requests_is_measured(server: KohortServer) -> None:
    """A quota of a millionth of the time is used up by one request, because the stopwatch is that of the machine."""
    with RawKafka(server.bootstrap_servers) as raw:
        limit(server, {"client-id": "raw"}, request_percentage=0.000_001)
        assert raw.call(create_topic("u", 1)).throttle_time_ms == 1_000


def connections(server: KohortServer, number: int) -> list[socket.socket]:
    host, _, port = server.bootstrap_servers.rpartition(":")
    return [socket.create_connection((host, int(port)), 5) for _ in range(number)]


def ends(connection: socket.socket) -> bool:
    """True if the server closes it within some seconds."""
    connection.settimeout(5)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.conformance("Q6")
def test_an_address_above_its_quota_of_connections_is_closed_after_a_while(server: KohortServer) -> None:
    with Cluster(server.bootstrap_servers, client_id="admin") as admin:
        admin.alter_client_quotas({"ip": None}, {"connection_creation_rate": 1})
        made = connections(server, 12)
        assert ends(made[-1])
        with RawKafka(server.bootstrap_servers) as refused:
            refused.ask_later(create_topic("t", 1))
            assert ends(refused)
        made[0].sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")  # ApiVersions v0
        assert made[0].recv(4)
        admin.alter_client_quotas({"ip": None}, {"connection_creation_rate": None})
        for one in made:
            one.close()
    with Cluster(server.bootstrap_servers) as again:
        assert again.nodes()


def test_held_connections_have_a_limit_and_end_with_the_server(
    server: KohortServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(server, {"ip": "127.0.0.1"}, connection_creation_rate=1)
    monkeypatch.setattr(arrivals, "MOST_HELD", 0)
    made = connections(server, 15)
    assert ends(made[-1])
    monkeypatch.setattr(arrivals, "MOST_HELD", 100)
    made += connections(server, 3)
    server.stop()
    assert ends(made[-1])
    for one in made:
        one.close()
