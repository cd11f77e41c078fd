"""AlterClientQuotas (API key 49)."""

from kohort.wire.schema import field, message


@message()
class EntityData:
    entity_type: str = field("string")
    entity_name: str | None = field("string", nullable="0+")


@message()
class OpData:
    key: str = field("string")
    value: float = field("float64")
    remove: bool = field("bool")


@message()
class AlteredEntry:
    entity: tuple[EntityData, ...] = field([EntityData])
    ops: tuple[OpData, ...] = field([OpData])


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: tuple[AlteredEntry, ...] = field([AlteredEntry])
    validate_only: bool = field("bool")


@message()
class EntryData:
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")
    entity: tuple[EntityData, ...] = field([EntityData])


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = field("int32", default=0)
    entries: tuple[EntryData, ...] = field([EntryData])
