"""The coordinator's view of topics; immutable. `TopicsChanged` brings the next one.

A new view costs as much as has changed: entries are in buckets, and only the buckets of changed entries are copied. So
ten thousand topics that are created one by one are not copied ten thousand times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar, overload
from zlib import crc32

from kohort.coordinator.assignors.spec import TopicSpec

BUCKETS = 256
LONGEST_CACHED = 249
"""Characters of a topic's name. Requests may ask for names of a megabyte, which no topic has."""

Key = TypeVar("Key", str, bytes)
Default = TypeVar("Default")


class SpecsBy(Mapping[Key, TopicSpec], Generic[Key]):
    """Topics by name or id. The order is deterministic and has no meaning."""

    __slots__ = ("_buckets", "_size")

    def __init__(self) -> None:
        self._buckets: list[dict[Key, TopicSpec]] = [{}] * BUCKETS
        self._size = 0

    def __getitem__(self, key: Key) -> TopicSpec:
        return self._buckets[_bucket(key)][key]

    @overload
    def get(self, key: Key, /) -> TopicSpec | None: ...
    @overload
    def get(self, key: Key, /, default: Default) -> TopicSpec | Default: ...
    def get(self, key: Key, /, default: object = None) -> object:
        """Quicker than that of `Mapping`."""
        return self._buckets[_bucket(key)].get(key, default)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | bytes) and key in self._buckets[_bucket(key)]

    def __iter__(self) -> Iterator[Key]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._size

    def replaced(self, gone: Iterable[Key], present: Mapping[Key, TopicSpec]) -> SpecsBy[Key]:
        """A copy without `gone` and with `present`."""
        other: SpecsBy[Key] = SpecsBy()
        other._buckets = self._buckets.copy()
        other._size = self._size
        copied: dict[int, dict[Key, TopicSpec]] = {}

        def own(key: Key) -> dict[Key, TopicSpec]:
            index = _bucket(key)
            if index not in copied:
                copied[index] = other._buckets[index] = other._buckets[index].copy()
            return copied[index]

        for key in gone:
            other._size -= own(key).pop(key, None) is not None
        for key, spec in present.items():
            bucket = own(key)
            other._size += key not in bucket
            bucket[key] = spec
        return other


def _bucket(key: str | bytes) -> int:
    return _cached_bucket_of(key) if len(key) <= LONGEST_CACHED else _bucket_of(key)


def _bucket_of(key: str | bytes) -> int:
    """Not `hash`, which differs between processes."""
    return crc32(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key) % BUCKETS


_cached_bucket_of = lru_cache(maxsize=16_384)(_bucket_of)


@dataclass(frozen=True, slots=True)
class Topics:
    by_name: Mapping[str, TopicSpec] = field(default_factory=SpecsBy)
    by_id: Mapping[bytes, TopicSpec] = field(default_factory=SpecsBy)
    version: int = 0
    """Raised by every change of the metadata."""

    def known(self, names: Set[str]) -> list[TopicSpec]:
        """Those of these topics that exist, in the order of their names. A member may subscribe to thousands of names
        that no topic has."""
        if len(names) > len(self.by_name):
            return [self.by_name[name] for name in sorted(name for name in self.by_name if name in names)]
        return [spec for name in sorted(names) if (spec := self.by_name.get(name)) is not None]

    def with_changed(self, names: Iterable[str], present: Iterable[TopicSpec], version: int = 0) -> Topics:
        """The view after topics of these names have changed; `present`: those of them that exist now."""
        assert isinstance(self.by_name, SpecsBy)
        assert isinstance(self.by_id, SpecsBy)
        former = [spec for name in names if (spec := self.by_name.get(name)) is not None]
        now = list(present)
        return Topics(
            self.by_name.replaced((spec.name for spec in former), {spec.name: spec for spec in now}),
            self.by_id.replaced((spec.topic_id for spec in former), {spec.topic_id: spec for spec in now}),
            version,
        )


def topics_of(specs: Iterable[TopicSpec]) -> Topics:
    return Topics().with_changed((), specs)


def hash_of(topics: Topics, names: Set[str]) -> int:
    """A hash of all that a target assignment depends on; 0 if none of the topics exists."""
    total = sum(map(_digest, topics.known(names))) % 2**64
    return total - 2**64 if total >= 2**63 else total


@lru_cache(maxsize=65_536)
def _digest(spec: TopicSpec) -> int:
    """Cached, because a group may subscribe to thousands of topics, and each join needs it."""
    racks = [sorted(of_partition) for of_partition in spec.racks]
    text = repr((spec.name, spec.topic_id, spec.partitions, racks))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
