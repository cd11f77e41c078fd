"""Requests from plain values, those that create, grow and delete topics, and waiting for a condition.

    request("DeleteTopics", topics=[{"name": "t"}], timeout_ms=1000)

Structs in a request are given as dicts, with the field names of `kohort.wire.schemas`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from itertools import count
from typing import Any, TypeVar

import msgspec

from kohort.conformance.play.broker import NotServed
from kohort.wire.codec import encode
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import schema_of
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription, TopicPartition

GROUP_RESOURCE = 32
SET, DELETE = 0, 1
_M = TypeVar("_M")
TIMEOUT_MS = 20_000
WAIT_S, POLL_S = 25.0, 0.03
OFFSETS_PARTITIONS = 4
Call = Callable[[Any, int], Any]
"""Sends a request in a version; returns the answer."""


class Refused(AssertionError):
    """The server does not do what is needed before anything can be played."""


def request(api: str, **fields: Any) -> Any:
    return _struct(request_class(api), fields)


@cache
def request_class(api: str) -> type:
    """The class of an API's requests: `OffsetCommit` → OffsetCommitRequest."""
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower()
    kind: type = getattr(import_module(f"kohort.wire.schemas.{module}"), f"{api}Request")
    return kind


def changed(message: _M, **values: Any) -> _M:
    """The message with some fields replaced."""
    copy: _M = msgspec.structs.replace(message, **values)  # type: ignore[type-var]
    return copy


def alter_request(group: str, changes: Mapping[str, str | None]) -> Any:
    """Set configs of a group, or delete those without a value."""
    configs = [
        {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
        for name, value in changes.items()
    ]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    return request("IncrementalAlterConfigs", resources=[resource], validate_only=False)


def _struct(cls: type, fields: Mapping[str, Any]) -> Any:
    types = _types(cls)
    return cls(**{name: _value(types[name], value) for name, value in fields.items()})


@cache
def _types(cls: type) -> dict[str, Any]:
    return {field.name: field.type for field in schema_of(cls).fields}


def _value(wire_type: Any, value: Any) -> Any:
    if not isinstance(wire_type, list) or value is None:
        return value
    return tuple(_struct(wire_type[0], item) if isinstance(item, dict) else item for item in value)


def subscription(
    topics: Iterable[str],
    owned: Iterable[tuple[str, tuple[int, ...]]] = (),
    generation_id: int = -1,
    version: int | None = None,
) -> bytes:
    """A classic member's report of wanted and owned partitions, by default in the oldest version that has them."""
    version = version or (2 if generation_id >= 0 else 1)
    partitions = (TopicPartition(topic=topic, partitions=indexes) for topic, indexes in owned)
    message = ConsumerProtocolSubscription(
        topics=tuple(topics), owned_partitions=tuple(partitions), generation_id=generation_id
    )
    return version.to_bytes(2, "big") + encode(message, version)


def create_topics(call: Call, counts: Mapping[str, int], node_id: int | None = None) -> dict[str, bytes]:
    """Returns the ids by name. `node_id`: the broker that gets all partitions, in a cluster of several."""
    rows: list[dict[str, Any]] = []
    for name, partitions in counts.items():
        if node_id is None:
            rows.append({"name": name, "num_partitions": partitions, "replication_factor": 1})
        else:
            places = [{"partition_index": index, "broker_ids": (node_id,)} for index in range(partitions)]
            rows.append({"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": places})
    answer = call(request("CreateTopics", topics=rows, timeout_ms=TIMEOUT_MS), 7)
    for row in answer.topics:
        if row.error_code:
            error = ErrorCode(row.error_code).name
            raise Refused(f"topic {row.name} cannot be created: {error}: {row.error_message or error}")
    return {row.name: row.topic_id for row in answer.topics}


def grow_topics(call: Call, counts: Mapping[str, int]) -> None:
    rows = [{"name": name, "count": count} for name, count in counts.items()]
    answer = call(request("CreatePartitions", topics=rows, timeout_ms=TIMEOUT_MS), 3)
    assert not any(row.error_code for row in answer.results), answer


def delete_topics(call: Call, names: Iterable[str]) -> None:
    rows = [{"name": name} for name in names]
    answer = call(request("DeleteTopics", topics=rows, timeout_ms=TIMEOUT_MS), 6)
    assert not any(row.error_code for row in answer.responses), answer


def wait_for(condition: Callable[[], object], what: str, limit_s: float = WAIT_S) -> None:
    """Fails with `what` if the condition does not come true."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(POLL_S)


def wait_until_known(
    call: Call, prefix: str, names: tuple[str, ...], wanted: set[tuple[bytes, int]], named: Callable[[str], str] = str
) -> None:
    """Until the coordinators of all partitions of the offsets topic know that these names have these partitions: the
    only member of a new group is given all of them."""
    tries = count()

    def is_known() -> bool:
        # Names that differ in their last digit alone are of one partition after the other.
        group = f"{prefix}{next(tries)}."
        return all(_given(call, named(f"{group}{last}"), names) == wanted for last in range(OFFSETS_PARTITIONS))

    try:
        wait_for(is_known, f"the partitions of {names} are not known")
    except NotServed:
        wait_for(lambda: _present(call, names) == len(wanted), f"the partitions of {names} are not there")


def _present(call: Call, names: tuple[str, ...]) -> int:
    """How many partitions with a leader the topics have, for a server without groups of the consumer protocol."""
    topics = [{"name": name} for name in names]
    answer = call(request("Metadata", topics=topics, allow_auto_topic_creation=False), 7)
    return sum(part.leader_id >= 0 for topic in answer.topics for part in topic.partitions if not topic.error_code)


def _given(call: Call, group: str, names: tuple[str, ...]) -> set[tuple[bytes, int]] | None:
    """None if the coordinator is not ready."""
    probe = request(
        "ConsumerGroupHeartbeat",
        group_id=group,
        member_id="probe",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=names,
        topic_partitions=(),
    )
    answer = call(probe, 1)
    if answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        return None
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise NotServed("the broker has switched off groups of the consumer protocol")
    assert not answer.error_code, answer
    call(changed(probe, member_epoch=-1), 1)
    rows = answer.assignment.topic_partitions if answer.assignment is not None else ()
    return {(row.topic_id, index) for row in rows for index in row.partitions}
