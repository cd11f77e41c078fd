"""A run as a scenario file: the requests that reached one group, as commands of scenarios.

A scenario has one shard and no network, disk or other groups. So the file is the start of a search, not a proof:
members get other ids there, lost answers arrive, and bugs of the turn or the network do not show. Run it with
`pytest --rewrite` and read the result.
"""

from __future__ import annotations

from typing import Any

from kohort.wire.codec import decode
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.leave_group import LeaveGroupRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.offset_delete import OffsetDeleteRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest

Millis = int


class Scribe:
    """Records the requests that reach the server, turn by turn."""

    def __init__(self) -> None:
        self._lines: list[tuple[Millis, str, str]] = []
        """Instant, group ("" for all), command."""
        self._names: dict[str, str] = {}
        """Member id to the name of the actor that uses it."""

    def request(self, now: Millis, name: str, request: Any, version: int) -> None:
        group, command = self._command(name, request, version)
        if command:
            self._lines.append((now, group, command))

    def happened(self, now: Millis, command: str, group: str = "") -> None:
        self._lines.append((now, group, command))

    def text(self, seed: int, group: str, violation: str) -> list[str]:
        """The file, without the expected output."""
        lines = [f"# Of the simulator's seed {seed}: {violation}"]
        last: Millis | None = None
        for now, about, command in self._lines:
            if about not in ("", group):
                continue
            if last is not None and now > last:
                lines.append(f"advance {now - last}ms")
            last = now
            lines.append(command)
        return [*lines, "----"]

    def _command(self, name: str, request: Any, version: int) -> tuple[str, str]:
        group = getattr(request, "group_id", "")
        if not group and not isinstance(request, DeleteGroupsRequest | DeleteTopicsRequest):
            return "", ""
        member_id = getattr(request, "member_id", "")
        who = self._names.setdefault(member_id, name) if member_id else name
        own = "" if who == name else f" gen={getattr(request, 'generation_id', 0)}"
        match request:
            case JoinGroupRequest():
                return group, self._join(name, request, version)
            case SyncGroupRequest(assignments=assignments):
                given = [self._names.get(a.member_id, a.member_id) for a in assignments]
                assign = " assign=" + ",".join(f"{who}:{who}" for who in given) if given else ""
                return group, f"sync {group} {who} v={version}{own}{assign}"
            case HeartbeatRequest():
                return group, f"heartbeat {group} {who} v={version}{own}"
            case ConsumerGroupHeartbeatRequest():
                return group, _beat(request)
            case LeaveGroupRequest(members=members):
                removed = [m.group_instance_id for m in members if not m.member_id and m.group_instance_id]
                return group, f"leave {group} instance={removed[0]}" if removed else f"leave {group} {name} v={version}"
            case OffsetCommitRequest(generation_id_or_member_epoch=generation, topics=topics):
                offsets = [
                    f"{t.name or t.topic_id.hex()[:4]}-{p.partition_index}={p.committed_offset}"
                    for t in topics
                    for p in t.partitions
                ]
                by = f"{who} {' '.join(offsets)} gen={generation}" if own else f"{who} {' '.join(offsets)}"
                by = by if generation >= 0 else f"- {' '.join(offsets)}"
                return group, f"commit {group} {by} v={version}"
            case OffsetDeleteRequest(topics=topics):
                places = [f"{t.name}-{p.partition_index}" for t in topics for p in t.partitions]
                return group, f"delete-offsets {group} {' '.join(places)}"
            case DeleteGroupsRequest(groups_names=groups):
                return groups[0], f"delete {groups[0]}"
            case DeleteTopicsRequest(topic_names=names) if names:
                return "", f"topics-deleted {' '.join(names)}"
            case _:
                return "", ""

    def _join(self, name: str, request: JoinGroupRequest, version: int) -> str:
        protocols = ",".join(f"{p.name}:{_topics(p.metadata)}" for p in request.protocols)
        parts = [
            f"join {request.group_id} {name} v={version} session={request.session_timeout_ms}ms",
            f"rebalance={request.rebalance_timeout_ms}ms protocols={protocols}",
        ]
        if request.group_instance_id is not None:
            parts.append(f"instance={request.group_instance_id}")
        if not request.member_id:
            parts.append("id=''")
        return " ".join(parts)


def _beat(request: ConsumerGroupHeartbeatRequest) -> str:
    """Only the start of an owned topic's id is known here."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    said_of = {
        "instance": request.instance_id,
        "rebalance": f"{timeout_ms}ms" if timeout_ms >= 0 else None,
        "topics": None if names is None else "+".join(names) or "none",
        "regex": request.subscribed_topic_regex,
        "assignor": request.server_assignor,
    }
    parts = [f"beat {request.group_id} {request.member_id} epoch={request.member_epoch}"]
    parts += [f"{name}={value}" for name, value in said_of.items() if value is not None]
    owned = request.topic_partitions
    if owned is not None:
        said = [f"{topic.topic_id.hex()[:4]}:{'+'.join(map(str, topic.partitions))}" for topic in owned]
        parts.append(f"owned={','.join(said) or 'none'}")
    elif request.member_epoch > 0:
        parts.append("owned=null")
    return " ".join(parts)


def _topics(metadata: bytes) -> str:
    try:
        return "+".join(decode(ConsumerProtocolSubscription, 1, metadata, 2).topics)
    except ProtocolError:
        return "t"
