"""Which broker answers a request, and how often to retry.

`Router` has the view of the cluster, a connection to each broker, and the coordinator of each group, and it runs
operations with retries. An operation is a function; after a retriable error `retrying` calls it again, with jittered
exponential backoff, until its deadline. Before the next attempt it forgets what the error makes stale: a broken
connection, a partition's leader, a group's coordinator. An operation over many partitions keeps the answers that it has
and asks only for the rest.

If a broker refuses the client's credentials, or the client the broker's certificate, the operation ends at once: other
brokers would do the same, and each attempt may count towards a locked account.

Two errors end an operation before its deadline. A topic that does not exist may have been created a moment ago, and not
all brokers know it yet, so retries go on only for `MISSING_TOPIC_PATIENCE_MS`. A cluster that has never answered is
most often a wrong address, so its deadline is `bootstrap_timeout_ms`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kohort.client.backoff import Backoff
from kohort.client.errors import (
    BadAnswer,
    ConnectionFailed,
    KafkaError,
    TimedOut,
    Unreachable,
    check,
    server_error,
)
from kohort.client.metadata import ClusterView, Node, TopicPartition
from kohort.client.security.security import Security
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.exchange import PLAINTEXT
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

Result = TypeVar("Result")

DEFAULT_PORT = 9092
MISSING_TOPIC_PATIENCE_MS = 2_000

MISSING_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""
KINDS = ("group", "transactional id")
MANY_KEYS = 4
"""The first version of FindCoordinator that takes many keys."""
GROUPS = 100
"""Groups in one request."""

COORDINATOR_MOVED = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
LEADER_MOVED = MISSING_TOPIC | {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.LISTENER_NOT_FOUND,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}
"""After these errors the leader of a partition is looked up again."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The timeouts of a client, in milliseconds.

    `request`: one request and its answer. `api`: one call with all its retries. `bootstrap`: a call while the cluster
    has never answered. `backoff`, `backoff_max`: the first and the longest pause between attempts.
    `metadata_max_age`: the view of the cluster is refreshed after this time.
    """

    request: int = 30_000
    api: int = 60_000
    bootstrap: int = 10_000
    connect: int = 10_000
    backoff: int = 50
    backoff_max: int = 1_000
    metadata_max_age: int = 300_000


class Router:
    """The brokers of one cluster, for the client of one thread."""

    def __init__(
        self, bootstrap_servers: str | Sequence[str], client_id: str, timing: Timing, security: Security = PLAINTEXT
    ) -> None:
        self.bootstrap = parse_addresses(bootstrap_servers)
        self.security = security
        self.client_id = client_id
        self.timing = timing
        self.view = ClusterView()
        self._random = random.Random()
        self._backoff = Backoff(timing.backoff / 1000, timing.backoff_max / 1000)
        self._connections: dict[int, Connection] = {}
        self._bootstrap_connection: Connection | None = None
        self._coordinators: dict[tuple[int, str], int] = {}
        self._reached = False

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if self._bootstrap_connection is not None:
            self._bootstrap_connection.close()
            self._bootstrap_connection = None

    # -- connections

    def connection(self, node_id: int) -> Connection:
        """An open connection to a broker of the view. Raises ConnectionFailed, UnsupportedVersion."""
        connection = self._connections.get(node_id)
        if connection is not None and not connection.closed:
            return connection
        node = self.view.nodes.get(node_id)
        if node is None:
            self.expire_view()
            raise ConnectionFailed(f"broker {node_id}", "it is not among the brokers of the cluster")
        try:
            connection = self._connect(node.host, node.port)
        except ConnectionFailed:
            self.expire_view()
            raise
        self._connections[node_id] = connection
        return connection

    def any_connection(self) -> Connection:
        """A connection to any broker: an open one, else a broker of the view, else a bootstrap server."""
        for connection in (*self._connections.values(), self._bootstrap_connection):
            if connection is not None and not connection.closed:
                return connection
        nodes = list(self.view.nodes)
        self._random.shuffle(nodes)
        for node_id in nodes:
            try:
                return self.connection(node_id)
            except (ConnectionFailed, TimedOut):
                continue
        return self._connect_to_bootstrap()

    def _connect_to_bootstrap(self) -> Connection:
        addresses = list(self.bootstrap)
        self._random.shuffle(addresses)
        failures: list[KafkaError] = []
        for host, port in addresses:
            try:
                self._bootstrap_connection = self._connect(host, port)
            except (ConnectionFailed, TimedOut) as error:
                failures.append(error)
                continue
            self._reached = True
            return self._bootstrap_connection
        unreachable = Unreachable("cannot reach the cluster", "; ".join(failure.message for failure in failures))
        unreachable.retriable = any(failure.retriable for failure in failures)
        raise unreachable

    def _connect(self, host: str, port: int) -> Connection:
        return Connection(
            host,
            port,
            client_id=self.client_id,
            connect_timeout_ms=self.timing.connect,
            request_timeout_ms=self.timing.request,
            security=self.security,
        )

    # -- the view

    def expire_view(self) -> None:
        """Make the next `fresh_view` ask the cluster."""
        self.view.fetched_at = float("-inf")

    def refresh(self, names: Iterable[str] | None, *, create: bool = False) -> MetadataResponse:
        """Ask for all topics (None) or these, and update the view. One attempt.

        `create`: the broker may create missing topics, as it does for producers.
        """
        topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in dict.fromkeys(names))
        connection = self.any_connection()
        answer = connection.request(MetadataRequest(topics=topics, allow_auto_topic_creation=create), MetadataResponse)
        check(answer.error_code, "Metadata")
        self._adopt(answer, all_topics=names is None)
        return answer

    def _adopt(self, answer: MetadataResponse, *, all_topics: bool) -> None:
        before = self.view.nodes
        self.view.update(answer, all_topics=all_topics, now=time.monotonic())
        for node_id, connection in list(self._connections.items()):
            node, old = self.view.nodes.get(node_id), before.get(node_id)
            if node is None or old is None or (node.host, node.port) != (old.host, old.port):
                connection.close()
                del self._connections[node_id]

    def nodes(self) -> Mapping[int, Node]:
        """The brokers; refreshes an old view."""
        self.fresh_view(())
        return self.view.nodes

    def fresh_view(self, names: Iterable[str]) -> ClusterView:
        """The view, refreshed if it is too old or lacks a topic or its leaders."""
        wanted = list(dict.fromkeys(names))
        old = time.monotonic() - self.view.fetched_at > self.timing.metadata_max_age / 1000
        if old or not self.view.nodes:
            self.refresh(wanted)
        else:
            unknown = [name for name in wanted if not self._leaders_known(name)]
            if unknown:
                self.refresh(unknown)
        return self.view

    def _leaders_known(self, name: str) -> bool:
        topic = self.view.topics.get(name)
        return topic is not None and not topic.error and all(p.leader in self.view.nodes for p in topic.partitions)

    def forget_leader(self, partition: TopicPartition) -> None:
        """Make the next call that needs the topic's leaders look them up."""
        self.view.topics.pop(partition[0], None)

    def by_leader(
        self, partitions: Iterable[TopicPartition], what: str
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
        """Partitions by leading broker, and the reason for each partition without one."""
        partitions = list(partitions)
        view = self.fresh_view(topic for topic, _ in partitions)
        grouped: dict[int, list[TopicPartition]] = {}
        without: dict[TopicPartition, KafkaError] = {}
        for wanted in partitions:
            topic, partition = view.topics.get(wanted[0]), view.partition(*wanted)
            if partition is not None and partition.leader in view.nodes:
                grouped.setdefault(partition.leader, []).append(wanted)
                continue
            if topic is not None and topic.error:
                number, subject = int(topic.error), f"topic {wanted[0]}"
            elif partition is None:
                number, subject = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"partition {wanted[0]}-{wanted[1]}"
            else:
                number, subject = int(ErrorCode.LEADER_NOT_AVAILABLE), f"partition {wanted[0]}-{wanted[1]}"
            without[wanted] = server_error(number, f"{what}: {subject}")
            self.forget_leader(wanted)
        return grouped, without

    # -- coordinators

    def coordinator(self, key: str, kind: int = GROUP) -> int:
        """The broker that coordinates a group, or the transactions of an id. One attempt if the coordinator is not
        known."""
        known = self._coordinators.get((kind, key))
        if known is not None and known in self.view.nodes:
            return known
        self.fresh_view(())
        connection = self.any_connection()
        request = coordinator_request(connection.version_of(FindCoordinatorRequest), key, kind)
        answer = connection.request(request, FindCoordinatorResponse)
        row = answer.coordinators[0] if answer.coordinators else answer
        check(row.error_code, f"coordinator of {KINDS[kind]} {key}", row.error_message)
        if row.node_id not in self.view.nodes:
            self.refresh(())
        self._coordinators[kind, key] = row.node_id
        return row.node_id

    def coordinator_connection(self, key: str, kind: int = GROUP) -> Connection:
        node_id = self.coordinator(key, kind)
        try:
            return self.connection(node_id)
        except (ConnectionFailed, TimedOut):
            self.forget_coordinator(key, kind)
            raise

    def forget_coordinator(self, key: str, kind: int = GROUP) -> None:
        self._coordinators.pop((kind, key), None)

    def at_coordinator(self, key: str, ask: Callable[[Connection], Result], kind: int = GROUP) -> Result:
        """Run `ask` with a connection to the coordinator, retried while the coordinator moves or loads."""
        return self.retrying(lambda: self._at_coordinator((key,), ask, kind))

    def _at_coordinator(self, keys: Sequence[str], ask: Callable[[Connection], Result], kind: int = GROUP) -> Result:
        """One attempt. `keys` have the same coordinator."""
        try:
            return ask(self.coordinator_connection(keys[0], kind))
        except KafkaError as error:
            if isinstance(error, (ConnectionFailed, TimedOut)) or error.code in COORDINATOR_MOVED:
                for key in keys:
                    self.forget_coordinator(key, kind)
            raise

    def at_coordinators(
        self, group_ids: Iterable[str], ask: Callable[[Sequence[str], Connection], Mapping[str, Result]]
    ) -> dict[str, Result]:
        """Run `ask` for up to `GROUPS` groups of one coordinator at a time, retried as in `at_coordinator`. It may
        leave out groups for which there was no room in the answer: it is called again for each of these alone."""
        wanted = list(dict.fromkeys(group_ids))
        found: dict[str, Result] = {}

        def attempt() -> None:
            by_node: dict[int, list[str]] = {}
            for group_id, node_id in self._coordinators_of([one for one in wanted if one not in found]).items():
                by_node.setdefault(node_id, []).append(group_id)
            for mine in by_node.values():
                for piece in in_pieces(mine, GROUPS):
                    found.update(self._at_coordinator(piece, partial(ask, piece)))
            for group_id in [one for one in wanted if one not in found]:
                found.update(self._at_coordinator((group_id,), partial(ask, (group_id,))))
                if group_id not in found:
                    raise BadAnswer("the coordinator", f"an answer without group {group_id}")

        self.retrying(attempt)
        return {group_id: found[group_id] for group_id in wanted}

    def _coordinators_of(self, group_ids: Sequence[str]) -> dict[str, int]:
        """The coordinators of groups. Those that are not known are asked for together; brokers before Kafka 3.0 are
        asked for one at a time. One attempt."""
        unknown = [one for one in group_ids if self._coordinators.get((GROUP, one)) not in self.view.nodes]
        if len(unknown) > 1:
            self.fresh_view(())
            connection = self.any_connection()
            if connection.version_of(FindCoordinatorRequest) >= MANY_KEYS:
                for piece in in_pieces(unknown, GROUPS):
                    request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=tuple(piece))
                    for row in connection.request(request, FindCoordinatorResponse).coordinators:
                        if not row.error_code:
                            self._coordinators[GROUP, row.key] = row.node_id
        return {group_id: self.coordinator(group_id) for group_id in group_ids}

    # -- retries

    def retrying(self, operation: Callable[[], Result], *, timeout_ms: int | None = None) -> Result:
        """Call `operation` until it returns or raises an error that cannot be retried. After `timeout_ms` (default: the
        api timeout), raise its last error, with the number of attempts in the message."""
        started = time.monotonic()
        limit_ms = self.timing.api if timeout_ms is None else timeout_ms
        attempts = 0
        missing_since: float | None = None
        while True:
            attempts += 1
            try:
                return operation()
            except KafkaError as error:
                if not error.retriable:
                    raise
                pause = self.backoff(attempts)
                now = time.monotonic()
                again = now + pause
                if error.code not in MISSING_TOPIC:
                    missing_since = None
                elif missing_since is None:
                    missing_since = now
                patience_ms = limit_ms if self._reached else min(limit_ms, self.timing.bootstrap)
                hopeless = missing_since is not None and (again - missing_since) * 1000 > MISSING_TOPIC_PATIENCE_MS
                if hopeless or (again - started) * 1000 > patience_ms:
                    raise error.because(f"gave up after {attempts} attempts") if attempts > 1 else error from None
            time.sleep(pause)

    def backoff(self, attempts: int) -> float:
        """Seconds to wait after this many failed attempts."""
        return self._backoff.pause(attempts, self._random.random())


def in_pieces(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def coordinator_request(version: int, key: str, kind: int = GROUP) -> FindCoordinatorRequest:
    if version >= MANY_KEYS:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
    return FindCoordinatorRequest(key_type=kind, key=key)


def parse_addresses(bootstrap_servers: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """`"host:port,[::1]:port"` → pairs. The default port is 9092. Raises ValueError, which names the bad part."""
    parts = bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
    addresses = tuple(_parse_address(part.strip()) for part in parts if part.strip())
    if not addresses:
        raise ValueError("no bootstrap server is given; expected HOST:PORT")
    return addresses


def _without_scheme(url: str) -> str:
    address = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return f", such as {address}" if address else ""


def _parse_address(text: str) -> tuple[str, int]:
    if "://" in text:
        raise ValueError(f"bad bootstrap server {text!r}; expected HOST:PORT without a scheme{_without_scheme(text)}")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if bracket else "?"
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not port:
        port = str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"bad bootstrap server {text!r}; expected HOST:PORT")
    return host, int(port)
