"""Parts that need no server: paging, the guard, the address, live differences, shared answers, batches."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest
from console_pages import ORIGIN
from starlette.datastructures import QueryParams, State
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from kohort.client.admin.end_times import MOST_POINTS, EndTimes, time_of, with_point
from kohort.client.admin.groups import Committed, GroupDescription
from kohort.client.admin.lag import PartitionLag
from kohort.client.admin.survey import Survey, SurveyedGroup
from kohort.client.errors import KafkaError, TimedOut
from kohort.console import live
from kohort.console.access import Access
from kohort.console.guard import HEADERS, Guard, host_of
from kohort.console.lag_lines import small, wide
from kohort.console.listening import check_protected, is_loopback, parse
from kohort.console.live import Live, Streams, difference
from kohort.console.paging import Order, ordered, page_of, wanted_order, wanted_page
from kohort.console.reading.answers import Answers
from kohort.console.reading.batches import batches_of, in_batches, read_batch, weight_of, with_lags
from kohort.console.reading.rates import Rate, Rates
from kohort.console.reading.snapshot import GroupRow
from kohort.console.reading.trends import MOST_POINTS as MOST_TREND_POINTS
from kohort.console.reading.trends import Point, Trends
from kohort.console.sessions import Session
from kohort.console.words import age, breakable, rate

# -- paging


def test_pages() -> None:
    rows = list(range(120))
    page = page_of(rows, 3)
    assert (page.rows[0], page.rows[-1], page.first, page.last, page.pages, page.total) == (100, 119, 101, 120, 3, 120)
    assert page_of(rows, 0).number == 1
    assert page_of(rows, 9).number == 3
    assert (page_of([], 5).number, page_of([], 5).first, page_of([], 5).last) == (1, 0, 0)


def test_what_is_wanted_of_a_list() -> None:
    assert [wanted_page(QueryParams(f"page={text}")) for text in ("7", "", "-1", "x", "9" * 20, "²")] == [
        7,
        1,
        1,
        1,
        1,
        1,
    ]
    default = Order("lag", True)
    assert wanted_order(QueryParams("sort=-group"), {"group": 0}, default) == Order("group", True)
    assert wanted_order(QueryParams("sort=group"), {"group": 0}, default) == Order("group", False)
    assert wanted_order(QueryParams("sort=other"), {"group": 0}, default) == default


def test_unknown_values_come_last_and_equal_ones_by_name() -> None:
    rows = [("b", 1), ("a", 1), ("c", None), ("d", 2)]
    assert [name for name, _ in ordered(rows, lambda row: row[1], True, lambda row: row[0])] == ["d", "a", "b", "c"]
    assert [name for name, _ in ordered(rows, lambda row: row[1], False, lambda row: row[0])] == ["a", "b", "d", "c"]


# -- the guard


@pytest.fixture(scope="module")
def guarded() -> TestClient:
    return TestClient(Guard(PlainTextResponse("inside"), frozenset({"Console.example"})), base_url="http://localhost:1")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9", "LOCALHOST:9", "127.0.0.1:8090", "[::1]:8090", "[::1]", "console.example"]
)
def test_hosts_that_are_served(guarded: TestClient, host: str) -> None:
    answer = guarded.get("/", headers={"host": host})
    assert (answer.status_code, answer.text) == (200, "inside")


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:8090", "127.0.0.1.attacker.example", "", "[::2]"]
)
def test_hosts_that_are_not(guarded: TestClient, host: str) -> None:
    answer = guarded.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "inside" not in answer.text
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_methods_that_are_not_served(guarded: TestClient, method: str) -> None:
    answer = guarded.request(method, "/")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.fixture(scope="module")
def with_forms() -> TestClient:
    return TestClient(Guard(PlainTextResponse("inside"), access=Access(allow_changes=True)), base_url=ORIGIN)


def test_forms_of_the_console_itself(with_forms: TestClient) -> None:
    assert with_forms.post("/", headers={"origin": ORIGIN}).text == "inside"
    assert with_forms.post("/", headers={"origin": ORIGIN, "sec-fetch-site": "same-origin"}).text == "inside"
    assert with_forms.post("/", headers={"origin": ORIGIN.replace("http", "https")}).text == "inside", (
        "a proxy with TLS"
    )
    assert with_forms.put("/", headers={"origin": ORIGIN}).status_code == 405


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8091"},
        {"origin": "http://attacker.example"},
        {"origin": "ftp://127.0.0.1:8090"},
        {"origin": "http://[::1"},
        {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
        {"origin": ORIGIN, "sec-fetch-site": "same-site"},
    ],
)
def test_forms_of_other_sites(with_forms: TestClient, headers: dict[str, str]) -> None:
    answer = with_forms.post("/", headers=headers)
    assert (answer.status_code, "inside" in answer.text) == (403, False)


def test_other_machines_may_name_any_address_and_browsers_keep_tls() -> None:
    app = Guard(PlainTextResponse("inside"), frozenset({"box"}), Access(login=True, https=True, by_address=True))
    client = TestClient(app, base_url="https://box:8090")
    for host in ("box", "10.0.0.7:8090", "[fe80::1]:8090"):
        assert "strict-transport-security" in client.get("/", headers={"host": host}).headers
    assert "strict-transport-security" not in client.get("/", headers={"host": "localhost:8090"}).headers
    assert client.get("/", headers={"host": "attacker.example"}).status_code == 421
    assert client.post("/", headers={"origin": "http://box:8090"}).status_code == 403, "without TLS"


def test_headers(guarded: TestClient) -> None:
    answer = guarded.head("/")
    assert answer.headers["cache-control"] == "no-store"
    policy = answer.headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert not [part for part in policy if "unsafe" in part or "http" in part or "*" in part]


def test_the_host_of_a_header() -> None:
    assert host_of("[FE80::1]:80") == "fe80::1"


# -- the address


@pytest.mark.parametrize(
    ("listen", "found"),
    [
        ("127.0.0.1:8090", ("127.0.0.1", 8090)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:80", ("::1", 80)),
        ("127.9.9.9:1", ("127.9.9.9", 1)),
    ],
)
def test_addresses_of_loopback(listen: str, found: tuple[str, int]) -> None:
    assert parse(listen) == found


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.com", "127.0.0.1.com"])
def test_addresses_that_others_reach_are_protected(host: str) -> None:
    bare: dict[str, bool] = {"tls": False, "login": False, "changes": False, "may_be_insecure": False}
    for missing, given in (
        ("add --certificate FILE and --login", {}),
        ("add --certificate FILE[.]", {"login": True}),
        ("add --login[.]", {"tls": True}),
        ("it needs --login", {"tls": True, "changes": True}),
        ("it needs --login", {"may_be_insecure": True, "changes": True}),
    ):
        with pytest.raises(ValueError, match=missing):
            check_protected(host, **bare | given)
    check_protected(host, **bare | {"tls": True, "login": True, "changes": True})
    check_protected(host, **bare | {"may_be_insecure": True})
    check_protected("127.0.0.1", **bare | {"changes": True})


@pytest.mark.parametrize("listen", ["", "8090", ":8090", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"])
def test_what_is_no_address(listen: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse(listen)


def test_loopback() -> None:
    assert not is_loopback("localhost.example")


# -- live


def test_differences() -> None:
    before = Live({"a": {"lag": "1", "state": ("Stable", "ok")}, "b": {"lag": "2"}}, {"chart": "<svg>"})
    after = Live({"a": {"lag": "3", "state": ("Stable", "ok")}, "c": {"lag": "4"}}, {"chart": "<svg>"})
    assert difference(before, after) == {"rows": {"a": {"lag": "3"}, "c": {"lag": "4"}}}
    assert difference(after, after) == {}
    assert difference(Live(), Live(regions={"chart": "x"})) == {"regions": {"chart": "x"}}


async def test_a_stream_sends_what_changes_and_ends_with_the_console() -> None:
    ended = threading.Event()
    states = iter(["1", "1", "2", "failure", "gone", "2"])

    async def read() -> Live:
        state = next(states, None)
        if state is None:
            ended.set()
            return Live()
        if state == "failure":
            raise TimedOut("the cluster does not answer")
        if state == "gone":
            raise HTTPException(404, "the journal has no rebalance 7")
        return Live({"": {"lag": state}})

    streams = Streams(ended.is_set, every_s=0)
    sent = []
    async for event in streams.events(read):
        assert streams.open == 1
        sent.append(event)
    assert streams.open == 0
    assert [json.loads(event.removeprefix("data: ")) for event in sent] == [
        {"rows": {"": {"lag": "1"}}},
        {"rows": {"": {"lag": "2"}}},
    ]
    assert all(event.endswith("\n\n") and event.count("\n") == 2 for event in sent)


async def test_a_stream_ends_with_the_session_of_its_reader() -> None:
    async def read() -> Live:
        return Live()

    over = iter([False, False, True])
    assert [event async for event in Streams(lambda: False, every_s=0).events(read, lambda: next(over))] == []


async def test_a_stream_without_changes_says_that_it_is_there() -> None:
    async def read() -> Live:
        return Live()

    events = Streams(lambda: False, every_s=0, still_here_s=0).events(read)
    assert await anext(events) == ": still here\n\n"
    await events.aclose()


class Asked:
    def __init__(self, accept: str) -> None:
        self.headers = {"accept": accept}
        self.state = State()


async def test_too_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read() -> Live:
        return Live({"": {"lag": "1"}})

    streams = Streams(lambda: False)
    monkeypatch.setattr(live, "MOST_STREAMS", 1)
    stream: Any = Asked("text/event-stream")
    assert (await streams.response(stream, read)).status_code == 200
    streams.open = 1
    assert (await streams.response(stream, read)).status_code == 503
    poll: Any = Asked("application/json")
    assert json.loads((await streams.response(poll, read)).body) == {"rows": {"": {"lag": "1"}}}


async def test_a_session_does_not_take_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read() -> Live:
        return Live({"": {"lag": "1"}})

    streams, session = Streams(lambda: False), Session(None, 1, 0, lambda: 0)  # type: ignore[arg-type]
    monkeypatch.setattr(live, "MOST_OF_SESSION", 1)
    mine, another, without = (cast(Any, Asked("text/event-stream")) for _ in range(3))
    mine.state.session, another.state.session = session, Session(None, 1, 0, lambda: 0)  # type: ignore[arg-type]
    events = cast(Any, await streams.response(mine, read)).body_iterator
    assert await anext(events)
    assert (streams.open, session.streams) == (1, 1)
    assert (await streams.response(mine, read)).status_code == 503
    for other in (another, without):
        assert (await streams.response(other, read)).status_code == 200
    await events.aclose()
    assert (streams.open, session.streams) == (0, 0)
    assert (await streams.response(mine, read)).status_code == 200


# -- answers


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Client:
    """Stands for a cluster: the answers count the questions."""

    made = 0

    def __init__(self) -> None:
        Client.made += 1
        self.closed = False

    def close(self) -> None:
        self.closed = True


async def test_a_question_is_asked_once_for_all_and_again_later() -> None:
    clock, asked = Clock(), []
    answers = Answers(Client, clock)  # type: ignore[arg-type]

    def ask(_: Any) -> int:
        asked.append(None)
        return len(asked)

    assert await asyncio.gather(*(answers.get("key", ask) for _ in range(5))) == [1] * 5
    assert await answers.get("other", ask) == 2
    clock.now = 0.9
    assert await answers.get("key", ask) == 1
    clock.now = 1.1
    assert await answers.get("key", ask) == 3
    clock.now = 40
    await answers.get("other", ask)
    assert list(answers._known) == ["other"], "old answers are not kept"
    answers.close()


async def test_a_slow_answer_is_given_again_while_the_next_is_awaited() -> None:
    clock, may_answer = Clock(), threading.Event()
    answers = Answers(Client, clock)  # type: ignore[arg-type]

    def slow(_: Any) -> str:
        clock.now += 0.5
        return "first"

    def slower(_: Any) -> str:
        assert may_answer.wait(60)
        return "second"

    assert await answers.get("key", slow) == "first"
    clock.now += 2.4
    assert await answers.get("key", slower) == "first", "still fresh: it took half a second"
    clock.now += 0.2
    assert await answers.get("key", slower) == "first"
    assert await answers.get("key", slower) == "first"
    may_answer.set()
    while (found := await answers.get("key", slower)) == "first":
        await asyncio.sleep(0.001)
    assert found == "second"


async def test_a_change_makes_old_answers_worthless() -> None:
    answers, asked = Answers(Client, Clock()), []  # type: ignore[arg-type]

    def ask(_: Any) -> int:
        asked.append(None)
        return len(asked)

    def refused(_: Any) -> None:
        raise KafkaError(None, "no")

    assert await answers.get("key", ask) == 1
    assert await answers.do(lambda _: "read") == "read"
    assert await answers.get("key", ask) == 1
    assert await answers.do(lambda _: "done", changes=True) == "done"
    assert await answers.get("key", ask) == 2
    with pytest.raises(KafkaError):
        await answers.do(refused, changes=True)
    assert await answers.get("key", ask) == 3, "it may have been done"


async def test_a_client_in_use_is_closed_after_its_answer() -> None:
    answers, began, may_end = Answers(Client), threading.Event(), threading.Event()  # type: ignore[arg-type]
    used: list[Any] = []

    def slow(client: Any) -> None:
        used.append(client)
        began.set()
        assert may_end.wait(60)

    running = asyncio.ensure_future(answers.do(slow))
    await asyncio.to_thread(began.wait, 60)
    answers.close()
    may_end.set()
    await running
    assert used[0].closed


async def test_a_failure_is_for_those_who_wait() -> None:
    clock = Clock()
    answers = Answers(Client, clock)  # type: ignore[arg-type]

    def fail(_: Any) -> int:
        raise KafkaError(None, "no")

    for _ in range(2):
        with pytest.raises(KafkaError, match="no"):
            await answers.get("key", fail)
        clock.now += 2
    assert await answers.get("key", lambda _: 1) == 1


# -- batches


def test_batches_have_two_limits() -> None:
    assert list(in_batches([1, 1, 1, 1, 1], lambda one: one, 2, 100)) == [[1, 1], [1, 1], [1]]
    assert list(in_batches([3, 3, 9, 1, 1], lambda one: one, 100, 6)) == [[3, 3], [9], [1, 1]]
    assert list(in_batches([], lambda one: one, 2, 2)) == []


def test_a_group_weighs_what_its_answers_have() -> None:
    row = GroupRow("g", "Stable", "classic", "consumer", 1)
    assert weight_of(row) == 50
    assert weight_of(GroupRow("g", "Stable", "classic", "consumer", 1, members=10_000, partitions=7)) == 10_000


def test_share_groups_are_described_too() -> None:
    rows = [GroupRow("a", "Stable", "share", "share", 1), GroupRow("b", "Stable", "classic", "consumer", 1)]
    assert [[row.group_id for row in batch] for batch in batches_of(rows)] == [["a", "b"]]


def test_a_batch_that_fails_is_unknown() -> None:
    class Failing:
        def survey(self, _: Any) -> Any:
            raise TimedOut("broker 2 does not answer")

    row = GroupRow("g", "Stable", "classic", "consumer", 2, members=3, partitions=1, lag=5, lags={"t": 5})
    failing: Any = Failing()
    [read] = read_batch(failing, EndTimes(), [row])
    assert (read.state, read.members, read.lag, read.problem) == ("Stable", None, None, "broker 2 does not answer")


def test_the_lag_of_a_group() -> None:
    row = GroupRow("g", "Stable", "classic", "consumer", 1)
    offsets = {("t", 0): 5, ("t", 1): 9, ("t", 2): 1, ("gone", 0): 7}
    committed = {place: Committed(offset) for place, offset in offsets.items()}
    known = with_lags(row, committed, {("t", 0): 8, ("t", 1): 4})
    assert (known.partitions, known.lags, known.lag) == (4, {"t": 3, "gone": None}, 3)
    assert (known.counted, known.committed, known.end) == (2, 14, 12)
    assert with_lags(row, {}, {}).lag is None


# -- lag in time


def test_an_age_is_on_the_line_between_points() -> None:
    times, place = EndTimes(), ("orders", 0)
    assert times.age_ms(place, 5, 5, 0) == 0
    assert times.age_ms(place, 4, 5, 0) is None
    for now_ms, end in ((0, 100), (20_000, 300), (40_000, 300), (60_000, 400)):
        times.note(now_ms, {place: end})
    assert times.age_ms(place, 400, 400, 60_000) == 0
    assert times.age_ms(place, 200, 400, 60_000) == 50_000
    assert times.age_ms(place, 350, 400, 60_000) == 10_000
    assert times.age_ms(place, 300, 400, 60_000) == 20_000, "written after the log had stood still"
    assert times.age_ms(place, 0, 400, 60_000) == 80_000, "before the first point: the mean rate"
    assert times.age_ms(place, 410, 420, 60_000) is None, "after the last point"
    assert times.age_ms(("orders", 1), 0, 9, 60_000) is None


def test_points_are_few() -> None:
    points = with_point((), 0, 7)
    for now_ms in range(1_000, 100_000, 1_000):
        points = with_point(points, now_ms, 7)
    assert points == ((0, 7), (99_000, 7))
    assert time_of(points, 3) is None, "nothing was written meanwhile"
    for second in range(100, 5_000):
        points = with_point(points, second * 1_000, second)
    assert len(points) == MOST_POINTS
    assert points[-1] == (4_999_000, 4_999)
    assert all(later - earlier >= 10_000 for (earlier, _), (later, _) in pairwise(points[:-1]))
    assert with_point(points, 5_000_000, 3) == ((5_000_000, 3),), "the topic was created again"
    assert with_point(points, 0, 9_999) == points, "time did not pass"


def test_ages_in_words() -> None:
    ages = (None, 0, 1, 12_400, 59_499, 200_000)
    assert [age(one, told=False) for one in ages] == ["–", "0 s", "≈ 1 s", "≈ 12 s", "≈ 59 s", "≈ 3 min 20 s"]
    assert [age(one, told=True) for one in ages] == ["–", "0 s", "< 1 s", "12 s", "59 s", "3 min 20 s"]


# -- the course of lag


def row_with(lag: int | None) -> GroupRow:
    return GroupRow("g", "Stable", "classic", "consumer", 1, lag=lag)


def test_a_course_has_few_points_and_forgets_groups() -> None:
    trends = Trends()
    for second in range(0, 20_000, 2):
        trends.note(second * 1_000, {"g": row_with(second)})
        assert len(trends.of("g")) <= MOST_TREND_POINTS
    points = trends.of("g")
    assert points[-1] == (19_998_000, 19_998)
    assert all(lag == at_ms // 1_000 for at_ms, lag in points)
    assert 15 * 60_000 < points[-1].at_ms - points[0].at_ms < 65 * 60_000, "about half an hour"
    trends.note(1, {"g": row_with(0)})
    assert trends.of("g") == points, "time did not pass"
    trends.note(20_000_000, {"other": row_with(None)})
    assert trends.of("g") == trends.of("other") == trends.of("nobody") == ()
    trends.note(20_001_000, {"other": row_with(7), "g": row_with(None)})
    assert trends.of("other") == ((20_001_000, 7),)
    assert trends.number == 10_002


def test_rates_are_means_of_half_a_minute() -> None:
    rates = Rates()

    def note(at_s: float, committed: int, end: int, counted: int = 1) -> None:
        row = replace(row_with(0), counted=counted, committed=committed, end=end)
        rates.note(round(at_s * 1000), {"g": row})

    note(0, 0, 100)
    assert rates.of("g") is None
    note(2, 20, 160)
    assert rates.of("g") == Rate(30.0, 10.0)
    for second in range(4, 101, 2):
        note(second, 20, 160 + 10 * (second - 2))
    assert rates.of("g") == Rate(10.0, 0.0), "what was before is forgotten"
    note(102, 500, 2_000, counted=2)
    assert rates.of("g") is None, "another partition was committed"
    for second in range(104, 125, 2):
        note(second, 600, 1_000, counted=2)
    note(125, 400, 1_030, counted=2)
    known = rates.of("g")
    assert known is not None
    assert known.written > 1
    assert known.committed == 0, "a reset is no reading"
    rates.note(200_000, {})
    assert rates.of("g") is None
    assert [rate(number) for number in (None, 0.0, 3.77, 9.97, 1234.5)] == ["–", "0/s", "3.8/s", "10/s", "1,234/s"]


def test_a_course_as_a_line() -> None:
    points = (Point(0, 0), Point(1_000, 50), Point(4_000, 100))
    assert small(points[:1]) == ""
    assert 'points="0,18 18,10 72,2"' in small(points)
    found = wide(points)
    assert found is not None
    assert (found.words, found.length, found.most) == ("lag in 4.0 s: from 0 to 100, highest 100", "4.0 s", "100")
    assert 'polygon points="0,64 0,62' in found.svg
    assert wide(points[:1]) is None
    flat = small((Point(0, 0), Point(10, 0)))
    assert 'points="0,18 72,18"' in flat


def test_lag_that_the_coordinator_tells() -> None:
    place = ("t", 0)
    told = SurveyedGroup(
        GroupDescription("g", "Stable", "consumer", "range", (), 1, "classic"),
        {place: Committed(5)},
        lags={place: PartitionLag(Committed(5), 9, 9, 1_500)},
    )

    class Told:
        def survey(self, _: Any) -> Any:
            return Survey({"g": told}, {}, 0, 0.0, 0.0)

    telling: Any = Told()
    times = EndTimes()
    [row] = read_batch(telling, times, [GroupRow("g", "Stable", "classic", "consumer", 1)])
    assert (row.lag, row.age_ms, row.age_told, row.lags) == (4, 1_500, True, {"t": 4})


# -- names


def test_long_names_break_between_their_words() -> None:
    assert breakable("User:payments.eu-west@example") == "User:<wbr>payments.<wbr>eu-west@<wbr>example"
    assert breakable("worker.com on 127.0.0.1:9092") == "worker.<wbr>com on 127.0.0.1:9092"
    assert breakable("__consumer_offsets") == "__consumer_<wbr>offsets"
    assert breakable("<b>.x") == "&lt;b&gt;.x"
