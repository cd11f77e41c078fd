"""Requests from plain values, and the requests that create, grow and delete topics.

    request("DeleteTopics", topics=[{"name": "t"}], timeout_ms=1000)

Structs in a request are given as dicts, with the field names of `kohort.wire.schemas`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kohort.broker.apis import APIS
from kohort.wire.schema import schema_of

REQUESTS = {api.name: api.request for api in APIS.values()}
TIMEOUT_MS = 20_000
Call = Callable[[Any, int], Any]
"""Sends a request in a version; returns the answer."""


def request(api: str, **fields: Any) -> Any:
    return _struct(REQUESTS[api], fields)


def _struct(cls: type, fields: Mapping[str, Any]) -> Any:
    types = {field.name: field.type for field in schema_of(cls).fields}
    return cls(**{name: _value(types[name], value) for name, value in fields.items()})


def _value(wire_type: Any, value: Any) -> Any:
    if not isinstance(wire_type, list) or value is None:
        return value
    return tuple(_struct(wire_type[0], item) if isinstance(item, dict) else item for item in value)


def create_topics(call: Call, counts: Mapping[str, int]) -> dict[str, bytes]:
    """Returns the ids by name."""
    rows = [{"name": name, "num_partitions": count, "replication_factor": 1} for name, count in counts.items()]
    answer = call(request("CreateTopics", topics=rows, timeout_ms=TIMEOUT_MS), 7)
    assert not any(row.error_code for row in answer.topics), answer
    return {row.name: row.topic_id for row in answer.topics}


def grow_topics(call: Call, counts: Mapping[str, int]) -> None:
    rows = [{"name": name, "count": count} for name, count in counts.items()]
    answer = call(request("CreatePartitions", topics=rows, timeout_ms=TIMEOUT_MS), 3)
    assert not any(row.error_code for row in answer.results), answer


def delete_topics(call: Call, names: Iterable[str]) -> None:
    rows = [{"name": name} for name in names]
    answer = call(request("DeleteTopics", topics=rows, timeout_ms=TIMEOUT_MS), 6)
    assert not any(row.error_code for row in answer.responses), answer
