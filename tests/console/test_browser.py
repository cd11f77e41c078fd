"""The console in Chromium: no errors, nothing from elsewhere, live cells, keyboard, phone."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

import pytest
from browser import WHOLE, Browser
from group_member import GroupMember
from served import ServedConsole

from kohort.client.cluster import Cluster
from kohort.console import soon
from kohort.console.reading import answers
from kohort.testing import KohortServer

pytestmark = pytest.mark.browser

GROUP = "billing<script>window.hacked = 1</script>"
READING = f"The group is being read. {soon.FOLLOWS}"
CLIENT = "worker'\"><img src=x onerror='window.hacked = 2'>"


@pytest.fixture(scope="module")
def cluster(server: KohortServer) -> Iterator[Cluster]:
    server.create_topic("orders", 3)
    server.produce("orders", *["x"] * 9, partition=0)
    with Cluster(server.bootstrap_servers) as cluster:
        cluster.commit(GROUP, {("orders", 0): 2})
        member = GroupMember(server.bootstrap_servers, GROUP, {"orders": (0, 1)}, CLIENT)
        yield cluster
        member.leave()


@pytest.fixture(scope="module")
def console(server: KohortServer, cluster: Cluster) -> Iterator[ServedConsole]:
    with ServedConsole(server.bootstrap_servers) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


def paths() -> list[str]:
    tabs = [
        f"/group?{urlencode({'id': GROUP, 'tab': tab})}"
        for tab in ("partitions", "members", "rebalances", "ownership", "what_if", "settings")
    ]
    one = f"/rebalance?{urlencode({'group': GROUP, 'number': 2})}"
    access = [f"/access?tab={tab}" for tab in ("users", "acls", "quotas")]
    return [
        "/",
        *tabs,
        one,
        "/doctor",
        "/topics",
        "/topic?name=orders",
        "/messages?topic=orders",
        "/nodes",
        *access,
        "/nothing",
    ]


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("path", paths())
def test_every_screen(browser: Browser, console: ServedConsole, path: str, width: int) -> None:
    browser.errors.clear()
    browser.loaded.clear()
    browser.screen(width)
    browser.open(console.url + path)
    assert browser.evaluate("document.querySelector('h1').textContent.length") > 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls to the side"
    assert browser.evaluate("window.hacked") is None
    assert browser.evaluate("document.querySelectorAll('main script, main img').length") == 0
    assert all(url.startswith(console.url) for url in browser.loaded), browser.loaded
    expected = ["status of 404"] if path == "/nothing" else []
    assert len(browser.errors) == len(expected), browser.errors
    assert all(part in error for part, error in zip(expected, browser.errors, strict=True))


@pytest.mark.parametrize("path", [path for path in paths() if path.startswith("/group")])
def test_an_outline_becomes_the_page_by_itself(
    browser: Browser, console: ServedConsole, path: str, slow_answers: None
) -> None:
    browser.errors.clear()
    browser.screen(1400)
    browser.open(console.url + path)
    came = browser.evaluate("fetch(location.href).then(answer => answer.text())")
    assert "data-outline" in came, "what the browser got first"
    assert browser.evaluate("document.querySelector('main [role=status]')?.textContent") != READING
    assert browser.evaluate("document.querySelectorAll('main > :is(.scroll, .pager, .notice, [data-region])').length")
    assert browser.evaluate("document.title").startswith("billing<script>")
    assert browser.evaluate("document.getElementById('said').textContent") == "The page is complete"
    browser.wait("!document.getElementById('pause').hidden && document.body.dataset.live.startsWith('/live/group')")
    assert browser.evaluate("window.hacked") is None
    assert browser.errors == []


def test_the_focus_stays_when_an_outline_becomes_the_page(
    browser: Browser, console: ServedConsole, slow_answers: None
) -> None:
    path = f"/group?{urlencode({'id': GROUP, 'tab': 'members'})}"
    tab = "document.querySelector('.tabs a[href*=settings]')"
    browser.call("Page.navigate", url=console.url + path)
    browser.wait(f"location.href.endsWith('members') && {tab} !== null")
    browser.evaluate(f"{tab}.focus()")
    browser.wait(WHOLE)
    assert browser.evaluate(f"document.activeElement === {tab}")


def test_an_outline_becomes_the_page_without_scripts(
    browser: Browser, console: ServedConsole, slow_answers: None
) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(f"{console.url}/group?{urlencode({'id': GROUP, 'tab': 'members'})}")
        browser.wait("document.querySelector('main .pager') !== null")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


@pytest.fixture
def slow_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is there at once, and none is kept."""
    monkeypatch.setattr(soon, "SOON_S", 0.0)
    monkeypatch.setattr(answers, "KEPT_S", 0.0)
    monkeypatch.setattr(answers, "KEPT_TIMES", 0)
    monkeypatch.setattr(answers, "LONG_S", 60.0)


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (360, "dark")])
@pytest.mark.parametrize("path", paths())
def test_axe_finds_nothing(
    browser: Browser, console: ServedConsole, axe: str, path: str, width: int, scheme: str
) -> None:
    """WCAG 2.2, levels A and AA."""
    browser.screen(width, scheme=scheme)
    browser.open(console.url + path)
    browser.evaluate(axe)
    assert browser.evaluate(RUN_AXE) == []


def test_axe_would_find_it(browser: Browser, console: ServedConsole, axe: str) -> None:
    browser.open(f"{console.url}/nodes")
    browser.evaluate(axe)
    browser.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert [one.partition(":")[0] for one in browser.evaluate(RUN_AXE)] == ["image-alt"]


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core's script. The package's own code, which needs Playwright, is not imported."""
    found = find_spec("axe_playwright_python")
    assert found is not None, "make test-console installs axe-core"
    [folder] = found.submodule_search_locations or ()
    return (Path(folder) / "axe.min.js").read_text(encoding="utf-8")


RUN_AXE = """axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then(
  found => found.violations.map(one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 200)).join(' | ')))"""


LAG = "document.querySelector('tbody [data-cell=lag]').textContent"


def test_cells_change_while_the_page_is_open(
    browser: Browser, console: ServedConsole, cluster: Cluster, server: KohortServer
) -> None:
    cluster.commit("live", {("orders", 0): 0})
    browser.screen(1400)
    console.wait_for_groups(lambda groups: "live" in groups and groups["live"].lag is not None)
    browser.open(f"{console.url}/?q=live")
    lag = int(browser.wait(LAG))
    server.produce("orders", "more", partition=0)
    browser.wait(LAG, lambda text: text == str(lag + 1))
    browser.evaluate("document.getElementById('pause').click()")
    assert browser.evaluate("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    server.produce("orders", "more", partition=0)
    other = Browser()
    other.open(f"{console.url}/?q=live")
    other.wait(LAG, lambda text: text == str(lag + 2))
    other.close()
    assert browser.evaluate(LAG) == str(lag + 1)
    browser.evaluate("document.getElementById('pause').click()")
    browser.wait(LAG, lambda text: text == str(lag + 2))


def test_the_colour_scheme_is_the_systems_until_it_is_chosen(browser: Browser, console: ServedConsole) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.screen(1400, scheme="dark")
    browser.open(f"{console.url}/nodes")
    dark = browser.evaluate(ground)
    browser.evaluate("document.getElementById('theme').click()")
    light = browser.evaluate(ground)
    assert light != dark
    browser.open(f"{console.url}/topics")
    assert browser.evaluate(ground) == light
    assert browser.evaluate("document.documentElement.dataset.theme") == "light"
    browser.evaluate("document.cookie = 'kohort-theme=; path=/; max-age=0'")
    browser.open(f"{console.url}/topics")
    assert browser.evaluate(ground) == dark


def test_the_keyboard(browser: Browser, console: ServedConsole) -> None:
    browser.screen(1400)
    browser.open(console.url)
    browser.press("Tab", 9)
    assert browser.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    for _ in range(2):
        browser.press("Tab", 9)
    assert browser.evaluate("document.activeElement.textContent") == "Groups"
