"""Users with SCRAM credentials, ACLs and quotas; or why the cluster does not tell them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kohort.client.admin.acls import AclBinding
from kohort.client.admin.quotas import ClientQuotas
from kohort.client.admin.users import ScramUser
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError, UnsupportedVersion
from kohort.wire.errors import ErrorCode

Row = TypeVar("Row")

NO_AUTHORIZER = (
    "The cluster has no authorizer, so it has no ACLs: every client may do everything. Brokers get one with the "
    "setting authorizer.class.name."
)
DENIED = "The console's user may not see this: it needs {} on the cluster."
TOO_OLD = "The brokers of this cluster do not tell it: {} or later do."


@dataclass(frozen=True, slots=True)
class Told(Generic[Row]):
    """The rows, or why there are none."""

    rows: tuple[Row, ...] = ()
    refusal: str = ""


def users(cluster: Cluster) -> Told[ScramUser]:
    return _ask(cluster.scram_users, "DESCRIBE", "Kafka 2.7")


def acls(cluster: Cluster) -> Told[AclBinding]:
    return _ask(cluster.acls, "DESCRIBE", "Kafka 0.11")


def quotas(cluster: Cluster) -> Told[ClientQuotas]:
    return _ask(cluster.client_quotas, "DESCRIBE_CONFIGS", "Kafka 2.6")


def _ask(ask: Callable[[], Sequence[Row]], needs: str, since: str) -> Told[Row]:
    try:
        return Told(tuple(ask()))
    except UnsupportedVersion:
        return Told(refusal=TOO_OLD.format(since))
    except ServerError as error:
        if error.code == ErrorCode.SECURITY_DISABLED:
            return Told(refusal=NO_AUTHORIZER)
        if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return Told(refusal=DENIED.format(needs))
        raise
