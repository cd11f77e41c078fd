"""Quotas for tests: `quota_change` is a request, `Limited` a broker with what tests ask of it.

limited = Limited()
limited.set("producer_byte_rate", 1000, user="alice")
alice = limited.connect("alice")
"""

from __future__ import annotations

import math
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


REFUSED = [
    (entry((PRODUCE, 1)), "Invalid empty client quota entity"),
    (entry((PRODUCE, 1), user=""), "Empty user not supported"),
    (entry((PRODUCE, 1), group="g"), "Unhandled client quota entity type: group"),
    (
        entry((CONNECTION, 1), ip="10.0.0.1", user="a"),
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    (entry((CONNECTION, 1), ip="a host"), "a host is not a valid IP or resolvable host."),
    (entry((CONNECTION, 1), ip="no.host.invalid"), "no.host.invalid is not a valid IP or resolvable host."),
    (entry((CONNECTION, 1), user="a"), f"Invalid configuration key {CONNECTION}"),
    (entry((PRODUCE, 1), ip="10.0.0.1"), f"Invalid configuration key {PRODUCE}"),
    (entry(("speed", 1), user="a"), "Invalid configuration key speed"),
    (entry((PRODUCE, 0.0), user="a"), f"Quota {PRODUCE} must be greater than 0"),
    (entry((REQUEST, -1), user="a"), f"Quota {REQUEST} must be greater than 0"),
    (entry((PRODUCE, 1.5), user="a"), f"{PRODUCE} cannot be a fractional value."),
    (entry((CONNECTION, 2**31), ip=None), f"Proposed value for {CONNECTION} is too large for an INT."),
    (entry((FETCH, 1e19), user="a"), f"Proposed value for {FETCH} is too large for a LONG."),
    (entry((FETCH, math.inf), user="a"), f"Proposed value for {FETCH} is too large for a LONG."),
    (
        entry((PRODUCE, 1), (PRODUCE, 2), user=None, client_id="c"),
        "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=null})",
    ),
]
"""Changes that are refused, here and in Kafka, and the message."""
REFUSED_HERE = [
    (entry((REQUEST, math.nan), user="a"), f"Quota {REQUEST} must be greater than 0"),
    (entry((CONNECTION, 1), ip="127.1"), "127.1 is not a valid IP or resolvable host."),
    (entry((PRODUCE, 1), user="a" * 1001), "The name of an entity has at most 256 characters"),
]
"""Kafka accepts them."""
ACCEPTED = [
    entry((FETCH, 2.0**63), user="a"),
    entry((REQUEST, math.inf), user="a"),
    entry((PRODUCE, 1.0000001), user="a"),
    entry(("speed", None), user="a"),
    entry(user="a"),
]
Filter = list[tuple[str, int, str | None]]
BAD_FILTERS: list[tuple[Filter, int, str]] = [
    ([("", 2, None)], 42, "Invalid empty entity type."),
    ([("user", 2, None), ("user", 1, None)], 42, "cannot appear more than once"),
    ([("group", 2, None)], 35, "Unsupported entity type group"),
    ([("user", 0, None)], 42, "MATCH_TYPE_EXACT, but set match string to null"),
    ([("user", 1, "a")], 42, "MATCH_TYPE_DEFAULT, but also specified a match string"),
    ([("user", 2, "a")], 42, "MATCH_TYPE_SPECIFIED, but also specified a match string"),
    ([("user", 3, None)], 42, "Unknown match type 3"),
    ([("ip", 2, None), ("user", 2, None)], 42, "IP filter component should not be used with user"),
]
"""A filter, the error and a part of the message."""


def filtered(filter: Filter, *, strict: bool = False) -> DescribeClientQuotasRequest:
    asked = tuple(ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in filter)
    return DescribeClientQuotasRequest(components=asked, strict=strict)


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
        answer = self.admin.ask(filtered(list(components), strict=strict), version)
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
