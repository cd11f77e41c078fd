"""A shop that takes orders: each is a row in its database and a record in Kafka, both or neither.

    kohort serve                                      # or any Kafka cluster
    python outbox_orders.py                           # stop it, kill it with -9, start it again, as you like

After any number of crashes, readers of committed records find each order of the database once, and no other. SQLite
stands for the database of your service.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sqlite3
import sys
import time

from kohort.client import KafkaError
from kohort.client.cluster import Cluster
from kohort.client.outbox import BlockingOutbox

ORDERS = "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item TEXT NOT NULL, process INTEGER NOT NULL)"
ITEMS = itertools.cycle(("tea", "coffee", "cocoa"))


def take_order(outbox: BlockingOutbox, shop: sqlite3.Connection, topic: str, item: str) -> int:
    with outbox.transaction(shop) as kafka:
        added = shop.execute("INSERT INTO orders (item, process) VALUES (?, ?)", (item, os.getpid()))
        number = added.lastrowid or 0
        kafka.send(topic, str(number), key=item)
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders in a database and in Kafka.")
    parser.add_argument("--servers", default="127.0.0.1:9092", help="HOST:PORT,...")
    parser.add_argument("--topic", default="orders", help="created if it is missing")
    parser.add_argument("--name", default="shop", help="the outbox; each running process needs its own")
    parser.add_argument("--database", default="outbox_orders.sqlite")
    parser.add_argument("--every", type=float, default=1.0, help="seconds")
    given = parser.parse_args()
    with Cluster(given.servers) as cluster:
        if cluster.topics([given.topic])[given.topic].error:
            cluster.create_topic(given.topic, 1)
    shop = sqlite3.connect(given.database, timeout=10)
    shop.execute(ORDERS)
    with BlockingOutbox(given.name, given.servers) as outbox:
        outbox.create_table(shop)
        outbox.recover(shop)
        for item in ITEMS:
            print(f"order {take_order(outbox, shop, given.topic, item)}: {item}", flush=True)
            time.sleep(given.every)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # rolls back the order that is under way, as Ctrl-C does
    try:
        main()
    except KafkaError as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        pass
