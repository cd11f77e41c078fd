"""Principals, and the permissions that a request needs.

A connection has a principal, and so has every request's context. A row of broker/apis.py names the operations that its
API needs, as Kafka's authorizer knows them. Without an authorizer (`AllowAll`) nothing is asked. Otherwise
broker/security/guards asks for each API, and the cached answers (broker/shortcuts) are kept only at the present
`version` of the rules.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

import msgspec


class Principal(msgspec.Struct, frozen=True, gc=False):
    name: str
    type: str = "User"

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("ANONYMOUS")


class Operation(IntEnum):
    """Kafka's AclOperation."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


class Resource(IntEnum):
    """Kafka's ResourceType."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class Need(msgspec.Struct, frozen=True):
    """An operation on each resource of this type that a request names."""

    operation: Operation
    resource: Resource
    instead: Need | None = None
    """Another operation that suffices."""


class Authorizer(Protocol):
    @property
    def version(self) -> int:
        """Raised by every change of the rules."""

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str) -> bool: ...

    def allows_any(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether the operation is allowed on a resource of any name."""


class AllowAll:
    version = 0

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        return True

    def allows_any(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return True


NOT_ASKED = -2147483648
"""Instead of the bits of the operations that a client may perform."""


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


_O = Operation
# The operations of each resource (Kafka's AclEntry.supportedOperations), as bits.
TOPIC_OPERATIONS = _bits(
    _O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS
)
GROUP_OPERATIONS = _bits(_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
CLUSTER_OPERATIONS = _bits(
    _O.CREATE,
    _O.CLUSTER_ACTION,
    _O.DESCRIBE_CONFIGS,
    _O.ALTER_CONFIGS,
    _O.IDEMPOTENT_WRITE,
    _O.ALTER,
    _O.DESCRIBE,
)
