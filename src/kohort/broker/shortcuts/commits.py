"""Commits that repeat: what a member commits, again and again, differs in the offsets only.

A connection keeps what its last commit was read as. The next one that has the same bytes, but for the correlation id
and the offsets, takes a short way: its offsets are read, the shard is asked whether they may be committed, and their
records are written as one batch. Where anything is different or refused, nothing was done, and it takes the common way.
Either way gives the same answers and the same records: tests/broker/test_commits.py.
"""

from __future__ import annotations

from typing import Any

from kohort.broker.apis import OFFSET_COMMIT
from kohort.broker.connection import Connection
from kohort.broker.handlers.offsets import for_shard
from kohort.broker.messages import changed
from kohort.broker.state import CACHED_GROUP_ID, BrokerState
from kohort.coordinator.events import Client
from kohort.coordinator.offsets.offsets import NO_RETENTION, TOPIC_IDS
from kohort.coordinator.offsets.repeated_commit import RepeatedCommit
from kohort.wire.codec import encode, encode_response
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kohort.wire.skeleton import Skeleton

LONGEST = 8_192
"""Bytes of a frame that is kept: some 400 partitions."""
MOST_PLACES = 32_768
"""Partitions in all commits that are kept, of all connections: 20 to 60 MB. Then the oldest go."""
IN_VAIN = 4
"""Commits of a connection that are kept in a row, and none of them repeated: it gets no more."""


class Kept:
    """A commit that was read."""

    __slots__ = ("_frame", "_head", "answer_head", "answer_tail", "client", "commit", "metadata_version", "shard")

    def __init__(
        self,
        frame: bytes,
        skeleton: Skeleton,
        commit: RepeatedCommit,
        shard: int,
        client: Client,
        answer: bytes,
        metadata_version: int,
    ) -> None:
        self._head = frame[:4]
        """API and version."""
        self._frame = skeleton
        """All that follows the correlation id."""
        self.commit = commit
        self.shard = shard
        self.client = client
        self.metadata_version = metadata_version
        """Of when its topics were there."""
        self.answer_head = answer[:4]
        self.answer_tail = answer[8:]

    def offsets_in(self, frame: bytes) -> tuple[int, ...] | None:
        """What is committed, if that is all that is new; None otherwise."""
        return self._frame.read(frame, 8) if frame[:4] == self._head else None


class Commits:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._keeping: dict[Connection, None] = {}
        """The connections that have one, the oldest first."""
        self._places = 0
        self._longest = LONGEST
        self._most_places = MOST_PLACES

    def answer(self, connection: Connection, frame: bytes) -> bytes:
        """The answer to a commit like the last one of this connection; nothing otherwise."""
        kept = connection.commit
        if kept is None or kept.client is not connection.client:
            return b""
        offsets = kept.offsets_in(frame)
        if offsets is None:
            return b""
        state = self._state
        if kept.metadata_version != state.metadata_version:
            self.forget(connection)
            return b""
        if state.coordinator_of(kept.shard) != connection.broker_id:
            return b""
        if not state.commit_again(kept.shard, kept.commit, offsets):
            return b""
        connection.commits_in_vain = 0
        return kept.answer_head + frame[4:8] + kept.answer_tail

    def learn(
        self, connection: Connection, frame: bytes, start: int, request: OffsetCommitRequest, response: Any
    ) -> None:
        """Keep a commit that was answered. `start`: where the body begins in its frame."""
        is_like_the_last = connection.commit_size == len(frame)
        connection.commit_size = len(frame)
        known = connection.commit
        if known is not None and known.client is connection.client and known.offsets_in(frame) is not None:
            return  # it could not be repeated just now
        if not is_like_the_last or connection.commits_in_vain >= IN_VAIN or len(frame) > self._longest:
            return
        kept = self._kept(connection, frame, start, request, response) if _is_whole(response) else None
        if kept is None:
            return
        self.forget(connection)
        connection.commit = kept
        connection.commits_in_vain += 1
        self._keeping[connection] = None
        self._places += len(kept.commit.places)
        while self._places > self._most_places:
            self.forget(next(iter(self._keeping)))

    def forget(self, connection: Connection) -> None:
        kept = connection.commit
        if kept is not None:
            connection.commit = None
            del self._keeping[connection]
            self._places -= len(kept.commit.places)

    def _kept(
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
            return None  # there is more behind it, or it is written as nobody else would write it
        head = frame[8:start]
        skeleton = Skeleton(*(head + encode(_with_offsets(request, number), version) for number in (0, -1)))
        topic_ids = [topic.topic_id if version >= TOPIC_IDS else NO_UUID for topic in asked.topics]
        commit = RepeatedCommit(asked, version, topic_ids)
        answer = encode_response(response, version, 0, api_key=OFFSET_COMMIT.key)
        shard = state.shard_of(request.group_id)
        return Kept(frame, skeleton, commit, shard, connection.client, answer, state.metadata_version)


def _is_whole(response: Any) -> bool:
    """Whether all was committed."""
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
