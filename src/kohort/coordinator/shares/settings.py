"""The settings in force for the share-partitions of a group."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class ShareSettings(msgspec.Struct, frozen=True, gc=False):
    lock_ms: int = 30_000
    delivery_limit: int = 5
    max_locks: int = 2_000
    renew: bool = True
    dead_letters: bool = False
    """A record that is given up waits for its dead letter before it is archived."""


SettingsOf = Callable[[str], ShareSettings]
"""By group. They are looked up at each use, so changes act at once."""
