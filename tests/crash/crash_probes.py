"""Two wire clients of our own beside the real ones, each a thread that survives the server's crashes.

`Churn` is a member that joins, syncs, commits and leaves over and over, so that crashes hit every step of a rebalance:
a generation that was answered is never given again, an assignment that was answered is still there after a restart.

`Zombies` commit with ids and generations that are fenced, and must be refused whatever happens. The offset that they
commit is beyond all others, so an accepted one would be seen among the committed offsets too.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kohort.client.errors import KafkaError
from kohort.client.wire.blocking_connection import Connection
from kohort.simulator.actors.offsets import commit_request
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kohort.wire.schemas.offset_commit import OffsetCommitResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

UNAVAILABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
FENCED_OFFSET = 10**15
CHURN_SESSION_MS = 3_000
LONG_MS = 1_800_000


@dataclass(frozen=True, slots=True)
class Identity:
    group: str
    member_id: str
    generation: int
    instance_id: str | None = None


def connect(address: str) -> Connection:
    """Raises KafkaError. Of several nodes, one serves."""
    *others, last = address.split(",")
    for each in others:
        with suppress(KafkaError):
            return _connection(each)
    return _connection(last)


def _connection(address: str) -> Connection:
    host, _, port = address.rpartition(":")
    return Connection(host, int(port), client_id="probe", connect_timeout_ms=5_000, request_timeout_ms=10_000)


def join(connection: Connection, group: str, instance: str | None, session_ms: int) -> JoinGroupResponse:
    """Join as a new member. Version 5 gives only static members an id at once, so dynamic ones use version 3."""
    request = join_request(group, instance, session_ms)
    return connection.request(request, JoinGroupResponse, version=5 if instance else 3)


def join_request(group: str, instance: str | None, session_ms: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms,
        member_id="",
        group_instance_id=instance,
        protocol_type="probe",
        protocols=(JoinGroupRequestProtocol(name="any", metadata=b""),),
    )


def sync(connection: Connection, who: Identity, assignment: bytes) -> SyncGroupResponse:
    return connection.request(sync_request(who, assignment), SyncGroupResponse, version=3)


def sync_request(who: Identity, assignment: bytes | None) -> SyncGroupRequest:
    """The SyncGroup of a leader that assigns `assignment` to itself, or of a follower."""
    given = () if assignment is None else (SyncGroupRequestAssignment(member_id=who.member_id, assignment=assignment),)
    return SyncGroupRequest(
        group_id=who.group,
        generation_id=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        assignments=given,
    )


def leave(connection: Connection, who: Identity) -> int:
    request = LeaveGroupRequest(group_id=who.group, members=(MemberIdentity(member_id=who.member_id),))
    answer = connection.request(request, LeaveGroupResponse, version=3)
    return answer.error_code or answer.members[0].error_code


def commit(connection: Connection, who: Identity, topic: str, partition: int, offset: int) -> int:
    offsets = {(topic, partition): offset}
    request = commit_request(who.group, who.generation, who.member_id, who.instance_id, offsets)
    answer = connection.request(request, OffsetCommitResponse, version=8)
    return answer.topics[0].partitions[0].error_code


class Probe(threading.Thread, ABC):
    """Runs `turn` again and again, with a new connection after each failure of the old one."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.stopping = threading.Event()
        self.violations: list[str] = []
        self.connection: Connection | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    if self.connection is None:
                        self.connection = connect(self.address)
                        self.connected()
                    self.turn(self.connection)
                except KafkaError:
                    self.connection = None
                    self.stopping.wait(0.05)
        except BaseException as error:
            self.violations.append(f"{type(self).__name__} failed: {error!r}")
            raise
        finally:
            if self.connection is not None:
                self.connection.close()

    def stop(self) -> None:
        self.stopping.set()
        self.join(15)

    def connected(self) -> None: ...

    @abstractmethod
    def turn(self, connection: Connection) -> None: ...


class Churn(Probe):
    """The only member of its group."""

    group = "churn"

    def __init__(self, address: str, topic: str, seed: str, ready_at: Callable[[], float]) -> None:
        super().__init__(address)
        self.generations: list[int] = []
        self.kept = 0
        """Assignments that were there again after a crash."""
        self._topic = topic
        self._chance = random.Random(seed)
        self._ready_at = ready_at
        self._member: Identity | None = None
        self._assignment: bytes | None = None
        """Its assignment in its generation; None if it may have left, or has had no answer."""
        self._offset = 0
        self._acked = 0

    def connected(self) -> None:
        """After a crash: the last answer is still valid. Then leave, for a new beginning."""
        assert self.connection is not None
        member, self._member = self._member, None
        if member is None:
            return
        if self._assignment is not None:
            self._check_kept(self.connection, member, self._assignment)
        self._assignment = None
        leave(self.connection, member)

    def _check_kept(self, connection: Connection, member: Identity, assignment: bytes) -> None:
        answer = sync(connection, member, b"another")
        if answer.error_code in UNAVAILABLE or answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return
        since_ready_ms = (time.monotonic() - self._ready_at()) * 1000
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID and since_ready_ms > 0.8 * CHURN_SESSION_MS:
            return  # too slow: its session is over
        if (answer.error_code, answer.assignment) != (0, assignment):
            self.violations.append(f"churn: {member} was given {assignment!r}, and after the crash {answer}")
        self.kept += 1

    def turn(self, connection: Connection) -> None:
        joined = join(connection, self.group, None, CHURN_SESSION_MS)
        if joined.error_code:
            if joined.error_code not in (*UNAVAILABLE, ErrorCode.REBALANCE_IN_PROGRESS):
                self.violations.append(f"churn: JoinGroup was answered {joined}")
            self.stopping.wait(0.02)
            return
        if self.generations and joined.generation_id <= self.generations[-1]:
            self.violations.append(f"churn: generation {joined.generation_id} after {self.generations[-1]}")
        self.generations.append(joined.generation_id)
        self._assignment = None
        self._member = member = Identity(self.group, joined.member_id, joined.generation_id)
        if self._chance.random() < 0.7:
            self._serve(connection, member)
        self._assignment = None
        leave(connection, member)
        self._member = None
        if commit(connection, member, self._topic, 0, FENCED_OFFSET) == 0:
            self.violations.append(f"churn: a commit of {member} was accepted after it had left")
        self.stopping.wait(self._chance.random() * 0.1)

    def _serve(self, connection: Connection, member: Identity) -> None:
        assignment = f"assignment of {member.generation}".encode()
        answer = sync(connection, member, assignment)
        if answer.error_code == 0:
            self._assignment = assignment
            if answer.assignment != assignment:
                self.violations.append(f"churn: {member} was given {answer.assignment!r}")
            for _ in range(self._chance.randrange(4)):
                self._offset += 1
                if commit(connection, member, self._topic, 0, self._offset) == 0:
                    self._acked = self._offset
                self.stopping.wait(0.03)

    @property
    def acknowledged(self) -> int:
        return self._acked


class Zombies(Probe):
    """Fenced in all the ways there are: replaced as a static member, having left, of an older generation."""

    group = "fenced"

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address)
        self.answers: Counter[int] = Counter()
        self._topic = topic
        self._fenced = [*self._fence(connect(address))]
        self._turn = 0

    def _fence(self, connection: Connection) -> list[Identity]:
        first = join(connection, self.group, "instance", LONG_MS)
        assert first.error_code == 0, first
        old = Identity(self.group, first.member_id, first.generation_id, "instance")
        assert sync(connection, old, b"all").error_code == 0
        end = time.monotonic() + 10
        while (code := commit(connection, old, self._topic, 0, 1)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            assert time.monotonic() < end, "a gateway learns of a new topic within a second or so"
            time.sleep(0.05)
        assert code == 0, f"the commit of a member that is not yet fenced is refused with error {code}"
        second = join(connection, self.group, "instance", LONG_MS)
        assert second.error_code == 0, second
        left = join(connection, "fenced-left", None, LONG_MS)
        gone = Identity("fenced-left", left.member_id, left.generation_id)
        assert sync(connection, gone, b"all").error_code == 0
        assert leave(connection, gone) == 0
        connection.close()
        return [
            old,
            Identity(self.group, old.member_id, old.generation),
            Identity(self.group, second.member_id, second.generation_id - 1, "instance"),
            Identity(self.group, second.member_id, second.generation_id + 1, "instance"),
            gone,
        ]

    def add(self, identities: list[Identity]) -> None:
        """Identities of members that the groups have replaced."""
        self._fenced = [*self._fenced, *identities][-60:]

    def turn(self, connection: Connection) -> None:
        self._turn += 1
        who = self._fenced[self._turn % len(self._fenced)]
        code = commit(connection, who, self._topic, self._turn % 6, FENCED_OFFSET + self._turn)
        self.answers[code] += 1
        if code == 0:
            self.violations.append(f"a commit of {who} was accepted, who is fenced")
        self.stopping.wait(0.015)
