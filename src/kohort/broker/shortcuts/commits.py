"""Commits that repeat: a member commits the same partitions again and again, only the offsets differ.

The cache keeps the last commit of each connection as it was read. If the next one has the same bytes, apart from the
correlation id and the offsets, only its offsets are read. While the shard's version is the same the commit is accepted
as the one before it; then its records are made in one go and appended as one batch. A commit that differs in anything
else or is refused changes nothing here and goes to the handler. Both ways give the same answers and the same records:
tests/broker/groups/test_commits.py.
"""

from __future__ import annotations

from typing import Any

from kohort.broker.apis import OFFSET_COMMIT
from kohort.broker.connection import Connection
from kohort.broker.group_shards import CACHED_GROUP_ID
from kohort.broker.handlers.offsets import for_shard
from kohort.broker.messages import changed
from kohort.broker.state import BrokerState, RequestCount
from kohort.broker.turn import ConnectionId, Millis
from kohort.coordinator.events import Client
from kohort.coordinator.offsets.offsets import NO_RETENTION, TOPIC_IDS
from kohort.coordinator.offsets.repeated_commit import RepeatedCommit
from kohort.coordinator.shard import Shard
from kohort.coordinator.steady_answer import SteadyAnswer
from kohort.wire.codec import encode, encode_response
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kohort.wire.skeleton import Skeleton

LONGEST = 8_192
"""Longest frame, in bytes, that is kept: some 400 partitions."""
MOST_PLACES = 32_768
"""Partitions in the kept commits of all connections, 20 to 60 MB; beyond that the oldest are dropped."""
IN_VAIN = 4
"""After this many kept commits in a row without a repetition, a connection keeps no more commits."""


class Kept:
    """A commit that was answered."""

    __slots__ = (
        "_frame",
        "_head",
        "accepted",
        "answer_head",
        "answer_tail",
        "client",
        "commit",
        "count",
        "metadata_version",
        "shard",
    )

    def __init__(
        self,
        frame: bytes,
        skeleton: Skeleton,
        commit: RepeatedCommit,
        shard: Shard,
        client: Client,
        answer: bytes,
        metadata_version: int,
        count: RequestCount,
    ) -> None:
        self._head = frame[:4]
        """API and version."""
        self._frame = skeleton
        """Everything after the correlation id."""
        self.commit = commit
        self.count = count
        self.shard = shard
        self.client = client
        self.metadata_version = metadata_version
        """The version at which its topics existed."""
        self.accepted: SteadyAnswer | None = None
        """The shard's decision on the last of these commits."""
        self.answer_head = answer[:4]
        self.answer_tail = answer[8:]

    def offsets_in(self, frame: bytes) -> tuple[int, ...] | None:
        """The offsets that a frame commits; None if it differs in anything else."""
        return self._frame.read(frame, 8) if frame[:4] == self._head else None


class _Committer:
    __slots__ = ("in_vain", "kept", "size")

    def __init__(self) -> None:
        self.kept: Kept | None = None
        self.size = 0
        """Bytes of the last frame with a commit."""
        self.in_vain = 0


class Commits:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._committers: dict[ConnectionId, _Committer] = {}
        self._keeping: dict[ConnectionId, None] = {}
        """The connections with a kept commit, the oldest first."""
        self.places = 0
        self.longest = LONGEST
        self.most_places = MOST_PLACES

    def kept(self, connection: ConnectionId) -> Kept | None:
        committer = self._committers.get(connection)
        return None if committer is None else committer.kept

    def in_vain(self, connection: ConnectionId) -> int:
        """Commits of a connection that were kept since one was repeated."""
        committer = self._committers.get(connection)
        return 0 if committer is None else committer.in_vain

    def answer(self, connection: Connection, frame: bytes, now: Millis) -> bytes:
        """The answer, if the commit is like the connection's last commit; otherwise empty."""
        committer = self._committers.get(connection.id)
        if committer is None:
            return b""
        kept = committer.kept
        if kept is None or kept.client is not connection.client:
            return b""
        offsets = kept.offsets_in(frame)
        if offsets is None:
            return b""
        state = self._state
        if kept.metadata_version != state.topics.version:
            self._drop(connection.id, committer)
            return b""
        shard = kept.shard
        if state.coordinator_of(shard.index) != connection.broker_id or state.machines.has_decided(shard.index):
            return b""
        accepted = kept.accepted
        if (
            accepted is None
            or accepted.version != shard.version
            or not accepted.session.postpone(now + accepted.session_ms)
        ):
            accepted = kept.accepted = self._accept(kept, now)
            if accepted is None:
                return b""
        if kept.commit.is_from_outside and not shard.take_from_outside(kept.commit, kept.client, offsets, now):
            return b""  # it is told to the journal
        state.groups.append_offsets(shard.index, shard.commit_records(kept.commit, offsets, now))
        committer.in_vain = 0
        kept.count.handled += 1
        return kept.answer_head + frame[4:8] + kept.answer_tail

    def _accept(self, kept: Kept, now: Millis) -> SteadyAnswer | None:
        shard = kept.shard
        placings = shard.running.deadlines.placings
        accepted = shard.take_commit(kept.commit, now)
        if shard.running.deadlines.placings != placings:
            self._state.machines.deadlines.set(shard.index, shard.next_deadline())
        return accepted

    def learn(
        self, connection: Connection, frame: bytes, start: int, request: OffsetCommitRequest, response: Any
    ) -> None:
        """Keep a commit that was answered. `start`: where the body begins in its frame."""
        committer = self._committers.get(connection.id)
        if committer is None:
            committer = self._committers[connection.id] = _Committer()
        is_like_the_last = committer.size == len(frame)
        committer.size = len(frame)
        known = committer.kept
        if known is not None and known.client is connection.client and known.offsets_in(frame) is not None:
            return  # it could not be repeated just now
        if not is_like_the_last or committer.in_vain >= IN_VAIN or len(frame) > self.longest:
            return
        kept = self._read(connection, frame, start, request, response) if _is_whole(response) else None
        if kept is None:
            return
        self._drop(connection.id, committer)
        committer.kept = kept
        committer.in_vain += 1
        self._keeping[connection.id] = None
        self.places += len(kept.commit.places)
        while self.places > self.most_places:
            oldest = next(iter(self._keeping))
            self._drop(oldest, self._committers[oldest])

    def forget(self, connection: ConnectionId) -> None:
        committer = self._committers.pop(connection, None)
        if committer is not None:
            self._drop(connection, committer)

    def _drop(self, connection: ConnectionId, committer: _Committer) -> None:
        kept, committer.kept = committer.kept, None
        if kept is not None:
            del self._keeping[connection]
            self.places -= len(kept.commit.places)

    def validate(self, connection: ConnectionId, now: Millis) -> None:
        """Check that the shard would accept a kept commit now. Raises AssertionError; for tests and the simulator."""
        kept = self.kept(connection)
        accepted = kept.accepted if kept is not None else None
        if kept is None or accepted is None or accepted.version != kept.shard.version:
            return
        when = accepted.session.when
        if now + accepted.session_ms < when:
            return
        found = kept.shard.take_commit(kept.commit, now)
        name = f"{kept.commit.group_id}: the commit of {kept.commit.request.member_id}"
        assert found is not None, f"{name} is refused"
        assert not found.session_ms or found.session is accepted.session, f"{name} extends another session"
        assert found.session_ms == accepted.session_ms, f"{name}: {found.session_ms} ms, not {accepted.session_ms}"
        accepted.session.when = when

    def _read(
        self, connection: Connection, frame: bytes, start: int, request: OffsetCommitRequest, response: Any
    ) -> Kept | None:
        state = self._state
        version = int.from_bytes(frame[2:4], "big")
        if request.retention_time_ms != NO_RETENTION or len(request.group_id) > CACHED_GROUP_ID:
            return None
        asked, refused = for_shard(state, request, version)
        if asked is None or refused or not any(topic.partitions for topic in asked.topics):
            return None
        if encode(request, version) != frame[start:]:
            return None  # bytes follow the request, or it is encoded in an unusual way
        head = frame[8:start]
        skeleton = Skeleton(*(head + encode(_with_offsets(request, number), version) for number in (0, -1)))
        topic_ids = [topic.topic_id if version >= TOPIC_IDS else NO_UUID for topic in asked.topics]
        commit = RepeatedCommit(asked, version, topic_ids)
        answer = encode_response(response, version, 0, api_key=OFFSET_COMMIT.key)
        shard = state.shards[state.shard_of(request.group_id)]
        count = state.count_of(frame)
        return Kept(frame, skeleton, commit, shard, connection.client, answer, state.topics.version, count)


def _is_whole(response: Any) -> bool:
    """True if all partitions were committed."""
    return isinstance(response, OffsetCommitResponse) and all(
        partition.error_code == ErrorCode.NONE for topic in response.topics for partition in topic.partitions
    )


def _with_offsets(request: OffsetCommitRequest, offset: int) -> OffsetCommitRequest:
    return changed(
        request,
        topics=tuple(
            changed(topic, partitions=tuple(changed(asked, committed_offset=offset) for asked in topic.partitions))
            for topic in request.topics
        ),
    )
