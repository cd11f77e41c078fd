"""The records of `bench rebalance`: one to each partition at a steady pace, from a process of its own.

Arguments: address, topic, number of partitions, seconds between two records of a partition. Ends with its stdin.
"""

from __future__ import annotations

import sys
import threading
import time


def main() -> None:
    from confluent_kafka import Producer

    address, topic, partitions, period = sys.argv[1:5]
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    producer = Producer({"bootstrap.servers": address})
    due = time.monotonic()
    while not ended.is_set():
        for partition in range(int(partitions)):
            producer.produce(topic, b"x", partition=partition)
        producer.poll(0)
        due = max(due + float(period), time.monotonic() - 1)
        ended.wait(max(0, due - time.monotonic()))
    producer.flush(5)


if __name__ == "__main__":
    main()
