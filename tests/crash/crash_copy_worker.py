"""A process that copies a topic in transactions, with confluent-kafka: consume, produce, send offsets, commit.

Started by `crash_copiers.py`. The argument is a JSON object. Every fifth of a second it prints its counts as JSON. The
process ends with its stdin; a worker that is fenced ends with the exit code FENCED_CODE, as an application should.

All other failures are handled as librdkafka documents it: a retriable call is repeated, an abortable transaction is
aborted and its input read again from the committed offsets, and after a fatal error producer and consumer are made
anew. Now and then the worker aborts without a failure.

librdkafka's `send_offsets_to_transaction` can ignore its time limit and never return (librdkafka issues #5456, #5511;
seen with 2.16). It waits for the connection of a broker that librdkafka has removed, because no broker was there and it
began with the bootstrap servers again. `metadata.recovery.strategy=none` keeps the brokers. If a call never returns
anyway, the process ends with STUCK_CODE.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from crash_copies import ABORTED, copy_of

FENCED_CODE, STUCK_CODE = 3, 4
AT_ONCE = 60
"""Records of a transaction, at most."""
ABORT_SHARE = 0.05
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
CALL_S = 2.0
STUCK_S = 8.0
"""A call of the producer that takes longer never returns."""


class BeginAgain(Exception):
    """Producer and consumer are of no more use."""


class Copier:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self.counts: Counter[str] = Counter()
        """Committed and aborted transactions, copied records, and failures by name."""
        self.called_at: float | None = None
        """When the call of the producer began that is under way, on the monotonic clock."""
        self._producer: Producer
        self._consumer: Consumer

    def run(self) -> None:
        while True:
            self._begin()
            try:
                self._call(self._producer.init_transactions)
                while True:
                    self._turn()
            except KafkaException as error:
                self._note(error)
                if error.args[0].code() in FENCED:
                    say(self.counts)
                    os._exit(FENCED_CODE)
            except BeginAgain:
                pass
            self.counts["begun again"] += 1
            with suppress(KafkaException, RuntimeError):
                self._consumer.close()

    def _begin(self) -> None:
        options = self._options
        common = {
            "bootstrap.servers": options["bootstrap"],
            "client.id": options["transactional_id"],
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 300,
            "topic.metadata.refresh.interval.ms": 2_000,
            "metadata.recovery.strategy": "none",
        }
        of_protocol = (
            {"group.protocol": "consumer"}
            if options["protocol"] == "consumer"
            else {"session.timeout.ms": options["session_ms"], "heartbeat.interval.ms": options["heartbeat_ms"]}
        )
        self._consumer = Consumer(
            {
                **common,
                **of_protocol,
                "group.id": options["group"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._producer = Producer(
            {
                **common,
                "transactional.id": options["transactional_id"],
                "transaction.timeout.ms": options["transaction_ms"],
                "linger.ms": 5,
            }
        )
        self._consumer.subscribe([options["input"]])

    def _turn(self) -> None:
        got = [message for message in self._consumer.consume(AT_ONCE, 0.1) if self._is_record(message)]
        if not got:
            return
        try:
            self._copy(got)
        except KafkaException as error:
            self._note(error)
            if not error.args[0].txn_requires_abort():
                raise
            self._abort()

    def _is_record(self, message: Message) -> bool:
        if (error := message.error()) is None:
            return True
        self.counts[error.name()] += 1
        return False

    def _copy(self, got: list[Message]) -> None:
        aborting = random.random() < ABORT_SHARE
        self._producer.begin_transaction()
        places: dict[int, int] = {}
        for message in got:
            copy = copy_of(message.partition(), message.offset())
            self._produce(ABORTED + copy if aborting else copy, message.offset() % self._options["partitions"])
            places[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(self._options["input"], partition, place) for partition, place in places.items()]
        metadata = self._consumer.consumer_group_metadata()
        self._call(lambda limit: self._producer.send_offsets_to_transaction(offsets, metadata, limit))
        if aborting:
            self._producer.flush(CALL_S)
            self._abort()
            return
        self._call(self._producer.commit_transaction)
        self.counts["committed"] += 1
        self.counts["copied"] += len(got)

    def _produce(self, value: str, partition: int) -> None:
        while True:
            try:
                return self._producer.produce(self._options["output"], value.encode(), partition=partition)
            except BufferError:
                self._producer.poll(0.1)

    def _abort(self) -> None:
        """Abort, and go back to the committed offsets."""
        self._call(self._producer.abort_transaction)
        self.counts["aborted"] += 1
        try:
            assigned = self._consumer.assignment()
            if not assigned:
                return
            for place in self._consumer.committed(assigned, CALL_S):
                if place.error is not None:
                    raise KafkaException(place.error)
                offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
                self._consumer.seek(TopicPartition(place.topic, place.partition, offset))
        except KafkaException as error:  # a rebalance has taken partitions, or the server is away
            self._note(error)
            raise BeginAgain from error

    def _call(self, call: Callable[[float], object]) -> None:
        """Repeats the call as long as its failure says so."""
        while True:
            self.called_at = time.monotonic()
            try:
                call(CALL_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                self._note(error)
                time.sleep(0.02)
            finally:
                self.called_at = None

    def _note(self, error: KafkaException) -> None:
        self.counts[error.args[0].name()] += 1
        if not error.args[0].retriable():
            print(f"{self._options['transactional_id']}: {error}", file=sys.stderr, flush=True)


def say(counts: Counter[str]) -> None:
    """One write, because two threads say it."""
    sys.stdout.write(json.dumps(dict(counts)) + "\n")
    sys.stdout.flush()


def run(copier: Copier) -> None:
    try:
        copier.run()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def tell(copier: Copier) -> None:
    while True:
        say(copier.counts)
        if (since := copier.called_at) is not None and time.monotonic() - since > STUCK_S:
            os._exit(STUCK_CODE)
        time.sleep(0.2)


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    copier = Copier(json.loads(sys.argv[1]))
    threading.Thread(target=run, args=(copier,), daemon=True).start()
    threading.Thread(target=tell, args=(copier,), daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
