"""Quotas for tests: `quota_change` is a request, `Limited` a broker with what tests ask of it.

limited = Limited()
limited.set("producer_byte_rate", 1000, user="alice")
alice = limited.connect("alice")
"""

from __future__ import annotations

from typing import Any

from wire_driver import Connection, Wire

from kohort.broker.authorization import Principal
from kohort.broker.turn import ConnectionId, Turn
from kohort.storage.protocol import Storage
from kohort.wire.schemas.alter_client_quotas import AlterClientQuotasRequest, AlteredEntry, EntityData, OpData
from kohort.wire.schemas.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
Values = dict[str, float]


def entry(*ops: tuple[str, float | None], **names: str | None) -> AlteredEntry:
    """`names`: user, client_id, ip; None for the default. A value None removes."""
    return AlteredEntry(
        entity=tuple(EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in names.items()),
        ops=tuple(OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops),
    )


def quota_change(key: str, value: float | None, **names: str | None) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=(entry((key, value), **names),), validate_only=False)


class Limited:
    def __init__(self, storage: Storage | None = None, **config: Any) -> None:
        self.spends = 0
        """Nanoseconds that each look at the stopwatch takes."""
        self._watch = 0
        self.wire = Wire(storage, stopwatch=self._stopwatch, **config)
        self.muted: dict[ConnectionId, bool] = {}
        self.wire.watch = self._saw
        self.admin = self.wire.connect(client_id="admin", principal=Principal("admin"))

    def _stopwatch(self) -> int:
        self._watch += self.spends
        return self._watch

    def _saw(self, turn: Turn) -> None:
        self.muted.update((mute.connection, mute.muted) for mute in turn.mutes)

    def connect(self, user: str = "ANONYMOUS", client_id: str = "client", **options: Any) -> Connection:
        return self.wire.connect(client_id=client_id, principal=Principal(user), **options)

    def set(self, key: str, value: float | None, **names: str | None) -> None:
        [result] = self.alter(entry((key, value), **names))
        assert result == (0, None)

    def alter(
        self, *entries: AlteredEntry, validate_only: bool = False, version: int = 1
    ) -> list[tuple[int, str | None]]:
        """Errors and messages."""
        answer = self.admin.ask(AlterClientQuotasRequest(entries=entries, validate_only=validate_only), version)
        return [(result.error_code, result.error_message) for result in answer.entries]

    def described(
        self, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
    ) -> dict[tuple[tuple[str, str | None], ...], Values] | tuple[int, str]:
        """Types with names: the values by key; or the error and its message."""
        asked = tuple(ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components)
        answer = self.admin.ask(DescribeClientQuotasRequest(components=asked, strict=strict), version)
        if answer.error_code:
            assert answer.entries is None
            return answer.error_code, answer.error_message
        return {
            tuple((part.entity_type, part.entity_name) for part in found.entity): {
                value.key: value.value for value in found.values
            }
            for found in answer.entries
        }

    def is_muted(self, connection: Connection) -> bool:
        """As an edge was told last."""
        return self.muted.get(connection.id, False)
