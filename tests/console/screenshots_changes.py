"""Screenshots of the login and of changes: python tests/console/screenshots_changes.py DIRECTORY [--docs]

In all widths and schemes of screenshots.py; with --docs those of docs/console.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

sys.path += [str(Path(__file__).parent)]
from browser import Browser
from screenshots import SCHEMES, WIDTHS
from served import ServedConsole

from kohort.client.cluster import Cluster
from kohort.console.access import Access
from kohort.console.login import Entrance
from kohort.testing import KohortServer

USER, PASSWORD = "alice", "a secret"


class Screen(NamedTuple):
    """A page; its form filled in and sent, as often as there are fields."""

    path: str
    sent: tuple[Mapping[str, str], ...] = ()


RESET = "/change/reset-offsets?group=billing"
SCREENS = {
    "changes-group": Screen("/group?id=billing"),
    "changes-topic": Screen("/topic?name=orders"),
    "changes-topics": Screen("/topics"),
    "reset-form": Screen(RESET),
    "reset-wrong": Screen(RESET, ({"to": "time", "time": "tomorrow"},)),
    "reset-plan": Screen(RESET, ({"to": "earliest", "preview": "1"},)),
    "restore-form": Screen("/change/restore-offsets?group=payments"),
    "remove-member": Screen("/change/remove-member?group=payments"),
    "delete-plan": Screen("/change/delete-group?group=payments", ({},)),
    "delete-wrong": Screen("/change/delete-group?group=payments", ({}, {"typed": "another"})),
    "create-topic": Screen("/change/create-topic"),
    "topic-settings": Screen("/change/topic-settings?topic=orders"),
    "add-partitions": Screen("/change/add-partitions?topic=orders"),
    "outcome": Screen("/change/add-partitions?topic=invoices", ({"count": "100"}, {})),
    "outcome-undo": Screen(RESET, ({"to": "shift", "shift": "+1"}, {})),
}
FILL = """(fields) => {
  const form = document.querySelector("main form");
  for (const [name, value] of Object.entries(fields))
    for (const field of form.querySelectorAll(`[name="${name}"]`))
      if (field.type === "radio" || field.type === "checkbox") field.checked = field.value === value;
      else field.value = value;
  form.querySelector(".buttons button").click();
}"""


def show(browser: Browser, url: str, screen: Screen) -> None:
    browser.open(url + screen.path)
    for fields in screen.sent:
        call = f"({FILL})({json.dumps(fields)})"
        browser.follow(lambda call=call: browser.evaluate(call))


def log_in(browser: Browser, url: str) -> None:
    browser.open(url)
    browser.write("user", USER)
    browser.write("password", PASSWORD)
    browser.submit()
    browser.wait("document.querySelectorAll('tbody tr').length || location.reload()")


def main(directory: Path, docs: bool) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with KohortServer(security="SASL_PLAINTEXT", users={USER: PASSWORD}) as server:
        settings = {key: str(value) for key, value in server.client_config().items() if key != "bootstrap.servers"}

        def open_cluster(user: str = USER, password: str = PASSWORD) -> Cluster:
            security = settings | {"sasl.username": user, "sasl.password": password}
            return Cluster(server.bootstrap_servers, security=security)

        for topic, partitions in (("orders", 4), ("invoices", 2)):
            server.create_topic(topic, partitions)
            server.produce(topic, *(f'{{"id": {number}, "amount": {number * 37}}}' for number in range(80)))
        with open_cluster() as cluster:
            cluster.commit("billing", {("orders", partition): 12 + partition for partition in range(4)})
            cluster.commit("payments", {("orders", partition): 5 for partition in range(4)})
            cluster.delete_offsets("payments", [("orders", 3)])
        entrance = Entrance(lambda user, password: lambda: open_cluster(user, password))
        access = Access(login=True, allow_changes=True)
        with ServedConsole(server.bootstrap_servers, access=access, entrance=entrance) as console:
            browser = Browser()
            shown = {"login": Screen("/login")} if not docs else {}
            for width, scheme in [(1200, "light")] if docs else [(w, s) for w in WIDTHS for s in SCHEMES]:
                browser.screen(width, 640 if docs else 900 if width > 600 else 780, scheme)
                browser.call("Network.clearBrowserCookies")
                for name, screen in shown.items():
                    show(browser, console.url, screen)
                    browser.picture(directory / f"{name}-{width}-{scheme}.png", whole=True)
                log_in(browser, console.url)
                for name, screen in SCREENS.items():
                    if docs and name != "reset-plan":
                        continue
                    show(browser, console.url, screen)
                    browser.picture(
                        directory / ("plan.png" if docs else f"{name}-{width}-{scheme}.png"), whole=not docs
                    )
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--docs" in sys.argv)
