"""What a test asks of a running server as a client: records, lag, and waiting until a group is stable."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kohort.client.admin.explanations import GroupExplanation
from kohort.client.admin.groups import DEAD, GroupDescription
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition
from kohort.client.records.partitioner import partition_for_key
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode

LOOK_EVERY_S = 0.01
NAMED = 5
"""Awaited members that an error names."""


def produce(
    cluster: Cluster,
    topic: str,
    values: Sequence[bytes | str | None],
    key: bytes | str | None,
    partition: int | None,
    now_ms: int,
) -> list[tuple[int, int]]:
    """Returns the partition and the offset of each record."""
    found = cluster.topics([topic], create=True)[topic]
    if found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # a strict server has created it after this answer
        found = cluster.topics([topic])[topic]
    if found.error:
        raise ValueError(f"topic {topic}: {found.error.name}: {found.error.message}")
    count = len(found.partitions)
    if partition is not None and not 0 <= partition < count:
        raise ValueError(f"topic {topic} has no partition {partition}; it has {count}")
    if partition is None and key is not None:
        partition = partition_for_key(_bytes(key) or b"", count)
    chosen = [number % count if partition is None else partition for number in range(len(values))]
    records: dict[int, list[NewRecord]] = {}
    for index, value in zip(chosen, values, strict=True):
        records.setdefault(index, []).append(NewRecord(_bytes(key), _bytes(value), now_ms))
    first = cluster.produce_batches({(topic, index): encode_batch(some) for index, some in records.items()})
    next_offsets = {index: first[topic, index] for index in records}
    places = []
    for index in chosen:
        places.append((index, next_offsets[index]))
        next_offsets[index] += 1
    return places


def _bytes(text: bytes | str | None) -> bytes | None:
    if text is not None and not isinstance(text, (bytes, str)):
        raise TypeError(f"records have keys and values of bytes or str, or None; {text!r} is {type(text).__name__}")
    return text.encode() if isinstance(text, str) else text


def lag(cluster: Cluster, group_id: str, topic: str | None) -> int:
    committed = cluster.committed(group_id)
    group = cluster.describe_groups([group_id])[group_id]
    names = {topic} if topic is not None else {name for name, _ in committed} | _topics_of(group)
    topics = cluster.topics(sorted(names))
    if topic is not None and topics[topic].error:
        raise ValueError(f"topic {topic}: {topics[topic].error.name}")
    if not names:
        raise ValueError(
            f"group {group_id} has no committed offsets and no subscribed topics; name the topic, or wait for the "
            "group's members first"
        )
    partitions = [(one.name, part.index) for one in topics.values() if not one.error for part in one.partitions]
    if topic is None:
        # A group of assigned partitions (`assign`) reads only those that it commits.
        subscribed = _topics_of(group)
        partitions = [place for place in partitions if place in committed or place[0] in subscribed]
    starts, ends = cluster.offsets(partitions, "earliest"), cluster.offsets(partitions, "latest")

    def position(place: TopicPartition) -> int:
        return max(committed[place].offset, starts[place]) if place in committed else starts[place]

    return sum(max(ends[place] - position(place), 0) for place in partitions)


def _topics_of(group: GroupDescription) -> set[str]:
    return {name for member in group.members for name in (*member.subscribed, *member.assigned)}


def wait_stable(
    cluster: Cluster, group_id: str, members: int | None, timeout_s: float, poll: Callable[[], object] | None
) -> GroupDescription:
    deadline = time.monotonic() + timeout_s
    while True:
        if poll is not None:
            poll()
        explanation = cluster.explain_group(group_id, last=0)
        if _is_stable(explanation, members):
            return explanation.group
        if time.monotonic() >= deadline:
            raise TimeoutError(_why_not(explanation, members, timeout_s))
        time.sleep(LOOK_EVERY_S)


def _is_stable(explanation: GroupExplanation, members: int | None) -> bool:
    group, status = explanation.group, explanation.status
    if group.state != "Stable" or status is None:
        return False
    # A member may still be on its way to its assignment, and a gradual hand-over may go on.
    settled = set(status.get("counts", ())) <= {"member"} and not status.get("held_partitions")
    return settled and (members is None or len(group.members) == members)


def _why_not(explanation: GroupExplanation, members: int | None, timeout_s: float) -> str:
    group, status = explanation.group, explanation.status or {}
    if group.state == DEAD:
        return f"group {group.group_id} does not exist after {timeout_s:g} s"
    wanted = "" if members is None else f" of {members}"
    text = f"group {group.group_id} is {group.state} with {len(group.members)}{wanted} members after {timeout_s:g} s"
    awaited = [
        f"{one.get('instance_id') or one.get('client_id') or one['member_id']} ({one['state']})"
        for one in status.get("members", ())
        if one["state"] != "member"
    ]
    more = "" if len(awaited) <= NAMED else f" and {len(awaited) - NAMED} more"
    return f"{text}; waiting for {', '.join(awaited[:NAMED])}{more}" if awaited else text
