"""A share session (KIP-932) with one broker, without IO: which request is next, and what its answer means.

A session has a counter that every request carries, and the list of partitions from which the member fetches. Both
requests, ShareFetch and ShareAcknowledge, use one counter, so they go over one connection, in order. The first request,
with number 0, opens the session and must be a fetch. The broker gives back what the member holds when that connection
ends.

Acknowledgements are ShareAcknowledge requests of their own, never part of a fetch. So a fetch that waits for records
can be followed by an acknowledgement at once (kohort ends the wait then), and a partition is not added to the session
just because a record of it is acknowledged.

A broker accepts all acknowledgements of a partition in one request, or none. If one of several is refused, each is sent
again by itself, so that a lock that was lost costs nothing but its own record. Renewals have requests of their own.

Source: ShareSessionHandler.java, ShareConsumeRequestManager.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kohort.wire.embedded import by_topic
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from kohort.wire.schemas.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest

Place = tuple[bytes, int]
"""A topic's id and a partition's number."""

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
"""Types of acknowledgements."""

OPENS, CLOSES = 0, -1
"""The numbers of the first and the last request."""
LAST_EPOCH = 2_147_483_647
RECORD_LIMIT = 1
"""The mode in which a fetch acquires no more records than it asks for."""
LOST_SESSION = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
MOST_ACKS = 2_000
"""Offsets that one request acknowledges, about."""
AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""The broker could not write the state: the records are still locked."""


@dataclass(slots=True, eq=False)
class Ack:
    """One acknowledgement of a range. `done` gets its error code, once."""

    place: Place
    first: int
    last: int
    kind: int
    done: Callable[[int], None]
    alone: bool = False
    """True if the next request has only this acknowledgement of its partition, because a request with several was
    refused."""


class ShareSession:
    """The session of one member with one broker."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.is_broken = False
        """An answer said that the broker does not have this session. `reopen` when no request is under way."""
        self._epoch = OPENS
        self._places: dict[Place, None] = {}
        self._acks: deque[Ack] = deque()
        self._renewals: deque[Ack] = deque()

    @property
    def is_open(self) -> bool:
        return self._epoch != OPENS

    @property
    def has_acks(self) -> bool:
        return bool(self._acks or self._renewals)

    def add(self, ack: Ack) -> None:
        (self._renewals if ack.kind == RENEW else self._acks).append(ack)

    def reopen(self) -> None:
        """Begin a new session. If the broker has the old one, the member keeps its locks."""
        self._epoch = OPENS
        self._places = {}
        self.is_broken = False

    def fail_all(self, error: int) -> None:
        """The connection has ended: all acknowledgements that wait get this error."""
        for queue in (self._acks, self._renewals):
            waiting = list(queue)
            queue.clear()
            for ack in waiting:
                ack.done(error)

    # -- requests

    def fetch(self, places: Iterable[Place], max_records: int, max_wait_ms: int) -> ShareFetchRequest:
        """Fetch from these partitions, and from no others. `max_records` 0 only changes the session."""
        wanted = dict.fromkeys(places)
        added = [place for place in wanted if place not in self._places]
        forgotten = [place for place in self._places if place not in wanted]
        self._places = wanted
        return ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self._next(),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=52_428_800,
            max_records=max_records,
            batch_size=max(max_records, 1),
            share_acquire_mode=RECORD_LIMIT,
            topics=tuple(
                FetchTopic(topic_id=id, partitions=tuple(FetchPartition(partition_index=index) for index in indexes))
                for id, indexes in by_topic(sorted(added))
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic_id=id, partitions=indexes) for id, indexes in by_topic(sorted(forgotten))
            ),
        )

    def acknowledge(self) -> tuple[ShareAcknowledgeRequest, list[Ack]]:
        """The waiting acknowledgements, or as many as fit into a request; those that finish records first."""
        queue = self._acks or self._renewals
        sent: list[Ack] = []
        later: list[Ack] = []
        taken: dict[Place, bool] = {}
        size = 0
        while queue and size < MOST_ACKS:
            ack = queue.popleft()
            if taken.get(ack.place, False) or (ack.alone and ack.place in taken):
                later.append(ack)
                continue
            taken[ack.place] = ack.alone
            sent.append(ack)
            size += ack.last - ack.first + 1
        queue.extendleft(reversed(later))
        return self._acknowledgement(sent, self._next()), sent

    def close(self) -> tuple[ShareAcknowledgeRequest, list[Ack]]:
        """The last request: what the member still holds in the session's partitions is given back."""
        request = self._acknowledgement((), CLOSES)
        self.reopen()
        return request, []

    def answered(self, sent: Sequence[Ack], response: ShareAcknowledgeResponse) -> list[tuple[Ack, int]]:
        """The acknowledgements that have an outcome, with their error codes. The others are sent again."""
        if response.error_code:
            if response.error_code in LOST_SESSION:
                self.is_broken = True
                self._again(sent)  # the new session may still have the locks
                return []
            return [(ack, response.error_code) for ack in sent]
        errors = {
            (topic.topic_id, partition.partition_index): partition.error_code
            for topic in response.responses
            for partition in topic.partitions
        }
        counts: dict[Place, int] = {}
        for ack in sent:
            counts[ack.place] = counts.get(ack.place, 0) + 1
        outcomes: list[tuple[Ack, int]] = []
        again: list[Ack] = []
        for ack in sent:
            error = errors.get(ack.place, int(ErrorCode.NONE))
            if error and counts[ack.place] > 1 and error in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST):
                ack.alone = True
                again.append(ack)
            else:
                outcomes.append((ack, error))
        self._again(again)
        return outcomes

    # -- inside

    def _again(self, acks: Sequence[Ack]) -> None:
        for ack in reversed(acks):
            (self._renewals if ack.kind == RENEW else self._acks).appendleft(ack)

    def _next(self) -> int:
        epoch = self._epoch
        self._epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        return epoch

    def _acknowledgement(self, acks: Sequence[Ack], epoch: int) -> ShareAcknowledgeRequest:
        rows: dict[Place, list[Ack]] = {}
        for ack in acks:
            rows.setdefault(ack.place, []).append(ack)
        topics: dict[bytes, list[AcknowledgePartition]] = {}
        for (topic_id, index), of_place in sorted(rows.items()):
            row = AcknowledgePartition(partition_index=index, acknowledgement_batches=_batches(of_place))
            topics.setdefault(topic_id, []).append(row)
        return ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            is_renew_ack=any(ack.kind == RENEW for ack in acks),
            topics=tuple(AcknowledgeTopic(topic_id=id, partitions=tuple(rows)) for id, rows in topics.items()),
        )


def _batches(acks: Iterable[Ack]) -> tuple[AcknowledgementBatch, ...]:
    """Ranges in order; neighbours of one type are one."""
    found: list[tuple[int, int, int]] = []
    for ack in sorted(acks, key=lambda ack: ack.first):
        if found and found[-1][1] + 1 == ack.first and found[-1][2] == ack.kind:
            found[-1] = (found[-1][0], ack.last, ack.kind)
        else:
            found.append((ack.first, ack.last, ack.kind))
    return tuple(
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(kind,))
        for first, last, kind in found
    )
