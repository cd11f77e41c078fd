"""librdkafka's mock cluster for `make bench`: one broker in a process of its own, until its input ends.

Prints the broker's address. It has groups and topics of its own make, in memory; no consumer groups of KIP-848 as a
wire client sees them, and not many connections.
"""

import sys

from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(producer.list_topics(timeout=30).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
