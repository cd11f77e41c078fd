"""The console's pages as a browser gets them, without a browser; and what is in them."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from starlette.testclient import TestClient

from kohort.client.admin.survey import Surveyor
from kohort.client.cluster import Cluster
from kohort.console.app import create_app
from kohort.console.guard import HEADERS
from kohort.console.reading.refresher import Refresher

ORIGIN = "http://127.0.0.1:8090"
EMPTY = {"meta", "link", "input", "wbr"}
WHOLE = {"prefer": "wait=60"}
"""Asks for whole pages, as the script of an outline does."""


class Page(HTMLParser):
    """Text, tables, links and elements of a page. Fails if its tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.rows: list[list[str]] = []
        """Of all tables; each cell's text with single spaces."""
        self.links: list[str] = []
        self._open: list[str] = []
        self._texts: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        assert not any(name.startswith("on") or name == "style" for name in found), found
        if tag == "a":
            self.links.append(found["href"])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> in {self._open}"

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "wbr":
            self._texts[-1] += data
        else:
            self._texts.append(data)
        if {"td", "th"} & set(self._open) and self.rows and self.rows[-1]:
            space = "" if self.tags[-1][0] == "wbr" else " "
            self.rows[-1][-1] = " ".join(f"{self.rows[-1][-1]}{space}{data}".split())

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._texts).split())

    def body(self) -> list[list[str]]:
        """The rows without headings."""
        headings = {tuple(row) for row in self.rows[:1]}
        return [row for row in self.rows if tuple(row) not in headings]

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    def attributes(self, tag: str) -> list[dict[str, str]]:
        return [found for name, found in self.tags if name == tag]


class Pages:
    """A console whose snapshot is read when the test says so."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        """`settings` are arguments of `create_app`."""
        self.bootstrap = bootstrap
        self.cluster = Cluster(bootstrap)
        self.refresher = Refresher(lambda: Cluster(bootstrap))
        app = create_app(lambda: Cluster(bootstrap), bootstrap, self.refresher, **settings)
        self.address = ""
        """Where the form that was sent last has led."""
        self.client = TestClient(app, base_url=ORIGIN, headers=WHOLE)

    def __enter__(self) -> Pages:
        self.client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.__exit__(None, None, None)
        self.cluster.close()

    def read(self) -> None:
        self.refresher.read(self.cluster, Surveyor(self.cluster, with_lag=True))

    def get(self, path: str, /, *, status: int = 200, **query: Any) -> Page:
        answer = self.client.get(path, params=query or None)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert answer.headers["cache-control"] == "no-store"
        assert len(answer.content) <= 150_000
        page = Page(answer.text)
        assert page.count("script") == 1, "the page's own"
        assert all(table.get("scope") in ("col", "row") for table in page.attributes("th"))
        return page

    def send(self, path: str, /, *, status: int = 200, **fields: str) -> Page:
        """Load a page, fill in its form and send it, as a browser does. Returns the page after it."""
        page = self.get(path) if path.startswith("/") else Page(path)
        [action] = [found["action"] for found in page.attributes("form") if found["action"] != "/logout"]
        hidden = {found["name"]: found["value"] for found in page.attributes("input") if found.get("type") == "hidden"}
        answer = self.client.post(action, data={**hidden, **fields}, headers={"origin": ORIGIN})
        assert answer.status_code == status, answer.text
        self.address = str(answer.url)
        return Page(answer.text)

    def live(self, path: str, /, **query: Any) -> dict[str, Any]:
        """The cells of a page that polls."""
        answer = self.client.get(f"/live/{path}", params=query, headers={"accept": "application/json"})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found
