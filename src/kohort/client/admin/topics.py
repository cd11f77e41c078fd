"""Topics: list, create, grow, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.client.errors import ServerError, check, server_error
from kohort.client.metadata import Topic
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import MISSING_TOPIC, Router
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kohort.wire.schemas.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

NOT_THERE_YET = frozenset({ErrorCode.LEADER_NOT_AVAILABLE})


def topics(router: Router, names: Iterable[str] | None, *, internal: bool, create: bool) -> dict[str, Topic]:
    asked = None if names is None else list(dict.fromkeys(names))

    def attempt() -> dict[str, Topic]:
        router.refresh(asked, create=create)
        known = router.view.topics
        if asked is None:
            return {name: known[name] for name in sorted(known) if internal or not known[name].internal}
        for name in asked:
            if name in known and known[name].error in NOT_THERE_YET:
                raise server_error(known[name].error, f"topic {name}")
        return {name: known[name] for name in asked if name in known}

    if asked is not None and not asked:
        return {}
    return router.retrying(attempt)


def create_topic(
    router: Router,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    *,
    validate_only: bool = False,
) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=router.timing.request, validate_only=validate_only)

    def attempt() -> None:
        answer = controller(router).request(request, CreateTopicsResponse)
        for row in answer.topics:
            _check(router, row.error_code, f"cannot create topic {name}", row.error_message)

    router.retrying(attempt)
    router.view.topics.pop(name, None)


def delete_topic(router: Router, name: str) -> None:
    request = DeleteTopicsRequest(
        topics=(DeleteTopicState(name=name),), topic_names=(name,), timeout_ms=router.timing.request
    )

    def attempt() -> ServerError | None:
        answer = controller(router).request(request, DeleteTopicsResponse)
        for row in answer.responses:
            if row.error_code in MISSING_TOPIC:  # retried elsewhere; here it is the answer
                return server_error(row.error_code, f"cannot delete topic {name}", row.error_message)
            _check(router, row.error_code, f"cannot delete topic {name}", row.error_message)
        return None

    missing = router.retrying(attempt)
    router.view.topics.pop(name, None)
    if missing is not None:
        raise missing


def create_partitions(router: Router, name: str, count: int, *, validate_only: bool = False) -> None:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=(topic,), timeout_ms=router.timing.request, validate_only=validate_only)

    def attempt() -> None:
        answer = controller(router).request(request, CreatePartitionsResponse)
        for row in answer.results:
            _check(router, row.error_code, f"cannot add partitions to topic {name}", row.error_message)

    router.retrying(attempt)
    router.view.topics.pop(name, None)


def controller(router: Router) -> Connection:
    """A connection to the controller, since only it changes topics in clusters with ZooKeeper; to any broker if the
    cluster does not name its controller."""
    view = router.fresh_view(())
    if view.controller_id in view.nodes:
        return router.connection(view.controller_id)
    return router.any_connection()


def _check(router: Router, number: int, what: str, text: str | None) -> None:
    if number == ErrorCode.NOT_CONTROLLER:
        router.expire_view()
    check(number, what, text)
