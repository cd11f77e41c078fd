"""Share sessions: which partitions a member of a share group fetches from a broker, and the number of its next request.

A session belongs to the connection that opened it. When either ends, what the member has locked in the session's
partitions is given back; nothing else gives records back before their locks end. A session that is opened again keeps
the locks, and then belongs to the new connection: the end of the old one ends nothing.

Any client that may read the group may open a session in the name of a member, and name any topic. Its end gives nothing
back in partitions whose topic this client was never allowed to read.

Source: ShareSessionCache.java, SharePartitionManager.java; rows SH54 to SH58.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import islice
from typing import NamedTuple

from kohort.broker.turn import ConnectionId
from kohort.wire.errors import ErrorCode

OPENS, CLOSES = 0, -1
"""The epochs of the first and the last request."""
LAST_EPOCH = 2_147_483_647
MOST_PARTITIONS = 400_000
"""Partitions of all sessions."""
SMALL = 100
"""Partitions that a session may have while there is any room."""
SOME = 10
"""Sessions that one connection may have while there is any room."""
Place = tuple[bytes, int]
"""Topic id and partition."""
Who = tuple[str, str]
"""The principal and the client id that opened a session."""


class SessionKey(NamedTuple):
    group: str
    member: str
    broker: int


class Session:
    __slots__ = ("connection", "epoch", "key", "partitions", "who")

    def __init__(self, key: SessionKey, connection: ConnectionId, who: Who) -> None:
        self.key = key
        self.connection = connection
        self.who = who
        self.epoch = 1
        """Of the next request."""
        self.partitions: dict[Place, bool] = {}
        """True: the client may not read the topic, and has not been allowed to since the session began."""


class Sessions:
    def __init__(self, most: int) -> None:
        """`most`: sessions of one broker."""
        self._most = most
        self._sessions: dict[SessionKey, Session] = {}
        self._of_connection: dict[ConnectionId, dict[SessionKey, None]] = {}
        self._of_broker: dict[int, int] = {}
        self._partitions = 0
        """The number of partitions of all sessions, including ended sessions whose records are not all given back."""

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, key: SessionKey) -> Session | None:
        return self._sessions.get(key)

    def is_open(self, session: Session) -> bool:
        return self._sessions.get(session.key) is session

    def open(self, key: SessionKey, connection: ConnectionId, who: Who) -> Session | None:
        """A new session, instead of the member's present one. None if the broker has too many."""
        former = self._sessions.get(key)
        if former is not None:
            self.drop(former)
            self._partitions -= len(former.partitions)
        elif not self._has_room(key.broker, connection):
            return None
        session = self._sessions[key] = Session(key, connection, who)
        self._of_connection.setdefault(connection, {})[key] = None
        self._of_broker[key.broker] = self._of_broker.get(key.broker, 0) + 1
        return session

    def _has_room(self, broker: int, connection: ConnectionId) -> bool:
        """A connection with many sessions leaves room for others."""
        left = self._most - self._of_broker.get(broker, 0)
        own = len(self._of_connection.get(connection, ()))
        return left > 0 and (own < SOME or own < left)

    def next_request(self, key: SessionKey, epoch: int) -> Session | ErrorCode:
        """The session of a request that is neither its first nor, necessarily, its last."""
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch != CLOSES:
            if epoch != session.epoch:
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH
            session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1
        return session

    def add(self, session: Session, places: Iterable[Place], denied: Container[bytes] = ()) -> bool:
        """False if there is no room for them. `denied`: ids of topics that the client may not read."""
        kept = session.partitions
        before = len(kept)
        more = {place: kept.get(place, place[0] in denied) for place in places}
        left = MOST_PARTITIONS - self._partitions
        most = min(left + before, max(SMALL, (left + before) // 4))  # a large session leaves room for others
        if before + len(more) > most and (more.keys() - kept.keys()) and len({**kept, **more}) > most:
            return False
        kept.update(more)
        self._partitions += len(kept) - before
        return True

    def forget(self, session: Session, places: Iterable[Place]) -> None:
        for place in places:
            if place in session.partitions:
                del session.partitions[place]
                self._partitions -= 1

    def drop(self, session: Session) -> None:
        """Forget a session. The caller takes its partitions with `take`, and gives back their records."""
        del self._sessions[session.key]
        self._of_broker[session.key.broker] -= 1
        of_connection = self._of_connection.get(session.connection)
        if of_connection is not None:
            of_connection.pop(session.key, None)
            if not of_connection:
                del self._of_connection[session.connection]

    def take(self, session: Session, most: int) -> list[Place]:
        """Remove some partitions of a session that is over, and return those in which it may give records back."""
        taken = list(islice(session.partitions.items(), most))
        for place, _ in taken:
            del session.partitions[place]
        self._partitions -= len(taken)
        return [place for place, is_denied in taken if not is_denied]

    def of_connection(self, connection: ConnectionId) -> list[Session]:
        return [self._sessions[key] for key in self._of_connection.get(connection, ())]

    def check(self) -> None:
        """Raises AssertionError."""
        assert self._partitions >= sum(len(session.partitions) for session in self._sessions.values())
        found = {(session.connection, key) for key, session in self._sessions.items()}
        assert found == {(connection, key) for connection, keys in self._of_connection.items() for key in keys}
