"""The login and the changes in Chromium: real forms and their origins, the keyboard, no JavaScript, a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Browser
from served import ServedConsole

from kohort.client.cluster import Cluster
from kohort.console.access import Access
from kohort.console.login import COOKIE, Entrance
from kohort.testing import KohortServer

pytestmark = pytest.mark.browser

GROUP = "billing"


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(security="SASL_PLAINTEXT", users={"alice": "a secret"}) as running:
        running.create_topic("orders", 2)
        running.produce("orders", *["x"] * 9, partition=0)
        yield running


def cluster_of(server: KohortServer, user: str, password: str) -> Cluster:
    settings = {key: str(value) for key, value in server.client_config().items() if key != "bootstrap.servers"}
    return Cluster(server.bootstrap_servers, security=settings | {"sasl.username": user, "sasl.password": password})


@pytest.fixture
def cluster(server: KohortServer) -> Iterator[Cluster]:
    with cluster_of(server, "alice", "a secret") as cluster:
        cluster.commit(GROUP, {("orders", 0): 2})
        yield cluster


@pytest.fixture(scope="module")
def console(server: KohortServer) -> Iterator[ServedConsole]:
    entrance = Entrance(lambda user, password: lambda: cluster_of(server, user, password))
    access = Access(login=True, allow_changes=True)
    with ServedConsole(server.bootstrap_servers, access=access, entrance=entrance) as served:
        yield served


@pytest.fixture(scope="module")
def browser(console: ServedConsole) -> Iterator[Browser]:
    made = Browser()
    made.screen(1400)
    made.open(f"{console.url}/topics")
    made.write("user", "alice")
    made.write("password", "a secret")
    made.enter()
    yield made
    made.close()


def heading(browser: Browser) -> str:
    found: str = browser.evaluate("document.querySelector('h1').textContent")
    return found


def test_the_login_leads_to_the_page_that_was_wanted(browser: Browser, console: ServedConsole) -> None:
    browser.open(f"{console.url}/topics")
    assert heading(browser) == "Topics"
    assert browser.evaluate("document.querySelector('.who').textContent") == "alice"
    assert browser.evaluate("document.cookie").find(COOKIE) == -1, "no script reads it"
    assert browser.errors == []


def test_a_wrong_password_and_a_logout(console: ServedConsole) -> None:
    browser = Browser()
    browser.screen(360)
    browser.open(console.url)
    for password, found in (("wrong", "Log in"), ("a secret", "Groups")):
        browser.write("user", "alice")
        browser.write("password", password)
        browser.submit()
        assert heading(browser) == found
        assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    browser.follow(lambda: browser.evaluate("document.querySelector('.account button').click()"))
    assert heading(browser) == "Log in"
    browser.open(f"{console.url}/nodes")
    assert heading(browser) == "Log in"
    assert len(browser.errors) == 1, "the status of the wrong password"
    browser.close()


def test_a_reset_with_the_keyboard_alone_and_without_scripts(
    browser: Browser, console: ServedConsole, cluster: Cluster
) -> None:
    browser.errors.clear()
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.screen(360)
    browser.open(f"{console.url}/change/reset-offsets?group={GROUP}")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    browser.evaluate("document.querySelector('[value=earliest]').focus()")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key=" ", code="Space", windowsVirtualKeyCode=32, text=" ")
    browser.call("Input.dispatchKeyEvent", type="keyUp", key=" ", code="Space", windowsVirtualKeyCode=32)
    browser.enter()
    assert heading(browser) == f"Set 1 offset of group {GROUP}?"
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    assert cluster.committed(GROUP)["orders", 0].offset == 2
    browser.evaluate("document.querySelector('main form button').focus()")
    browser.enter()
    assert heading(browser) == "Done"
    assert cluster.committed(GROUP)["orders", 0].offset == 0
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.errors == []


def test_a_deletion_needs_the_name(browser: Browser, console: ServedConsole, cluster: Cluster) -> None:
    browser.screen(1400)
    browser.open(f"{console.url}/change/delete-group?group={GROUP}")
    browser.submit()
    assert browser.accessibility() == []
    browser.write("typed", "another")
    browser.submit()
    assert browser.evaluate("document.querySelector('[role=alert]:not(.failure)').textContent") == (
        f"Type {GROUP} to confirm. Nothing was changed."
    )
    browser.write("typed", GROUP)
    browser.submit()
    assert heading(browser) == "Done"
    assert GROUP not in {group.group_id for group in cluster.list_groups()}


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize(
    "path",
    [
        "/login",
        *(f"/change/{name}?group={GROUP}" for name in ("restore-offsets", "delete-offsets", "remove-member")),
        f"/change/delete-group?group={GROUP}",
        "/change/create-topic",
        *(f"/change/{name}?topic=orders" for name in ("topic-settings", "add-partitions", "delete-topic")),
    ],
)
def test_every_form(browser: Browser, console: ServedConsole, path: str, width: int) -> None:
    browser.errors.clear()
    browser.screen(width)
    browser.open(console.url + path)
    assert browser.evaluate("document.querySelectorAll('main form').length") == 1
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls to the side"
    assert browser.accessibility() == []
    assert browser.errors == []
