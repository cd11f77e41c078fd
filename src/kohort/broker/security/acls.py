"""ACLs, as Apache Kafka has them: who may do what with which resource.

`Acls` is the fold of the ACL records of the metadata log. It finds the entries for a resource by the resource's name,
by the prefixes of the name, and by `*`, and among them those of a principal. So a decision costs as much as there are
different lengths of prefixes and entries that match, and not as much as there are ACLs.

Codes and rules are those of Kafka's AclBinding, ResourcePatternFilter, AccessControlEntryFilter and StandardAcl.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec

from kohort.broker.authorization import CLUSTER_NAME, Operation, Resource

UNKNOWN, ANY = 0, 1
"""Codes of every kind; a filter may have ANY."""
ALL = 2
"""The operation that stands for all."""
MATCH, LITERAL, PREFIXED = 2, 3, 4
"""Types of patterns. MATCH is in filters only: all patterns that apply to a name."""
DENY, ALLOW = 2, 3
WILDCARD = "*"
EVERYBODY = "User:*"
"""The principal of an ACL that is about every principal."""
RESOURCE_TYPES: dict[int, str] = {
    2: "topic",
    3: "group",
    4: "cluster",
    5: "transactional-id",
    6: "delegation-token",
    7: "user",
}
"""What an ACL may be about. There are no delegation tokens here: ACLs on them and on users have no effect."""
OPERATIONS: dict[int, str] = {ALL: "all"} | {
    **{operation.value: operation.name.lower().replace("_", "-") for operation in Operation},
    13: "create-tokens",
    14: "describe-tokens",
}
PATTERN_TYPES: dict[int, str] = {LITERAL: "literal", PREFIXED: "prefixed"}
PERMISSIONS: dict[int, str] = {DENY: "deny", ALLOW: "allow"}

_O = Operation
_IMPLY = {
    _O.DESCRIBE: (_O.READ, _O.WRITE, _O.DELETE, _O.ALTER),
    _O.DESCRIBE_CONFIGS: (_O.ALTER_CONFIGS,),
}
"""An operation, and those whose ALLOW implies it."""
_EVERY_OPERATION = -1


class Acl(msgspec.Struct, frozen=True, gc=False):
    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        resource = RESOURCE_TYPES.get(self.resource, str(self.resource))
        prefix = "prefixed " if self.pattern == PREFIXED else ""
        does = OPERATIONS.get(self.operation, str(self.operation))
        host = "" if self.host == WILDCARD else f" from {self.host}"
        return f"{PERMISSIONS[self.permission]} {self.principal} {does} on {prefix}{resource} {self.name}{host}"


class Host(NamedTuple):
    """An address. `text` is one for all ways to write it: Java writes IPv6 addresses in full."""

    text: str
    bits: int = 0
    """32 or 128; 0 if the text is no address."""
    number: int = 0


LONGEST_ADDRESS = 100
"""Characters of an address with a zone. An ACL may have any text in its place."""


def host_of(text: str) -> Host:
    return _cached_host_of(text) if len(text) <= LONGEST_ADDRESS else Host(text)


@lru_cache(maxsize=4096)
def _cached_host_of(text: str) -> Host:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return Host(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return Host(str(address), address.max_prefixlen, int(address))


class Entry:
    """An ACL, ready to be compared with a request."""

    __slots__ = ("_bits", "_first", "_host", "_mask", "acl", "denies", "operations")

    def __init__(self, acl: Acl) -> None:
        self.acl = acl
        self.denies = acl.permission == DENY
        self.operations = _operations(acl)
        """Bits, one for each operation that it is about."""
        network = _network(acl.host) if "/" in acl.host else None
        self._host = host_of(acl.host).text
        self._bits = network.max_prefixlen if network is not None else -1
        self._mask = int(network.netmask) if network is not None else 0
        self._first = int(network.network_address) if network is not None else 0

    def is_from(self, host: Host) -> bool:
        """Whether it is about requests from this address."""
        if self._host == WILDCARD or self._host == host.text:
            return True
        return self._bits == host.bits and host.number & self._mask == self._first


def _operations(acl: Acl) -> int:
    if acl.operation == ALL:
        return _EVERY_OPERATION
    bits = 1 << acl.operation
    if acl.permission == ALLOW:
        for implied, by in _IMPLY.items():
            if acl.operation in by:
                bits |= 1 << implied
    return bits


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


# -- checks


def problem_of(acl: Acl) -> str | None:
    """Why an ACL cannot be created, None if it can. The texts are those of Kafka's AclControlManager and AclApis."""
    if acl.resource == Resource.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Resource name should not be empty"
    if acl.resource not in RESOURCE_TYPES:
        return f"Invalid resourceType {_code(acl.resource)}"
    if acl.pattern not in PATTERN_TYPES:
        return f"Invalid patternType {_code(acl.pattern, MATCH='MATCH')}"
    if acl.operation not in OPERATIONS:
        return f"Invalid operation {_code(acl.operation)}"
    if acl.permission not in PERMISSIONS:
        return f"Invalid permissionType {_code(acl.permission)}"
    kind, colon, _ = acl.principal.partition(":")
    if not colon or not kind:
        return f"expected a string in format principalType:principalName but got {acl.principal}"
    if not acl.host:
        return "Host should not be empty"
    if "/" in acl.host and _network(acl.host) is None:
        return f"Invalid CIDR notation {acl.host}"
    return None


def _code(code: int, **names: str) -> str:
    if "MATCH" in names and code == MATCH:
        return "MATCH"
    return "ANY" if code == ANY else "UNKNOWN"


# -- filters


class AclFilter(msgspec.Struct, frozen=True, gc=False):
    """What ACLs are listed or deleted. None and ANY stand for all."""

    resource: int = ANY
    name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    @property
    def problem(self) -> str | None:
        if self.resource not in (ANY, *RESOURCE_TYPES) or self.pattern not in (ANY, MATCH, *PATTERN_TYPES):
            return "Unknown patternFilter."
        if self.operation not in (ANY, *OPERATIONS) or self.permission not in (ANY, *PERMISSIONS):
            return "Unknown entryFilter."
        return None

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (ANY, acl.resource)
            and self.pattern in (ANY, MATCH, acl.pattern)
            and (self.name is None or self._names(acl))
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        assert self.name is not None
        if self.pattern != MATCH:
            return self.name == acl.name
        if acl.pattern == PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, WILDCARD)


# -- all ACLs

Entries = dict[str, dict[Acl, Entry]]
"""The entries of one pattern, by principal."""


class _OfType:
    """The entries about one type of resource."""

    __slots__ = ("_counts", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, Entries] = {}
        self.prefixed: dict[str, Entries] = {}
        self.lengths: tuple[int, ...] = ()
        """The lengths of the prefixes, the longest first."""
        self._counts: Counter[int] = Counter()
        """The prefixes of each length."""

    def of(self, pattern: int) -> dict[str, Entries]:
        return self.prefixed if pattern == PREFIXED else self.literal

    def count(self, prefix: str, change: int) -> None:
        """A prefix comes (1) or goes (-1)."""
        length = len(prefix)
        self._counts[length] += change
        if self._counts[length] == max(change, 0):  # the first of this length, or the last
            self._counts += Counter()  # without zeros
            self.lengths = tuple(sorted(self._counts, reverse=True))


class Acls:
    """All ACLs, by id. `put` and `remove` apply the records of the metadata log, live and in the replay."""

    def __init__(self) -> None:
        self.by_id: dict[str, Acl] = {}
        self.version = 0
        """Raised by every change."""
        self._ids: dict[Acl, str] = {}
        self._types: dict[int, _OfType] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._ids

    def put(self, acl_id: str, acl: Acl) -> None:
        self.remove(acl_id)
        self.version += 1
        self.by_id[acl_id] = acl
        self._ids[acl] = acl_id
        of_type = self._types.setdefault(acl.resource, _OfType())
        patterns = of_type.of(acl.pattern)
        if acl.name not in patterns:
            patterns[acl.name] = {}
            if acl.pattern == PREFIXED:
                of_type.count(acl.name, 1)
        patterns[acl.name].setdefault(acl.principal, {})[acl] = Entry(acl)

    def remove(self, acl_id: str) -> None:
        acl = self.by_id.pop(acl_id, None)
        if acl is None:
            return
        self.version += 1
        del self._ids[acl]
        of_type = self._types[acl.resource]
        patterns = of_type.of(acl.pattern)
        entries = patterns[acl.name]
        del entries[acl.principal][acl]
        if not entries[acl.principal]:
            del entries[acl.principal]
        if not entries:
            del patterns[acl.name]
            if acl.pattern == PREFIXED:
                of_type.count(acl.name, -1)

    def patterns_for(self, resource: int, name: str) -> Iterator[Entries]:
        """The entries of each pattern that applies: the name, its prefixes, the longest first, and `*`."""
        of_type = self._types.get(resource)
        if of_type is None:
            return
        found = of_type.literal.get(name)
        if found is not None:
            yield found
        for length in of_type.lengths:
            if length <= len(name):
                found = of_type.prefixed.get(name[:length])
                if found is not None:
                    yield found
        if name != WILDCARD:
            found = of_type.literal.get(WILDCARD)
            if found is not None:
                yield found

    def entries_about(self, resource: int, principal: str) -> Iterator[Entry]:
        """All entries about a type of resource, of a principal and of everybody."""
        of_type = self._types.get(resource)
        if of_type is None:
            return
        for patterns in (of_type.literal, of_type.prefixed):
            for entries in patterns.values():
                for who in dict.fromkeys((principal, EVERYBODY)):
                    yield from entries.get(who, {}).values()
