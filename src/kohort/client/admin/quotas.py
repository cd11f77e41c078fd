"""Client quotas: list and change (KIP-546), with Kafka 2.6 and later; of addresses (KIP-612) with 2.7.

An entity is a dictionary: `user`, `client-id` or both, or `ip`. The name None is the default of a type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kohort.client.admin.topics import controller
from kohort.client.errors import check
from kohort.client.wire.routing import Router
from kohort.wire.schemas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
    EntityData,
    OpData,
)
from kohort.wire.schemas.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

USER, CLIENT_ID, IP = TYPES = ("user", "client-id", "ip")
OF_CLIENTS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
"""Keys of users and client ids."""
OF_ADDRESSES = ("connection_creation_rate",)
"""Keys of addresses."""
Entity = Mapping[str, str | None]
_EXACT, _DEFAULT = 0, 1


@dataclass(frozen=True, slots=True)
class ClientQuotas:
    entity: dict[str, str | None]
    values: dict[str, float]
    """By key."""


def client_quotas(router: Router, wanted: Entity, *, strict: bool) -> list[ClientQuotas]:
    components = tuple(
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in wanted.items()
    )
    request = DescribeClientQuotasRequest(components=components, strict=strict)

    def attempt() -> list[ClientQuotas]:
        answer = router.any_connection().request(request, DescribeClientQuotasResponse)
        check(answer.error_code, "cannot list quotas", answer.error_message)
        return [
            ClientQuotas(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in answer.entries or ()
        ]

    return sorted(router.retrying(attempt), key=_order)


def _order(quotas: ClientQuotas) -> tuple[tuple[bool, bool, str], ...]:
    """Users first; names before defaults."""
    entity = quotas.entity
    return tuple((kind not in entity, entity.get(kind) is None, entity.get(kind) or "") for kind in TYPES)


def alter(router: Router, entity: Entity, values: Mapping[str, float | None]) -> None:
    entry = AlteredEntry(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()),
        ops=tuple(OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()),
    )
    request = AlterClientQuotasRequest(entries=(entry,), validate_only=False)

    def attempt() -> None:
        answer = controller(router).request(request, AlterClientQuotasResponse)
        for result in answer.entries:
            check(result.error_code, "cannot change the quotas", result.error_message)

    router.retrying(attempt)
