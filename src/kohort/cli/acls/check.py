"""Which rule decides whether a user may do something: the server's own authorizer, with the ACLs of the cluster.

The ACLs that apply to the resource, and the settings super.users and allow.everyone.if.no.acl.found, are requested from
the cluster. So the answer is also right for Apache Kafka with its StandardAuthorizer.
"""

from __future__ import annotations

from kohort.broker.authorization import Operation, Principal, Resource
from kohort.broker.security.acls import Acl, Acls
from kohort.broker.security.authorizer import AclAuthorizer, Rule
from kohort.client.admin.acls import MATCH, AclFilter
from kohort.client.admin.configs import ResourceType
from kohort.client.cluster import Cluster

SUPER_USERS, EVERYONE = "super.users", "allow.everyone.if.no.acl.found"


def rule_of(cluster: Cluster, principal: str, host: str, operation: int, resource: int, name: str) -> Rule:
    """Raises ServerError."""
    acls = Acls()
    wanted = AclFilter(resource=resource, name=name, pattern=MATCH)
    for at, acl in enumerate(cluster.acls(wanted)):
        acls.put(
            str(at),
            Acl(acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission),
        )
    broker = str(min(cluster.nodes()))
    settings = {entry.name: entry.value or "" for entry in cluster.configs_of(ResourceType.BROKER, broker)}
    users = [user.strip() for user in settings.get(SUPER_USERS, "").split(";")]
    authorizer = AclAuthorizer(acls, users, allow_everyone=settings.get(EVERYONE) == "true")
    kind, _, user = principal.partition(":")
    return authorizer.rule(Principal(user, kind), host, Operation(operation), Resource(resource), name)
