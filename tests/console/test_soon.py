"""Pages for which the cluster takes its time: an outline first, then the page, which is made once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from console_pages import WHOLE, Page, Pages
from group_member import GroupMember
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.console import soon
from kohort.console.pages import group
from kohort.console.reading.questions import GroupNow, group_now

NOW = {"prefer": ""}


class Held:
    """Descriptions of groups wait until `go`."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = 0

    def __call__(self, cluster: Cluster, group_id: str, stories: int) -> GroupNow:
        self.asked += 1
        assert self.go.wait(60)
        return group_now(cluster, group_id, stories)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held()
    monkeypatch.setattr(group, "group_now", made)
    monkeypatch.setattr(soon, "SOON_S", 0.01)
    yield made
    made.go.set()


@pytest.fixture
def member(pages: Pages, unique: str) -> Iterator[GroupMember]:
    pages.cluster.create_topic(unique, 2)
    pages.cluster.commit(unique, {(unique, 0): 0})
    made = GroupMember(pages.bootstrap, unique, {unique: (0, 1)})
    pages.read()
    yield made
    made.leave()


def outline_of(pages: Pages, path: str) -> Page:
    answer = pages.client.get(path, headers=NOW)
    assert answer.status_code == 200, answer.text
    page = Page(answer.text)
    assert page.attributes("body") == [{"data-outline": ""}], "no stream before the page is there"
    assert {"http-equiv": "refresh", "content": "2"} in page.attributes("meta"), "for browsers without JavaScript"
    return page


def test_an_outline_has_what_the_list_of_groups_knows(
    pages: Pages, member: GroupMember, held: Held, unique: str
) -> None:
    page = outline_of(pages, f"/group?id={unique}&tab=members")
    assert f"{unique} State Stable Lag 0" in page.text
    assert "Members 1 Protocol classic · range" in page.text
    assert "The group is being read." in page.text
    assert page.body() == []
    assert sum(f"/group?id={unique}&tab=" in link for link in page.links) == len(group.TABS)
    held.go.set()
    assert [row[0] for row in pages.get(f"/group?id={unique}&tab=members").body()] == [
        f"by-hand 127.0.0.1 {member.member_id}",
    ]
    assert held.asked == 1, "the page that was begun was given"


def test_without_scripts_the_page_comes_when_it_is_loaded_again(
    pages: Pages, member: GroupMember, held: Held, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/group?id={unique}"
    outline_of(pages, path)
    outline_of(pages, path)
    held.go.set()
    monkeypatch.setattr(soon, "SOON_S", 60)
    page = Page(pages.client.get(path, headers=NOW).text)
    assert page.attributes("body") == [{"data-live": f"/live/group?id={unique}"}]
    assert held.asked == 1


def test_any_page_has_an_outline_and_errors_come_with_the_page(pages: Pages, held: Held, unique: str) -> None:
    page = outline_of(pages, f"/group?id={unique}")
    assert f"Groups {unique} The cluster has not answered yet." in page.text
    held.go.set()
    assert f"group {unique} does not exist" in pages.get("/group", status=404, id=unique).text


class Site:
    """A console whose page at / comes when `go` is set."""

    def __init__(self) -> None:
        self.console = SimpleNamespace(making={})
        self.go = asyncio.Event()
        self.made = 0
        self._page = soon.soon(self._make, lambda _: PlainTextResponse("outline"))

    async def _make(self, request: Request) -> Response:
        await self.go.wait()
        self.made += 1
        if request.query_params.get("fails"):
            raise KafkaError(None, "no")
        return PlainTextResponse(f"page {self.made}")

    async def get(self, query: str = "", **headers: str) -> str:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "app": SimpleNamespace(state=SimpleNamespace(console=self.console)),
        }
        return bytes((await self._page(Request(scope))).body).decode()


async def test_a_page_is_made_once_and_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soon, "SOON_S", 0.001)
    site = Site()
    assert [await site.get(), await site.get(cookie="kohort-theme=dark"), await site.get()] == ["outline"] * 3
    waiting = asyncio.gather(site.get(**WHOLE), site.get(cookie="kohort-theme=dark", **WHOLE))
    site.go.set()
    assert await waiting == ["page 1", "page 2"]
    assert await site.get() == "page 3", "the first one is gone"
    assert site.console.making == {}


async def test_what_nobody_fetches_is_forgotten_and_its_failure_is_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soon, "SOON_S", 0.001)
    monkeypatch.setattr(soon, "KEPT_S", 0.001)
    site = Site()
    assert [await site.get(), await site.get("fails=1")] == ["outline"] * 2
    site.go.set()
    while site.console.making:
        await asyncio.sleep(0.001)
    assert site.made == 2
    with pytest.raises(KafkaError):
        await site.get("fails=1")


async def test_beyond_the_limit_pages_come_when_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soon, "SOON_S", 0.001)
    monkeypatch.setattr(soon, "MOST", 1)
    site = Site()
    assert await site.get("q=1") == "outline"
    waiting = asyncio.ensure_future(site.get("q=2"))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    site.go.set()
    assert await waiting == "page 2"
