"""What the coordinator knows of topics: a view that never changes; another one comes with `TopicsChanged`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kohort.coordinator.assignors.spec import TopicSpec


@dataclass(frozen=True, slots=True)
class Topics:
    by_name: Mapping[str, TopicSpec] = field(default_factory=dict)
    by_id: Mapping[bytes, TopicSpec] = field(default_factory=dict)


def topics_of(specs: Iterable[TopicSpec]) -> Topics:
    found = sorted(specs, key=lambda spec: spec.name)
    return Topics({spec.name: spec for spec in found}, {spec.topic_id: spec for spec in found})


def hash_of(topics: Topics, names: Iterable[str]) -> int:
    """Of everything about these topics that a target assignment depends on; 0 when none of them exists."""
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        spec = topics.by_name.get(name)
        if spec is not None:
            found = True
            racks = [sorted(of_partition) for of_partition in spec.racks]
            digest.update(repr((name, spec.topic_id, spec.partitions, racks)).encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
