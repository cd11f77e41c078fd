"""Screenshots with living groups: python tests/console/screenshots.py DIRECTORY [--docs]

Of every screen, in all WIDTHS and SCHEMES; with --docs those of docs/console. Look at them after each change of the
style sheet.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer

sys.path += [str(Path(__file__).parent)]
from browser import Browser
from served import ServedConsole

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

WIDTHS = (360, 900, 1400)
SCHEMES = ("light", "dark")
SCREENS = {
    "groups": "/",
    "group-partitions": "/group?id=billing",
    "group-members": "/group?id=billing&tab=members",
    "group-rebalances": "/group?id=billing&tab=rebalances",
    "group-settings": "/group?id=payments&tab=settings",
    "rebalance": "/rebalance?group=billing&number=4",
    "rebalance-consumer": "/rebalance?group=payments&number=3",
    "topics": "/topics",
    "topic": "/topic?name=orders",
    "nodes": "/nodes",
    "missing": "/group?id=nobody",
}


DOCS = {
    "groups": ("/", 1200, 640, "light"),
    "rebalance": ("/rebalance?group=billing&number=3", 1200, 640, "light"),
    "rebalances-dark": ("/group?id=billing&tab=rebalances", 1200, 700, "dark"),
    "partitions-phone": ("/group?id=billing", 360, 700, "dark"),
}
"""File: page, width, height, scheme."""


class Worker(threading.Thread):
    """A consumer that takes its time to give partitions up."""

    def __init__(self, bootstrap: str, group: str, name: str, gives_up_in_s: float, **settings: object) -> None:
        super().__init__(daemon=True)
        self.end = threading.Event()
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
        workers = []
        for group, settings in (("billing", {}), ("payments", {"group.protocol": "consumer"})):
            for number, slow_s in enumerate((0.05, 1.5, 0.4, 0.1), 1):
                worker = Worker(bootstrap, group, f"{group}-worker-{number}", slow_s, **settings)
                worker.start()
                workers.append(worker)
                server.wait_stable(group, members=number)
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
        KohortServer(brokers=3, group_consumer_assignment_interval_ms=0) as server,
        living(server),
        ServedConsole(server.bootstrap_servers) as console,
    ):
        browser = Browser()
        console.wait_for_groups(lambda groups: groups["billing"].lag is not None)
        for topic in ("orders", "invoices"):  # a log that grows has a lag in time
            server.produce(topic, *map(str, range(24)))
        console.wait_for_groups(lambda groups: None not in (groups["billing"].age_ms, groups["payments"].age_ms))
        for name, path, width, height, scheme in pictures(docs):
            browser.screen(width, height, scheme)
            browser.open(console.url + path)
            browser.picture(directory / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--docs" in sys.argv)
