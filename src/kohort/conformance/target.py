"""The cluster that is asked: one of its brokers, what the broker says of itself, and what has to be removed afterwards.

A player sends everything to one broker. In a cluster of several, names are chosen so that this broker coordinates all
groups and transactional ids, and all topics are put on it. Every name begins with the name of the run, so the end of a
run finds what is left: members are removed, then groups and topics. Transactional ids cannot be removed; the cluster
forgets them after transactional.id.expiration.ms.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any

from kohort.client.admin.configs import ResourceType
from kohort.client.admin.groups import Member
from kohort.client.cluster import Cluster
from kohort.client.errors import ConnectionFailed, KafkaError, ServerError, TimedOut, UnsupportedVersion
from kohort.client.security.security import Security
from kohort.conformance.play.broker import Broker, Ended, NotServed, response_of
from kohort.conformance.play.consumer_client import Topic
from kohort.conformance.play.requests import Refused, create_topics, request, request_class, wait_for, wait_until_known
from kohort.wire.errors import ErrorCode

PREFIX = "kohort-conformance-"
SHARED = dict.fromkeys(("t", "u", "v", "other"), 10)
"""Topics of all scenarios that create none, and their partitions."""
GROUP_KEY, TRANSACTION_KEY = 0, 1
BOOTSTRAP_TIMEOUT_MS = 3_000
READY_S = 30.0
LOOK_S, GONE_S = 0.2, 10.0
"""A broker that takes no connection for this long is gone."""
EMPTY_S = 10.0
"""The time for groups to become empty, in all."""
CANDIDATES = 40
"""Names that are tried together until the broker coordinates one."""
TRIES = 50
WAITING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Gone(Ended):
    """The broker has answered, and does not any more. `files` are those that were played meanwhile."""

    files: frozenset[str] = frozenset()


class Target:
    """`stopped`: true once the run has to end. `close` removes what the run has left. Raises KafkaError."""

    def __init__(self, bootstrap_servers: str, security: Security, stopped: Callable[[], bool] = lambda: False) -> None:
        self.run = f"{PREFIX}{secrets.token_hex(3)}."
        self.bootstrap_servers = bootstrap_servers
        self._security = security
        self._cluster = Cluster(
            bootstrap_servers,
            client_id="kohort-conformance",
            bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
            connect_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
            security=security,
        )
        self._stopped = stopped
        self._gone = ""
        """Why the broker is gone; empty while it answers."""
        self._looking = Lock()
        self._chosen: dict[str, str] = {}
        self._choosing = Lock()
        nodes = self._cluster.nodes()
        controller = self._cluster.controller_id()
        self.node_id = controller if controller in nodes else min(nodes)
        self.brokers = len(nodes)
        node, connection = nodes[self.node_id], self._cluster.connection(self.node_id)
        self._asks_transactions = connection.serves(request_class("InitProducerId"))
        self.features = dict(connection.finalized)
        single = len(nodes) == 1
        self.broker = Broker(
            node.host,
            node.port,
            security,
            dict(connection.api_versions),
            None if single else self.node_id,
            str if single else self._named,
        )
        self.settings = self._settings()
        self.shared: dict[str, Topic] = {}

    def close(self) -> list[str]:
        """Remove what the run has left. Returns what could not be removed."""
        try:
            return [f"what begins with {self.run}: {self._gone}"] if self._gone else self._clean()
        except KafkaError as error:
            return [f"what begins with {self.run}: {error.message}"]
        finally:
            self._cluster.close()

    def check(self) -> None:
        """Raises Ended if the run has to end, Gone if the broker is the reason."""
        if self._gone:
            raise Gone(self._gone)
        if self._stopped():
            raise Ended("a signal asks for the end")

    def look(self) -> None:
        """Find out whether the broker still takes connections and answers. Raises Ended if it does not."""
        with self._looking:
            deadline = time.monotonic() + GONE_S
            while True:
                self.check()
                try:
                    self.broker.connect(f"{PREFIX}look").close()
                except (ConnectionFailed, TimedOut) as error:
                    if time.monotonic() > deadline:
                        self._gone = error.message
                    time.sleep(LOOK_S)
                else:
                    return

    def prepare(self) -> None:
        """Wait for the coordinators, and create the topics that scenarios share. Raises Refused, Ended."""
        try:
            self._prepare()
        except AssertionError as error:
            raise Refused(str(error)) from None

    def _prepare(self) -> None:
        self._wait_for_coordinators()
        try:
            ids = create_topics(
                self._call, {self.run + name: count for name, count in SHARED.items()}, self.broker.node_id
            )
        except NotServed:
            self.shared = self._created_by_asking()
            return
        self.shared = {
            name.removeprefix(self.run): Topic(topic_id, name, SHARED[name.removeprefix(self.run)])
            for name, topic_id in ids.items()
        }
        wanted = {(topic.topic_id, index) for topic in self.shared.values() for index in range(topic.partitions)}
        wait_until_known(self._call, f"{self.run}probe.", tuple(ids), wanted, self.broker.named)

    def _created_by_asking(self) -> dict[str, Topic]:
        """The topics that scenarios share, at a broker without CreateTopics: it may create those that are asked for."""
        names = [{"name": self.run + name} for name in SHARED]
        found: dict[str, Topic] = {}

        def are_there() -> bool:
            for row in self._call(request("Metadata", topics=names), 7).topics:
                if not row.error_code and row.partitions:
                    name = row.name.removeprefix(self.run)
                    found[name] = Topic(row.topic_id, name, len(row.partitions))
            return found.keys() == SHARED.keys()

        wait_for(are_there, "the broker does not serve CreateTopics, and creates no topics by itself")
        return found

    def is_free(self, group: str) -> bool:
        """True if the group does not exist and this broker coordinates it."""
        try:
            found = self._cluster.describe_groups([group])[group]
        except KafkaError:
            return False
        return found.state == "Dead" and found.coordinator == self.node_id

    def _call(self, message: Any, version: int) -> Any:
        self.check()
        asked = self.broker.version(type(message), version)
        connection = self._cluster.connection(self.node_id)
        return connection.request(message, response_of(type(message)), version=asked)

    def _settings(self) -> dict[str, str | None]:
        """The broker's settings by name; nothing if it does not tell them."""
        try:
            entries = self._cluster.configs_of(ResourceType.BROKER, str(self.node_id))
        except ConnectionFailed:
            raise
        except KafkaError:
            return {}
        return {entry.name: entry.value for entry in entries}

    # -- one broker for all names

    def _wait_for_coordinators(self) -> None:
        """The first question for a coordinator creates `__consumer_offsets`, one for a transaction
        `__transaction_state`."""
        deadline = time.monotonic() + READY_S
        for kind in (GROUP_KEY, TRANSACTION_KEY)[: 1 + self._asks_transactions]:
            while self._coordinators([f"{self.run}first"], kind)[0] is None and time.monotonic() < deadline:
                time.sleep(0.1)

    def _coordinators(self, keys: list[str], kind: int) -> list[int | None]:
        """For each name the broker that coordinates it; None while there is none."""
        find = request_class("FindCoordinator")
        try:
            rows = self._call(request("FindCoordinator", key_type=kind, coordinator_keys=keys), 4).coordinators
        except NotServed:
            connection = self._cluster.connection(self.node_id)
            version = min(2, connection.version_of(find))
            asked = [request("FindCoordinator", key_type=kind, key=key) for key in keys]
            rows = [connection.request(each, response_of(find), version=version) for each in asked]
        return [None if row.error_code else row.node_id for row in rows]

    def _named(self, name: str) -> str:
        with self._choosing:
            if name not in self._chosen:
                self._chosen[name] = self._search(name)
            return self._chosen[name]

    def _search(self, name: str) -> str:
        """The name with an ending, so that this broker coordinates the group and the transactional id of that name."""
        for turn in range(TRIES):
            names = [f"{name}.{turn * CANDIDATES + number}" for number in range(CANDIDATES)]
            for kind in (GROUP_KEY, TRANSACTION_KEY)[: 1 + self._asks_transactions]:
                places = self._coordinators(names, kind) if names else []
                names = [each for each, node_id in zip(names, places, strict=True) if node_id == self.node_id]
            if names:
                return names[0]
        raise ConnectionFailed(f"{self.broker.host}:{self.broker.port}", "coordinates no group and no transaction")

    # -- the end

    def _clean(self) -> list[str]:
        left: list[str] = []

        def attempt(what: str, remove: Callable[[], object]) -> None:
            try:
                remove()
            except (ConnectionFailed, TimedOut):
                raise  # or each of the others would wait as long
            except KafkaError as error:
                left.append(f"{what}: {error.message}")

        groups = [group.group_id for group in self._cluster.list_groups() if group.group_id.startswith(self.run)]
        for group in groups:
            attempt(f"group {group}", partial(self._remove_members, group))
        deadline = time.monotonic() + EMPTY_S
        for group in groups:
            attempt(f"group {group}", partial(self._delete, group, deadline))
        for topic in self._cluster.topics():
            if topic.startswith(self.run):
                attempt(f"topic {topic}", partial(self._cluster.delete_topic, topic))
        return left

    def _remove_members(self, group: str) -> None:
        found = self._cluster.describe_groups([group])[group]
        if found.members:
            members = [Member(one.member_id, one.group_instance_id) for one in found.members]
            with suppress(ServerError, UnsupportedVersion):
                self._cluster.remove_members(group, members)
            self._leave(group, (one.member_id for one in found.members))

    def _delete(self, group: str, deadline: float) -> None:
        """A new group whose members have gone is not empty before the initial rebalance delay has passed."""
        while True:
            try:
                return self._cluster.delete_group(group)
            except ServerError as error:
                if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                    return None
                if error.code != ErrorCode.NON_EMPTY_GROUP or time.monotonic() > deadline:
                    raise
            time.sleep(LOOK_S)

    def _leave(self, group: str, members: Iterable[str]) -> None:
        for member_id in members:
            beat = request("ConsumerGroupHeartbeat", group_id=group, member_id=member_id, member_epoch=-1)
            with suppress(ServerError, UnsupportedVersion):
                self._cluster.connection(self.node_id).request(beat, response_of(type(beat)))
