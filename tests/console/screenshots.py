"""The pictures of docs/console, with living groups: make console-pictures

Every screen, as a sheet of all widths and colour schemes, and the examples in other pages of the docs. Look at them
after each change of the style sheet.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from confluent_kafka import Consumer

sys.path += [str(Path(__file__).parent.parent / folder) for folder in ("console", "cli", "client_library")]
import screenshots_changes
from browser import Browser
from picture_sheets import SHEETS, shots_of, write_example, write_page, write_sheet
from served import ServedConsole
from share_member import ACCEPT, PATIENT, REJECT, RELEASE, ShareMember

from kohort.client.admin.acls import ALLOW, DENY, LITERAL, OPERATIONS, PREFIXED, RESOURCES, AclBinding
from kohort.client.cluster import Cluster
from kohort.console.pages import group
from kohort.testing import KohortServer
from kohort.wire.records import NewRecord

SECTIONS = {
    "Groups": {
        "groups": ("The list of groups", "/"),
        "doctor": ("What is wrong with groups", "/doctor?level=info"),
    },
    "A group": {
        "group-partitions": ("Partitions", "/group?id=billing"),
        "group-members": ("Members", "/group?id=billing&tab=members"),
        "group-rebalances": ("Rebalances", "/group?id=billing&tab=rebalances"),
        "rebalance": ("A rebalance of a classic group", "/rebalance?group=billing&number=4"),
        "rebalance-consumer": ("A rebalance of a consumer group", "/rebalance?group=payments&number=3"),
        "group-ownership": ("Ownership", "/group?id=billing&tab=ownership"),
        "group-ownership-member": (
            "Ownership, with a member pointed out",
            "/group?id=payments&tab=ownership&member={member}",
        ),
        "group-what-if": ("What if", "/group?id=billing&tab=what_if"),
        "group-settings": ("Settings", "/group?id=payments&tab=settings"),
    },
    "A share group": {
        "share-groups": ("In the list", "/?q=mail"),
        "share-group": ("Partitions", "/group?id=mailers"),
        "share-group-records": ("Records", "/group?id=mailers&tab=records"),
        "share-group-members": ("Members", "/group?id=mailers&tab=members"),
        "share-group-events": ("History", "/group?id=mailers&tab=rebalances"),
        "share-group-settings": ("Settings", "/group?id=mailers&tab=settings"),
    },
    "Topics": {
        "topics": ("The list of topics", "/topics"),
        "topic": ("A topic with its groups", "/topic?name=orders"),
        "messages": ("Messages", "/messages?topic=invoices&partition=1"),
        "message": ("One message", "/messages?topic=invoices&partition=1&offset=3"),
    },
    "The cluster": {
        "nodes": ("Nodes", "/nodes"),
        "users": ("Users", "/access"),
        "acls": ("ACLs", "/access?tab=acls"),
        "quotas": ("Quotas", "/access?tab=quotas"),
    },
    "What is not there": {
        "outline": ("A group that the cluster has not described yet", "/group?id=billing&tab=members"),
        "missing": ("A group that does not exist", "/group?id=nobody"),
        "nothing": ("A search without a result", "/?q=nothing"),
    },
}
"""Screens by heading and file: what they show, and their addresses."""


AWAY_S = 2.0
EXAMPLES = {
    "groups": ("/", 1200, 640, "light"),
    "rebalance": ("/rebalance?group=billing&number=3", 1200, 640, "light"),
    "rebalances-dark": ("/group?id=billing&tab=rebalances", 1200, 700, "dark"),
    "ownership": ("/group?id=billing&tab=ownership", 1200, 720, "light"),
    "what-if": ("/group?id=billing&tab=what_if", 1200, 760, "light"),
    "doctor": ("/doctor?level=info", 1200, 640, "light"),
    "share-group": ("/group?id=mailers&tab=records", 1200, 1000, "light"),
    "messages": ("/messages?topic=invoices&partition=1", 1200, 780, "light"),
    "partitions-phone": ("/group?id=billing", 360, 900, "dark"),
}
"""Pictures within the other pages of the docs. File: page, width, height, scheme."""


class Worker(threading.Thread):
    """A consumer that takes its time to give partitions up."""

    def __init__(self, bootstrap: str, group: str, name: str, gives_up_in_s: float, **settings: object) -> None:
        super().__init__(daemon=True)
        self.end = threading.Event()
        self.group, self.client, self.settings = group, name, settings
        self._gives_up_in_s = gives_up_in_s
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "client.id": name, "auto.offset.reset": "earliest"}
            | {"enable.auto.commit": False, "log_level": 0}
            | settings
        )

    def run(self) -> None:
        self._consumer.subscribe(["orders"], on_revoke=lambda *_: time.sleep(self._gives_up_in_s))
        while not self.end.is_set():
            self._consumer.poll(0.1)
        self._consumer.close()


def _access(cluster: Cluster) -> None:
    for name in ("alice", "billing", "payments"):
        cluster.add_scram_user(name, "secret")
    cluster.add_scram_user("alice", "secret", mechanism="SCRAM-SHA-256")
    topic, group, read, write, every = RESOURCES["topic"], RESOURCES["group"], 3, 4, OPERATIONS["all"]
    cluster.create_acls(
        [
            AclBinding(topic, "orders", LITERAL, "User:billing", "*", read, ALLOW),
            AclBinding(group, "billing", LITERAL, "User:billing", "*", read, ALLOW),
            AclBinding(topic, "payments.", PREFIXED, "User:payments", "*", write, ALLOW),
            AclBinding(topic, "tmp-", PREFIXED, "User:*", "10.0.0.9", every, DENY),
        ]
    )
    cluster.alter_client_quotas({"user": "alice"}, {"producer_byte_rate": 1_048_576.0, "request_percentage": 50.0})
    cluster.alter_client_quotas({"client-id": None}, {"consumer_byte_rate": 10_485_760.0})


def _invoices(cluster: Cluster) -> None:
    """Records of all kinds, in partition 1."""
    now = int(time.time() * 1000)
    trace = (("trace-id", b"4bf92f3577b34da6"), ("schema", b"\x00\x07"))
    for number in range(40):
        customer = f"c-{number % 9}"
        value = {"invoice": 7_000 + number, "customer": customer, "total": number * 17.5, "paid": number % 3 > 0}
        at_ms = now - 500 * (40 - number)
        cluster.produce("invoices", 1, [NewRecord(customer.encode(), json.dumps(value).encode(), at_ms, trace)])
    text = "naïve text\nof two lines".encode()
    others = [(None, b"\x00\x00\x00\x01\x06\xa4\x9f\xff\x00 binary"), (b"c-3", None), (b"", text)]
    cluster.produce("invoices", 1, [NewRecord(key, value, now) for key, value in others])


@contextmanager
def mailers(server: KohortServer) -> Iterator[None]:
    """A share group whose members have records, some of them not for the first time, and have rejected others."""
    server.create_topic("receipts", 2)
    server.produce("receipts", *map(str, range(400)))
    with Cluster(server.bootstrap_servers) as cluster:
        cluster.alter_group_configs("mailers", {"share.auto.offset.reset": "earliest"})
    with ExitStack() as stack:
        for number in range(1, 4):
            member = ShareMember(server.bootstrap_servers, "mailers", "receipts", f"mailer-{number}")
            stack.enter_context(closing(member))
            for partition in range(2):
                for _ in range(3):
                    for first, last, _ in member.take(partition, 3 * number):
                        member.ack(partition, (first, first, ACCEPT if number < 3 else REJECT), (last, last, RELEASE))
        yield


@contextmanager
def living(server: KohortServer) -> Iterator[None]:
    """Two groups that have rebalanced several times, and others with lag."""
    bootstrap = server.bootstrap_servers
    server.create_topic("orders", 12, replication_factor=1)
    server.create_topic("invoices", 6)
    for topic, count in (("orders", 400), ("invoices", 90)):
        server.produce(topic, *map(str, range(count)))
    with Cluster(bootstrap) as cluster:
        for number in range(70):
            cluster.commit(f"team-{number % 7}.reports-{number:02}", {("invoices", number % 6): number % 16})
        cluster.commit("billing", {("orders", partition): partition for partition in range(10)})
        cluster.commit("payments", {("orders", partition): 20 for partition in range(12)})
        _access(cluster)
        _invoices(cluster)
        workers = []
        for group, settings in (("billing", {}), ("payments", {"group.protocol": "consumer"})):
            for number, slow_s in enumerate((0.05, 1.5, 0.4, 0.1), 1):
                worker = Worker(bootstrap, group, f"{group}-worker-{number}", slow_s, **settings)
                worker.start()
                workers.append(worker)
                server.wait_stable(group, members=number)
        for place, slow_s in ((0, 0.05), (2, 0.4), (4, 0.05)):  # processes that are started again
            old = workers[place]
            old.end.set()
            old.join()
            server.wait_stable(old.group, members=3)
            time.sleep(AWAY_S)
            workers[place] = Worker(bootstrap, old.group, old.client, slow_s, **old.settings)
            workers[place].start()
            server.wait_stable(old.group, members=4)
    yield
    for worker in workers:
        worker.end.set()
    for worker in workers:
        worker.join()


@contextmanager
def no_answer() -> Iterator[None]:
    """Groups are not described."""
    go, describe = threading.Event(), group.group_now

    def wait(*arguments: Any, **named: Any) -> Any:
        go.wait()
        return describe(*arguments, **named)

    group.group_now = wait
    yield
    group.group_now = describe
    go.set()


def show(browser: Browser, url: str) -> None:
    browser.open(url)
    browser.wait("document.querySelector('[data-region] [role=status]') === null")


def show_outline(browser: Browser, url: str) -> None:
    browser.call("Page.navigate", url=url)
    browser.wait(f"location.href === {json.dumps(url)} && document.body?.dataset.outline === ''")


def main() -> None:
    SHEETS.mkdir(exist_ok=True)
    with (
        KohortServer(
            brokers=3,
            group_consumer_assignment_interval_ms=0,
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:ANONYMOUS",
            **PATIENT,
        ) as server,
        living(server),
        mailers(server),
        ServedConsole(server.bootstrap_servers) as console,
    ):
        browser = Browser()
        console.wait_for_groups(lambda groups: groups["billing"].lag is not None)
        for topic in ("orders", "invoices"):  # a log that grows has a lag in time
            server.produce(topic, *map(str, range(24)))
        console.wait_for_groups(lambda groups: None not in (groups["billing"].age_ms, groups["payments"].age_ms))
        with Cluster(server.bootstrap_servers) as cluster:
            member = quote(cluster.describe_groups(["payments"])["payments"].members[1].member_id)
        for name, (path, width, height, scheme) in EXAMPLES.items():
            browser.screen(width, height, scheme)
            show(browser, console.url + path)
            write_example(browser, height, name)
        for name, (_, path) in (screen for section in SECTIONS.values() for screen in section.items()):
            url, is_outline = console.url + path.format(member=member), name == "outline"
            with no_answer() if is_outline else nullcontext():
                shots = shots_of(browser, partial(show_outline if is_outline else show, browser, url))
            write_sheet(shots, name)
        browser.close()
    screenshots_changes.main()
    shown = SECTIONS | {"Login and changes": screenshots_changes.SCREENS}
    write_page({heading: [(name, one[0]) for name, one in screens.items()] for heading, screens in shown.items()})


if __name__ == "__main__":
    main()
