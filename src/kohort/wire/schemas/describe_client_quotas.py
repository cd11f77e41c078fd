"""DescribeClientQuotas (API key 48)."""

from kohort.wire.schema import field, message


@message()
class ComponentData:
    entity_type: str = field("string")
    match_type: int = field("int8")
    match: str | None = field("string", nullable="0+")


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: tuple[ComponentData, ...] = field([ComponentData])
    strict: bool = field("bool")


@message()
class EntityData:
    entity_type: str = field("string")
    entity_name: str | None = field("string", nullable="0+")


@message()
class ValueData:
    key: str = field("string")
    value: float = field("float64")


@message()
class EntryData:
    entity: tuple[EntityData, ...] = field([EntityData])
    values: tuple[ValueData, ...] = field([ValueData])


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")
    entries: tuple[EntryData, ...] | None = field([EntryData], nullable="0+")
