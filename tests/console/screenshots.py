"""Screenshots with living groups: python tests/console/screenshots.py DIRECTORY [--docs]

Of every screen, in all WIDTHS and SCHEMES; with --docs those of docs/console. Look at them after each change of the
style sheet.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from confluent_kafka import Consumer

sys.path += [str(Path(__file__).parent.parent / folder) for folder in ("console", "cli", "client_library")]
from browser import Browser
from served import ServedConsole
from share_member import ACCEPT, PATIENT, REJECT, RELEASE, ShareMember

from kohort.client.admin.acls import ALLOW, DENY, LITERAL, OPERATIONS, PREFIXED, RESOURCES, AclBinding
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.records import NewRecord

WIDTHS = (360, 900, 1400)
SCHEMES = ("light", "dark")
SCREENS = {
    "groups": "/",
    "group-partitions": "/group?id=billing",
    "group-members": "/group?id=billing&tab=members",
    "group-rebalances": "/group?id=billing&tab=rebalances",
    "group-ownership": "/group?id=billing&tab=ownership",
    "group-ownership-member": "/group?id=payments&tab=ownership&member={member}",
    "group-what-if": "/group?id=billing&tab=what_if",
    "group-settings": "/group?id=payments&tab=settings",
    "share-groups": "/?q=mail",
    "share-group": "/group?id=mailers",
    "share-group-members": "/group?id=mailers&tab=members",
    "share-group-records": "/group?id=mailers&tab=records",
    "share-group-events": "/group?id=mailers&tab=rebalances",
    "share-group-settings": "/group?id=mailers&tab=settings",
    "rebalance": "/rebalance?group=billing&number=4",
    "rebalance-consumer": "/rebalance?group=payments&number=3",
    "doctor": "/doctor?level=info",
    "topics": "/topics",
    "topic": "/topic?name=orders",
    "messages": "/messages?topic=invoices&partition=1",
    "nodes": "/nodes",
    "users": "/access",
    "acls": "/access?tab=acls",
    "quotas": "/access?tab=quotas",
    "missing": "/group?id=nobody",
}


AWAY_S = 2.0
DOCS = {
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
"""File: page, width, height, scheme."""


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


def pictures(docs: bool) -> Iterator[tuple[str, str, int, int, str]]:
    """File, page, width, height and scheme of each."""
    if docs:
        yield from ((name, *picture) for name, picture in DOCS.items())
        return
    for name, path in SCREENS.items():
        for width in WIDTHS:
            for scheme in SCHEMES:
                yield f"{name}-{width}-{scheme}", path, width, 900 if width > 600 else 780, scheme


def main(directory: Path, docs: bool) -> None:
    directory.mkdir(parents=True, exist_ok=True)
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
        for name, path, width, height, scheme in pictures(docs):
            browser.screen(width, height, scheme)
            browser.open(console.url + path.format(member=member))
            browser.wait("document.querySelector('[data-region] [role=status]') === null")
            browser.picture(directory / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--docs" in sys.argv)
