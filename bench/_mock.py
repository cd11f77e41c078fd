"""librdkafka's mock cluster for `make bench`: one broker in a process of its own, until its stdin ends.

Prints the broker's address. The mock keeps topics and groups in memory; it serves no consumer groups of KIP-848 and
few connections.
"""

import sys

from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(producer.list_topics(timeout=30).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
