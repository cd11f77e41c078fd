"""Why records were given up that still await their dead letters: which member rejected them, or had them last.

Soft state: the log says only how often a record was delivered. After a restart, and above a limit, a record that was
delivered as often as its group allows counts as delivered too often, and any other as rejected, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.coordinator.shares.events import Archived, RecordsArchived, ShareKey

MOST_RANGES = 10_000
"""Ranges of all share-partitions: some three megabytes."""


class GivenUp:
    def __init__(self) -> None:
        self._by_key: dict[ShareKey, list[Archived]] = {}
        self._total = 0

    def note(self, effect: RecordsArchived) -> None:
        room = MOST_RANGES - self._total
        if room > 0:
            added = effect.archived[:room]
            self._by_key.setdefault(effect.key, []).extend(added)
            self._total += len(added)

    def take(self, key: ShareKey) -> Sequence[Archived]:
        """What is known of a share-partition, by offset. It is forgotten here."""
        found = self._by_key.pop(key, [])
        self._total -= len(found)
        found.sort()
        return found

    def forget_others(self, keys: dict[ShareKey, None]) -> None:
        """Forget share-partitions that are none of `keys`: their state was deleted or set anew."""
        for key in [key for key in self._by_key if key not in keys]:
            self.take(key)
