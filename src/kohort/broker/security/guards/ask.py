"""A request's questions to the authorizer, and the verdicts on requests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, ClassVar

import msgspec

from kohort.broker.authorization import (
    CLUSTER_NAME,
    CLUSTER_OPERATIONS,
    Operation,
    Resource,
)
from kohort.broker.request import ROWS, RequestContext
from kohort.broker.security.audit import ALLOWED, DENIED, Decision
from kohort.broker.security.authorizer import Rights
from kohort.broker.state import BrokerState

READ, WRITE, DESCRIBE, TOPIC, GROUP = (
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Resource.TOPIC,
    Resource.GROUP,
)
"""To look up the member of an enumeration takes as long as the decision."""


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The request is not handled."""

    answer: Any


class Narrowed(msgspec.Struct, frozen=True, gc=False):
    """The request is handled in another form."""

    request: Any
    finish: Callable[[Any], Any]
    """Makes the answer out of the handler's. It must leave out everything that is denied, also of an answer to the
    whole request: the rules may have changed while the request waited."""


Verdict = Refused | Narrowed | None
"""None: the request is handled as it is."""
Guard = Callable[["Ask", Any], "Verdict | Generator[int, None, Verdict]"]
"""A generator yields between steps; a request of one name needs none."""


class Ask:
    __slots__ = ("_rights", "context", "sees", "state", "version")
    is_audited: ClassVar[bool] = False

    def __init__(self, state: BrokerState, rights: Rights, context: RequestContext) -> None:
        self.state = state
        self.context = context
        self.version = context.api_version
        """The version of the request."""
        self._rights = rights
        self.sees = rights.allows
        """As `may`, for what is left out silently, and is not written to the log."""

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """A denial is written to the log."""
        if self._rights.allows(operation, resource, name):
            return True
        self._denied(operation, resource, name)
        return False

    def may_cluster(self, operation: Operation) -> bool:
        return self.may(operation, Resource.CLUSTER, CLUSTER_NAME)

    def sees_cluster(self, operation: Operation) -> bool:
        return self.sees(operation, Resource.CLUSTER, CLUSTER_NAME)

    def may_any(self, operation: Operation, resource: Resource) -> bool:
        """Whether it may with a resource of any name."""
        if self._rights.allows_any(operation, resource):
            return True
        self._denied(operation, resource, "*")
        return False

    def may_all(self, operation: Operation, resource: Resource) -> bool:
        """Whether it may with every resource of this type."""
        if self._rights.allows_all(operation, resource):
            return True
        self._denied(operation, resource, "*")
        return False

    def operations(self, resource: Resource, name: str, supported: int) -> int:
        """The bits of the operations that are allowed, of those that are supported."""
        return sum(
            1 << operation
            for operation in Operation
            if supported >> operation & 1 and self.sees(operation, resource, name)
        )

    def cluster_operations(self) -> int:
        if not self.may_cluster(Operation.DESCRIBE):
            return 0
        return self.operations(Resource.CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)

    def topic_name(self, topic_id: bytes) -> str | None:
        """None for an unknown id, which the handler refuses."""
        topic = self.state.catalog.by_id.get(topic_id)
        return topic.name if topic is not None else None

    def _denied(self, operation: Operation, resource: Resource, name: str) -> None:
        self._tell(DENIED, operation, resource, name)

    def _tell(self, decision: Decision, operation: Operation, resource: Resource, name: str) -> None:
        state, context = self.state, self.context
        who = context.principal, context.client.host[1:]
        tell = state.turn.tell_of_decision
        state.audit.decided(tell, state.now, decision, who, operation, resource, name, context.api_key)


class AuditedAsk(Ask):
    """It also writes to the log what is allowed. Lists and the bits of operations stay silent."""

    __slots__ = ()
    is_audited = True

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self._told(Ask.may(self, operation, resource, name), operation, resource, name)

    def sees_cluster(self, operation: Operation) -> bool:
        return self._told(Ask.sees_cluster(self, operation), operation, Resource.CLUSTER, CLUSTER_NAME)

    def may_any(self, operation: Operation, resource: Resource) -> bool:
        return self._told(Ask.may_any(self, operation, resource), operation, resource, "*")

    def may_all(self, operation: Operation, resource: Resource) -> bool:
        return self._told(Ask.may_all(self, operation, resource), operation, resource, "*")

    def _told(self, allowed: bool, operation: Operation, resource: Resource, name: str) -> bool:
        if allowed:
            self._tell(ALLOWED, operation, resource, name)
        return allowed


def denied_names(
    ask: Ask, names: Iterable[str], operation: Operation, resource: Resource
) -> Generator[int, None, set[str]]:
    denied: set[str] = set()
    for at, name in enumerate(dict.fromkeys(names), 1):
        if not ask.may(operation, resource, name):
            denied.add(name)
        if at % ROWS == 0:
            yield 0
    return denied


def unchanged(answer: Any) -> Any:
    return answer
