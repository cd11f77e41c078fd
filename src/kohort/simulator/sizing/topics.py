"""The topics of a sized group, with its partitions numbered from 0: the first topic's, then the second's."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.broker.broker import Broker


class Topics:
    def __init__(self, topics: int, partitions: int) -> None:
        each, larger = divmod(partitions, topics)
        self.sizes = {f"topic-{number:03}": each + (number < larger) for number in range(topics)}
        """Name to number of partitions, as even as possible."""
        self._of = [(name, index) for name, size in self.sizes.items() for index in range(size)]
        self._place = {at: place for place, at in enumerate(self._of)}
        self._names: dict[bytes, str] = {}

    def learn_ids(self, broker: Broker) -> None:
        """When they have been created."""
        self._names = {broker.state.catalog.topics[name].topic_id: name for name in self.sizes}

    def at(self, places: Iterable[int]) -> list[tuple[str, int]]:
        return [self._of[place] for place in places]

    def place(self, name: str, index: int) -> int:
        return self._place[name, index]

    def place_by_id(self, topic_id: bytes, index: int) -> int:
        return self._place[self._names[topic_id], index]
