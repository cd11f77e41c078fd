"""Times of requests by API: what is measured, the phases, and that little is kept."""

from __future__ import annotations

from typing import Any

from kohort.broker.apis import APIS
from kohort.broker.metrics import families as f
from kohort.broker.metrics.request_times import KEPT, MOST_A_TURN, UNANSWERED, RequestTimes, add_request_times
from kohort.broker.metrics.samples import Samples
from kohort.broker.turn import Arrived, Closed, ConnectionId, Frame, Opened, Send, Turn

METADATA, FETCH = 3, 1


class Times:
    """Requests and turns with a clock of the test."""

    def __init__(self) -> None:
        self.now = 50.0
        self.times = RequestTimes(lambda: self.now)
        self.waiting: list[Arrived] = []
        self.arrive = self.times.watching(self.waiting.append)

    def request(self, connection: int = 1, correlation_id: int = 7, api_key: int = METADATA) -> None:
        data = api_key.to_bytes(2, "big") + b"\0\0" + correlation_id.to_bytes(4, "big")
        self.arrive(Frame(ConnectionId(connection), data))

    def turn(self, *answers: tuple[int, int], step: float = 0.0, commit: float = 0.0, send: float = 0.0) -> None:
        """`answers`: connection and correlation id."""
        sends = tuple(Send(ConnectionId(one), bytes(4) + number.to_bytes(4, "big")) for one, number in answers)
        turn = Turn((), sends)
        arrived, self.waiting[:] = list(self.waiting), []
        self.times.turn_begins(arrived)
        self.now += step
        self.times.decided(turn)
        self.now += commit
        if commit:
            self.times.committed(turn)
        self.now += send
        self.times.turn_ends(turn)

    def phases(self, api_key: int = METADATA) -> list[tuple[float, ...]]:
        """In whole milliseconds: total, requestqueue, local, remote, responsesend."""
        found = self.times.by_api.get(api_key)
        return [tuple(round(phase) for phase in one) for one in found.phases_ms] if found is not None else []

    def count(self, api_key: int = METADATA) -> int:
        return sum(self.times.by_api[api_key].seconds.counts)


def test_the_phases_of_a_request() -> None:
    times = Times()
    times.request()
    times.now += 0.1
    times.turn((1, 7), step=0.01, commit=0.02, send=0.005)
    assert times.phases() == [(135, 100, 10, 20, 5)]


def test_a_request_that_is_parked() -> None:
    times = Times()
    times.request(api_key=FETCH)
    times.turn(step=0.01)
    times.now += 3.0
    times.turn((1, 7), step=0.02, send=0.005)
    assert times.phases(FETCH) == [(3035, 0, 10, 3020, 5)]


def test_other_answers_of_the_connection_and_others_are_told_apart() -> None:
    times = Times()
    times.request(1, 7)
    times.request(1, 8)
    times.request(2, 7, FETCH)
    times.turn((1, 6), (2, 7))
    assert (times.phases(), len(times.phases(FETCH))) == ([], 1)
    times.turn((1, 7), (1, 8))
    assert len(times.phases()) == 1, "one request of a connection at a time"


def test_a_busy_server_measures_some_and_counts_for_all() -> None:
    times = Times()
    answers = [(connection, 7) for connection in range(1, 201)]
    for _ in range(4):
        for connection, _ in answers:
            times.request(connection)
        times.turn(*answers)
    measured = len(times.phases())
    assert 200 + 3 * MOST_A_TURN <= measured <= 200 + 3 * (MOST_A_TURN + 1)
    assert abs(times.count() - 800) <= 3 * 200 / MOST_A_TURN
    for _ in range(3):
        times.request(1)
        times.turn((1, 7))
    assert len(times.phases()) == min(measured + 3, KEPT), "an idle one measures each"


def test_what_is_never_answered_is_forgotten() -> None:
    times = Times()
    times.request(1, 7)
    times.turn()
    times.arrive(Closed(ConnectionId(1)))
    assert times.times._pending == {}
    times.arrive(Opened(ConnectionId(2), 1, "127.0.0.1"))
    times.request(2, 7)
    for number in range(8, 9 + UNANSWERED):
        times.turn((2, number))
    assert times.times._pending == {}


def test_little_is_kept() -> None:
    times = Times()
    for _ in range(KEPT + 50):
        times.request()
        times.turn((1, 7), step=0.001)
    assert len(times.phases()) == KEPT
    assert times.count() == KEPT + 50


def lines(samples: Samples, name: str) -> dict[str, str]:
    text = b"".join(samples.text(open_metrics=False)).decode()
    return dict(line.rpartition(" ")[::2] for line in text.splitlines() if line.startswith(name))  # type: ignore[misc]


def test_the_series() -> None:
    times = Times()
    for n in range(100):
        times.request(api_key=FETCH)
        times.turn((1, 7), step=(n + 1) / 1000)
    times.request(api_key=9_999)
    times.turn((1, 7))
    samples = Samples(1_000)
    for _ in add_request_times(samples, times.times, {FETCH: 123}):
        pass
    total = lines(samples, f.TOTAL_TIMES.name + "{")
    for name in (APIS[FETCH].name, "FetchConsumer"):
        of_name: Any = {key: value for key, value in total.items() if f'"{name}"' in key}
        assert list(map(float, of_name.values())) == [51, 76, 96, 99, 100, 100]
    assert set(lines(samples, f.TOTAL_TIMES_COUNT.name).values()) == {"123"}
    assert lines(samples, f.REQUEST_SECONDS.name)['kohort_request_seconds_count{api="Fetch"}'] == "100"
