"""The keys and certificates of listeners, which AlterConfigs changes: the part of the edge that handlers use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ListenerKeys(Protocol):
    """The certificates of the listeners, at the edge."""

    def check(self, broker_id: int, configs: Mapping[str, str]) -> None:
        """Try the keys and certificates that are to be set on a broker. Raises ConfigError."""

    def use(self, broker_id: int, configs: Mapping[str, str]) -> None:
        """Use them for new connections."""
