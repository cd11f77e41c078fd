"""The page Doctor: it comes at once, and its stream brings the findings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from console_pages import Page, Pages

from kohort.client.cluster import Cluster
from kohort.console.reading.answers import Answers
from kohort.console.reading.examining import MOST_GROUPS, MOST_KEPT, Examinations, chosen
from kohort.console.reading.snapshot import GroupRow
from kohort.testing import KohortServer


@pytest.fixture
def pages() -> Iterator[Pages]:
    with KohortServer() as server, Pages(server.bootstrap_servers) as made:
        server.create_topic("orders")
        server.produce("orders", "a record", "another one")
        made.cluster.commit("<script>", {("orders", 0): 1})
        made.cluster.commit("billing", {("orders", 0): 2})
        yield made


def test_findings_come_by_the_stream(pages: Pages) -> None:
    assert "Two surveys of the groups are compared." in pages.get("/doctor").text
    pages.read()
    assert "Two surveys of the groups are compared." in pages.get("/doctor").text
    while "looked at twice" not in (region := pages.live("doctor")["regions"]["findings"]):
        time.sleep(0.05)
    page = Page(region)
    assert "Warning <script> has no members: 1 record waits." in page.text
    assert "Found: 1 warning. 2 groups were looked at twice within 2." in page.text
    assert "kohort groups delete '<script>'" in page.text
    assert page.links == ["/group?id=%3Cscript%3E"]
    assert "Nothing to show at this severity." in pages.get("/doctor", level="critical").text
    assert "has no members" in pages.get("/doctor").text, "the last examination is shown"


def row(name: str, lag: int | None, state: str = "Stable", type: str = "classic") -> GroupRow:
    return GroupRow(name, state, type, "consumer", 1, lag=lag)


def test_which_groups_are_examined() -> None:
    few = [row("a", None), row("b", 7), row("c", 0, "PreparingRebalance"), row("d", 9), row("s", 9, type="share")]
    assert [one.group_id for one in chosen(few)] == ["c", "d", "s", "b", "a"]
    assert len(chosen([row(str(number), number) for number in range(MOST_GROUPS + 1)])) == MOST_GROUPS


def test_an_examination_begins_when_it_is_due() -> None:
    now = 0.0
    begun: list[object] = []

    class Unreachable(Answers):
        async def do(self, ask: object, *, changes: bool = False) -> object:
            begun.append(ask)
            return await super().do(lambda cluster: cluster.cluster_id())  # type: ignore[attr-defined]

    async def play() -> None:
        nonlocal now
        answers = Unreachable(lambda: Cluster("127.0.0.1:1", bootstrap_timeout_ms=1))
        examinations = Examinations(answers, lambda: now, apart_s=0.0)

        async def ended() -> str:
            examinations.look("", [row("a", 1)])
            while (found := examinations.look("", [])) is None or len(begun) == 0:
                await asyncio.sleep(0.01)
            return found.failure

        assert "127.0.0.1:1" in await ended()
        examinations.look("", [])
        assert len(begun) == 1, "it is not due"
        now = 60.0
        examinations.look("", [])
        await asyncio.sleep(0)
        assert len(begun) == 2
        for number in range(2 * MOST_KEPT):
            examinations.look(str(number), [])
        assert len(examinations._kept) <= MOST_KEPT

    asyncio.run(play())
