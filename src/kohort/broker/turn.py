"""The values that cross between the engine and its edges (server, simulator, tests).

An edge collects events, calls `broker.step(events, now)`, makes the turn's operations durable with `storage.commit`,
and only then delivers the turn's releases. At most one turn is under way, so everything that a reply shows has been
synced before it leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NewType

import msgspec

from kohort.broker.authorization import ANONYMOUS, Principal
from kohort.broker.logs.time_search import Located
from kohort.broker.nodes import Node
from kohort.broker.security.acls import Acl
from kohort.coordinator.events import AssignmentMade, PatternsResolved, Record, RequestId, ServerPaused, Task
from kohort.storage.protocol import LogInfo, LogKey, Operation, StoredBatch
from kohort.wire.schemas.metadata_records import UpstreamValue

ConnectionId = NewType("ConnectionId", int)
"""Chosen by the edge, never reused within a process."""

Millis = int
"""An instant (milliseconds since the epoch, never going back within a process) or a duration in milliseconds."""


class Opened(msgspec.Struct, frozen=True, gc=False):
    connection: ConnectionId
    broker_id: int
    """The id of the broker whose listener accepted the connection."""
    host: str
    """The client's address."""
    principal: Principal = ANONYMOUS
    listener: str = ""
    """The name of that listener."""
    software: tuple[str, str] = ("", "")
    """The client's name and version of an ApiVersions request before it authenticated."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One whole request frame, without its four length bytes."""

    connection: ConnectionId
    data: bytes
    arrived: Millis = 0
    """When it arrived, to a quarter of a second; 0: when its turn began."""


class Closed(msgspec.Struct, frozen=True, gc=False):
    connection: ConnectionId


class Unread(msgspec.Struct, frozen=True, gc=False):
    """The client leaves many answers unread, so its requests wait; or (`unread` False) it has read them."""

    connection: ConnectionId
    unread: bool


class MovePartition(msgspec.Struct, frozen=True, gc=False):
    """Make another broker of this process the leader of a partition (a control of tests and of operators)."""

    topic: str
    partition: int
    to_broker: int


class MoveGroup(msgspec.Struct, frozen=True, gc=False):
    """Make another broker of this process the coordinator of the shard that owns `group`."""

    group: str
    to_broker: int


class BrokerPresence(msgspec.Struct, frozen=True, gc=False):
    """A broker of this process goes away or is back (a control of tests).

    While it is away, others lead its partitions and groups, and Metadata does not list it. A broker that is back leads
    nothing until something is moved to it or created."""

    broker_id: int
    present: bool


class Passed(msgspec.Struct, frozen=True, gc=False):
    """A gateway has forwarded a request of this connection. Its answer waits for a held one, which is answered now."""

    connection: ConnectionId


class FollowedTopic(msgspec.Struct, frozen=True, gc=False):
    name: str
    topic_id: bytes
    replicas: tuple[tuple[int, ...], ...]
    """Of each partition, the preferred leader first."""


class UpstreamSeen(msgspec.Struct, frozen=True, gc=False):
    """What a gateway has found out about the cluster before which it stands (broker/upstream). What is left out has not
    changed."""

    cluster: UpstreamValue | None = None
    topics: tuple[FollowedTopic, ...] = ()
    """New ones, and those that have changed."""
    gone: tuple[str, ...] = ()
    """Names of topics that are deleted. Their committed offsets are deleted too."""
    ends: tuple[tuple[bytes, int, int], ...] = ()
    """Ends of logs: topic id, partition, the offset that the next record gets."""
    acls: tuple[Acl, ...] | None = None
    """All ACLs of the cluster."""


class StandbysChanged(msgspec.Struct, frozen=True, gc=False):
    """These nodes are other processes with a lease on the data: one of them takes over if this one dies. Clients learn
    of them, and they lead nothing."""

    nodes: tuple[Node, ...]


class SlotsSeen(msgspec.Struct, frozen=True, gc=False):
    """Of nodes that serve at once: what this node has read of the others, and what it should serve (sharing.py)."""

    nodes: tuple[Node, ...]
    """All with a lease, this one among them."""
    owners: tuple[int, ...]
    """Of each slot."""
    epochs: tuple[int, ...]
    metadata: tuple[Record, ...] = ()
    """What follows in the metadata log, if another node writes it."""
    metadata_end: int = 0
    gained: tuple[int, ...] = ()
    """Slots that this node serves from now on. Storage knows their logs, and `metadata` was read after them."""
    logs: tuple[LogInfo, ...] = ()
    """Of these slots."""
    replays: Mapping[LogKey, Sequence[tuple[Record, Millis]]] = {}
    """The records of these logs that belong to state machines."""
    wanted: Mapping[int, int] = {}
    """Slots that this node should give away, and to which node."""
    ends: tuple[tuple[LogKey, int, int], ...] = ()
    """Of logs of other nodes, some seconds old: the first offset, and the one that the next record gets."""
    producer_ids: range = range(0)
    """A block of ids that only this node gives."""


class AskAnswered(msgspec.Struct, frozen=True, gc=False):
    """The controller has answered a request that this node has passed on (sharing/asks.py)."""

    request_id: RequestId
    frame: bytes
    """The response without its length; empty if there is none."""


class TaskDone(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a task that an earlier turn handed out."""

    shard: int
    event: AssignmentMade | PatternsResolved


class ReadDone(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a read that an earlier turn asked for. At most one of `damage` and `failure` has a text."""

    read_id: int
    batches: tuple[StoredBatch, ...] = ()
    damage: str = ""
    """A batch is damaged: another attempt finds the same."""
    failure: str = ""
    """The read failed; another attempt may succeed."""
    located: Located | None = None
    """What a search by time has found."""
    left: int = 0
    """How many records such a search may read besides."""
    searched_enough: bool = False
    """A search by time has read as many records as it may."""


class Shutdown(msgspec.Struct, frozen=True, gc=False):
    """Answer every parked request as Kafka does when a coordinator is unloaded (16), then take no more."""


OfBrokers = MovePartition | MoveGroup | BrokerPresence | StandbysChanged | UpstreamSeen | SlotsSeen | AskAnswered
"""Changes of the brokers of this process, and of other ones. See broker/moves.py."""
Arrived = Opened | Frame | Closed | Unread | Passed | TaskDone | ReadDone | ServerPaused | Shutdown | OfBrokers


class Send(msgspec.Struct, frozen=True, gc=False):
    """A whole response frame, its four length bytes included."""

    connection: ConnectionId
    data: bytes
    """The frame, or its beginning."""
    rest: tuple[bytes, ...] = ()
    """The rest of a large frame: records are sent as they were read, without being joined into one buffer."""

    @property
    def whole(self) -> bytes:
        return b"".join((self.data, *self.rest))


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    """Close the connection when everything sent before has left."""

    connection: ConnectionId
    reason: str


Release = Send | Disconnect


class Mute(msgspec.Struct, frozen=True, gc=False):
    """A client is above its quota: its connection should not be read; or (`muted` False) its time is over. The broker
    holds back the requests of a muted connection also if it is read."""

    connection: ConnectionId
    muted: bool


class Complaint(msgspec.Struct, frozen=True, gc=False):
    """A line for the server's log that an operator should see."""

    kind: Literal[
        "damaged data", "failed read", "rebalance held up", "assignment refused", "answer refused", "no dead letters"
    ]
    what: str
    values: tuple[tuple[str, str | int], ...] = ()
    """Names and values of the log line."""


class Notice(msgspec.Struct, frozen=True, gc=False):
    """A line for the server's log about an ordinary event: a topic was created, a member joined a group."""

    what: str
    values: tuple[tuple[str, str | int], ...] = ()
    """Names and values of the log line."""
    level: Literal["debug", "info"] = "info"
    is_limited: bool = True
    """The log limits the lines of this name. False for lines whose number is limited already."""


class LateRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that this turn answers, and that has waited for half of log.slow.request.ms or more."""

    connection: ConnectionId
    api_key: int
    client_id: str
    waited_ms: Millis
    """Until it was handled."""
    steps_ms: Millis = 0
    """While its answer was made, over several turns."""
    parked_ms: Millis = 0
    """It waited for others on purpose: a join, a held heartbeat, a fetch of records that are not there yet."""


class ByTime(msgspec.Struct, frozen=True, gc=False):
    """A search by time (logs/time_search.py)."""

    timestamp: int | None
    """None: the first record with the largest timestamp."""
    left: int
    """How many records it may read."""


class ReadAsked(msgspec.Struct, frozen=True, gc=False):
    """A read of a log. Begin it when the turn's operations are durable; its outcome comes back as `ReadDone`, in any
    order. It has no effect, so it may be dropped when the process stops."""

    read_id: int
    log: LogKey
    offset: int
    max_bytes: int
    end_offset: int
    """Nothing from here on is wanted."""
    by_time: ByTime | None = None
    """A search for a record from `offset` on, instead of its batches."""


class HandedOut(msgspec.Struct, frozen=True, gc=False):
    """Work of a shard that would block the turn loop too long. Its outcome comes back as `TaskDone`, in any order."""

    shard: int
    task: Task


class Turn(msgspec.Struct, frozen=True, gc=False):
    operations: tuple[Operation, ...]
    """The commit of these is durable before any of `releases` leaves."""
    releases: tuple[Release, ...]
    """In order; responses of one connection are in the order of its requests."""
    complaints: tuple[Complaint, ...] = ()
    tasks: tuple[HandedOut, ...] = ()
    notices: tuple[Notice, ...] = ()
    log_level: str | None = None
    """The new level of the server's log; None if it stays."""
    mutes: tuple[Mute, ...] = ()
    """In order, and after the releases."""
    late: tuple[LateRequest, ...] = ()
    reads: tuple[ReadAsked, ...] = ()
