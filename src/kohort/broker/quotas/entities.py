"""Quotas and the entities that have them: a user, a client id, both, or an address.

`Quotas` is the fold of the quota records of the metadata log. It finds the quota of a client in the order of Kafka's
ClientQuotaManager: user and client, then the user, then the client; among them, a name goes before the default.
"""

from __future__ import annotations

import json

import msgspec

from kohort.broker.security.acls import host_of

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, IP)
PRODUCE, FETCH, REQUEST, MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
CONNECTION = "connection_creation_rate"
LONG, INT, DOUBLE = 9_223_372_036_854_775_808, 2_147_483_647, 0
"""Values are floating point numbers; the largest of a long is one too large for it, also in Kafka."""
OF_CLIENTS: dict[str, int] = {PRODUCE: LONG, FETCH: LONG, REQUEST: DOUBLE, MUTATION: DOUBLE}
"""The keys of users and clients. The largest value of one that has no fraction; DOUBLE for one that may have one."""
OF_ADDRESSES: dict[str, int] = {CONNECTION: INT}
DEFAULT = ""
"""The name of the entity that stands for all without a quota of their own. No entity has an empty name."""
EPSILON = 1e-6
COUNTED_NAME = 256
"""Clients whose names begin with the same so many characters share a meter: a client id may have 32,767."""

Place = tuple[str | None, str | None]
"""User and client id of an entity; None for a type that it does not have."""


class Entity(msgspec.Struct, frozen=True, gc=False, order=True):
    """Types and names, in the order of the types."""

    parts: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, names: dict[str, str | None]) -> Entity:
        """None is the default of a type."""
        return cls(tuple((kind, names[kind] or DEFAULT) for kind in sorted(names)))

    @property
    def names(self) -> dict[str, str]:
        return dict(self.parts)

    @property
    def record_name(self) -> str:
        """Unambiguous, whatever the names are."""
        return json.dumps(self.parts, separators=(",", ":"))

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name}" if name else f"default {kind}" for kind, name in self.parts)


class Found(msgspec.Struct, frozen=True, gc=False):
    """The quota of a client."""

    bound: float
    user: str | None
    client: str | None
    """The client's own names, as far as the quota's entity has their types: each such client is counted apart."""


# -- checks


def entity_problem(names: dict[str, str | None]) -> str | None:
    """Why an entity cannot have quotas, None if it can. Source: ClientQuotaControlManager."""
    if not names:
        return "Invalid empty client quota entity"
    for kind, name in names.items():
        if kind not in TYPES:
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    if IP in names:
        if len(names) > 1:
            return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        address = names[IP]
        if address is not None and not host_of(address).bits:
            return f"{address} is not a valid IP or resolvable host."
    return None


def value_problem(names: dict[str, str | None], key: str, value: float) -> str | None:
    """Why an entity cannot have this quota, None if it can. Source: ClientQuotaControlManager."""
    most = (OF_ADDRESSES if IP in names else OF_CLIENTS).get(key)
    if most is None:
        return f"Invalid configuration key {key}"
    if not value > 0:  # NaN too
        return f"Quota {key} must be greater than 0"
    if most == DOUBLE:
        return None
    if value > most:
        return f"Proposed value for {key} is too large for {'an INT' if most == INT else 'a LONG'}."
    if value % 1.0 > EPSILON:
        return f"{key} cannot be a fractional value."
    return None


# -- all quotas


class Quotas:
    """All quotas, by entity. `put` and `remove` apply the records of the metadata log, live and in the replay."""

    __slots__ = ("_by_address", "_by_place", "_records", "by_entity", "counts_time", "on", "on_connections")

    def __init__(self) -> None:
        self.by_entity: dict[Entity, dict[str, float]] = {}
        self.on = False
        """There is a quota of users or clients."""
        self.counts_time = False
        """There is a quota of the time of requests."""
        self.on_connections = False
        """There is a quota of new connections."""
        self._records: dict[str, Entity] = {}
        self._by_place: dict[str, dict[Place, float]] = {}
        """By key."""
        self._by_address: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self.by_entity)

    def put(self, entity: Entity, values: dict[str, float]) -> None:
        self.remove(entity.record_name)
        self._records[entity.record_name] = entity
        self.by_entity[entity] = values
        for key, value in values.items():
            if key == CONNECTION:
                self._by_address[_address_of(entity)] = value
            else:
                self._by_place.setdefault(key, {})[_place_of(entity)] = value
        self._note()

    def remove(self, record_name: str) -> None:
        """Nothing, if there is no such entity: a replay meets deletions alone."""
        entity = self._records.pop(record_name, None)
        if entity is None:
            return
        for key in self.by_entity.pop(entity):
            if key == CONNECTION:
                self._by_address.pop(_address_of(entity), None)  # another way to write it may have had it too
            else:
                places = self._by_place[key]
                del places[_place_of(entity)]
                if not places:
                    del self._by_place[key]
        self._note()

    def _note(self) -> None:
        self.on = bool(self._by_place)
        self.counts_time = REQUEST in self._by_place
        self.on_connections = bool(self._by_address)

    def find(self, key: str, user: str, client: str) -> Found | None:
        """The most specific quota of a client; None if there is none."""
        bounds = self._by_place.get(key)
        if bounds is None:
            return None
        for place in (
            (user, client),
            (user, DEFAULT),
            (user, None),
            (DEFAULT, client),
            (DEFAULT, DEFAULT),
            (DEFAULT, None),
            (None, client),
            (None, DEFAULT),
        ):
            bound = bounds.get(place)
            if bound is not None:
                return Found(
                    bound,
                    None if place[0] is None else user[:COUNTED_NAME],
                    None if place[1] is None else client[:COUNTED_NAME],
                )
        return None

    def of_address(self, address: str) -> float | None:
        """New connections a second; None if there is no limit."""
        bound = self._by_address.get(host_of(address).text)
        return self._by_address.get(DEFAULT) if bound is None else bound


def _place_of(entity: Entity) -> Place:
    names = entity.names
    return names.get(USER), names.get(CLIENT_ID)


def _address_of(entity: Entity) -> str:
    return host_of(entity.names[IP]).text


# -- filters

EXACT, OF_DEFAULT, SPECIFIED = range(3)
"""Types of matches in DescribeClientQuotas."""


class QuotaFilter(msgspec.Struct, frozen=True, gc=False):
    """Which entities are described."""

    exact: dict[str, str]
    """Type: name."""
    any_name: frozenset[str]
    """Types that an entity must have, with any name."""
    strict: bool
    """The entity has no other types."""

    def matches(self, entity: Entity) -> bool:
        names = entity.names
        if self.strict and len(names) != len(self.exact) + len(self.any_name):
            return False
        return all(names.get(kind) == name for kind, name in self.exact.items()) and self.any_name <= names.keys()
