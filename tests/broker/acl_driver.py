"""ACLs for tests: `acl()` has defaults, `acls_of` collects them, `Secured` is a broker with an authorizer.

secured = Secured()
secured.allow("User:alice", Operation.READ, Resource.TOPIC, "t")
alice = secured.connect("alice")
"""

from __future__ import annotations

from typing import Any

from wire_driver import Connection, Wire

from kohort.broker.authorization import CLUSTER_NAME, Principal
from kohort.broker.security.acls import Acl, Acls
from kohort.config import AUTHORIZER
from kohort.wire.schemas.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.schemas.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from kohort.wire.schemas.describe_acls import DescribeAclsRequest, DescribeAclsResponse

MATCH, LITERAL, PREFIXED = 2, 3, 4
DENY, ALLOW = 2, 3
ROOT = "root"
SETTINGS: dict[str, Any] = {"authorizer_class_name": AUTHORIZER, "super_users": f"User:{ROOT}"}


def acl(
    resource: int = 2,
    name: str = "t",
    pattern: int = LITERAL,
    principal: str = "User:*",
    host: str = "*",
    operation: int = 4,
    permission: int = ALLOW,
) -> Acl:
    return Acl(int(resource), name, pattern, principal, host, int(operation), permission)


def acls_of(*entries: Acl) -> Acls:
    acls = Acls()
    for at, entry in enumerate(entries):
        acls.put(str(at), entry)
    return acls


def creation(entry: Acl) -> AclCreation:
    return AclCreation(
        resource_type=entry.resource,
        resource_name=entry.name,
        resource_pattern_type=entry.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


class Secured:
    """A broker with an authorizer; `root` is a super user."""

    def __init__(self, wire: Wire | None = None, **config: Any) -> None:
        self.wire = wire if wire is not None else Wire(**(SETTINGS | config))
        self.root = self.connect(ROOT)

    def connect(self, user: str, **options: Any) -> Connection:
        return self.wire.connect(principal=Principal(user), **options)

    def create(self, *entries: Acl, client: Connection | None = None, version: int = 3) -> list[tuple[int, str | None]]:
        """Errors and messages."""
        request = CreateAclsRequest(creations=tuple(map(creation, entries)))
        response = (client or self.root).ask(request, version)
        return [(result.error_code, result.error_message) for result in response.results]

    def allow(self, principal: str, operation: int, resource: int, name: str = CLUSTER_NAME, **fields: Any) -> None:
        entry = acl(resource, name, principal=principal, operation=operation, **fields)
        assert self.create(entry) == [(0, None)]

    def delete(
        self, *filters: dict[str, Any], client: Connection | None = None, version: int = 3
    ) -> DeleteAclsResponse:
        """By default all ACLs."""
        request = DeleteAclsRequest(filters=tuple(DeleteAclsFilter(**(_everything() | given)) for given in filters))
        response: DeleteAclsResponse = (client or self.root).ask(request, version)
        return response

    def listed(self, client: Connection | None = None, version: int = 3, **fields: Any) -> DescribeAclsResponse:
        response: DescribeAclsResponse = (client or self.root).ask(
            DescribeAclsRequest(**(_everything() | fields)), version
        )
        return response

    def all(self) -> list[Acl]:
        return [
            Acl(one.resource_type, one.resource_name, one.pattern_type, each.principal, each.host, each.operation,
                each.permission_type)
            for one in self.listed().resources
            for each in one.acls
        ]  # fmt: skip


def _everything() -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
