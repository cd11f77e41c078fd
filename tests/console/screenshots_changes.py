"""The pictures of the login and of changes, for screenshots.py."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path += [str(Path(__file__).parent)]
from browser import Browser
from picture_sheets import shots_of, write_example, write_sheet
from served import ServedConsole

from kohort.client.cluster import Cluster
from kohort.console.access import Access
from kohort.console.login import Entrance
from kohort.testing import KohortServer

USER, PASSWORD = "alice", "a secret"


class Screen(NamedTuple):
    """A page; its form filled in and sent, as often as there are fields."""

    title: str
    path: str
    sent: tuple[Mapping[str, str], ...] = ()


RESET = "/change/reset-offsets?group=billing"
SCREENS = {
    "login": Screen("The login", "/login"),
    "changes-group": Screen("A group that may be changed", "/group?id=billing"),
    "changes-topic": Screen("A topic that may be changed", "/topic?name=orders"),
    "changes-topics": Screen("Topics that may be changed", "/topics"),
    "reset-form": Screen("Reset offsets", RESET),
    "reset-wrong": Screen("A wrong time", RESET, ({"to": "time", "time": "tomorrow"},)),
    "reset-plan": Screen("What the reset would change", RESET, ({"to": "earliest", "preview": "1"},)),
    "restore-form": Screen("Restore offsets", "/change/restore-offsets?group=payments"),
    "delete-offsets": Screen("Delete offsets", "/change/delete-offsets?group=payments"),
    "remove-member": Screen("Remove a member", "/change/remove-member?group=payments"),
    "delete-plan": Screen("Delete a group", "/change/delete-group?group=payments", ({},)),
    "delete-wrong": Screen(
        "A name that is not the group's", "/change/delete-group?group=payments", ({}, {"typed": "another"})
    ),
    "create-topic": Screen("Create a topic", "/change/create-topic"),
    "topic-settings": Screen("Change a topic's setting", "/change/topic-settings?topic=orders"),
    "add-partitions": Screen("Add partitions", "/change/add-partitions?topic=orders"),
    "delete-topic": Screen("Delete a topic", "/change/delete-topic?topic=orders", ({},)),
    "outcome": Screen("What was refused", "/change/add-partitions?topic=invoices", ({"count": "100"}, {})),
    "outcome-undo": Screen("What was done", RESET, ({"to": "shift", "shift": "+1"}, {})),
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
    """Unless the browser has logged in."""
    browser.open(url)
    if browser.evaluate("document.getElementById('user') === null"):
        return
    browser.write("user", USER)
    browser.write("password", PASSWORD)
    browser.submit()
    browser.wait("document.querySelectorAll('tbody tr').length || location.reload()")


def main() -> None:
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
            for name, screen in SCREENS.items():
                if name != "login":
                    log_in(browser, console.url)
                write_sheet(shots_of(browser, partial(show, browser, console.url, screen)), name)
                if name == "reset-plan":
                    browser.screen(1200, 640)
                    show(browser, console.url, screen)
                    write_example(browser, 640, "plan")
            browser.close()
