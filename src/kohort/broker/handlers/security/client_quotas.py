"""DescribeClientQuotas, AlterClientQuotas. Source: ClientQuotasImage.java, ClientQuotaControlManager.java.

An entity that a request names twice is changed as it is named first, and its result is an error, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from kohort.broker.change_log import difference, tell_change
from kohort.broker.handlers.config_resources import Refused
from kohort.broker.quotas.entities import (
    CLIENT_ID,
    DEFAULT,
    EXACT,
    IP,
    OF_DEFAULT,
    SPECIFIED,
    TYPES,
    USER,
    Entity,
    QuotaFilter,
    entity_problem,
    value_problem,
)
from kohort.broker.request import ROW_BYTES, ROWS, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
    EntityData,
    EntryData,
    OpData,
)
from kohort.wire.schemas.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)
from kohort.wire.schemas.describe_client_quotas import EntityData as DescribedEntity
from kohort.wire.schemas.describe_client_quotas import EntryData as DescribedEntry

CHANGES = 20
"""Entities that are changed in one step."""
MATCHES = {EXACT: "MATCH_TYPE_EXACT", OF_DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}
LONGEST_NAME = 256
"""Characters of the name of an entity."""


@in_steps
def describe_client_quotas(
    state: BrokerState, request: DescribeClientQuotasRequest, context: RequestContext
) -> Generator[int, None, DescribeClientQuotasResponse]:
    try:
        wanted = _filter(request)
    except Refused as refused:
        return DescribeClientQuotasResponse(error_code=refused.error, error_message=refused.message, entries=None)
    found = []
    for at, (entity, values) in enumerate(list(state.catalog.quotas.by_entity.items()), 1):
        if wanted is not None and wanted.matches(entity):
            found.append(
                DescribedEntry(
                    entity=tuple(
                        DescribedEntity(entity_type=kind, entity_name=name or None) for kind, name in entity.parts
                    ),
                    values=tuple(ValueData(key=key, value=values[key]) for key in sorted(values)),
                )
            )
        if at % ROWS == 0:
            yield ROWS * ROW_BYTES
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message="", entries=tuple(found))


def _filter(request: DescribeClientQuotasRequest) -> QuotaFilter | None:
    """None if nothing matches. Raises Refused."""
    exact: dict[str, str] = {}
    any_name: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise Refused(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(component)
        if component.match_type == SPECIFIED:
            any_name.add(kind)
        else:
            exact[kind] = DEFAULT if component.match is None else component.match
    kinds = {*exact, *any_name}
    if IP in kinds and kinds & {USER, CLIENT_ID}:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )
    if any(component.match == "" for component in request.components) or (request.strict and not kinds):
        return None  # no entity has an empty name, or no types
    return QuotaFilter(exact, frozenset(any_name), request.strict)


def _check_match(component: ComponentData) -> None:
    name = MATCHES.get(component.match_type)
    if name is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if component.match_type == EXACT:
        if component.match is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Request specified {name}, but set match string to null.")
    elif component.match is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Request specified {name}, but also specified a match string.")


_Names = tuple[tuple[str, str | None], ...]


@in_steps
def alter_client_quotas(
    state: BrokerState, request: AlterClientQuotasRequest, context: RequestContext
) -> Generator[int, None, AlterClientQuotasResponse]:
    """The quotas of an entity are one record of the metadata log."""
    results: dict[_Names, EntryData] = {}
    for at, entry in enumerate(request.entries, 1):
        names = {part.entity_type: part.entity_name for part in entry.entity}
        key = tuple(sorted(names.items(), key=lambda part: part[0]))
        error, message = ErrorCode.NONE, None
        try:
            if key in results:
                raise _duplicate(names)
            _alter(state, context, names, entry, validate_only=request.validate_only)
        except Refused as refused:
            error, message = refused.error, refused.message
        entity = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in key)
        results[key] = EntryData(error_code=error, error_message=message, entity=entity)
        if at % CHANGES == 0:
            yield CHANGES * ROW_BYTES
    return AlterClientQuotasResponse(entries=tuple(results.values()))


def _duplicate(names: dict[str, str | None]) -> Refused:
    """With the text of Java's class, whose map has this order."""
    parts = [(kind, names[kind]) for kind in (CLIENT_ID, USER, IP) if kind in names]
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts)
    return Refused(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity ClientQuotaEntity(entries={{{entries}}})")


def _alter(
    state: BrokerState,
    context: RequestContext,
    names: dict[str, str | None],
    entry: AlteredEntry,
    *,
    validate_only: bool,
) -> None:
    """Raises Refused; then nothing of the entity is changed."""
    if len({op.key for op in entry.ops}) < len(entry.ops):
        raise _duplicate(names)
    if problem := entity_problem(names):
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
    if any(name is not None and len(name) > LONGEST_NAME for name in names.values()):
        raise Refused(ErrorCode.INVALID_REQUEST, f"The name of an entity has at most {LONGEST_NAME} characters")
    entity = Entity.of(names)
    quotas = state.catalog.quotas
    before = quotas.by_entity.get(entity, {})
    after = _after(names, before, entry.ops)
    if not before and after and len(quotas) >= state.config.quotas_max:
        raise Refused(ErrorCode.POLICY_VIOLATION, f"{state.config.quotas_max} entities have quotas: quotas.max")
    if after != before and not validate_only:
        state.set_quotas(entity, after)
        tell_change(state, context, "quotas changed", entity=str(entity), changes=difference(before, after))


def _after(names: dict[str, str | None], before: dict[str, float], ops: Sequence[OpData]) -> dict[str, float]:
    after = dict(before)
    for op in ops:
        if op.remove:
            after.pop(op.key, None)
        elif problem := value_problem(names, op.key, op.value):
            raise Refused(ErrorCode.INVALID_REQUEST, problem)
        else:
            after[op.key] = op.value
    return after
