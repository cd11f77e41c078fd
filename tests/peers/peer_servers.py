"""The two servers, with the same settings: kohort in a thread of this process, Apache Kafka from its Maven jars.

Sessions and intervals may be short, assignments are made at once and in the request. Heartbeats are not held, because
the times of answers are not compared here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from bench import _kafka as apache

from kohort.client.wire.blocking_connection import Connection
from kohort.config import parse_value
from kohort.conformance.play.broker import Address
from kohort.conformance.play.requests import wait_for
from kohort.testing import KohortServer
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "2",
}
TRANSACTION = 1
"""The type of a key of FindCoordinator."""
OF_KOHORT = {"group_heartbeat_hold_enable": False}
OF_KAFKA = {
    "group.consumer.assignor.offload.enable": "false",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.retention.ms": "-1",  # records are of 1970
}


@contextmanager
def kohort(settings: Mapping[str, str]) -> Iterator[Address]:
    """A server with these settings besides the usual ones."""
    wanted = (SETTINGS | settings).items()
    with KohortServer(**{name.replace(".", "_"): parse_value(name, v) for name, v in wanted}, **OF_KOHORT) as server:
        host, _, port = server.bootstrap_servers.rpartition(":")
        wait_for_the_coordinator((host, int(port)))
        yield host, int(port)


@contextmanager
def kafka(class_path: str, settings: Mapping[str, str]) -> Iterator[Address]:
    with apache.kafka(class_path, SETTINGS | OF_KAFKA | settings, java_options=apache.BRIEF) as (_, address):
        wait_for_the_coordinator(address)
        yield address


def wait_for_the_coordinator(address: Address) -> None:
    """The first FindCoordinator creates `__consumer_offsets`, one for a transaction `__transaction_state`."""
    with closing(Connection(address[0], address[1])) as connection:
        of_transactions = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=("x",))

        def is_ready() -> bool:
            found = connection.request(FindCoordinatorRequest(coordinator_keys=("g",)), FindCoordinatorResponse)
            known = connection.request(DescribeGroupsRequest(groups=("g",)), DescribeGroupsResponse)
            error = found.coordinators[0].error_code or known.groups[0].error_code
            transactions = connection.request(of_transactions, FindCoordinatorResponse).coordinators[0].error_code
            return error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) and not transactions

        wait_for(is_ready, f"the coordinator at {address} is not ready", 60)
        # The first producer id is 0, the default of the field, which is not printed.
        first = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        wait_for(lambda: not connection.request(first, InitProducerIdResponse).error_code, "there are no producer ids")
