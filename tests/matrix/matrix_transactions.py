"""The features of the matrix that concern transactions; matrix_features.py says what a feature is.

In each, a second client looks at the log as a reader of committed records does, and at the end of such reads (the last
stable offset).
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from group import until
from matrix_features import PAD, fill, value
from matrix_stage import Stage
from relay import OWN

from kohort.wire.batches import NewRecord

PARTITIONS = 2
COUNT = 20
TIMEOUT_S = 30


def _values(first: int, count: int = COUNT) -> list[str]:
    return sorted(value(n, PAD) for n in range(first, first + count))


def _begun(stage: Stage, name: str, topic: str, first: int, transactional_id: str | None = None) -> None:
    """The records of an open transaction are in the log."""
    what = {"topic": topic, "partitions": PARTITIONS, "first": first, "count": COUNT, "pad": PAD}
    stage.driver.ask("transact", name=name, id=transactional_id or name, **what)


def _committed(stage: Stage, topic: str) -> list[str]:
    return sorted(record.value for record in stage.stored(topic, PARTITIONS, "read_committed"))


def _all(stage: Stage, topic: str) -> list[str]:
    return sorted(record.value for record in stage.stored(topic, PARTITIONS))


def _is_stable(stage: Stage, topic: str) -> bool:
    places = [(topic, partition) for partition in range(PARTITIONS)]
    return stage.cluster.offsets(places, isolation="read_committed") == stage.cluster.offsets(places)


def commits(stage: Stage) -> None:
    """Two transactions of one producer: nothing is to be seen before the commit, everything behind it."""
    topic = "commit"
    stage.cluster.create_topic(topic, PARTITIONS)
    for number in range(2):
        _begun(stage, topic, topic, number * COUNT)
        until(lambda all=(number + 1) * COUNT: len(_all(stage, topic)) == all, "in the log")
        assert not _is_stable(stage, topic)
        assert _committed(stage, topic) == _values(0, number * COUNT), "before the commit"
        stage.driver.ask("end", name=topic, commit=True)
        assert _is_stable(stage, topic)
        assert _committed(stage, topic) == _values(0, (number + 1) * COUNT), "behind it"
    stored = stage.stored(topic, PARTITIONS)
    assert all(record.batch.is_transactional and record.batch.base_sequence >= 0 for record in stored)


def aborts(stage: Stage) -> None:
    """An aborted transaction, and then another one of the same producer, which is committed."""
    topic = "abort"
    stage.cluster.create_topic(topic, PARTITIONS)
    _begun(stage, topic, topic, 0)
    until(lambda: len(_all(stage, topic)) == COUNT, "in the log")
    stage.driver.ask("end", name=topic, commit=False)
    assert _is_stable(stage, topic)
    assert _committed(stage, topic) == []
    _begun(stage, topic, topic, COUNT)
    stage.driver.ask("end", name=topic, commit=True)
    assert _committed(stage, topic) == _values(COUNT)
    assert _all(stage, topic) == _values(0, 2 * COUNT)


def is_fenced(stage: Stage) -> None:
    """A second producer takes the transactional id of a first one, whose commit then fails."""
    topic = "fenced"
    stage.cluster.create_topic(topic, PARTITIONS)
    stage.cluster.fence_producer("first-of-all")  # takes the producer id 0, which @platformatic/kafka names always
    _begun(stage, "fenced-first", topic, 0, topic)
    until(lambda: len(_all(stage, topic)) == COUNT, "in the log")
    _begun(stage, "fenced-second", topic, COUNT, topic)
    with pytest.raises(AssertionError, match=r"(?i)fenced|epoch|code = 90"):  # sarama has no text for it
        stage.driver.ask("end", name="fenced-first", commit=True)
    stage.driver.ask("end", name="fenced-second", commit=True)
    assert _is_stable(stage, topic)
    assert _committed(stage, topic) == _values(COUNT)


def sends_offsets(stage: Stage) -> None:
    """A member of a group copies records and sends its offsets in the transaction: an abort leaves both, a commit has
    both."""
    source, topic = "offsets-source", "offsets-copied"
    for each in (source, topic):
        stage.cluster.create_topic(each, PARTITIONS)
    fill(stage, source, 0, COUNT, PARTITIONS)
    what = {"id": topic, "group": topic, "source": source, "topic": topic, "count": COUNT}
    stage.driver.ask("copy", name=topic, commit=False, **what)
    assert stage.cluster.committed(topic) == {}
    assert _committed(stage, topic) == []
    stage.driver.ask("copy", name=topic, commit=True, **what)
    committed = {partition: at.offset for (_, partition), at in stage.cluster.committed(topic).items()}
    assert committed == dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)
    assert _committed(stage, topic) == sorted(value(n) for n in range(COUNT))
    assert _is_stable(stage, topic)


def reads_committed(stage: Stage) -> None:
    """Records without a transaction, aborted and committed ones; and records behind an open transaction, which come
    when it is aborted."""
    topic = "read-committed"
    stage.cluster.create_topic(topic, PARTITIONS)
    producer = _own_producer(stage, topic)
    _produce(producer, topic, 0, range(COUNT), commit=False)
    _produce(producer, topic, 0, range(100, 120), commit=True)
    _without(stage, topic, 200)
    open_one = _own_producer(stage, f"{topic}-open")
    _produce(open_one, topic, 1, range(300, 310))
    _without(stage, topic, 400)

    def read(count: int) -> list[str]:
        what = {"topic": topic, "partitions": PARTITIONS, "count": count, "isolation": "read_committed"}
        return sorted(record[3] for record in stage.driver.ask("read", **what)["records"])

    hidden = range(401, 420, PARTITIONS)
    expected = {*range(100, 120), *range(200, 220), *range(400, 420)} - {*hidden}
    assert read(len(expected)) == sorted(map(value, expected))
    open_one.abort_transaction(TIMEOUT_S)
    expected |= {*hidden}
    assert read(len(expected)) == sorted(map(value, expected))


def _without(stage: Stage, topic: str, first: int) -> None:
    """Records without a transaction."""
    for partition in range(PARTITIONS):
        numbers = range(first + partition, first + COUNT, PARTITIONS)
        stage.cluster.produce(topic, partition, [NewRecord(f"k{n}".encode(), value(n).encode(), 0) for n in numbers])


def _own_producer(stage: Stage, transactional_id: str) -> Producer:
    """Of the runner, which is not the client that is tested."""
    at = {"bootstrap.servers": stage.bootstrap, "client.id": OWN, "log_level": 0}
    producer = Producer({**at, "transactional.id": f"{OWN}-{transactional_id}"})
    producer.init_transactions(TIMEOUT_S)
    return producer


def _produce(producer: Producer, topic: str, partition: int, numbers: range, commit: bool | None = None) -> None:
    """In a transaction, which stays open for None."""
    producer.begin_transaction()
    for number in numbers:
        producer.produce(topic, value(number), f"k{number}", partition)
    assert producer.flush(TIMEOUT_S) == 0
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
