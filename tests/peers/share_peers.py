"""Members of share groups over sockets, against kohort and against Apache Kafka.

The members are those of the broker's tests (share_driver.py), on connections of the client library: each request and
each version is the test's own. A test has names of its own, so that all tests share a server.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import share_driver
import wire_driver
from kafka_peer import SHARES
from peer_servers import wait_for_the_coordinator
from transaction_driver import Transactional
from wire_driver import GROUP, SET

from kohort.client.wire import blocking_connection
from kohort.config import parse_value
from kohort.simulator.checks.onlooker import response_of
from kohort.wire.schemas.describe_share_group_offsets import DescribeShareGroupOffsetsRequest, OffsetsAskedGroup
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.schemas.share_fetch import ShareFetchRequest, ShareFetchResponse
from kohort.wire.schemas.share_group_describe import DescribedGroup, ShareGroupDescribeRequest

SETTINGS = {name.replace(".", "_"): parse_value(name, value) for name, value in SHARES.items()}
"""Of kohort, besides that share groups are on."""
WAIT_MS = 20_000
Range = tuple[int, int, int]
"""First and last offset, and how often they were delivered."""


def until(condition: Callable[[], Any], what: str) -> Any:
    """Returns what the condition is once it is true. Raises AssertionError after 20 seconds."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return found


def make_ready(servers: str) -> None:
    """Wait until the topics of the coordinators are there."""
    host, _, port = servers.rpartition(":")
    wait_for_the_coordinator((host, int(port)))


class Connection(wire_driver.Connection):
    """A socket. `take` waits for the answer to the earliest request."""

    def __init__(self, world: World) -> None:
        host, _, port = world.servers.rpartition(":")
        self.wire: Any = world
        self._link = blocking_connection.Connection(host, int(port))
        self._opened = self._link._socket
        self._kinds: deque[type] = deque()

    def send(self, request: Any, version: int) -> None:
        self._link.send(request, version=version)
        self._kinds.append(response_of(type(request)))

    def take(self) -> Any:
        return self._link.receive(self._kinds.popleft())

    @property
    def answered(self) -> bool:
        """Whether an answer, or the end of the connection, has arrived."""
        return bool(select.select([self._opened], [], [], 0)[0])

    def close(self) -> None:
        self._link.close()


class World:
    """A server, and names that no other test uses."""

    def __init__(self, servers: str, unique: str, *, kafka: bool) -> None:
        self.servers = servers
        self.kafka = kafka
        self.group = f"g-{unique}"
        self.topic = f"t-{unique}"
        self.topic_id = b""
        self._connections: list[Connection] = []
        self.client = self.connect()

    def connect(self, *_: Any, **__: Any) -> Connection:
        made = Connection(self)
        self._connections.append(made)
        return made

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def either(self, *, kohort: Any, kafka: Any) -> Any:
        """What is expected, where the two differ."""
        return kafka if self.kafka else kohort

    # -- topics and records

    def create(self, partitions: int = 1, name: str = "", **configs: str) -> bytes:
        """Returns the topic's id. The topic of the test, if there is no name."""
        name = name or self.topic
        topic_id = self.client.create_topic(name, partitions, **configs)
        self.wait_for_leaders(name, partitions)
        if name == self.topic:
            self.topic_id = topic_id
        return topic_id

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=name),))

        def has_leaders() -> bool:
            [found] = self.client.ask(request, 12).topics
            return len([one for one in found.partitions if not one.error_code]) == partitions

        until(has_leaders, f"{name} has no leaders")

    def put(self, *values: str, partition: int = 0) -> None:
        """One batch."""
        request = wire_driver.produce_request(self.topic, wire_driver.batch(*values), partition)

        def done() -> bool:
            return not self.client.produced(request).error_code

        until(done, f"{self.topic} takes no records")

    def configure(self, **configs: str | int) -> int:
        """Set configs of the group, without their prefix and with underscores. Returns the error."""
        changes = [(f"share.{name.replace('_', '.')}", SET, str(value)) for name, value in configs.items()]
        error = self.client.alter_configs(self.group, GROUP, *changes)[0]
        if not error:  # a broker of Apache Kafka learns of them from its controller
            wanted = {name: value for name, _, value in changes}

            def known() -> bool:
                found = self.client.describe_configs(self.group, GROUP).configs
                return wanted.items() <= {one.name: one.value for one in found}.items()

            until(known, f"{self.group} has not {wanted}")
        return error

    def producer(self) -> Transactional:
        made = until(lambda: self._initialized(), "a transactional producer begins")
        result: Transactional = made
        return result

    def _initialized(self) -> Transactional | None:
        made = Transactional(self.connect(), f"x-{self.topic}")
        return None if made.init() else made

    # -- members and what is known of them

    def member(self, name: str = "a", group: str = "") -> Member:
        return Member(self, name, self.topic_id, group=group or self.group)

    def joined(self, names: str = "ab") -> list[Member]:
        """Members that have partitions of the topic."""
        found = [self.member(name) for name in names]
        for member in found:
            member.join()
        return found

    def described(self, group: str = "") -> DescribedGroup:
        [found] = self.client.ask(ShareGroupDescribeRequest(group_ids=(group or self.group,)), 1).groups
        result: DescribedGroup = found
        return result

    def offsets(self, version: int = 1) -> dict[int, tuple[int, int]]:
        """Start and lag by partition, of topics whose share-partitions were initialized."""
        request = DescribeShareGroupOffsetsRequest(groups=(OffsetsAskedGroup(group_id=self.group, topics=None),))
        [found] = self.client.ask(request, version).groups
        assert found.error_code == 0, found
        return {one.partition_index: (one.start_offset, one.lag) for topic in found.topics for one in topic.partitions}


def filled(
    world: World, records: int = 10, names: str = "ab", partitions: int = 1, **configs: str | int
) -> list[Member]:
    """A topic with this many records, one a batch, and members of its group, which begins at the first record."""
    world.create(partitions)
    assert world.configure(**({"auto_offset_reset": "earliest"} | configs)) == 0
    for index in range(records):
        world.put(str(index))
    return world.joined(names)


class Member(share_driver.Member):
    wire: Any

    def join(self, *topics: str) -> list[int]:
        """Send heartbeats until there is an assignment, and return it."""
        names = topics or (self.wire.topic,)
        return until(lambda: assigned(self.beat(*names)), f"{self.name} is assigned nothing")

    def take(self, acks: Any = (), **fields: Any) -> list[Range]:
        """What a fetch gets that waits for records, or further ones: a broker of Apache Kafka does not wake those that
        wait when records are given back."""
        answers = iter([self.fetch(acks, **({"max_wait_ms": 300} | fields))])
        wanted = "max_wait_ms" not in fields

        def got() -> list[Range] | None:
            answer = next(answers, None) or self.fetch(max_wait_ms=300, **fields)
            return share_driver.ranges(answer) or None

        if not wanted:
            return share_driver.ranges(next(answers))
        found: list[Range] = until(got, f"there is nothing for {self.name}")
        return found

    def take_at_once(self, acks: Any = (), **fields: Any) -> list[Range]:
        return self.take(acks, max_wait_ms=0, **fields)

    def take_all(self, count: int, **fields: Any) -> list[Range]:
        """What fetches get until they have this many records."""
        found: list[Range] = []
        while sum(last - first + 1 for first, last, _ in found) < count:
            found += self.take(**fields)
        return found

    def wait(self, **fields: Any) -> None:
        """Send a fetch that waits for records."""
        self.send(**({"max_wait_ms": WAIT_MS} | fields))

    def answer(self) -> ShareFetchResponse:
        result: ShareFetchResponse = self.connection.take()
        return result

    def got(self) -> list[Range]:
        return share_driver.ranges(self.answer())

    def ask_fetch(self, **fields: Any) -> int:
        """The error of a fetch that changes no epoch here."""
        request: ShareFetchRequest = self.request(**fields)
        return int(self.connection.ask(request, 2).error_code)


def assigned(answer: Any) -> list[int]:
    assert answer.error_code == 0, answer
    if answer.assignment is None:
        return []
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]
