"""What a group of another protocol type than Kafka's consumers is about, from the bytes of its members.

    kohort-election   the leader, its term and token, the time left of its lease   (kohort.client.lead)
    kohort-shards     the items with their weights, tokens and owners               (kohort.client.shards)
    connect           the leader, the workers' URLs, connectors and tasks           (Kafka Connect)
    sr                the leader, the instances' URLs                               (Schema Registry, Karapace)
    others            the sizes of what the members say and get

Members say anything, so bytes that do not fit are shown by their size. The coordinator knows them only while the group
is stable. Formats: `kohort.client.coordination`; Kafka's ConnectProtocol and IncrementalCooperativeConnectProtocol;
the JSON of Confluent's SchemaRegistryProtocol, which Karapace shares.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.cli.groups.wording import Document, Names, as_document, duration, instant
from kohort.cli.output import Cell, Column, name, number, plural
from kohort.client.admin.explanations import GroupExplanation
from kohort.client.admin.groups import SHARE, GroupDescription, GroupMember
from kohort.wire.embedded import CONSUMER_PROTOCOL, subscription_in

MAX_BYTES = 64 * 1024 * 1024
"""The most that the items of a member may have when they are unpacked."""
SHOWN = 8
"""Names in one line of text; `-o json` has all."""


@dataclass(frozen=True, slots=True)
class Subject:
    lines: tuple[str, ...] = ()
    """For people, below the group's own line."""
    columns: tuple[Column, ...] = ()
    cells: Mapping[str, tuple[Cell, ...]] = field(default_factory=dict)
    """More columns for the list of members, by member id."""
    items: tuple[tuple[Cell, ...], ...] = ()
    """Rows of ITEM_COLUMNS, for a sharding."""
    document: Document = field(default_factory=dict)
    """For programs."""


ITEM_COLUMNS = (name("ITEM"), number("WEIGHT"), number("TOKEN"), name("OWNER"), name("HOST"))


def subject_of(group: GroupDescription, explanation: GroupExplanation | None) -> Subject | None:
    """None for a group of consumers, and for one without members. `explanation` is None without a journal."""
    if group.protocol_type in (CONSUMER_PROTOCOL, SHARE) or not group.members:
        return None
    if group.state != "Stable":
        return Subject((f"what its members have is known once it is Stable: it is {group.state}",))
    reader = READERS.get(group.protocol_type)
    if reader is not None:
        try:
            return reader(group, explanation)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, zlib.error):
            pass  # of another program that took the same name, or of a newer version
    return _sizes(group)


def unreadable_bytes(member: GroupMember) -> int | None:
    """The size of a consumer's subscription that is not one; None if it can be read or there is none."""
    return len(member.metadata) if member.metadata and subscription_in(member.metadata) is None else None


def _sizes(group: GroupDescription) -> Subject:
    sizes = {member.member_id: (len(member.metadata), len(member.assignment)) for member in group.members}
    said, got = (sum(size) for size in zip(*sizes.values(), strict=True))
    return Subject(
        (f"protocol type {group.protocol_type}: subscriptions of {said} bytes, assignments of {got} bytes",),
        (Column("SUBSCRIPTION", right=True), Column("ASSIGNMENT", right=True)),
        {member_id: tuple(f"{size} bytes" for size in both) for member_id, both in sizes.items()},
        document={
            "kind": "unknown",
            "members": [
                {"consumer_id": member_id, "subscription_bytes": one, "assignment_bytes": other}
                for member_id, (one, other) in sizes.items()
            ],
        },
    )


def _names(group: GroupDescription) -> tuple[Names, dict[str, dict[str, Any]]]:
    documents = {member.member_id: as_document(member) for member in group.members}
    return Names(documents.values()), documents


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")


def _leads(group: GroupDescription, leader_id: str) -> dict[str, tuple[Cell, ...]]:
    return {member.member_id: ("yes" if member.member_id == leader_id else "",) for member in group.members}


# -- elections


CLAIM_BYTES = 8


def _election(group: GroupDescription, explanation: GroupExplanation | None) -> Subject:
    leader_id = group.members[0].assignment.decode()
    leader = next((member for member in group.members if member.member_id == leader_id), None)
    if leader is None or len(leader.metadata) < CLAIM_BYTES:
        raise ValueError("no leader's claim")
    token = _token(leader, explanation)
    since = _since(token, explanation)
    lease = _lease_left(leader_id, explanation)
    names, documents = _names(group)
    parts = [f"leader: {names.with_host(documents[leader_id])}"]
    parts += [f"token {token}"] if token is not None else []
    if since is not None and explanation is not None:
        parts.append(f"its term began {instant(since)}, {duration(max(explanation.now_ms - since, 0))} ago")
    parts += [f"lease: {duration(lease)} left at most"] if lease is not None else []
    others = [names.of(one) for member_id, one in documents.items() if member_id != leader_id]
    return Subject(
        ("; ".join(parts), *([f"other candidates: {_listed(others)}"] if others else [])),
        (name("LEADS"),),
        _leads(group, leader_id),
        document={
            "kind": "election",
            "leader": leader_id,
            "token": token,
            "term_began_ms": since,
            "lease_left_ms": lease,
        },
    )


def _token(leader: GroupMember, explanation: GroupExplanation | None) -> int | None:
    """The claim with which the leader joined; in its first generation, this generation."""
    claim = int.from_bytes(leader.metadata[:CLAIM_BYTES], "big", signed=True)
    return claim if claim >= 0 else _generation(explanation)


def _generation(explanation: GroupExplanation | None) -> int | None:
    status = None if explanation is None else explanation.status
    return None if status is None else status.get("generation")


def _since(token: int | None, explanation: GroupExplanation | None) -> int | None:
    if token is None or explanation is None:
        return None
    for story in explanation.stories:
        if story.get("generation_after") == token and story.get("took_ms") is not None:
            return int(story["started_ms"] + story["took_ms"])
    return None


def _lease_left(member_id: str, explanation: GroupExplanation | None) -> int | None:
    """By the coordinator's clock. The leader counts from when it sent its heartbeat, so its own lease ends earlier."""
    members = (explanation.status or {}).get("members", ()) if explanation is not None else ()
    return next((one.get("session_remaining_ms") for one in members if one["member_id"] == member_id), None)


# -- shardings


@dataclass(frozen=True, slots=True)
class _Worker:
    capacity: float
    claims: dict[str, int]
    items: dict[str, float]
    """With their weights."""


def _sharding(group: GroupDescription, explanation: GroupExplanation | None) -> Subject:
    names, documents = _names(group)
    workers = {member.member_id: _worker(member) for member in group.members}
    generation = _generation(explanation)
    rows: list[tuple[Cell, ...]] = []
    items = []
    for member_id, worker in workers.items():
        for item, weight in worker.items.items():
            token = worker.claims.get(item, generation)
            host = str(documents[member_id]["host"]).removeprefix("/")
            rows.append((item, f"{weight:g}", token, names.of(documents[member_id]), host))
            items.append({"item": item, "weight": weight, "token": token, "owner": member_id})
    owned = {item for worker in workers.values() for item in worker.items}
    leaving = sorted({item for worker in workers.values() for item in worker.claims} - owned)
    lines = [f"{plural(len(owned), 'item')}, {plural(len(workers), 'worker')}"]
    lines += [f"moving: {_listed(leaving)}"] if leaving else []
    return Subject(
        tuple(lines),
        (number("#ITEMS"), number("WEIGHT"), number("CAPACITY")),
        {
            member_id: (len(worker.items), f"{sum(worker.items.values()):g}", f"{worker.capacity:g}")
            for member_id, worker in workers.items()
        },
        tuple(sorted(rows, key=lambda row: str(row[0]))),
        {
            "kind": "sharding",
            "items": sorted(items, key=lambda one: str(one["item"])),
            "moving": leaving,
            "workers": [
                {"consumer_id": member_id, "capacity": worker.capacity, "weight": sum(worker.items.values())}
                for member_id, worker in workers.items()
            ],
        },
    )


def _worker(member: GroupMember) -> _Worker:
    said, got = _unpacked(member.metadata), _unpacked(member.assignment)
    # Names alone all have the weight 1.
    weights = got if isinstance(got, dict) else dict.fromkeys(got, 1.0)
    return _Worker(
        float(said["capacity"]),
        {str(item): int(token) for item, token in said["claims"].items()},
        {str(item): float(weight) for item, weight in weights.items()},
    )


def _unpacked(data: bytes) -> Any:
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, MAX_BYTES)
    if not unpacking.eof:
        raise ValueError("cut short, or too much")
    return json.loads(text)


# -- Kafka Connect


class _Reader:
    """Reads Kafka's old types in order. Raises ValueError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ValueError("cut short")
        self._at += size
        return self._data[self._at - size : self._at]

    def integer(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def text(self) -> str:
        return self._take(self.integer(2)).decode()


CONNECTOR_ITSELF = -1
"""The number among the tasks that stands for the connector."""


def _connect(group: GroupDescription, _: GroupExplanation | None) -> Subject:
    names, documents = _names(group)
    leader_id, leader_url = "", ""
    cells: dict[str, tuple[Cell, ...]] = {}
    workers = []
    for member in group.members:
        said, got = _Reader(member.metadata), _Reader(member.assignment)
        said.integer(2)  # the version: all versions begin alike
        url, config_offset = said.text(), said.integer(8)
        got.integer(4)  # the version and an error code
        leader_id, leader_url = got.text(), got.text()
        got.integer(8)
        tasks = {got.text(): [got.integer(4) for _ in range(got.integer(4))] for _ in range(got.integer(4))}
        connectors = sorted(connector for connector, numbers in tasks.items() if CONNECTOR_ITSELF in numbers)
        own = {connector: [n for n in numbers if n != CONNECTOR_ITSELF] for connector, numbers in tasks.items()}
        leads = "yes" if member.member_id == leader_id else ""
        cells[member.member_id] = (leads, url, len(connectors), sum(map(len, own.values())))
        workers.append(
            {
                "consumer_id": member.member_id,
                "url": url,
                "config_offset": config_offset,
                "connectors": connectors,
                "tasks": {connector: numbers for connector, numbers in own.items() if numbers},
            }
        )
    leader = documents.get(leader_id)
    who = names.with_host(leader) if leader is not None else leader_id
    return Subject(
        (f"leader: {leader_url} ({who})", f"workers: {_listed(str(worker['url']) for worker in workers)}"),
        (name("LEADS"), name("URL"), number("#CONNECTORS"), number("#TASKS")),
        cells,
        document={"kind": "connect", "leader": leader_id, "leader_url": leader_url, "workers": workers},
    )


# -- schema registries


def _registry(group: GroupDescription, _: GroupExplanation | None) -> Subject:
    names, documents = _names(group)
    urls = {member.member_id: _url(json.loads(member.metadata)) for member in group.members}
    leader_id = str(json.loads(group.members[0].assignment)["master"] or "")
    leader = documents.get(leader_id)
    who = f"{urls[leader_id]} ({names.with_host(leader)})" if leader is not None else "none: no instance may lead"
    return Subject(
        (f"leader: {who}", f"instances: {_listed(urls.values())}"),
        (name("LEADS"), name("URL")),
        {member_id: (*cells, urls[member_id]) for member_id, cells in _leads(group, leader_id).items()},
        document={
            "kind": "schema registry",
            "leader": leader_id or None,
            "leader_url": urls.get(leader_id),
            "instances": [{"consumer_id": member_id, "url": url} for member_id, url in urls.items()],
        },
    )


def _url(identity: Mapping[str, Any]) -> str:
    return f"{identity.get('scheme') or 'http'}://{identity['host']}:{identity['port']}"


READERS: dict[str, Callable[[GroupDescription, GroupExplanation | None], Subject]] = {
    "kohort-election": _election,
    "kohort-shards": _sharding,
    "connect": _connect,
    "sr": _registry,
}
"""By protocol type."""
