"""Creates, grows and deletes topics of a server; raises AssertionError if the server refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kohort.broker.messages import changed
from kohort.simulator.actors.workload import create_request
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState

TIMEOUT_MS = 20_000
Call = Callable[[Any, int], Any]
"""Sends a request in a version; returns the answer."""


def create_topics(call: Call, counts: Mapping[str, int]) -> dict[str, bytes]:
    """Returns the ids by name."""
    answer = call(changed(create_request(counts), timeout_ms=TIMEOUT_MS), 7)
    assert not any(row.error_code for row in answer.topics), answer
    return {row.name: row.topic_id for row in answer.topics}


def grow_topics(call: Call, counts: Mapping[str, int]) -> None:
    rows = tuple(CreatePartitionsTopic(name=name, count=count) for name, count in counts.items())
    answer = call(CreatePartitionsRequest(topics=rows, timeout_ms=TIMEOUT_MS), 3)
    assert not any(row.error_code for row in answer.results), answer


def delete_topics(call: Call, names: Iterable[str]) -> None:
    rows = tuple(DeleteTopicState(name=name) for name in names)
    answer = call(DeleteTopicsRequest(topics=rows, timeout_ms=TIMEOUT_MS), 6)
    assert not any(row.error_code for row in answer.responses), answer
